package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"syscall"
)

// MaxReadFile bounds what ReadFile takes into memory. The files it is meant for (marks, cookies, formats, endpoints)
// are a few kilobytes; what is larger is read in pieces by its own reader.
const MaxReadFile = 64 << 20

// WriteFileAtomic replaces the file name by one with the given data. After nil the new content and the name are
// durable. After an error, or a crash in between, the file holds the old content or the new one whole; only an error of
// the last step, the directory sync, leaves open which of them a power loss would show. The temporary file is name with
// ".tmp" appended, so two callers must not write one name at once.
func WriteFileAtomic(fsys FS, name string, data []byte) (err error) {
	tmp := name + ".tmp"
	f, err := fsys.Open(tmp, Mode{Write: true, Create: true})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && tmp != "" {
			_ = fsys.Remove(tmp) // best effort: the next call starts by emptying it anyway
		}
	}()
	err = writeAll(f, data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err = fsys.Rename(tmp, name); err != nil {
		return err
	}
	tmp = ""
	return fsys.SyncDir(parent(name))
}

func writeAll(f File, data []byte) error {
	if err := f.Truncate(0); err != nil { // a leftover of a crash may be longer
		return err
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	return f.Sync()
}

// ReadFile returns the content of a file of at most MaxReadFile bytes.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name, Mode{})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > MaxReadFile {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("%d bytes, more than the %d that are read at once: %w", size, MaxReadFile, syscall.EFBIG)}
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:n], nil // a file that shrank meanwhile reads as what is left
}

// MkdirAllSync creates dir and its missing parents, and makes the names of those it created durable.
func MkdirAllSync(fsys FS, dir string) error {
	dir = filepath.Clean(dir)
	var created []string
	for d := dir; ; d = parent(d) {
		_, err := fsys.Stat(d)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		created = append(created, d)
		if parent(d) == d {
			break
		}
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	for i := len(created) - 1; i >= 0; i-- { // from the top, so that what is synced is reachable
		if err := fsys.SyncDir(parent(created[i])); err != nil {
			return err
		}
	}
	return nil
}

// DropCache tells the system that no cached page of the file name will be needed. Pages that were never synced stay.
func DropCache(fsys FS, name string) error {
	f, err := fsys.Open(name, Mode{})
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err == nil {
		f.DropCache(0, size)
	}
	return errors.Join(err, f.Close())
}

// DirectIO is what a file system asks of direct I/O.
type DirectIO struct {
	MemoryAlign, OffsetAlign int  // bytes; both divide Align, or ProbeDirect fails
	Reported                 bool // the kernel said so (statx); otherwise Align was tried and worked
}

// ProbeDirect tries direct I/O in dir with a file that it creates and removes: write, read back, compare. It fails with
// ErrNoDirectIO where the file system refuses it or needs more than Align.
func ProbeDirect(fsys FS, dir string) (d DirectIO, err error) {
	name := filepath.Join(dir, ".direct-io-probe")
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	f, err := fsys.Open(name, Mode{Write: true, Create: true, Exclusive: true, Direct: true})
	if err != nil {
		return d, err
	}
	defer func() {
		err = errors.Join(err, f.Close(), fsys.Remove(name))
	}()
	out, in := AlignedBytes(Align), AlignedBytes(Align)
	for i := range out {
		out[i] = byte(i * 7)
	}
	if _, err = f.WriteAt(out, 0); err == nil {
		_, err = f.ReadAt(in, 0)
	}
	if errors.Is(err, syscall.EINVAL) {
		err = &fs.PathError{Op: "probe", Path: dir, Err: fmt.Errorf("%w at an alignment of %d bytes", ErrNoDirectIO, Align)}
	}
	if err != nil {
		return d, err
	}
	if !bytes.Equal(in, out) {
		return d, &fs.PathError{Op: "probe", Path: dir, Err: errors.New("direct I/O read back other bytes than it wrote")}
	}
	d = directIOOS(f)
	if d.MemoryAlign == 0 || d.OffsetAlign == 0 || Align%d.MemoryAlign != 0 || Align%d.OffsetAlign != 0 {
		return d, &fs.PathError{Op: "probe", Path: dir, Err: fmt.Errorf("%w at an alignment of %d bytes: it needs %d", ErrNoDirectIO, Align, max(d.MemoryAlign, d.OffsetAlign))}
	}
	return d, nil
}

// TemporaryLock is a lock on a file that need not stay.
type TemporaryLock struct {
	fsys FS
	name string
	lock io.Closer
	made bool // the file was not there before
}

// LockTemporarily locks name as FS.Lock does. Closing the lock removes the file if it was not there before, so that a look at a
// directory, or refusing one, leaves nothing behind; see Keep.
func LockTemporarily(fsys FS, name string) (*TemporaryLock, error) {
	_, err := fsys.Stat(name)
	l := &TemporaryLock{fsys: fsys, name: name, made: errors.Is(err, fs.ErrNotExist)}
	if l.lock, err = fsys.Lock(name); err != nil {
		return nil, err
	}
	return l, nil
}

// Keep makes the file stay when the lock is closed.
func (l *TemporaryLock) Keep() { l.made = false }

// Close releases the lock.
func (l *TemporaryLock) Close() error {
	if !l.made {
		return l.lock.Close()
	}
	err := l.fsys.Remove(l.name) // while it is held: whoever waits for it finds that it is gone
	if cerr := l.lock.Close(); cerr != nil {
		return cerr
	}
	if err != nil { // not every system removes a file that is open
		err = l.fsys.Remove(l.name)
	}
	return err
}
