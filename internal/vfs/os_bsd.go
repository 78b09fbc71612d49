//go:build darwin || freebsd

package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile holds a flock until it is closed.
type lockFile struct{ f *os.File }

func (l lockFile) Close() error { return l.f.Close() }

func lockOS(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, filePerm)
	if err != nil {
		return nil, err
	}
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err {
		case nil:
			if !named(f, name) { // its holder removed it meanwhile; whoever comes next locks another file
				return nil, errors.Join(&fs.PathError{Op: "lock", Path: name, Err: ErrLocked}, f.Close())
			}
			return lockFile{f}, nil
		case unix.EINTR:
		case unix.EWOULDBLOCK:
			return nil, errors.Join(&fs.PathError{Op: "lock", Path: name, Err: ErrLocked}, f.Close())
		default:
			return nil, errors.Join(&fs.PathError{Op: "lock", Path: name, Err: err}, f.Close())
		}
	}
}

func usageOS(dir string) (Usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Usage{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	unit := int64(st.Bsize)
	return Usage{
		Total:      int64(st.Blocks) * unit,
		Available:  int64(st.Bavail) * unit,
		Inodes:     int64(st.Files),
		InodesFree: int64(st.Ffree),
	}, nil
}
