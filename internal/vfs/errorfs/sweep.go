package errorfs

import (
	"testing"

	"github.com/binderylog/bindery/internal/vfs"
)

// sweepMax ends a sweep whose run never gets past the fault.
const sweepMax = 100_000

// Sweep calls run with a fault at the first operation, the second, and so on, until a run ends without having met it:
//
//	errorfs.Sweep(t, func() vfs.FS { return memfs.New("/j") },
//		func(n int64) errorfs.Injector { return errorfs.Nth(errorfs.Sync, n, syscall.EIO) },
//		func(fsys *errorfs.FS, n int64) { ... fsys.Injected() says whether it was met, fsys.Last() where ... })
//
// It returns how many runs met the fault. The sweep stops at the first n that makes the test fail and names the fault.
func Sweep(tb testing.TB, fresh func() vfs.FS, fault func(n int64) Injector, run func(fsys *FS, n int64)) int64 {
	tb.Helper()
	for n := int64(1); n <= sweepMax; n++ {
		fsys := Wrap(fresh(), fault(n))
		func() {
			defer func() {
				if tb.Failed() { // also when run ended the goroutine with FailNow
					tb.Logf("fault: %s; met in %s", fsys, fsys.Last())
				}
			}()
			run(fsys, n)
		}()
		if tb.Failed() {
			tb.FailNow()
		}
		if fsys.Injected() == 0 {
			return n - 1
		}
	}
	tb.Fatalf("after %d runs the fault was still met", sweepMax)
	return 0
}
