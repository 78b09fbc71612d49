package entrylog

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Tables are sequences of chunk records. Every chunk can be read by itself: differences between rows start anew in each.
//
//	run row:    ledger - previous ledger | first entry | offset | count<<1 + uniform | size, or count sizes
//	state row:  ledger - previous ledger | length | data
//	map row:    ledger - previous ledger | bytes
//
// All numbers are uvarints. The first entry is signed (zigzag) and counts from behind the previous row's last entry if
// both rows are of one ledger, otherwise from 0; the offset is signed and counts from behind the previous row's last
// record.

var errRow = errors.New("table row is cut short or out of range")

// compareRuns orders run tables.
func compareRuns(a, b *Run) int {
	return cmp.Or(cmp.Compare(a.Ledger, b.Ledger), cmp.Compare(a.First, b.First), cmp.Compare(a.Offset, b.Offset))
}

// tableWriter collects rows into chunks and hands full ones to emit.
type tableWriter struct {
	kind byte
	emit func(kind byte, body []byte) error
	buf  []byte
	rows uint64
	n    uint32 // chunks emitted

	ledger, last, end int64 // of the previous row in this chunk
}

func (t *tableWriter) run(r *Run) error {
	first := r.First
	if len(t.buf) > 0 && r.Ledger == t.ledger {
		first = r.First - t.last - 1 // wraps round for the largest ids, and back again when read
	}
	t.buf = binary.AppendUvarint(t.buf, uint64(r.Ledger-t.ledger))
	t.buf = binary.AppendVarint(t.buf, first)
	t.buf = binary.AppendVarint(t.buf, r.Offset-t.end)
	if len(r.Sizes) == 1 {
		t.buf = binary.AppendUvarint(t.buf, uint64(r.Count)<<1|1)
	} else {
		t.buf = binary.AppendUvarint(t.buf, uint64(r.Count)<<1)
	}
	for _, s := range r.Sizes {
		t.buf = binary.AppendUvarint(t.buf, uint64(s))
	}
	t.ledger, t.last, t.end = r.Ledger, r.Last(), r.Offset+r.Bytes()
	return t.rowDone()
}

func (t *tableWriter) state(s *LedgerState) error {
	t.buf = binary.AppendUvarint(t.buf, uint64(s.Ledger-t.ledger))
	t.buf = binary.AppendUvarint(t.buf, uint64(len(s.Data)))
	t.buf = append(t.buf, s.Data...)
	t.ledger = s.Ledger
	return t.rowDone()
}

func (t *tableWriter) ledgerBytes(ledger, n int64) error {
	t.buf = binary.AppendUvarint(t.buf, uint64(ledger-t.ledger))
	t.buf = binary.AppendUvarint(t.buf, uint64(n))
	t.ledger = ledger
	return t.rowDone()
}

func (t *tableWriter) rowDone() error {
	t.rows++
	if len(t.buf) < chunkTarget {
		return nil
	}
	return t.close()
}

// close emits what is left.
func (t *tableWriter) close() error {
	if len(t.buf) == 0 {
		return nil
	}
	if err := t.emit(t.kind, t.buf); err != nil {
		return err
	}
	t.n++
	t.buf, t.ledger, t.last, t.end = t.buf[:0], 0, 0, 0
	return nil
}

// rowReader decodes the numbers of one chunk.
type rowReader struct {
	b []byte
}

func (r *rowReader) uvarint() (uint64, error) {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		return 0, errRow
	}
	r.b = r.b[n:]
	return v, nil
}

func (r *rowReader) varint() (int64, error) {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		return 0, errRow
	}
	r.b = r.b[n:]
	return v, nil
}

// ledger reads a difference of ids.
func (r *rowReader) ledger(previous int64) (int64, error) {
	d, err := r.uvarint()
	if err != nil {
		return 0, err
	}
	if d > uint64(math.MaxInt64-previous) {
		return 0, errRow
	}
	return previous + int64(d), nil
}

// decodeRuns appends the runs of a chunk of the given log to dst.
func decodeRuns(dst []Run, log LogID, chunk []byte) ([]Run, error) {
	r := rowReader{chunk}
	var ledger, last, end int64
	for n := 0; len(r.b) > 0; n++ {
		run := Run{Log: log}
		var err error
		if run.Ledger, err = r.ledger(ledger); err != nil {
			return dst, err
		}
		if run.First, err = r.varint(); err != nil {
			return dst, err
		}
		if n > 0 && run.Ledger == ledger {
			run.First += last + 1
		}
		off, err := r.varint()
		if err != nil {
			return dst, err
		}
		run.Offset = end + off
		count, err := r.uvarint()
		if err != nil {
			return dst, err
		}
		sizes := count >> 1
		if sizes == 0 || sizes > MaxRunEntries {
			return dst, fmt.Errorf("run of %d entries: %w", sizes, errRow)
		}
		run.Count = uint32(sizes)
		if count&1 == 1 {
			sizes = 1
		}
		if sizes > uint64(len(r.b)) { // each takes at least a byte
			return dst, errRow
		}
		run.Sizes = make([]uint32, sizes)
		for i := range run.Sizes {
			v, err := r.uvarint()
			if err != nil {
				return dst, err
			}
			if v > MaxBody {
				return dst, fmt.Errorf("body of %d bytes: %w", v, errRow)
			}
			run.Sizes[i] = uint32(v)
		}
		if err := run.Check(); err != nil {
			return dst, err
		}
		ledger, last, end = run.Ledger, run.Last(), run.Offset+run.Bytes()
		dst = append(dst, run)
	}
	return dst, nil
}

// decodeStates appends the states of a chunk to dst. Their data is copied.
func decodeStates(dst []LedgerState, chunk []byte) ([]LedgerState, error) {
	r := rowReader{chunk}
	var ledger int64
	for len(r.b) > 0 {
		var err error
		if ledger, err = r.ledger(ledger); err != nil {
			return dst, err
		}
		n, err := r.uvarint()
		if err != nil {
			return dst, err
		}
		if n > MaxState || n > uint64(len(r.b)) {
			return dst, fmt.Errorf("state of %d bytes: %w", n, errRow)
		}
		dst = append(dst, LedgerState{Ledger: ledger, Data: slices.Clone(r.b[:n:n])})
		r.b = r.b[n:]
	}
	return dst, nil
}

// decodeMap calls fn for the rows of a chunk of a ledger map.
func decodeMap(chunk []byte, fn func(ledger, n int64)) error {
	r := rowReader{chunk}
	var ledger int64
	for len(r.b) > 0 {
		var err error
		if ledger, err = r.ledger(ledger); err != nil {
			return err
		}
		n, err := r.uvarint()
		if err != nil {
			return err
		}
		if n > maxOffset {
			return fmt.Errorf("%d bytes of ledger %d: %w", n, ledger, errRow)
		}
		fn(ledger, int64(n))
	}
	return nil
}
