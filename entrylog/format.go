package entrylog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
)

// Names in a ledger directory's `current`.
const (
	logSuffix        = ".log"            // <hex id>.log: a log, whole or being written
	compactingSuffix = ".log.compacting" // <hex id>.log.compacting: what a compaction writes; renamed when whole
	removingSuffix   = ".log.removing"   // <hex id>.log.removing: a large log that is being deleted step by step
	removedName      = "entrylog.removed"
	reserveName      = "entrylog.reserve"
)

// Everything below is part of the format; docs/formats/entrylog.md draws it.
const (
	// Version is the format this package writes, and the newest it reads.
	Version = 1

	blockSize  = vfs.Align // everything that recovery looks for lies at the end of a block
	headerSize = blockSize
	maxOffset  = 1 << 48 // bounds the arithmetic on offsets; LogSize stays far below

	logMagic     = "BNDRYLOG"
	commitMagic  = "BNDRYCKP"
	trailerMagic = "BNDRYEND"

	flagCompaction = 1 << 0
	flagListed     = 1 << 1 // the directory has a list of its logs
)

// Kinds of records. Zero is none of them, so zeroed space ends a walk.
const (
	kindEntry   = 0xE1
	kindPad     = 0x5A
	kindRuns    = 0xB2 // chunk of a run table
	kindStates  = 0xC3 // chunk of ledger states
	kindMap     = 0xD4 // chunk of a ledger map
	kindCommit  = 0x96 // ends a checkpoint
	kindTrailer = 0x87 // ends a sealed log
)

const (
	commitBody   = 120 // with its record header 128 bytes, which end a block
	commitSize   = RecordHeaderSize + commitBody
	trailerBody  = 248 // with its record header 256 bytes, which end the file
	trailerSize  = RecordHeaderSize + trailerBody
	chunkTarget  = 64 << 10                    // a chunk of rows is closed once it is this long
	maxChunk     = chunkTarget + MaxState + 64 // and can not get longer than with one more row
	maxRecordLen = RecordHeaderSize + MaxBody
)

// ErrVersion is returned for a log that a newer version of this program wrote.
var ErrVersion = errors.New("entry log format is newer than this program")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// meta is what header, commits and trailer all say about their log: any of them is enough to read it.
type meta struct {
	id         LogID
	precedence LogID
	flags      uint16
	salt       uint64
	created    int64 // Unix milliseconds
	// The log that was written before this one, and the end of its last checkpoint: what lies before that end was
	// synced, so it is damage, not a torn tail, if it can not be read. prevLog 0: there was none.
	prevLog LogID
	prevEnd int64
}

func (m *meta) createdTime() time.Time { return time.UnixMilli(m.created) }

// seed starts the checksum of the record at off. The salt makes bytes of other logs, and bytes inside a client's
// payload, fail; the offset makes a block that the disk put in the wrong place fail.
func (m *meta) seed(off int64) uint32 { return seedOf(m.salt, off) }

func seedOf(salt uint64, off int64) uint32 {
	return uint32(salt) ^ uint32(salt>>32) ^ uint32(off) ^ uint32(off>>32)*0x9E3779B1
}

// appendMeta and parseMeta use metaSize bytes.
const metaSize = 48

func putMeta(b []byte, m *meta) {
	le := binary.LittleEndian
	le.PutUint16(b[0:], Version)
	le.PutUint16(b[2:], m.flags)
	le.PutUint32(b[4:], uint32(m.id))
	le.PutUint64(b[8:], m.salt)
	le.PutUint64(b[16:], uint64(m.created))
	le.PutUint32(b[24:], uint32(m.precedence))
	le.PutUint32(b[28:], uint32(m.prevLog))
	le.PutUint64(b[32:], uint64(m.prevEnd))
	clear(b[40:metaSize])
}

func getMeta(b []byte) (meta, error) {
	le := binary.LittleEndian
	if v := le.Uint16(b); v == 0 || v > Version {
		return meta{}, fmt.Errorf("%w: version %d, this program knows %d", ErrVersion, v, Version)
	}
	m := meta{
		flags:      le.Uint16(b[2:]),
		id:         LogID(le.Uint32(b[4:])),
		salt:       le.Uint64(b[8:]),
		created:    int64(le.Uint64(b[16:])),
		precedence: LogID(le.Uint32(b[24:])),
		prevLog:    LogID(le.Uint32(b[28:])),
		prevEnd:    int64(le.Uint64(b[32:])),
	}
	if m.prevEnd < 0 || m.prevEnd > maxOffset {
		return meta{}, fmt.Errorf("end of the preceding log %d is out of range", m.prevEnd)
	}
	return m, nil
}

// encodeHeader fills the first block of a log.
func encodeHeader(b []byte, m *meta) {
	clear(b[:headerSize])
	copy(b, logMagic)
	putMeta(b[8:], m)
	binary.LittleEndian.PutUint32(b[headerSize-4:], crc32.Checksum(b[:headerSize-4], castagnoli))
}

// decodeHeader reads the first block of a log. Every test stands by itself, so that a wrong field is reported as what it
// is; the checksum comes before the version, or a flipped bit would look like a newer format.
func decodeHeader(b []byte) (meta, error) {
	if len(b) < headerSize {
		return meta{}, fmt.Errorf("%d bytes, want %d", len(b), headerSize)
	}
	if string(b[:8]) != logMagic {
		return meta{}, fmt.Errorf("magic is %q, want %q", b[:8], logMagic)
	}
	if got, want := crc32.Checksum(b[:headerSize-4], castagnoli), binary.LittleEndian.Uint32(b[headerSize-4:]); got != want {
		return meta{}, fmt.Errorf("checksum is %08x, want %08x", got, want)
	}
	return getMeta(b[8:])
}

// alignUp and alignDown round to blocks.
func alignUp(n int64) int64   { return (n + blockSize - 1) &^ (blockSize - 1) }
func alignDown(n int64) int64 { return n &^ (blockSize - 1) }
