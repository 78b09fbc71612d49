package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/binderylog/bindery/internal/vfs"
)

// Part of the disk format; docs/formats/journal.md draws it. All integers are little-endian.
const (
	formatVersion = 1

	segmentHeaderBytes = vfs.Align
	segmentHeaderCopy  = 2048 // offset of the second copy: another sector, and another half of the block
	segmentHeaderUsed  = 76   // bytes of a copy, its CRC in the last four

	groupHeaderBytes = 64
	groupMagic       = 0x524a4e42 // "BNJR"

	// RecordOverhead is what a record adds to its body in the file.
	RecordOverhead = 20

	recordBodyMax = 1<<24 - 1 // the length field has 24 bits

	flagFresh  = 1 << 0 // begun by Start: first and prevLast are exact
	flagZeroed = 1 << 1 // every block of the file had been written when the header was
	flagNoted  = 1 << 2 // the directory has a note
)

// runShift places the first position of a run: a segment that Start begins with id n has first sequence n<<runShift.
// A segment holds fewer than 2^19 groups, so every position handed out before lies below, even one whose group never
// reached the disk, or whose segment was lost.
const runShift = 20

var (
	segmentMagic = [8]byte{'B', 'N', 'D', 'R', 'Y', 'J', 'N', 'L'}
	castagnoli   = crc32.MakeTable(crc32.Castagnoli)
)

// segmentCapacity is the largest record body that a segment of the given size holds.
func segmentCapacity(size int64) int64 {
	return size - segmentHeaderBytes - groupHeaderBytes - RecordOverhead
}

// extent is the length on disk of a group whose header and records take n bytes.
func extent(n int) int { return (n + vfs.Align - 1) &^ (vfs.Align - 1) }

// segmentHeader is the first block of a segment.
type segmentHeader struct {
	version  uint16
	flags    uint16
	id       uint64
	salt     uint64
	size     int64
	first    uint64 // fresh: sequence of the first group; otherwise no group of the segment is below it
	prev     uint64 // id of the newest segment before this one
	prevLast uint64 // fresh: the last group before this segment that counts; what follows it there is cut for ever
	created  int64  // Unix nanoseconds
}

func (h *segmentHeader) fresh() bool  { return h.flags&flagFresh != 0 }
func (h *segmentHeader) zeroed() bool { return h.flags&flagZeroed != 0 }

// encode fills the block b with two copies of the header.
func (h *segmentHeader) encode(b []byte) {
	clear(b[:segmentHeaderBytes])
	le := binary.LittleEndian
	copy(b, segmentMagic[:])
	le.PutUint16(b[8:], formatVersion)
	le.PutUint16(b[10:], h.flags)
	le.PutUint64(b[16:], h.id)
	le.PutUint64(b[24:], h.salt)
	le.PutUint64(b[32:], uint64(h.size))
	le.PutUint64(b[40:], h.first)
	le.PutUint64(b[48:], h.prev)
	le.PutUint64(b[56:], h.prevLast)
	le.PutUint64(b[64:], uint64(h.created))
	le.PutUint32(b[72:], crc32.Checksum(b[:72], castagnoli))
	copy(b[segmentHeaderCopy:], b[:segmentHeaderUsed])
}

var errSegmentHeader = errors.New("neither copy of the segment header is whole")

// decodeSegmentHeader reads a header block. repaired says that only one copy was whole.
func decodeSegmentHeader(b []byte) (h segmentHeader, repaired bool, err error) {
	if len(b) < segmentHeaderCopy+segmentHeaderUsed {
		return h, false, errSegmentHeader
	}
	h, errA := decodeSegmentHeaderCopy(b)
	other, errB := decodeSegmentHeaderCopy(b[segmentHeaderCopy:])
	switch {
	case errA == nil && errB == nil && h != other:
		return segmentHeader{}, false, errors.New("the two copies of the segment header disagree")
	case errA == nil:
		return h, errB != nil, nil
	case errB == nil:
		return other, true, nil
	}
	if errors.Is(errA, ErrFormatTooNew) && errors.Is(errB, ErrFormatTooNew) {
		return h, false, errA
	}
	return segmentHeader{}, false, errSegmentHeader
}

func decodeSegmentHeaderCopy(b []byte) (h segmentHeader, err error) {
	le := binary.LittleEndian
	if [8]byte(b[:8]) != segmentMagic {
		return h, errSegmentHeader
	}
	if v := le.Uint16(b[8:]); v > formatVersion {
		return h, fmt.Errorf("%w: segment format %d, this version knows %d", ErrFormatTooNew, v, formatVersion)
	}
	if crc32.Checksum(b[:72], castagnoli) != le.Uint32(b[72:]) {
		return h, errSegmentHeader
	}
	h = segmentHeader{
		version:  le.Uint16(b[8:]),
		flags:    le.Uint16(b[10:]),
		id:       le.Uint64(b[16:]),
		salt:     le.Uint64(b[24:]),
		size:     int64(le.Uint64(b[32:])),
		first:    le.Uint64(b[40:]),
		prev:     le.Uint64(b[48:]),
		prevLast: le.Uint64(b[56:]),
		created:  int64(le.Uint64(b[64:])),
	}
	if h.size < 2*vfs.Align || h.size > SegmentSizeMax || h.version == 0 {
		return segmentHeader{}, errSegmentHeader
	}
	return h, nil
}

// seal is what makes the checksums of one life of a segment its own.
//
// Seeding a CRC is the same as XORing it with a constant that depends on seed and length. Payload checksums use a
// constant that depends on the salt alone, so that they can be computed before it is known which segment the record
// will land in. The header checksum, seeded, covers length and payload checksum together.
type seal struct {
	seed uint32 // initial CRC of group and record headers
	mask uint32 // XORed into payload CRCs
}

func sealOf(salt uint64) seal {
	// splitmix64: every bit of the salt reaches both halves.
	z := salt + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	return seal{seed: uint32(z), mask: uint32(z >> 32)}
}

// groupHeader starts every group.
type groupHeader struct {
	segment  uint64
	sequence uint64
	durable  uint64 // S: every group up to it was durable when this one was written
	records  uint32
	payload  uint32 // bytes of the records, headers included, padding not
	written  int64  // Unix nanoseconds
}

// extent is the group's length on disk.
func (h *groupHeader) extent() int64 { return int64(extent(groupHeaderBytes + int(h.payload))) }

// encodeIdentity writes the first 16 bytes, which are the same in all groups of a segment.
func (h *groupHeader) encodeIdentity(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b[0:], groupMagic|formatVersion<<32)
	le.PutUint64(b[8:], h.segment)
}

func (h *groupHeader) encode(b []byte, s seal) {
	le := binary.LittleEndian
	clear(b[:groupHeaderBytes])
	h.encodeIdentity(b)
	le.PutUint64(b[16:], h.sequence)
	le.PutUint64(b[24:], h.durable)
	le.PutUint32(b[32:], h.records)
	le.PutUint32(b[36:], h.payload)
	le.PutUint64(b[40:], uint64(h.written))
	le.PutUint32(b[60:], crc32.Update(s.seed, castagnoli, b[:60]))
}

// decodeGroupHeader reports whether b starts with a group header of the given segment. The seal is that of its place.
func decodeGroupHeader(b []byte, segment uint64, s seal) (h groupHeader, ok bool) {
	le := binary.LittleEndian
	if len(b) < groupHeaderBytes || le.Uint32(b) != groupMagic || le.Uint64(b[8:]) != segment {
		return h, false
	}
	if crc32.Update(s.seed, castagnoli, b[:60]) != le.Uint32(b[60:]) {
		return h, false
	}
	return parseGroupHeader(b)
}

func parseGroupHeader(b []byte) (h groupHeader, ok bool) {
	le := binary.LittleEndian
	h = groupHeader{
		segment:  le.Uint64(b[8:]),
		sequence: le.Uint64(b[16:]),
		durable:  le.Uint64(b[24:]),
		records:  le.Uint32(b[32:]),
		payload:  le.Uint32(b[36:]),
		written:  int64(le.Uint64(b[40:])),
	}
	ok = b[4] == formatVersion && h.sequence > 0 && h.durable < h.sequence &&
		uint64(h.payload) >= uint64(h.records)*RecordOverhead && h.payload <= SegmentSizeMax-2*vfs.Align &&
		(h.records > 0) == (h.payload > 0)
	return h, ok
}

// group is the seal of a group header at offset off of its segment.
func (s seal) group(off int64) seal {
	z := uint64(off) * 0x9fb21c651e98df25
	return seal{seed: s.seed ^ uint32(z>>32), mask: s.mask}
}

// record is the seal of a record header at offset at of the group sequence: what a disk wrote or read at another place
// does not parse there.
func (s seal) record(sequence uint64, at int) seal {
	z := (sequence<<24 ^ uint64(at)) * 0xd6e8feb86659fd93
	return seal{seed: s.seed ^ uint32(z>>32), mask: s.mask}
}

// putRecordHeader writes the header of a record whose payload CRC (unmasked) is crc. The seal is that of its place.
func putRecordHeader(b []byte, kind uint8, tag uint64, length int, crc uint32, s seal) {
	le := binary.LittleEndian
	le.PutUint32(b[0:], uint32(length)|uint32(kind)<<24)
	le.PutUint64(b[4:], tag)
	le.PutUint32(b[12:], crc^s.mask)
	le.PutUint32(b[16:], crc32.Update(s.seed, castagnoli, b[:16]))
}

// recordHeader starts every record.
type recordHeader struct {
	kind   uint8
	tag    uint64
	length int
	crc    uint32 // of the payload, unmasked
}

// decodeRecordHeader reports whether b starts with a whole record header. The seal is that of its place.
func decodeRecordHeader(b []byte, s seal) (h recordHeader, ok bool) {
	if len(b) < RecordOverhead || crc32.Update(s.seed, castagnoli, b[:16]) != binary.LittleEndian.Uint32(b[16:]) {
		return h, false
	}
	return parseRecordHeader(b, s)
}

func parseRecordHeader(b []byte, s seal) (h recordHeader, ok bool) {
	le := binary.LittleEndian
	w := le.Uint32(b)
	h = recordHeader{kind: uint8(w >> 24), tag: le.Uint64(b[4:]), length: int(w & recordBodyMax), crc: le.Uint32(b[12:]) ^ s.mask}
	return h, h.kind != 0
}

// repairBit puts one flipped bit right in b, whose last four bytes are the seeded CRC32C of those before. A CRC32C over
// headers this short differs in at least six bits between any two valid ones, so a single flip has one cause only.
func repairBit(b []byte, s seal) bool {
	body, stored := b[:len(b)-4], b[len(b)-4:]
	fits := func() bool {
		return crc32.Update(s.seed, castagnoli, body) == binary.LittleEndian.Uint32(stored)
	}
	for i := range len(b) * 8 {
		b[i/8] ^= 1 << (i % 8)
		if fits() {
			return true
		}
		b[i/8] ^= 1 << (i % 8)
	}
	return false
}
