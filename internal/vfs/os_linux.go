package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// osFile is a file of the Linux kernel.
//
// ReadAt and WriteAt go through *os.File. The calls that os lacks use the descriptor itself; mu keeps Close from
// handing its number to another file meanwhile.
type osFile struct {
	f      *os.File
	mu     sync.RWMutex // guards fd: held for reading during raw calls, for writing by Close
	fd     int          // -1 once closed
	direct bool
}

var _ DSyncWriter = (*osFile)(nil)

func openOS(name string, m Mode) (*osFile, error) {
	flags := osFlags(m)
	if m.Direct {
		flags |= unix.O_DIRECT
	}
	if m.DSync {
		flags |= unix.O_DSYNC
	}
	fresh := false
	if m.Direct && m.Create {
		_, err := os.Lstat(name)
		fresh = errors.Is(err, fs.ErrNotExist)
	}
	f, err := os.OpenFile(name, flags, filePerm)
	if err != nil {
		if m.Direct && errors.Is(err, unix.EINVAL) {
			// The kernel creates the file before it refuses the flag; do not leave an empty file behind.
			if fresh {
				_ = os.Remove(name)
			}
			return nil, &fs.PathError{Op: "open", Path: name, Err: ErrNoDirectIO}
		}
		return nil, err
	}
	return &osFile{f: f, fd: int(f.Fd()), direct: m.Direct}, nil
}

func (f *osFile) Name() string { return f.f.Name() }

func (f *osFile) ReadAt(p []byte, off int64) (int, error) {
	if f.direct {
		if err := checkAligned("read", f.Name(), p, off); err != nil {
			return 0, err
		}
	}
	n, err := f.f.ReadAt(p, off)
	if f.direct && n%Align != 0 && errors.Is(err, unix.EINVAL) {
		// The first call ended at the end of a file whose size is no multiple of Align; os.File went on from there,
		// which direct I/O refuses.
		return n, io.EOF
	}
	return n, err
}

func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	if f.direct {
		if err := checkAligned("write", f.Name(), p, off); err != nil {
			return 0, err
		}
	}
	return f.f.WriteAt(p, off)
}

// WriteAtDSync writes p with RWF_DSYNC.
func (f *osFile) WriteAtDSync(p []byte, off int64) (int, error) {
	if f.direct {
		if err := checkAligned("write", f.Name(), p, off); err != nil {
			return 0, err
		}
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.fd < 0 {
		return 0, f.pathError("write", fs.ErrClosed)
	}
	if off < 0 {
		return 0, f.pathError("write", unix.EINVAL)
	}
	done := 0
	for done < len(p) {
		iov := [1][]byte{p[done:]}
		n, err := unix.Pwritev2(f.fd, iov[:], off+int64(done), unix.RWF_DSYNC)
		if n > 0 {
			done += n
		}
		switch {
		case err == unix.EINTR:
		case err == unix.EOPNOTSUPP || err == unix.ENOSYS:
			return done, f.pathError("write", errors.ErrUnsupported)
		case err != nil:
			return done, f.pathError("write", err)
		case n == 0:
			return done, f.pathError("write", io.ErrShortWrite)
		}
	}
	return done, nil
}

func (f *osFile) Size() (int64, error) {
	st, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (f *osFile) Sync() error {
	return f.raw("fdatasync", func(fd int) error { return unix.Fdatasync(fd) })
}

func (f *osFile) Truncate(size int64) error { return f.f.Truncate(size) }

func (f *osFile) Preallocate(size int64) error {
	if size <= 0 {
		return nil
	}
	old, err := f.Size()
	if err != nil {
		return err
	}
	err = f.raw("fallocate", func(fd int) error { return unix.Fallocate(fd, 0, 0, size) })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EOPNOTSUPP):
		return preallocateByWriting(f.Name(), size)
	}
	// A failed fallocate may have kept what it got so far, with the size already raised. Give it back.
	if terr := f.Truncate(old); terr != nil {
		return errors.Join(err, terr)
	}
	return err
}

func (f *osFile) DropCache(off, n int64) {
	// Advice only: a kernel that refuses it loses nothing.
	_ = f.raw("fadvise", func(fd int) error { return unix.Fadvise(fd, off, n, unix.FADV_DONTNEED) })
}

func (f *osFile) Close() error {
	f.mu.Lock()
	f.fd = -1
	f.mu.Unlock()
	return f.f.Close()
}

// raw runs call on the open descriptor, again if a signal interrupts it.
func (f *osFile) raw(op string, call func(fd int) error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.fd < 0 {
		return f.pathError(op, fs.ErrClosed)
	}
	for {
		err := call(f.fd)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return f.pathError(op, err)
		}
	}
}

func (f *osFile) pathError(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.Name(), Err: err}
}

// checkAligned makes every device behave like the strictest one: what works on a laptop's disk works on all.
func checkAligned(op, name string, p []byte, off int64) error {
	if (off|int64(len(p)))&(Align-1) != 0 || uintptr(unsafe.Pointer(unsafe.SliceData(p)))&(Align-1) != 0 {
		return &fs.PathError{Op: op, Path: name, Err: unix.EINVAL}
	}
	return nil
}

func syncDirOS(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// lockFile holds a flock until it is closed. The kernel drops it when the process dies.
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
	st, err := statfs(dir)
	if err != nil {
		return Usage{}, err
	}
	unit := st.Frsize
	if unit == 0 {
		unit = st.Bsize
	}
	return Usage{
		Total:      int64(st.Blocks) * unit,
		Available:  int64(st.Bavail) * unit,
		Inodes:     int64(st.Files),
		InodesFree: int64(st.Ffree),
	}, nil
}

func statfs(dir string) (*unix.Statfs_t, error) {
	var st unix.Statfs_t
	for {
		switch err := unix.Statfs(dir, &st); err {
		case nil:
			return &st, nil
		case unix.EINTR:
		default:
			return nil, &fs.PathError{Op: "statfs", Path: dir, Err: err}
		}
	}
}

func fsTypeOS(dir string) (string, error) {
	st, err := statfs(dir)
	if err != nil {
		return "", err
	}
	return fsTypeName(uint32(st.Type)), nil
}

func directIOOS(f File) DirectIO {
	d := DirectIO{MemoryAlign: Align, OffsetAlign: Align}
	o, ok := f.(*osFile)
	if !ok {
		return d
	}
	var st unix.Statx_t
	err := o.raw("statx", func(fd int) error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	})
	if err == nil && st.Mask&unix.STATX_DIOALIGN != 0 && st.Dio_offset_align != 0 {
		d = DirectIO{MemoryAlign: int(st.Dio_mem_align), OffsetAlign: int(st.Dio_offset_align), Reported: true}
	}
	return d
}

func bootIDOS() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(b)), nil
}

func mapAnonymous(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

// adviseHugePages asks for them; a kernel without any refuses, and small ones do as well.
func adviseHugePages(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }

func unmap(b []byte) error { return unix.Munmap(b) }
