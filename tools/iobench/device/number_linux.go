package device

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// fileNumber is the number of the file system that holds a file.
func fileNumber(info os.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return number(uint64(st.Dev)) //nolint:unconvert // its type differs between architectures
}

// deviceNumber is the number of a device file.
func deviceNumber(info os.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return number(uint64(st.Rdev)) //nolint:unconvert // its type differs between architectures
}

func number(n uint64) string { return fmt.Sprintf("%d:%d", unix.Major(n), unix.Minor(n)) }

func fileBlock(info os.FileInfo) int {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return int(st.Blksize)
}
