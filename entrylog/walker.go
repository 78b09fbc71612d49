package entrylog

import (
	"errors"
	"fmt"
	"io"
	"unsafe"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
)

// How much a walker reads at once: where it goes through everything, and where one of many goes through a table.
const (
	walkWindow  = 1 << 20
	tableWindow = chunkTarget
)

// readAligned reads [off, off+n) of a file that may be open for direct I/O, using buf if it is large enough. It returns
// the buffer for the next call, and what there is of the range: less than n bytes at the end of the file.
func readAligned(f vfs.File, buf []byte, off int64, n int) (next, data []byte, err error) {
	start := alignDown(off)
	need := int(alignUp(off+int64(n)) - start)
	if cap(buf) < need || !aligned(buf) {
		buf = vfs.AlignedBytes(need)
	}
	buf = buf[:need]
	got, err := f.ReadAt(buf, start)
	if err != nil && !errors.Is(err, io.EOF) {
		return buf, nil, err
	}
	skip := int(off - start)
	if got < skip {
		return buf, nil, nil
	}
	return buf, buf[skip:min(skip+n, got)], nil
}

// aligned reports whether direct I/O takes b.
func aligned(b []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%vfs.Align == 0
}

// walker reads records of one log from given offsets on, through a window that it moves forward.
type walker struct {
	path  string
	f     vfs.File
	m     meta
	limit int64 // nothing is read from here on
	step  int   // how much is read at once
	buf   []byte
	data  []byte // window
	off   int64  // offset of data[0]
}

// at returns the record at off, and the offset behind it. The body is valid until the next call. What does not parse is a
// *corrupt.Error; a failed read is not.
func (w *walker) at(off int64) (kind byte, body []byte, next int64, err error) {
	b, err := w.window(off, RecordHeaderSize)
	if err != nil {
		return 0, nil, 0, err
	}
	_, n, err := peekRecord(b)
	if err == nil {
		if b, err = w.window(off, RecordHeaderSize+n); err != nil {
			return 0, nil, 0, err
		}
		kind, body, err = parseRecord(b, w.m.seed(off))
	}
	if err != nil {
		return 0, nil, 0, corrupt.New(w.path, off, "entry log record", err)
	}
	return kind, body, off + RecordHeaderSize + int64(len(body)), nil
}

// window returns n bytes at off, fewer at the limit.
func (w *walker) window(off int64, n int) ([]byte, error) {
	if off+int64(n) > w.limit {
		n = int(max(w.limit-off, 0))
	}
	if off < w.off || off+int64(n) > w.off+int64(len(w.data)) {
		var err error
		w.buf, w.data, err = readAligned(w.f, w.buf, off, int(min(int64(max(n, w.step)), max(w.limit-off, 0))))
		if err != nil {
			w.data = nil
			return nil, fmt.Errorf("read entry log: %w", err)
		}
		w.off = off
	}
	b := w.data[off-w.off:]
	return b[:min(n, len(b))], nil
}

// expect returns the record at off, which must be of the given kind.
func (w *walker) expect(off int64, want byte) (body []byte, next int64, err error) {
	kind, body, next, err := w.at(off)
	if err == nil && kind != want {
		err = corrupt.Errorf(w.path, off, "entry log record", "kind is %#02x, want %#02x", kind, want)
	}
	return body, next, err
}
