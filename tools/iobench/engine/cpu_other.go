//go:build !unix

package engine

import "time"

// CPUTime is not known here.
func CPUTime() time.Duration { return 0 }
