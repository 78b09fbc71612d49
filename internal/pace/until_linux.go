package pace

import (
	"syscall"
	"time"
)

// SleepUntil waits for t with the kernel's own timer: the runtime's poller is no finer than a millisecond.
func SleepUntil(t time.Time) {
	for {
		d := time.Until(t)
		if d <= 0 {
			return
		}
		ts := syscall.NsecToTimespec(int64(d))
		if err := syscall.Nanosleep(&ts, nil); err == nil {
			return
		}
	}
}
