//go:build crashpoints

package invariant

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// armed holds the countdown of each point named in BINDERY_CRASHPOINTS ("journal.group-written=3,gc.unlink=1").
var armed = parseArmed(os.Getenv("BINDERY_CRASHPOINTS"))

func parseArmed(s string) map[string]*atomic.Int64 {
	m := map[string]*atomic.Int64{}
	for _, item := range strings.Split(s, ",") {
		name, count, ok := strings.Cut(item, "=")
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(count, 10, 64)
		if err != nil {
			continue
		}
		c := &atomic.Int64{}
		c.Store(n)
		m[name] = c
	}
	return m
}

// CrashPoint kills the process with SIGKILL when the named point has been passed as often as BINDERY_CRASHPOINTS says.
func CrashPoint(name string) {
	c, ok := armed[name]
	if !ok || c.Add(-1) != 0 {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way; nothing after this point may run
}
