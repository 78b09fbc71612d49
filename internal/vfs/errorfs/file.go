package errorfs

import (
	"errors"
	"io/fs"

	"github.com/binderylog/bindery/internal/vfs"
)

// file is an open file with faults.
type file struct {
	fs *FS
	f  vfs.File
}

var (
	_ vfs.File        = (*file)(nil)
	_ vfs.DSyncWriter = (*file)(nil)
)

func (h *file) Name() string { return h.f.Name() }

func (h *file) ReadAt(p []byte, off int64) (int, error) {
	fault := h.fs.before(Op{Kind: Read, Path: h.Name(), Off: off, Len: len(p)})
	if fault.Err != nil {
		return 0, fault.Err
	}
	n, err := h.f.ReadAt(p, off)
	if fault.Flip && n > 0 {
		bit := fault.Bit % (int64(n) * 8)
		p[bit/8] ^= 1 << (bit % 8)
	}
	return n, err
}

func (h *file) WriteAt(p []byte, off int64) (int, error) {
	return h.write(p, off, h.f.WriteAt)
}

// WriteAtDSync implements vfs.DSyncWriter; it fails with errors.ErrUnsupported where the file inside does not.
func (h *file) WriteAtDSync(p []byte, off int64) (int, error) {
	d, ok := h.f.(vfs.DSyncWriter)
	if !ok {
		return 0, &fs.PathError{Op: "write", Path: h.Name(), Err: errors.ErrUnsupported}
	}
	return h.write(p, off, d.WriteAtDSync)
}

func (h *file) write(p []byte, off int64, to func([]byte, int64) (int, error)) (int, error) {
	fault := h.fs.before(Op{Kind: Write, Path: h.Name(), Off: off, Len: len(p)})
	if fault.Err == nil {
		return to(p, off)
	}
	if fault.Short == 0 {
		return 0, fault.Err
	}
	n, err := h.writeShort(p, off, fault.Short, to)
	if err != nil {
		return n, err
	}
	return n, fault.Err
}

// writeShort writes the first bytes of p. A direct file takes only whole blocks: the rest of the last one is read back
// and written with it, as a device that stopped in the middle of a block would have left it.
func (h *file) writeShort(p []byte, off int64, short int, to func([]byte, int64) (int, error)) (int, error) {
	n, err := to(p[:short], off)
	if err == nil || len(p)%vfs.Align != 0 || off%vfs.Align != 0 {
		return n, err
	}
	whole := (short + vfs.Align - 1) / vfs.Align * vfs.Align
	block := vfs.AlignedBytes(whole)
	if _, err := h.f.ReadAt(block, off); err != nil && n == 0 {
		clear(block) // beyond the end there is nothing to keep
	}
	copy(block, p[:short])
	if _, err := to(block, off); err != nil {
		return 0, err
	}
	return short, nil
}

func (h *file) Size() (int64, error) {
	if fault := h.fs.before(Op{Kind: Size, Path: h.Name()}); fault.Err != nil {
		return 0, fault.Err
	}
	return h.f.Size()
}

func (h *file) Sync() error {
	if fault := h.fs.before(Op{Kind: Sync, Path: h.Name()}); fault.Err != nil {
		return fault.Err
	}
	return h.f.Sync()
}

func (h *file) Truncate(size int64) error {
	if fault := h.fs.before(Op{Kind: Truncate, Path: h.Name(), Off: size}); fault.Err != nil {
		return fault.Err
	}
	return h.f.Truncate(size)
}

func (h *file) Preallocate(size int64) error {
	if fault := h.fs.before(Op{Kind: Preallocate, Path: h.Name(), Off: size}); fault.Err != nil {
		return fault.Err
	}
	return h.f.Preallocate(size)
}

func (h *file) DropCache(off, n int64) { h.f.DropCache(off, n) }

// Close closes the file inside in any case: a test must not leak it.
func (h *file) Close() error {
	fault := h.fs.before(Op{Kind: Close, Path: h.Name()})
	err := h.f.Close()
	if fault.Err != nil {
		return fault.Err
	}
	return err
}
