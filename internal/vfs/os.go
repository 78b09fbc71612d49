package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// OS returns the file system of the operating system.
//
// On Linux it offers everything of FS. Elsewhere Open with Direct fails with ErrNoDirectIO, and Lock and Usage fail
// with errors.ErrUnsupported where the platform has no such call.
func OS() FS { return osFS{} }

// DSyncWriter is a File that can make one write durable by itself, on a file that was not opened with DSync
// (RWF_DSYNC on Linux). The write is durable, with the size it needs, once WriteAtDSync returns nil. Having the method
// promises nothing: where the kernel or file system lacks it, the call fails with errors.ErrUnsupported, so a caller
// probes it once with a real write.
type DSyncWriter interface {
	WriteAtDSync(p []byte, off int64) (int, error)
}

// Names of files made by this process are readable by all and writable by its user, as usual for daemons; the
// directory that holds them decides who gets near.
const (
	filePerm = 0o644
	dirPerm  = 0o755
)

type osFS struct{}

var _ FS = osFS{}

func (osFS) Open(name string, m Mode) (File, error) {
	f, err := openOS(name, m)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (osFS) Remove(name string) error { return os.Remove(name) }

// Rename reports failure as *fs.PathError on the old name, not as os.LinkError, so that one type serves all callers.
func (osFS) Rename(oldName, newName string) error {
	err := os.Rename(oldName, newName)
	var link *os.LinkError
	if errors.As(err, &link) {
		return &fs.PathError{Op: "rename", Path: oldName, Err: fmt.Errorf("to %s: %w", newName, link.Err)}
	}
	return err
}

func (osFS) MkdirAll(dir string) error { return os.MkdirAll(dir, dirPerm) }

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (osFS) Stat(name string) (Info, error) {
	st, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return Info{Size: st.Size(), Dir: st.IsDir(), Special: !st.IsDir() && !st.Mode().IsRegular()}, nil
}

func (osFS) SyncDir(dir string) error { return syncDirOS(dir) }

func (osFS) Lock(name string) (io.Closer, error) { return lockOS(name) }

func (osFS) Usage(dir string) (Usage, error) { return usageOS(dir) }

// osFlags translates the parts of a Mode that every platform knows.
func osFlags(m Mode) int {
	flags := os.O_RDONLY
	if m.Write {
		flags = os.O_RDWR
	}
	if m.Create {
		flags |= os.O_CREATE
		if m.Exclusive {
			flags |= os.O_EXCL
		}
	}
	return flags
}

// preallocateByWriting extends the file name from its current size to size with zeros, for file systems without
// fallocate. Holes that already exist below the current size stay holes. On failure the old size is restored, so that a
// full disk is not left fuller than before.
func preallocateByWriting(name string, size int64) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0) // a buffered handle of its own: the caller's may be direct
	if err != nil {
		return err
	}
	defer f.Close() // nothing is lost with this handle: the caller syncs its own
	st, err := f.Stat()
	if err != nil {
		return err
	}
	old := st.Size()
	zeros := make([]byte, 1<<20)
	for off := old; off < size; {
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-off)], off)
		off += int64(n)
		if err != nil {
			return errors.Join(err, f.Truncate(old))
		}
	}
	return nil
}

// parent returns the directory that holds name.
func parent(name string) string { return filepath.Dir(name) }

// named reports whether f is what name leads to.
func named(f *os.File, name string) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(name)
	return err == nil && os.SameFile(held, there)
}
