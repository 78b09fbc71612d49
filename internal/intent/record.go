package intent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// kind says what a record means.
type kind uint8

const (
	kindHead   kind = 1 // first of a file; id is the next one to give out, data how many records it is synced with (8 bytes)
	kindIntent kind = 2 // id and data of an intent
	kindDone   kind = 3 // the intent id is finished
	kindSynced kind = 4 // nothing but the durable field
)

// The format of a record; see the package comment.
const (
	magic      = "BINT"
	version    = 1
	headerSize = 52

	headDataSize = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is a decoded record.
type record struct {
	kind       kind
	generation uint64
	index      uint64
	durable    uint64
	id         uint64
	data       []byte // aliases what it was decoded from
}

// Reasons for which bytes are not a record.
var (
	errShort      = errors.New("it ends early")
	errMagic      = errors.New("it does not start as a record does")
	errHeaderCRC  = errors.New("header checksum mismatch")
	errDataCRC    = errors.New("data checksum mismatch")
	errFields     = errors.New("its fields contradict each other")
	errGeneration = errors.New("it belongs to another generation")
	errIndex      = errors.New("it is out of order")
	errFrame      = errors.New("the length before it is wrong")
)

// ErrNewerFormat is returned by Open for a log written by a later version of this program.
var ErrNewerFormat = errors.New("intent log has a newer format; use the version of bindery that wrote it, or a later one")

// headData returns the data of a head whose file is synced with n records.
func headData(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// syncedTo returns up to which index the file is known to be synced by this record.
func (r *record) syncedTo() uint64 {
	if r.kind == kindHead {
		return binary.BigEndian.Uint64(r.data)
	}
	return r.durable
}

// appendRecord appends the encoding of r to dst.
func appendRecord(dst []byte, r *record) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = append(dst, version, byte(r.kind), 0, 0)
	dst = binary.BigEndian.AppendUint64(dst, r.generation)
	dst = binary.BigEndian.AppendUint64(dst, r.index)
	dst = binary.BigEndian.AppendUint64(dst, r.durable)
	dst = binary.BigEndian.AppendUint64(dst, r.id)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(r.data)))
	dst = binary.BigEndian.AppendUint32(dst, crc32.Checksum(r.data, castagnoli))
	dst = binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
	return append(dst, r.data...)
}

// decodeRecord decodes the record at the start of b and returns its length. A record whose header is whole and whose
// data is not is returned with errDataCRC or errShort.
func decodeRecord(b []byte) (r record, n int, err error) {
	if len(b) < headerSize {
		return r, 0, errShort
	}
	if string(b[:4]) != magic {
		return r, 0, errMagic
	}
	if crc32.Checksum(b[:headerSize-4], castagnoli) != binary.BigEndian.Uint32(b[headerSize-4:]) {
		return r, 0, errHeaderCRC
	}
	if b[4] > version {
		return r, 0, fmt.Errorf("%w: format %d, this one knows %d", ErrNewerFormat, b[4], version)
	}
	r = record{
		kind:       kind(b[5]),
		generation: binary.BigEndian.Uint64(b[8:]),
		index:      binary.BigEndian.Uint64(b[16:]),
		durable:    binary.BigEndian.Uint64(b[24:]),
		id:         binary.BigEndian.Uint64(b[32:]),
	}
	length := int(binary.BigEndian.Uint32(b[40:]))
	switch {
	case b[4] == 0, b[6] != 0, b[7] != 0, length > MaxRecord, r.index == 0, r.durable >= r.index:
		return r, 0, errFields
	case r.kind < kindHead || r.kind > kindSynced, r.kind > kindIntent && length > 0:
		return r, 0, errFields
	case (r.kind == kindHead) != (r.index == 1), r.kind == kindHead && length != headDataSize:
		return r, 0, errFields
	case len(b) < headerSize+length:
		return r, 0, errShort
	}
	r.data = b[headerSize : headerSize+length : headerSize+length]
	if crc32.Checksum(r.data, castagnoli) != binary.BigEndian.Uint32(b[44:]) {
		return r, headerSize + length, errDataCRC
	}
	return r, headerSize + length, nil
}

// appendFrame appends an encoded record as the library writes it.
func appendFrame(dst []byte, r *record) []byte {
	dst = binary.AppendUvarint(dst, uint64(headerSize+len(r.data)))
	return appendRecord(dst, r)
}

// frameSize returns how many bytes appendFrame writes for n bytes of data.
func frameSize(n int) int {
	var b [binary.MaxVarintLen64]byte
	return binary.PutUvarint(b[:], uint64(headerSize+n)) + headerSize + n
}
