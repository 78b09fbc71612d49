package memfs

import (
	"io"
	"io/fs"
	"syscall"
	"unsafe"

	"github.com/binderylog/bindery/internal/vfs"
)

// file is an open file.
type file struct {
	fs     *FS
	node   *node
	name   string
	mode   vfs.Mode
	closed bool // guarded by fs.mu
}

var (
	_ vfs.File        = (*file)(nil)
	_ vfs.DSyncWriter = (*file)(nil)
)

func (h *file) Name() string { return h.name }

// checkLocked says why a call can not be served.
func (h *file) checkLocked() error {
	switch {
	case h.closed:
		return fs.ErrClosed
	case h.fs.crashed:
		return ErrCrashed
	}
	return nil
}

// checkRangeLocked also checks what a call reads or writes.
func (h *file) checkRangeLocked(p []byte, off int64) error {
	if err := h.checkLocked(); err != nil {
		return err
	}
	aligned := (off|int64(len(p)))&(vfs.Align-1) == 0 && uintptr(unsafe.Pointer(unsafe.SliceData(p)))&(vfs.Align-1) == 0
	if off < 0 || h.mode.Direct && !aligned {
		return syscall.EINVAL
	}
	return nil
}

func (h *file) ReadAt(p []byte, off int64) (int, error) {
	h.fs.mu.RLock()
	defer h.fs.mu.RUnlock()
	if err := h.checkRangeLocked(p, off); err != nil {
		return 0, pathError("read", h.name, err)
	}
	im := &h.node.now
	if off >= im.size {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), im.size-off))
	im.read(p[:n], off)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h *file) WriteAt(p []byte, off int64) (int, error) { return h.writeAt(p, off, h.mode.DSync) }

// WriteAtDSync implements vfs.DSyncWriter.
func (h *file) WriteAtDSync(p []byte, off int64) (int, error) { return h.writeAt(p, off, true) }

func (h *file) writeAt(p []byte, off int64, durable bool) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	err := h.checkRangeLocked(p, off)
	if err == nil && !h.mode.Write {
		err = syscall.EBADF
	}
	if err != nil {
		return 0, pathError("write", h.name, err)
	}
	dies := h.fs.changeLocked()
	n := h.storeLocked(p, off)
	if dies {
		return 0, pathError("write", h.name, ErrCrashed)
	}
	if durable {
		h.node.syncRange(off, off+int64(n))
	}
	if n < len(p) {
		return n, pathError("write", h.name, syscall.ENOSPC)
	}
	return n, nil
}

// storeLocked writes as much of p as there is space for and returns how much that was.
func (h *file) storeLocked(p []byte, off int64) int {
	n := h.node
	done := 0
	for done < len(p) {
		at := off + int64(done)
		i, in := int(at/pageSize), int(at%pageSize)
		part := p[done:min(len(p), done+pageSize-in)]
		if !n.counted(i) && !h.fs.takeLocked(n, 1) {
			break
		}
		if len(part) == pageSize && allZero(part) {
			n.dirty[i] = struct{}{}
			n.now.setPage(i, zeroPage)
		} else {
			copy(n.writable(i, len(part) == pageSize).data[in:], part)
		}
		done += len(part)
		n.now.size = max(n.now.size, at+int64(len(part)))
	}
	return done
}

// takeLocked counts pages as used by n, all or none.
func (f *FS) takeLocked(n *node, pages int) bool {
	if f.cap > 0 && (f.used+int64(pages))*pageSize > f.cap {
		return false
	}
	f.used += int64(pages)
	n.used += pages
	return true
}

func (h *file) Size() (int64, error) {
	h.fs.mu.RLock()
	defer h.fs.mu.RUnlock()
	if err := h.checkLocked(); err != nil {
		return 0, pathError("stat", h.name, err)
	}
	return h.node.now.size, nil
}

func (h *file) Sync() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.checkLocked(); err != nil {
		return pathError("sync", h.name, err)
	}
	if h.fs.changeLocked() {
		return pathError("sync", h.name, ErrCrashed)
	}
	h.node.sync()
	return nil
}

func (h *file) Truncate(size int64) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	err := h.checkLocked()
	if err == nil && (size < 0 || !h.mode.Write) {
		err = syscall.EINVAL
	}
	if err != nil {
		return pathError("truncate", h.name, err)
	}
	n := h.node
	if size == n.now.size {
		return nil
	}
	dies := h.fs.changeLocked()
	if size < n.now.size {
		h.shrinkLocked(size)
	}
	n.now.size = size
	if dies {
		return pathError("truncate", h.name, ErrCrashed)
	}
	return nil
}

func (h *file) shrinkLocked(size int64) {
	n := h.node
	keep := pagesFor(size)
	freed := 0
	for i := keep; i < max(n.reserved, len(n.now.pages)); i++ {
		if n.counted(i) {
			freed++
		}
		delete(n.dirty, i)
	}
	n.used -= freed
	h.fs.used -= int64(freed)
	n.reserved = min(n.reserved, keep)
	n.now.truncate(size)
	if n.cutAt < 0 || size < n.cutAt {
		n.cutAt = size
	}
}

func (h *file) Preallocate(size int64) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	err := h.checkLocked()
	if err == nil && !h.mode.Write {
		err = syscall.EBADF
	}
	if err != nil {
		return pathError("fallocate", h.name, err)
	}
	n := h.node
	pages := pagesFor(size)
	want := 0
	for i := n.reserved; i < pages; i++ {
		if !n.counted(i) {
			want++
		}
	}
	if want == 0 && size <= n.now.size {
		return nil
	}
	dies := h.fs.changeLocked()
	if !h.fs.takeLocked(n, want) {
		return pathError("fallocate", h.name, syscall.ENOSPC)
	}
	n.reserved = max(n.reserved, pages)
	n.now.size = max(n.now.size, size)
	if dies {
		return pathError("fallocate", h.name, ErrCrashed)
	}
	return nil
}

func (h *file) DropCache(int64, int64) {}

func (h *file) Close() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.closed {
		return pathError("close", h.name, fs.ErrClosed)
	}
	h.closed = true
	h.node.handles--
	h.fs.releaseLocked(h.node)
	return nil
}
