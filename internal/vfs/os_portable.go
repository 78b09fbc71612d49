//go:build !linux

package vfs

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
)

// osFile is a file of a system other than Linux: all of File but direct I/O.
type osFile struct {
	f     *os.File
	dsync bool
}

func openOS(name string, m Mode) (*osFile, error) {
	if m.Direct {
		return nil, &fs.PathError{Op: "open", Path: name, Err: ErrNoDirectIO}
	}
	f, err := os.OpenFile(name, osFlags(m), filePerm)
	if err != nil {
		return nil, err
	}
	return &osFile{f: f, dsync: m.DSync}, nil
}

func (f *osFile) Name() string                            { return f.f.Name() }
func (f *osFile) ReadAt(p []byte, off int64) (int, error) { return f.f.ReadAt(p, off) }

// WriteAt syncs after the write where DSync was asked for: not every system knows O_DSYNC.
func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.f.WriteAt(p, off)
	if err == nil && f.dsync {
		err = f.f.Sync()
	}
	return n, err
}

func (f *osFile) Size() (int64, error) {
	st, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (f *osFile) Sync() error               { return f.f.Sync() }
func (f *osFile) Truncate(size int64) error { return f.f.Truncate(size) }

func (f *osFile) Preallocate(size int64) error {
	if size <= 0 {
		return nil
	}
	return preallocateByWriting(f.Name(), size)
}

func (f *osFile) DropCache(int64, int64) {}
func (f *osFile) Close() error           { return f.f.Close() }

func syncDirOS(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // a directory can not be opened for syncing there; NTFS journals names by itself
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func fsTypeOS(dir string) (string, error) {
	return "", &fs.PathError{Op: "statfs", Path: dir, Err: errors.ErrUnsupported}
}

func directIOOS(File) DirectIO { return DirectIO{MemoryAlign: Align, OffsetAlign: Align} }

func bootIDOS() (string, error) { return "", errors.ErrUnsupported }

func mapAnonymous(n int) ([]byte, error) { return make([]byte, n), nil }

func adviseHugePages([]byte) {}

func unmap([]byte) error { return nil }
