package offload

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/xxh3"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload/objstore"
)

// A block is a run of consecutive entries, the unit of reading. docs/formats/offload.md draws it.
const (
	blockMagic      = "BKOB"
	blockVersion    = 1
	blockHeaderSize = 32
	blockCRCOffset  = 28

	blockEntriesMax = 65536
	blockRawMax     = 16 << 20
	blockSlack      = 64 // stored may exceed raw by so much: epoch and tag of encryption

	entryOverheadMax = 64 << 10 // a block of one entry is less than this above its payload
)

// Flags of a block. Unknown ones are refused.
const (
	flagZstd      = 1 << 0
	flagEncrypted = 1 << 1
	flagSkew      = 1 << 2 // the column of length skews is present
	flagFill      = 1 << 3 // no entries, zeros: makes a part large enough for S3
	flagLarge     = 1 << 4 // one entry, larger than a block should be
	flagsKnown    = flagZstd | flagEncrypted | flagSkew | flagFill | flagLarge
)

// contentSum is the XXH3-128 of a block's entries: for each its id and its payload.
type contentSum [16]byte

// blockHeader is the fixed part of a block.
type blockHeader struct {
	flags  byte
	first  ledger.EntryID
	count  int
	raw    int
	stored int
	crc    uint32
}

func (h *blockHeader) append(dst []byte) []byte {
	dst = append(dst, blockMagic...)
	dst = append(dst, blockVersion, h.flags, 0, blockHeaderSize)
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.first)) //nolint:gosec // ids are not negative
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.count)) //nolint:gosec // at most blockEntriesMax
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.raw))   //nolint:gosec // at most blockRawMax
	return binary.BigEndian.AppendUint32(dst, uint32(h.stored))
}

// parseBlockHeader reads and bounds a header; nothing is allocated by what it says before that.
func parseBlockHeader(b []byte) (blockHeader, error) {
	if len(b) < blockHeaderSize {
		return blockHeader{}, fmt.Errorf("%d bytes are shorter than a header", len(b))
	}
	if string(b[:4]) != blockMagic {
		return blockHeader{}, fmt.Errorf("magic %x", b[:4])
	}
	if b[4] != blockVersion || binary.BigEndian.Uint16(b[6:]) != blockHeaderSize {
		return blockHeader{}, fmt.Errorf("block version %d with a header of %d bytes; this version reads version %d with %d", b[4], binary.BigEndian.Uint16(b[6:]), blockVersion, blockHeaderSize)
	}
	first := binary.BigEndian.Uint64(b[8:])
	count, raw, stored := binary.BigEndian.Uint32(b[16:]), binary.BigEndian.Uint32(b[20:]), binary.BigEndian.Uint32(b[24:])
	h := blockHeader{flags: b[5], first: ledger.EntryID(first), count: int(count), raw: int(raw), stored: int(stored), crc: binary.BigEndian.Uint32(b[blockCRCOffset:])} //nolint:gosec // tested below
	fill := h.flags&flagFill != 0
	switch {
	case h.flags&^flagsKnown != 0:
		return h, fmt.Errorf("unknown flags %#x", h.flags&^flagsKnown)
	case first > math.MaxInt64-blockEntriesMax:
		return h, fmt.Errorf("first entry %d", first)
	case count > blockEntriesMax || (count == 0) != fill:
		return h, fmt.Errorf("%d entries", count)
	case raw > blockRawMax:
		return h, fmt.Errorf("%d raw bytes, above %d", raw, blockRawMax)
	case stored > raw+blockSlack:
		return h, fmt.Errorf("%d stored bytes of %d raw", stored, raw)
	case fill && (h.flags != flagFill || stored != raw):
		return h, fmt.Errorf("fill block with flags %#x", h.flags)
	}
	return h, nil
}

// blockBuilder gathers entries until they become a block.
type blockBuilder struct {
	digestSize int

	first                                 ledger.EntryID
	base                                  int64 // payload bytes of the ledger before the block
	count                                 int
	sum                                   int64 // payload bytes of the block
	lengths, lags, skews, digests, bodies []byte
	skewed                                bool
	hash                                  *xxh3.Hasher
}

func newBlockBuilder(digestSize int) *blockBuilder {
	return &blockBuilder{digestSize: digestSize, hash: xxh3.New()}
}

// reset begins a block whose first entry will be first.
func (b *blockBuilder) reset(first ledger.EntryID, base int64) {
	b.first, b.base, b.count, b.sum, b.skewed = first, base, 0, 0, false
	b.lengths, b.lags, b.skews, b.digests, b.bodies = b.lengths[:0], b.lags[:0], b.skews[:0], b.digests[:0], b.bodies[:0]
	b.hash.Reset()
}

// add takes the next entry. What it holds is copied.
func (b *blockBuilder) add(e *Entry) error {
	if want := b.first + ledger.EntryID(b.count); e.ID != want || len(e.Digest) != b.digestSize {
		return fmt.Errorf("entry %d with a digest of %d bytes where entry %d with %d belongs", e.ID, len(e.Digest), want, b.digestSize)
	}
	b.sum += int64(len(e.Payload))
	b.lengths = binary.AppendUvarint(b.lengths, uint64(len(e.Payload)))
	b.lags = binary.AppendVarint(b.lags, int64(e.ID-1-e.LAC))
	skew := e.Length - b.base - b.sum
	b.skewed = b.skewed || skew != 0
	b.skews = binary.AppendVarint(b.skews, skew)
	b.digests = append(b.digests, e.Digest...)
	b.bodies = append(b.bodies, e.Payload...)
	b.count++
	hashEntry(b.hash, e.ID, e.Payload)
	return nil
}

func hashEntry(h *xxh3.Hasher, id ledger.EntryID, payload []byte) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(id)) //nolint:gosec // ids are not negative
	_, _ = h.Write(b[:])
	_, _ = h.Write(payload)
}

// rawLen is the size of the body as it is now; what it grows by with a further entry is at most entryGrowth plus the payload.
func (b *blockBuilder) rawLen() int {
	n := uvarintLen(uint64(b.base)) + len(b.lengths) + len(b.lags) + len(b.digests) + len(b.bodies) //nolint:gosec // not negative
	if b.skewed {
		n += len(b.skews)
	}
	return n
}

// content is the sum of the entries so far.
func (b *blockBuilder) content() contentSum { return b.hash.Sum128().Bytes() }

// appendRaw appends the body.
func (b *blockBuilder) appendRaw(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(b.base)) //nolint:gosec // not negative
	dst = append(dst, b.lengths...)
	dst = append(dst, b.lags...)
	if b.skewed {
		dst = append(dst, b.skews...)
	}
	dst = append(dst, b.digests...)
	return append(dst, b.bodies...)
}

func uvarintLen(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// blockCodec turns bodies into blocks and back for one attempt. Blocks are opened from any goroutine; sealed from one.
type blockCodec struct {
	digestSize  int
	compressor  *zstd.Encoder // nil: raw
	sealer      *sealer       // nil: not encrypted
	raw, packed []byte        // scratch
}

// decompressor is shared: DecodeAll may be used by several goroutines.
var decompressor, errDecompressor = zstd.NewReader(nil, zstd.WithDecoderConcurrency(4), zstd.WithDecoderMaxMemory(blockRawMax), zstd.WithDecoderLowmem(true))

func newCompressor() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithZeroFrames(true))
}

// seal appends the block of what b gathered. saved is what share of the body compression took away, 0 without it.
func (c *blockCodec) seal(dst []byte, b *blockBuilder, number uint64, compress bool, large bool) (_ []byte, saved float64, err error) {
	h := blockHeader{first: b.first, count: b.count, raw: b.rawLen()}
	if b.skewed {
		h.flags |= flagSkew
	}
	if large {
		h.flags |= flagLarge
	}
	if h.raw > blockRawMax {
		return dst, 0, fmt.Errorf("block of entries %d to %d has %d bytes, more than %d", b.first, int64(b.first)+int64(b.count)-1, h.raw, blockRawMax)
	}
	if c.compressor == nil && c.sealer == nil { // straight to its place
		h.stored = h.raw
		start := len(dst)
		dst = h.append(dst)
		dst = b.appendRaw(append(dst, 0, 0, 0, 0))
		putBlockCRC(dst[start:])
		return dst, 0, nil
	}
	c.raw = b.appendRaw(c.raw[:0])
	body := c.raw
	if compress && c.compressor != nil {
		c.packed = c.compressor.EncodeAll(body, c.packed[:0])
		if len(c.packed) < len(body) {
			saved = 1 - float64(len(c.packed))/float64(len(body))
			body, h.flags = c.packed, h.flags|flagZstd
		}
	}
	h.stored = len(body)
	if c.sealer != nil {
		h.flags |= flagEncrypted
		h.stored += sealOverhead
	}
	start := len(dst)
	dst = h.append(dst)
	dst = append(dst, 0, 0, 0, 0)
	if c.sealer != nil {
		dst = c.sealer.seal(dst, body, number)
	} else {
		dst = append(dst, body...)
	}
	putBlockCRC(dst[start:])
	return dst, saved, nil
}

// appendFill appends a block without entries that has size bytes in all, header included.
func appendFill(dst []byte, next ledger.EntryID, size int) []byte {
	n := max(size-blockHeaderSize, 0)
	start := len(dst)
	h := blockHeader{flags: flagFill, first: next, raw: n, stored: n}
	dst = h.append(dst)
	dst = append(dst, 0, 0, 0, 0)
	for n > 0 {
		step := min(n, len(zeros))
		dst = append(dst, zeros[:step]...)
		n -= step
	}
	putBlockCRC(dst[start:])
	return dst
}

var zeros [64 << 10]byte

func putBlockCRC(block []byte) {
	binary.BigEndian.PutUint32(block[blockCRCOffset:], blockCRC(block))
}

// blockCRC covers the header in front of it and the body behind it.
func blockCRC(block []byte) uint32 {
	return crcUpdate(objstore.CRC32C(block[:blockCRCOffset]), block[blockHeaderSize:])
}

// Block is an opened block.
type Block struct {
	First   ledger.EntryID
	Entries []Entry // payloads and digests alias one buffer
	Bytes   int     // memory that they hold on to
}

// errBlockCRC says that a block's bytes are not what was written.
var errBlockCRC = errors.New("CRC32C does not match")

// open checks and opens one whole stored block. The error is about the bytes; where they came from the caller knows.
func (c *blockCodec) open(stored []byte, number uint64) (*Block, error) {
	h, err := parseBlockHeader(stored)
	if err != nil {
		return nil, err
	}
	if len(stored) != blockHeaderSize+h.stored {
		return nil, fmt.Errorf("%d bytes, the header says %d", len(stored), blockHeaderSize+h.stored)
	}
	if blockCRC(stored) != h.crc {
		return nil, errBlockCRC
	}
	if h.flags&flagFill != 0 {
		return &Block{First: h.first}, nil
	}
	body := stored[blockHeaderSize:]
	if h.flags&flagEncrypted != 0 {
		if c.sealer == nil {
			return nil, ErrNoKey
		}
		if body, err = c.sealer.open(body, number); err != nil {
			return nil, err
		}
	} else if c.sealer != nil {
		return nil, errors.New("not encrypted, but the manifest says that all blocks are")
	}
	if h.flags&flagZstd != 0 {
		if body, err = decompressor.DecodeAll(body, make([]byte, 0, h.raw)); err != nil {
			return nil, fmt.Errorf("decompress: %w", err)
		}
	}
	if len(body) != h.raw {
		return nil, fmt.Errorf("%d bytes of body, the header says %d", len(body), h.raw)
	}
	return c.split(&h, body)
}

// split takes the columns of a body apart.
func (c *blockCodec) split(h *blockHeader, body []byte) (*Block, error) {
	if h.count > len(body) {
		return nil, fmt.Errorf("%d entries in %d bytes", h.count, len(body))
	}
	rest := body
	base, n := binary.Uvarint(rest)
	if n <= 0 || base > math.MaxInt64 {
		return nil, errors.New("length before the block is malformed")
	}
	rest = rest[n:]
	b := &Block{First: h.first, Entries: make([]Entry, h.count), Bytes: len(body) + h.count*entryMemory}
	lengths := make([]int, h.count)
	sum := 0
	for i := range lengths {
		v, n := binary.Uvarint(rest)
		if n <= 0 || v > blockRawMax {
			return nil, fmt.Errorf("length of entry %d is malformed", i)
		}
		lengths[i], rest = int(v), rest[n:]
		if sum += int(v); sum > len(body) {
			return nil, fmt.Errorf("payloads of more than %d bytes", len(body))
		}
	}
	for i := range b.Entries {
		lag, n := binary.Varint(rest)
		if n <= 0 {
			return nil, fmt.Errorf("LAC of entry %d is malformed", i)
		}
		id := h.first + ledger.EntryID(i)
		b.Entries[i].ID, b.Entries[i].LAC, rest = id, id-1-ledger.EntryID(lag), rest[n:]
	}
	total := int64(base)
	for i := range b.Entries {
		total += int64(lengths[i])
		b.Entries[i].Length = total
		if h.flags&flagSkew != 0 {
			skew, n := binary.Varint(rest)
			if n <= 0 {
				return nil, fmt.Errorf("length skew of entry %d is malformed", i)
			}
			b.Entries[i].Length, rest = total+skew, rest[n:]
		}
	}
	if len(rest) != h.count*c.digestSize+sum {
		return nil, fmt.Errorf("%d bytes of digests and payloads, the columns say %d", len(rest), h.count*c.digestSize+sum)
	}
	digests, payloads := rest[:h.count*c.digestSize], rest[h.count*c.digestSize:]
	for i := range b.Entries {
		b.Entries[i].Digest = digests[i*c.digestSize : (i+1)*c.digestSize : (i+1)*c.digestSize]
		b.Entries[i].Payload, payloads = payloads[:lengths[i]:lengths[i]], payloads[lengths[i]:]
	}
	return b, nil
}

// content is the sum of the block's entries. Reads do without it: the block's CRC was tested.
func (b *Block) content() contentSum {
	h := xxh3.New()
	for i := range b.Entries {
		hashEntry(h, b.Entries[i].ID, b.Entries[i].Payload)
	}
	return h.Sum128().Bytes()
}

// entryMemory is what an Entry takes beside its bytes.
const entryMemory = 72
