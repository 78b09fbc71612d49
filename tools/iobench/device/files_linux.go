package device

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/binderylog/bindery/internal/vfs"
)

// Files is the file system of the operating system, with what only measuring needs.
type Files struct{ vfs.FS }

// OS returns it.
func OS() Files { return Files{vfs.OS()} }

// Open opens a file; a buffered one can be told to start writing back.
func (o Files) Open(name string, m vfs.Mode) (vfs.File, error) {
	f, err := o.FS.Open(name, m)
	if err != nil || m.Direct || !m.Write {
		return f, err
	}
	second, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		_ = f.Close() // the error that matters is the other one
		return nil, err
	}
	return &flushFile{f, second}, nil
}

// flushFile is a buffered file with a second handle, whose descriptor it may use.
type flushFile struct {
	vfs.File
	second *os.File
}

// FlushRange starts writing back without waiting for the disk.
func (f *flushFile) FlushRange(off, n int64) error {
	return unix.SyncFileRange(int(f.second.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}

func (f *flushFile) Close() error {
	err := f.File.Close()
	if cerr := f.second.Close(); err == nil {
		err = cerr
	}
	return err
}

// OpenUnnamed makes a file without a name in dir (O_TMPFILE), buffered.
func (o Files) OpenUnnamed(dir string) (vfs.File, string, error) {
	f, err := os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, 0o600)
	if err != nil {
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EINVAL) {
			err = errors.ErrUnsupported
		}
		return nil, "", err
	}
	defer f.Close() // the handles that are opened below keep the file
	again := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	file, err := o.Open(again, vfs.Mode{Write: true})
	if err != nil {
		return nil, "", err
	}
	return file, fmt.Sprintf("/proc/self/fd/%d", file.(*flushFile).second.Fd()), nil
}

// sectorFile writes single sectors with direct I/O; the file system layer of the bookie allows whole blocks only.
type sectorFile struct {
	vfs.File
	direct *os.File
}

// OpenSectors opens name for durable direct writes of any size that the disk takes.
func (o Files) OpenSectors(name string) (vfs.File, error) {
	f, err := o.FS.Open(name, vfs.Mode{Write: true, Direct: true})
	if err != nil {
		return nil, err
	}
	d, err := os.OpenFile(name, os.O_RDWR|syscall.O_DIRECT|syscall.O_DSYNC, 0)
	if err != nil {
		_ = f.Close() // the error that matters is the other one
		return nil, err
	}
	return &sectorFile{f, d}, nil
}

func (f *sectorFile) WriteAt(p []byte, off int64) (int, error) { return f.direct.WriteAt(p, off) }

func (f *sectorFile) Close() error {
	err := f.File.Close()
	if cerr := f.direct.Close(); err == nil {
		err = cerr
	}
	return err
}

// fitrim is FITRIM of linux/fs.h.
const fitrim = 0xc0185879

// Trim tells the disk about free space among the first n bytes of the file system. It needs root.
func (o Files) Trim(dir string, n int64) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	r := struct{ start, length, least uint64 }{length: uint64(n)}
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, d.Fd(), fitrim, uintptr(unsafe.Pointer(&r))); e != 0 {
		return &fs.PathError{Op: "trim", Path: dir, Err: e}
	}
	return nil
}
