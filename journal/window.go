package journal

import (
	"errors"
	"io"

	"github.com/binderylog/bindery/internal/vfs"
)

// windowChunk is how much of a segment is read at once: enough for a disk to run at full speed, little enough to stay in
// the processor's cache while it is checked.
const windowChunk = 1 << 20

// window reads one segment file front to back. Blocks that can not be read come out as zeros and are remembered, so that
// one bad sector does not hide what lies behind it.
type window struct {
	f    vfs.File
	size int64  // of the file
	buf  []byte // bytes [off, off+len(buf)) of the file
	room []byte // the memory buf lies in
	off  int64
	bad  map[int64]error // offsets of unreadable blocks
}

// open makes the window read f.
func (w *window) open(f vfs.File) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	w.f, w.size, w.off, w.buf, w.bad = f, size, 0, nil, nil
	return nil
}

// at returns the n bytes at off, which must be a multiple of vfs.Align, or fewer at the end of the file. The slice is
// valid until the next call.
func (w *window) at(off int64, n int) []byte {
	if off >= w.size {
		return nil
	}
	if int64(n) > w.size-off {
		n = int(w.size - off)
	}
	if off >= w.off && off+int64(n) <= w.off+int64(len(w.buf)) {
		return w.buf[off-w.off:][:n]
	}
	if need := max(extent(n), windowChunk); need > len(w.room) {
		w.room = vfs.AlignedBytes(need)
	}
	keep := 0
	if off > w.off && off < w.off+int64(len(w.buf)) { // the start is here already: read on behind it
		keep = copy(w.room, w.buf[off-w.off:])
		keep -= keep % vfs.Align // a short last read is read again
	}
	got := w.fill(w.room[keep:], off+int64(keep))
	w.off, w.buf = off, w.room[:keep+got]
	return w.buf[:min(n, len(w.buf))]
}

// fill reads into b from off on. It returns fewer bytes than asked for only at the end of the file.
func (w *window) fill(b []byte, off int64) int {
	if left := w.size - off; int64(len(b)) > left {
		b = b[:max(left, 0)]
	}
	if len(b) == 0 {
		return 0
	}
	n, err := w.f.ReadAt(b, off)
	if err == nil || errors.Is(err, io.EOF) {
		return n
	}
	for at := 0; at < len(b); at += vfs.Align {
		block := b[at:min(at+vfs.Align, len(b))]
		n, err := w.f.ReadAt(block, off+int64(at))
		if err == nil || errors.Is(err, io.EOF) && n == len(block) {
			continue
		}
		clear(block[n:])
		if errors.Is(err, io.EOF) {
			return at + n
		}
		if w.bad == nil {
			w.bad = map[int64]error{}
		}
		w.bad[off+int64(at)] = err
	}
	return len(b)
}

// unreadable returns why a block of [off, off+n) could not be read, or nil.
func (w *window) unreadable(off int64, n int) error {
	if len(w.bad) == 0 {
		return nil
	}
	for b := off - off%vfs.Align; b < off+int64(n); b += vfs.Align {
		if err := w.bad[b]; err != nil {
			return err
		}
	}
	return nil
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
