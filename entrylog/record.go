package entrylog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// A record is
//
//	+----------+------------+------------+----------------+
//	| kind (1) | length (3) | CRC32C (4) | body (length)  |   little-endian; the CRC covers kind, length and body
//	+----------+------------+------------+----------------+
//
// and starts at any offset.

// errShort says that a record goes on behind the bytes at hand.
var errShort = errors.New("record goes on behind the end")

// putRecordHeader fills the header of a record with the given body that will lie at a place with the given seed.
func putRecordHeader(h []byte, kind byte, body []byte, seed uint32) {
	binary.LittleEndian.PutUint32(h, uint32(kind)|uint32(len(body))<<8)
	crc := crc32.Update(crc32.Update(seed, castagnoli, h[:4]), castagnoli, body)
	binary.LittleEndian.PutUint32(h[4:], crc)
}

// maxLen is the longest body of a kind, -1 for an unknown one.
func maxLen(kind byte) int {
	switch kind {
	case kindEntry:
		return MaxBody
	case kindPad:
		return 2 * blockSize
	case kindRuns, kindStates, kindMap:
		return maxChunk
	case kindCommit:
		return commitBody
	case kindTrailer:
		return trailerBody
	}
	return -1
}

// peekRecord returns kind and body length that a record header claims, once they are possible.
func peekRecord(b []byte) (kind byte, n int, err error) {
	if len(b) < RecordHeaderSize {
		return 0, 0, errShort
	}
	w := binary.LittleEndian.Uint32(b)
	kind, n = byte(w), int(w>>8)
	limit := maxLen(kind)
	switch {
	case limit < 0:
		return 0, 0, fmt.Errorf("unknown record kind %#02x", kind)
	case n > limit:
		return 0, 0, fmt.Errorf("record of kind %#02x claims %d bytes, at most %d are possible", kind, n, limit)
	case kind == kindEntry && n < MinBody:
		return 0, 0, fmt.Errorf("entry record claims %d bytes, at least %d are needed", n, MinBody)
	}
	return kind, n, nil
}

// parseRecord reads the record at the start of b. The body aliases b.
func parseRecord(b []byte, seed uint32) (kind byte, body []byte, err error) {
	kind, n, err := peekRecord(b)
	if err != nil {
		return 0, nil, err
	}
	if len(b)-RecordHeaderSize < n {
		return 0, nil, errShort
	}
	body = b[RecordHeaderSize : RecordHeaderSize+n]
	got := crc32.Update(crc32.Update(seed, castagnoli, b[:4]), castagnoli, body)
	if want := binary.LittleEndian.Uint32(b[4:]); got != want {
		return 0, nil, fmt.Errorf("checksum is %08x, want %08x", got, want)
	}
	return kind, body, nil
}

// IDs returns the ledger and entry id in a body's first 16 bytes; the body has at least MinBody bytes.
func IDs(body []byte) (ledger, entry int64) {
	return int64(binary.BigEndian.Uint64(body)), int64(binary.BigEndian.Uint64(body[8:]))
}
