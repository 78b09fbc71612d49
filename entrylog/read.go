package entrylog

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/binderylog/bindery/internal/corrupt"
)

// scratch holds aligned buffers for single reads.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// scratchKept bounds what a buffer in the pool may hold on to.
const scratchKept = 256 << 10

// Read returns the body at loc, in dst if that is large enough. It fails with a *corrupt.Error if the record is damaged or
// not what loc says, and with ErrNoLog if the log was removed. The caller checks the ids: see IDs.
func (s *Store) Read(loc Location, dst []byte) ([]byte, error) {
	v, err := s.pin(loc.Log)
	if err != nil {
		return nil, s.countDamage(err)
	}
	defer s.release(v)
	size := RecordHeaderSize + int64(loc.Size)
	if loc.Size < MinBody || loc.Size > MaxBody || loc.Offset < headerSize || loc.Offset > v.end-size {
		return nil, s.countDamage(corrupt.Errorf(v.l.path, loc.Offset, "entry location", "%d bytes do not lie between %d and %d", loc.Size, headerSize, v.end))
	}
	p := scratch.Get().(*[]byte)
	buf, data, err := readAligned(v.f, *p, loc.Offset, int(size))
	defer func() {
		if cap(buf) > scratchKept {
			buf = nil
		}
		*p = buf
		scratch.Put(p)
	}()
	if err != nil {
		return nil, fmt.Errorf("read entry log %s at %d: %w", loc.Log, loc.Offset, err)
	}
	s.count.reads.Add(1)
	s.count.readBytes.Add(uint64(len(data)))
	body, err := parseEntry(data, &v.meta, loc)
	if err != nil {
		return nil, s.countDamage(corrupt.New(v.l.path, loc.Offset, "entry", err))
	}
	return append(slices.Grow(dst[:0], len(body)), body...), nil
}

// parseEntry reads the entry record that loc describes.
func parseEntry(data []byte, m *meta, loc Location) ([]byte, error) {
	kind, body, err := parseRecord(data, m.seed(loc.Offset))
	switch {
	case err != nil:
		return nil, err
	case kind != kindEntry:
		return nil, fmt.Errorf("record of kind %#02x, want an entry", kind)
	case len(body) != int(loc.Size):
		return nil, fmt.Errorf("body of %d bytes, want %d", len(body), loc.Size)
	}
	return body, nil
}

func (s *Store) countDamage(err error) error {
	if corrupt.Is(err) {
		s.count.corrupt.Add(1)
	}
	return err
}

// Chunk is a part of a log.
type Chunk struct {
	Log    LogID
	Offset int64
	Data   []byte // aliases Buffer

	// Buffer is what to hand to the next ReadRange.
	Buffer []byte

	path string
	meta meta
}

// ReadRange returns up to n bytes of a log from off, the start of a record, in dst if that is large enough. Fewer bytes
// come back at the end of what is durable. With direct reads, dst is used only if it starts at a multiple of vfs.Align,
// as Chunk.Buffer does.
func (s *Store) ReadRange(log LogID, off int64, n int, dst []byte) (Chunk, error) {
	v, err := s.pin(log)
	if err != nil {
		return Chunk{}, s.countDamage(err)
	}
	defer s.release(v)
	if off < headerSize || off > v.end || n < 0 || n > readRangeMax {
		return Chunk{}, fmt.Errorf("read entry log %s: %d bytes at %d do not lie between %d and %d", log, n, off, headerSize, v.end)
	}
	n = int(min(int64(n), v.end-off))
	buf, data, err := readAligned(v.f, dst[:0], off, n)
	if err != nil {
		return Chunk{}, fmt.Errorf("read entry log %s at %d: %w", log, off, err)
	}
	s.count.reads.Add(1)
	s.count.readBytes.Add(uint64(len(data)))
	return Chunk{Log: log, Offset: off, Data: data, Buffer: buf, path: v.l.path, meta: v.meta}, nil
}

// readRangeMax is the largest range read at once: some of the largest entries.
const readRangeMax = 64 << 20

// Record is one entry.
type Record struct {
	Location      Location
	Ledger, Entry int64
	Body          []byte
}

// Records returns the entries that lie whole in the chunk, in order of offset. The first damaged record ends the sequence
// with a *corrupt.Error. Bodies alias the chunk.
func (c Chunk) Records() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		off, rest := c.Offset, c.Data
		for len(rest) > 0 {
			kind, body, err := parseRecord(rest, c.meta.seed(off))
			if errors.Is(err, errShort) {
				return
			}
			if err != nil {
				yield(Record{}, corrupt.New(c.path, off, "entry log record", err))
				return
			}
			if kind == kindEntry {
				r := Record{Location: Location{Log: c.Log, Offset: off, Size: uint32(len(body))}, Body: body}
				r.Ledger, r.Entry = IDs(body)
				if !yield(r, nil) {
					return
				}
			}
			n := RecordHeaderSize + len(body)
			off, rest = off+int64(n), rest[n:]
		}
	}
}
