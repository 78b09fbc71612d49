package journal

import (
	"errors"
	"io"
	"maps"

	"github.com/binderylog/bindery/internal/vfs"
)

// windowChunk is how much of a segment is read at once: enough for a disk to run at full speed, little enough to stay in
// the processor's cache while it is checked.
const windowChunk = 1 << 20

// windowHead is the room in front of a chunk for what was left of the one before: a group may begin in one chunk and end
// in the next. Larger groups are put together elsewhere.
const windowHead = 1 << 20

// window reads one segment file front to back. Blocks that can not be read come out as zeros and are remembered, so that
// one bad sector does not hide what lies behind it.
//
// Once two reads followed each other, the chunk behind is read by a goroutine while the caller looks at this one. close
// joins it.
type window struct {
	f    vfs.File
	size int64  // of the file
	buf  []byte // bytes [off, off+len(buf)) of the file
	off  int64
	bad  map[int64]error // offsets of unreadable blocks

	// Two buffers with a chunk at windowHead each: the one buf lies in, and the one for the next chunk.
	mine, other []byte
	next        int64  // where a sequential read goes on
	foreseen    bool   // it is going to
	ahead       *chunk // being read into other, or read
}

// chunk is the result of one read.
type chunk struct {
	off   int64
	n     int
	bad   map[int64]error
	ready chan struct{} // closed when the read is done
}

// open makes the window read f.
func (w *window) open(f vfs.File) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	*w = window{f: f, size: size, mine: w.mine, other: w.other, next: -1}
	return nil
}

// close closes the file.
func (w *window) close() error {
	if w.f == nil {
		return nil
	}
	if w.ahead != nil {
		<-w.ahead.ready
	}
	err := w.f.Close()
	w.f, w.buf, w.ahead = nil, nil, nil
	return err
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
	var have []byte
	if off > w.off && off < w.off+int64(len(w.buf)) { // the start is here already: read on behind it
		have = w.buf[off-w.off:]
		have = have[:len(have)-len(have)%vfs.Align] // a short last read is read again
	}
	for len(have) < n {
		got := w.chunk(off + int64(len(have)))
		if got == 0 {
			break // the end of the file
		}
		if head := windowHead - len(have); head >= 0 {
			copy(w.mine[head:], have)
			have = w.mine[head : windowHead+got]
		} else {
			joined := vfs.AlignedBytes(len(have) + got)
			copy(joined[copy(joined, have):], w.mine[windowHead:windowHead+got])
			have = joined
		}
		w.readAhead() // only now: what was kept lay in other
		if got%vfs.Align != 0 {
			break
		}
	}
	w.off, w.buf = off, have
	return have[:min(n, len(have))]
}

// chunk makes mine the buffer with the chunk at off, and returns its length. What was in mine before is still in other.
func (w *window) chunk(off int64) (n int) {
	if w.mine == nil {
		w.mine, w.other = vfs.AlignedBytes(windowHead+windowChunk), vfs.AlignedBytes(windowHead+windowChunk)
	}
	var bad map[int64]error
	if w.ahead != nil {
		<-w.ahead.ready
	}
	if w.ahead != nil && w.ahead.off == off {
		n, bad = w.ahead.n, w.ahead.bad
	} else {
		n, bad = readBlocks(w.f, w.size, w.other[windowHead:], off)
	}
	w.ahead = nil
	w.mine, w.other = w.other, w.mine
	if w.bad == nil {
		w.bad = bad
	} else {
		maps.Copy(w.bad, bad)
	}
	w.foreseen = off == w.next && off+int64(n) < w.size
	w.next = off + int64(n)
	return n
}

// readAhead begins to read the next chunk into other, if two reads followed each other.
func (w *window) readAhead() {
	if !w.foreseen {
		return
	}
	w.foreseen = false
	c := &chunk{off: w.next, ready: make(chan struct{})}
	w.ahead = c
	f, size, b := w.f, w.size, w.other[windowHead:]
	go func() {
		defer close(c.ready)
		c.n, c.bad = readBlocks(f, size, b, c.off)
	}()
}

// readBlocks reads the part of b that the file of the given size has from off on. Unreadable blocks become zeros.
func readBlocks(f vfs.File, size int64, b []byte, off int64) (n int, bad map[int64]error) {
	if left := size - off; int64(len(b)) > left {
		b = b[:max(left, 0)]
	}
	if len(b) == 0 {
		return 0, nil
	}
	n, err := f.ReadAt(b, off)
	if err == nil || errors.Is(err, io.EOF) {
		return n, nil
	}
	for at := 0; at < len(b); at += vfs.Align {
		block := b[at:min(at+vfs.Align, len(b))]
		n, err := f.ReadAt(block, off+int64(at))
		if err == nil || errors.Is(err, io.EOF) && n == len(block) {
			continue
		}
		clear(block[n:])
		if errors.Is(err, io.EOF) {
			return at + n, bad
		}
		if bad == nil {
			bad = map[int64]error{}
		}
		bad[off+int64(at)] = err
	}
	return len(b), bad
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
