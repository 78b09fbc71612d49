package device

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/binderylog/bindery/internal/vfs"
)

func isReadOnly(err error) bool { return errors.Is(err, syscall.EROFS) }

func isInvalid(err error) bool { return errors.Is(err, syscall.EINVAL) }

// directAlign is the alignment that direct I/O needs, as the kernel says; 0: it does not.
func directAlign(f vfs.File) int {
	h, ok := f.(*flushFile)
	if !ok {
		return 0
	}
	var st unix.Statx_t
	if unix.Statx(int(h.second.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st) != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		return 0
	}
	return int(st.Dio_offset_align)
}

// isLocked reports whether somebody holds the file locked.
func isLocked(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close() // and with it the lock, if we got it
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// lockDisk takes a name in the kernel's own space for sockets: nothing on any disk, and gone with the process.
func lockDisk(ctx context.Context, number string) (io.Closer, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "unix", "@iobench/"+number)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, vfs.ErrLocked
	}
	if err != nil {
		return nil, fmt.Errorf("lock the disk %s: %w", number, err)
	}
	return l, nil
}

// exclusive opens a device for sole use. It fails if the kernel would not give it to us alone, and as long as it is open
// nobody can mount the device or make it part of another.
func exclusive(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|syscall.O_EXCL, 0)
	if errors.Is(err, syscall.EBUSY) {
		return nil, &RefusedError{name + " is in use, the kernel says", "find out by whom (lsblk, fuser)"}
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}
