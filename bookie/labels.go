package bookie

import (
	"context"
	"runtime/pprof"
)

// labelled runs fn with a label that names the goroutine's owner in profiles and dumps.
func labelled(name string, fn func()) {
	pprof.Do(context.Background(), pprof.Labels("bindery", name), func(context.Context) { fn() })
}
