//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package index

import (
	"os"
	"syscall"
)

// unlockFile releases bbolt's lock. Closing the file does not, while it is mapped.
func unlockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
