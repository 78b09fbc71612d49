package offload

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload/objstore"
)

// reader takes a section apart. After the first error everything is zero, and end returns the error.
type reader struct {
	b   []byte
	off int
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *reader) take(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.b)-r.off {
		r.fail("%d bytes wanted at %d of %d", n, r.off, len(r.b))
		return nil
	}
	b := r.b[r.off : r.off+n]
	r.off += n
	return b
}

func (r *reader) uint8() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) int64() int64 {
	b := r.take(8)
	if b == nil {
		return 0
	}
	v := binary.BigEndian.Uint64(b)
	if v > math.MaxInt64 {
		r.fail("number %d at %d", v, r.off-8)
		return 0
	}
	return int64(v)
}

// uvarint reads a number of at most limit.
func (r *reader) uvarint(limit uint64) uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.b[r.off:])
	if n <= 0 || v > limit {
		r.fail("number at %d is malformed or above %d", r.off, limit)
		return 0
	}
	r.off += n
	return v
}

func (r *reader) bytes16(limit int) []byte {
	n := int(r.uint16())
	if n > limit {
		r.fail("%d bytes where at most %d may be", n, limit)
		return nil
	}
	return bytes.Clone(r.take(n))
}

func (r *reader) text16(limit int) string { return string(r.bytes16(limit)) }

func (r *reader) left() int { return len(r.b) - r.off }

func (r *reader) end() error {
	if r.err == nil && r.left() != 0 {
		r.fail("%d bytes too many", r.left())
	}
	return r.err
}

func (m *Manifest) decodeLedger(r *reader) {
	n := int(r.uint32())
	m.LedgerMetadata = bytes.Clone(r.take(n))
	m.LastEntry, m.Length, m.Entries = ledger.EntryID(r.int64()), r.int64(), r.int64()
	m.Digest = ledger.DigestType(r.uint8())
	copy(m.Content[:], r.take(len(m.Content)))
}

func (m *Manifest) decodeGeometry(r *reader) {
	m.Geometry = Geometry{Data: int(r.uint8()), Parity: int(r.uint8())}
	m.CellBytes = int(r.uint32())
	code := r.uint16()
	m.BlockBytes = int(r.uint32())
	m.Compression, m.Encryption = Compression(r.uint8()), Encryption(r.uint8())
	m.Writer = r.text16(writerMax)
	switch {
	case r.err != nil:
	case m.Geometry.Validate() != nil:
		r.fail("geometry %s", m.Geometry)
	case code != codeReedSolomon:
		r.fail("erasure code %d, this program knows %d", code, codeReedSolomon)
	case m.CellBytes > CellBytesMax || m.BlockBytes > BlockBytesMax:
		r.fail("cells of %d and blocks of %d bytes", m.CellBytes, m.BlockBytes)
	case m.Compression > CompressAuto || m.Encryption > EncryptAESGCM:
		r.fail("compression %d, encryption %d", m.Compression, m.Encryption)
	}
}

func (m *Manifest) decodePlacement(r *reader) {
	n := int(r.uint8())
	if n > shardsMax {
		r.fail("%d shards", n)
		return
	}
	m.Shards = make([]Shard, n)
	for i := range m.Shards {
		m.Shards[i] = Shard{Target: r.text16(targetIDMax), Generation: r.uint32(), Length: r.int64(), CRC32C: r.uint32()}
	}
}

func (m *Manifest) decodeStripes(r *reader) {
	n, k := int(r.uint32()), m.Geometry.Data
	all := m.Geometry.Shards()
	if k == 0 || n > stripesMax || n*(k+4*all) > r.left() {
		r.fail("%d stripes of %s in %d bytes", n, m.Geometry, r.left())
		return
	}
	m.stripes = make([]stripe, n)
	cells := make([]uint32, n*(k+all)) // one allocation
	for i := range m.stripes {
		s := &m.stripes[i]
		s.lengths, s.crcs, cells = cells[:k:k], cells[k:k+all:k+all], cells[k+all:]
		for j := range s.lengths {
			s.lengths[j] = uint32(r.uvarint(CellBytesMax)) //nolint:gosec // bounded
		}
		for j := range s.crcs {
			s.crcs[j] = r.uint32()
		}
	}
}

func (m *Manifest) decodeBlocks(r *reader) {
	total, pages := r.int64(), int64(r.uint32())
	if total > int64(r.left()/blockColumnsMin) || pages != (total+pageBlocks-1)/pageBlocks {
		r.fail("%d blocks on %d pages in %d bytes", total, pages, r.left())
		return
	}
	dir := r.take(int(pages) * pageDirSize)
	if r.err != nil {
		return
	}
	m.blocks = make([]blockRef, total)
	for p := range int(pages) {
		d := dir[p*pageDirSize:]
		end := len(r.b)
		if p+1 < int(pages) {
			end = int(min(binary.BigEndian.Uint64(d[pageDirSize+16:]), uint64(len(r.b)))) //nolint:gosec // bounded by the buffer
		}
		if binary.BigEndian.Uint64(d[16:]) != uint64(r.off) || end < r.off || binary.BigEndian.Uint64(d[8:]) != uint64(p)*pageBlocks { //nolint:gosec // not negative
			r.fail("page %d begins at %d, not at %d", p, binary.BigEndian.Uint64(d[16:]), r.off)
			return
		}
		page := &reader{b: r.take(end - r.off)}
		if objstore.CRC32C(page.b) != binary.BigEndian.Uint32(d[24:]) {
			r.fail("CRC32C of page %d does not match", p)
			return
		}
		decodePage(page, binary.BigEndian.Uint64(d), m.blocks[p*pageBlocks:min((p+1)*pageBlocks, int(total))])
		if err := page.end(); err != nil {
			r.fail("page %d: %w", p, err)
			return
		}
	}
}

// decodePage fills the blocks of a page whose first one begins with entry first.
func decodePage(r *reader, first uint64, blocks []blockRef) {
	cell, offset := r.uvarint(stripesMax*DataShardsMax), r.uvarint(CellBytesMax)
	for i := range blocks {
		first += r.uvarint(1 << 62)
		if first > 1<<62 {
			r.fail("entry %d", first)
			return
		}
		blocks[i].first = ledger.EntryID(first)
	}
	bits := r.take((len(blocks) + 7) / 8)
	if r.err != nil {
		return
	}
	for i := range blocks {
		blocks[i].stored = uint32(r.uvarint(blockHeaderSize + blockRawMax + blockSlack)) //nolint:gosec // bounded
		if i > 0 && bits[i/8]&(1<<(i%8)) != 0 {
			cell, offset = cell+1, 0
		}
		blocks[i].cell, blocks[i].offset = uint32(cell), uint32(offset) //nolint:gosec // bounded below and by check
		if offset += uint64(blocks[i].stored); offset > CellBytesMax {
			r.fail("block %d of the page ends at %d of its cell", i, offset)
			return
		}
	}
	for i := range blocks {
		blocks[i].raw = uint32(r.uvarint(blockRawMax)) //nolint:gosec // bounded
	}
	for i := range blocks {
		blocks[i].crc = r.uint32()
	}
}

// check makes sure that the sections agree with each other.
func (m *Manifest) check() error {
	if len(m.blocks) == 0 || m.blocks[0].first != 0 || m.blocks[len(m.blocks)-1].first > m.LastEntry {
		return fmt.Errorf("%d blocks, which do not span entries 0 to %d", len(m.blocks), m.LastEntry)
	}
	if err := m.checkHead(); err != nil {
		return err
	}
	return m.checkPage(m.whole(), 0)
}

// checkHead is check without the blocks.
func (m *Manifest) checkHead() error {
	x := m.pages
	switch {
	case !m.Digest.Valid():
		return fmt.Errorf("digest type %d", m.Digest)
	case m.LastEntry < 0 || m.Entries != int64(m.LastEntry)+1:
		return fmt.Errorf("%d entries up to %d", m.Entries, m.LastEntry)
	case len(m.Shards) != m.Geometry.Shards():
		return fmt.Errorf("%d shards for %s", len(m.Shards), m.Geometry)
	case (m.Encryption != EncryptNone) != (m.Key != nil):
		return errors.New("encryption without a key, or a key without encryption")
	case m.Inline != nil && (len(m.stripes) > 0 || x != nil):
		return errors.New("inline and striped at once")
	case x != nil && (x.refs[0].first != 0 || x.refs[len(x.refs)-1].first > m.LastEntry):
		return fmt.Errorf("%d pages, which do not span entries 0 to %d", len(x.refs), m.LastEntry)
	}
	for i, sum := range shardSums(m.Geometry, m.stripes) {
		if s := &m.Shards[i]; s.Length != sum.length || s.CRC32C != sum.crc {
			return fmt.Errorf("shard %d has %d bytes with CRC32C %08x, its cells add up to %d with %08x", i, s.Length, s.CRC32C, sum.length, sum.crc)
		}
	}
	return nil
}

// whole is the index of a manifest that was read whole, as one page.
func (m *Manifest) whole() *page { return &page{refs: m.blocks, end: m.LastEntry + 1} }

// cellLength is the length of a data cell, or of the inline blocks.
func (m *Manifest) cellLength(cell uint32) (uint32, bool) {
	if m.Inline != nil {
		return uint32(len(m.Inline)), cell == 0 //nolint:gosec // at most ManifestMax
	}
	s := int(cell) / m.Geometry.Data
	if s >= len(m.stripes) {
		return 0, false
	}
	return m.stripes[s].lengths[int(cell)%m.Geometry.Data], true
}

// checkPage sees that blocks fill their cells without a gap, that entries are not too many for a block, and numbers them from number on.
func (m *Manifest) checkPage(p *page, number uint32) error {
	blocks := p.refs
	last := p.behind() == m.Blocks()
	for i := range blocks {
		b := &blocks[i]
		length, ok := m.cellLength(b.cell)
		end := b.offset + b.stored
		lastInCell := i+1 == len(blocks) && last || i+1 < len(blocks) && blocks[i+1].cell != b.cell
		switch {
		case !ok || end > length || b.stored < blockHeaderSize || (lastInCell && end != length):
			return fmt.Errorf("block %d: bytes %d to %d of cell %d, which has %d", p.first+i, b.offset, end, b.cell, length)
		case p.first+i == 0 && (b.cell != 0 || b.offset != 0):
			return fmt.Errorf("block 0 at byte %d of cell %d", b.offset, b.cell)
		case i > 0 && b.cell == blocks[i-1].cell && b.offset != blocks[i-1].offset+blocks[i-1].stored:
			return fmt.Errorf("block %d begins at %d of cell %d, the one before ends at %d", p.first+i, b.offset, b.cell, blocks[i-1].offset+blocks[i-1].stored)
		case i > 0 && b.cell > blocks[i-1].cell+1, i > 0 && b.cell != blocks[i-1].cell && b.offset != 0:
			return fmt.Errorf("block %d at %d of cell %d behind one of cell %d", p.first+i, b.offset, b.cell, blocks[i-1].cell)
		}
		n := p.entries(p.first + i)
		if n < 0 || n > blockEntriesMax {
			return fmt.Errorf("block %d has %d entries", p.first+i, n)
		}
		b.number = number
		if n > 0 {
			number++
		}
	}
	if last && m.Inline == nil {
		for c := blocks[len(blocks)-1].cell + 1; int(c) < len(m.stripes)*m.Geometry.Data; c++ {
			if length, _ := m.cellLength(c); length != 0 {
				return fmt.Errorf("cell %d has %d bytes and no block", c, length)
			}
		}
	}
	return nil
}

// entriesOf is the number of entries of a block of a manifest that was read whole.
func (m *Manifest) entriesOf(i int) int64 { return m.whole().entries(i) }

// blockOf returns the block that holds entry e, of a manifest that was read whole.
func (m *Manifest) blockOf(e ledger.EntryID) int { return m.whole().find(e) }
