package intent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/binderylog/bindery/internal/corrupt"
)

// scanned is what a file holds.
type scanned struct {
	records []record // whole ones that count, in order; they alias the file's bytes
	end     int64    // where the file is to be cut; its length if there is no torn tail
	reason  error    // why it is to be cut
	damage  []error  // *corrupt.Error for each hole in what was acknowledged
	newer   error    // ErrNewerFormat, if a record says so
}

// gap is a place where the next record should be and is not.
type gap struct {
	off    int64
	index  uint64 // of the first record that is missing
	before int    // records read before it
	why    error
}

// scan reads a file of one generation. It never fails: what is wrong is in the result.
func scan(path string, generation uint64, file []byte) scanned {
	var s scanned
	var gaps []gap
	durable := uint64(1) // a file is synced with its first record before it gets its name
	next := uint64(1)    // index of the record that should come now
	for pos := 0; pos < len(file); {
		r, n, err := decodeFrame(file[pos:])
		if err == nil {
			err = inPlace(&r, generation, next)
		}
		if errors.Is(err, ErrNewerFormat) {
			s.newer = fmt.Errorf("%s, offset %d: %w", path, pos, err)
			return s
		}
		if err != nil {
			gaps = append(gaps, gap{int64(pos), next, len(s.records), err})
			if r, n, pos = resync(file, pos+1, generation, next); n == 0 {
				break
			}
		}
		s.records = append(s.records, r)
		durable = max(durable, r.syncedTo())
		next = r.index + 1
		pos += n
	}
	if len(s.records) == 0 && len(gaps) == 0 {
		gaps = append(gaps, gap{0, 1, 0, errors.New("the file is empty")})
	} else if next <= durable { // the end is missing, and without a trace
		gaps = append(gaps, gap{int64(len(file)), next, len(s.records), errors.New("acknowledged records are missing at the end")})
	}
	s.end = int64(len(file))
	for _, g := range gaps {
		if g.index > durable {
			s.end, s.reason, s.records = g.off, g.why, s.records[:g.before]
			break
		}
		s.damage = append(s.damage, corrupt.Errorf(path, g.off, "intent record", "record %d of the file: %w", g.index, g.why))
	}
	return s
}

// decodeFrame decodes a record with the library's length before it.
func decodeFrame(b []byte) (r record, n int, err error) {
	size, k := binary.Uvarint(b)
	if k <= 0 || size < headerSize || size > headerSize+MaxRecord {
		return r, 0, errFrame
	}
	if uint64(len(b)-k) < size {
		return r, 0, errShort
	}
	r, n, err = decodeRecord(b[k : k+int(size)])
	if err == nil && n != int(size) {
		err = errFrame
	}
	return r, k + n, err
}

// inPlace checks that a record stands where it was written.
func inPlace(r *record, generation, index uint64) error {
	switch {
	case r.generation != generation:
		return errGeneration
	case r.index != index:
		return errIndex
	}
	return nil
}

// resync finds the next whole record of this generation at or after pos that can follow, without trusting any length
// on the way. It returns n = 0 if there is none.
func resync(file []byte, pos int, generation, next uint64) (r record, n, at int) {
	for pos < len(file) {
		i := bytes.Index(file[pos:], []byte(magic))
		if i < 0 {
			break
		}
		pos += i
		r, n, err := decodeRecord(file[pos:])
		if err == nil && r.generation == generation && r.index >= next {
			return r, n, pos
		}
		pos++
	}
	return record{}, 0, len(file)
}
