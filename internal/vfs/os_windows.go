package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// lockFile holds a whole-file lock until it is closed.
type lockFile struct{ f *os.File }

func (l lockFile) Close() error { return l.f.Close() }

func lockOS(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, filePerm)
	if err != nil {
		return nil, err
	}
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	switch err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{}); {
	case err == nil:
		return lockFile{f}, nil
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION):
		return nil, errors.Join(&fs.PathError{Op: "lock", Path: name, Err: ErrLocked}, f.Close())
	default:
		return nil, errors.Join(&fs.PathError{Op: "lock", Path: name, Err: err}, f.Close())
	}
}

func usageOS(dir string) (Usage, error) {
	p, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return Usage{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	var available, total, free uint64
	if err := windows.GetDiskFreeSpaceEx(p, &available, &total, &free); err != nil {
		return Usage{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return Usage{Total: int64(total), Available: int64(available)}, nil
}
