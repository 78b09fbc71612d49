//go:build unix

package bookie

import (
	"os"
	"syscall"
)

// deviceOf returns the device that a directory is on, and whether it is that of the root directory.
func deviceOf(dir string) (dev uint64, root, ok bool) {
	dev, ok = statDevice(dir)
	rootDev, rootOK := statDevice("/")
	return dev, ok && rootOK && dev == rootDev, ok
}

func statDevice(dir string) (uint64, bool) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return uint64(st.Dev), true //nolint:unconvert // its width differs between systems
}
