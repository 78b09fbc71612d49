//go:build !linux && !darwin && !freebsd && !windows

package vfs

import (
	"errors"
	"io"
	"io/fs"
)

func lockOS(name string) (io.Closer, error) {
	return nil, &fs.PathError{Op: "lock", Path: name, Err: errors.ErrUnsupported}
}

func usageOS(dir string) (Usage, error) {
	return Usage{}, &fs.PathError{Op: "statfs", Path: dir, Err: errors.ErrUnsupported}
}
