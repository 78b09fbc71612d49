package offload

import (
	"encoding/binary"
	"fmt"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload/objstore"
)

// Versions of the manifest that this code writes. It reads every minor of its major.
const (
	manifestMajor = 1
	manifestMinor = 0
)

// Sizes and limits of a manifest.
const (
	manifestMagic       = "BKOMFST1"
	manifestEnd         = "BKOMFEND"
	manifestHeaderSize  = 64
	manifestDirSize     = 24
	manifestTrailerSize = 16
	ManifestMax         = 256 << 20

	sectionsMax     = 64
	mustUnderstand  = 1 << 0
	pageBlocks      = 4096
	pageDirSize     = 8 + 8 + 8 + 4
	blockColumnsMin = 1 + 1 + 1 + 4 // bytes that a block takes in a page at least, its bit aside
	targetIDMax     = 64
	keyIDMax        = 256
	wrappedKeyMax   = 4096
	writerMax       = 256
)

// The sections, in the order in which they stand.
const (
	sectionLedger    = 1
	sectionGeometry  = 2
	sectionPlacement = 3
	sectionStripes   = 4
	sectionBlocks    = 5
	sectionKeys      = 6
	sectionInline    = 7
	sectionPages     = 8 // optional: pages of the index can be read alone
)

// Encryption is how payloads are encrypted.
type Encryption uint8

// The kinds of encryption.
const (
	EncryptNone   Encryption = 0
	EncryptAESGCM Encryption = 1 // aes-256-gcm
)

// Shard says what a shard object is, and where it was when the manifest was written; the record overrides the place.
type Shard struct {
	Target     string
	Generation uint32
	Length     int64
	CRC32C     uint32 // of the whole object
}

// WrappedKey is the data key of an encrypted ledger under a key of the operator's.
type WrappedKey struct {
	KeyID     string
	Algorithm string
	Key       []byte
	Unknown   []byte // of a record: fields of newer versions
}

// Manifest describes one offloaded ledger: what is needed to read it beside the objects.
type Manifest struct {
	Ledger  ledger.ID
	Attempt AttemptID

	LedgerMetadata []byte // the record as stored, without the password
	LastEntry      ledger.EntryID
	Length         int64
	Entries        int64
	Digest         ledger.DigestType
	Content        [16]byte // digest over all entries

	Geometry    Geometry
	CellBytes   int
	BlockBytes  int
	Compression Compression
	Encryption  Encryption
	Writer      string // version of the program

	Shards []Shard
	Key    *WrappedKey // nil if not encrypted
	Inline []byte      // the blocks of a small ledger; then there are no shard objects

	stripes []stripe
	blocks  []blockRef
	pages   *pageIndex // instead of blocks, of a manifest that was not read whole
}

// Stripes is the number of stripes.
func (m *Manifest) Stripes() int { return len(m.stripes) }

// Blocks is the number of blocks, fill blocks included.
func (m *Manifest) Blocks() int {
	if m.pages != nil {
		return m.pages.total
	}
	return len(m.blocks)
}

// memory is what the decoded manifest holds on to, for the cache's bound.
func (m *Manifest) memory() int {
	pages := 0
	if m.pages != nil {
		pages = len(m.pages.refs) * 40
	}
	return 512 + pages + len(m.Inline) + len(m.LedgerMetadata) + len(m.blocks)*32 + len(m.stripes)*(48+4*m.Geometry.Data+4*m.Geometry.Shards())
}

type section struct {
	kind  uint16
	flags uint16
	body  []byte
}

// Encode returns the stored form. The same manifest gives the same bytes.
func (m *Manifest) Encode() ([]byte, error) {
	blocks := m.encodeBlocks()
	sections := []section{
		{sectionLedger, mustUnderstand, m.encodeLedger()},
		{sectionGeometry, mustUnderstand, m.encodeGeometry()},
		{sectionPlacement, mustUnderstand, m.encodePlacement()},
		{sectionStripes, mustUnderstand, m.encodeStripes()},
		{sectionBlocks, mustUnderstand, blocks},
	}
	if m.Key != nil {
		sections = append(sections, section{sectionKeys, mustUnderstand, m.encodeKeys()})
	}
	if m.Inline != nil {
		sections = append(sections, section{sectionInline, mustUnderstand, m.Inline})
	}
	if len(m.blocks) > pageBlocks {
		sections = append(sections, section{sectionPages, 0, m.encodePages(blocks)})
	}
	return encodeSections(m.Ledger, m.Attempt, sections)
}

func encodeSections(l ledger.ID, id AttemptID, sections []section) ([]byte, error) {
	offset := manifestHeaderSize + manifestDirSize*len(sections)
	total := offset + manifestTrailerSize
	for _, s := range sections {
		total += len(s.body)
	}
	if total > ManifestMax {
		return nil, fmt.Errorf("manifest of ledger %d has %d bytes, more than %d; raise the block size", l, total, ManifestMax)
	}
	b := make([]byte, 0, total)
	b = append(b, manifestMagic...)
	b = binary.BigEndian.AppendUint16(b, manifestMajor)
	b = binary.BigEndian.AppendUint16(b, manifestMinor)
	b = binary.BigEndian.AppendUint32(b, manifestHeaderSize)
	b = binary.BigEndian.AppendUint64(b, uint64(total))
	b = binary.BigEndian.AppendUint64(b, uint64(l)) //nolint:gosec // ids are not negative
	b = append(b, id[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(sections)))
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, objstore.CRC32C(b))
	for _, s := range sections {
		b = binary.BigEndian.AppendUint16(b, s.kind)
		b = binary.BigEndian.AppendUint16(b, s.flags)
		b = binary.BigEndian.AppendUint32(b, objstore.CRC32C(s.body))
		b = binary.BigEndian.AppendUint64(b, uint64(offset))
		b = binary.BigEndian.AppendUint64(b, uint64(len(s.body)))
		offset += len(s.body)
	}
	for _, s := range sections {
		b = append(b, s.body...)
	}
	b = binary.BigEndian.AppendUint32(b, objstore.CRC32C(b))
	b = binary.BigEndian.AppendUint32(b, uint32(total&0xffffffff))
	return append(b, manifestEnd...), nil
}

func (m *Manifest) encodeLedger() []byte {
	b := appendBytes32(nil, m.LedgerMetadata)
	b = binary.BigEndian.AppendUint64(b, uint64(m.LastEntry))
	b = binary.BigEndian.AppendUint64(b, uint64(m.Length))
	b = binary.BigEndian.AppendUint64(b, uint64(m.Entries))
	b = append(b, byte(m.Digest))
	return append(b, m.Content[:]...)
}

func (m *Manifest) encodeGeometry() []byte {
	b := []byte{byte(m.Geometry.Data), byte(m.Geometry.Parity)}
	b = binary.BigEndian.AppendUint32(b, uint32(m.CellBytes)) //nolint:gosec // at most CellBytesMax
	b = binary.BigEndian.AppendUint16(b, codeReedSolomon)
	b = binary.BigEndian.AppendUint32(b, uint32(m.BlockBytes)) //nolint:gosec // at most BlockBytesMax
	b = append(b, byte(m.Compression), byte(m.Encryption))
	return appendBytes16(b, []byte(m.Writer))
}

func (m *Manifest) encodePlacement() []byte {
	b := []byte{byte(len(m.Shards))}
	for i := range m.Shards {
		s := &m.Shards[i]
		b = appendBytes16(b, []byte(s.Target))
		b = binary.BigEndian.AppendUint32(b, s.Generation)
		b = binary.BigEndian.AppendUint64(b, uint64(s.Length)) //nolint:gosec // not negative
		b = binary.BigEndian.AppendUint32(b, s.CRC32C)
	}
	return b
}

func (m *Manifest) encodeStripes() []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(m.stripes))) //nolint:gosec // at most stripesMax
	for i := range m.stripes {
		for _, l := range m.stripes[i].lengths {
			b = binary.AppendUvarint(b, uint64(l))
		}
		for _, c := range m.stripes[i].crcs {
			b = binary.BigEndian.AppendUint32(b, c)
		}
	}
	return b
}

func (m *Manifest) encodeKeys() []byte {
	b := appendBytes16(nil, []byte(m.Key.KeyID))
	b = appendBytes16(b, []byte(m.Key.Algorithm))
	return appendBytes16(b, m.Key.Key)
}

// encodeBlocks writes the index: a directory of pages, then the pages in columns.
func (m *Manifest) encodeBlocks() []byte {
	pages := (len(m.blocks) + pageBlocks - 1) / pageBlocks
	b := binary.BigEndian.AppendUint64(nil, uint64(len(m.blocks)))
	b = binary.BigEndian.AppendUint32(b, uint32(pages)) //nolint:gosec // bounded by ManifestMax
	dir := len(b)
	b = append(b, make([]byte, pages*pageDirSize)...)
	for p := range pages {
		start := len(b)
		blocks := m.blocks[p*pageBlocks : min((p+1)*pageBlocks, len(m.blocks))]
		b = appendPage(b, blocks)
		d := b[dir+p*pageDirSize:]
		binary.BigEndian.PutUint64(d, uint64(blocks[0].first)) //nolint:gosec // ids are not negative
		binary.BigEndian.PutUint64(d[8:], uint64(p*pageBlocks))
		binary.BigEndian.PutUint64(d[16:], uint64(start))
		binary.BigEndian.PutUint32(d[24:], objstore.CRC32C(b[start:]))
	}
	return b
}

// appendPage writes where the page begins (cell, offset in it) and its columns, so that it can be read alone.
func appendPage(b []byte, blocks []blockRef) []byte {
	b = binary.AppendUvarint(b, uint64(blocks[0].cell))
	b = binary.AppendUvarint(b, uint64(blocks[0].offset))
	prev := blocks[0].first
	for i := range blocks {
		b = binary.AppendUvarint(b, uint64(blocks[i].first-prev)) //nolint:gosec // ascending
		prev = blocks[i].first
	}
	bits := len(b)
	b = append(b, make([]byte, (len(blocks)+7)/8)...)
	for i := 1; i < len(blocks); i++ {
		if blocks[i].cell != blocks[i-1].cell {
			b[bits+i/8] |= 1 << (i % 8)
		}
	}
	for i := range blocks {
		b = binary.AppendUvarint(b, uint64(blocks[i].stored))
	}
	for i := range blocks {
		b = binary.AppendUvarint(b, uint64(blocks[i].raw))
	}
	for i := range blocks {
		b = binary.BigEndian.AppendUint32(b, blocks[i].crc)
	}
	return b
}

func appendBytes16(b, v []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(v))) //nolint:gosec // callers bound it
	return append(b, v...)
}

func appendBytes32(b, v []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(v))) //nolint:gosec // callers bound it
	return append(b, v...)
}

// manifestHeader is the fixed front of a manifest.
type manifestHeader struct {
	ledger   ledger.ID
	attempt  AttemptID
	total    int
	sections int
}

func decodeManifestHeader(path string, b []byte) (manifestHeader, error) {
	bad := func(format string, args ...any) (manifestHeader, error) {
		return manifestHeader{}, corrupt.Errorf(path, 0, "manifest header", format, args...)
	}
	if len(b) < manifestHeaderSize+manifestTrailerSize {
		return bad("%d bytes are shorter than header and trailer", len(b))
	}
	if string(b[:8]) != manifestMagic {
		return bad("magic %x: what lies here is not a manifest of ours", b[:8])
	}
	if objstore.CRC32C(b[:60]) != binary.BigEndian.Uint32(b[60:]) {
		return bad("CRC32C does not match")
	}
	major, minor := binary.BigEndian.Uint16(b[8:]), binary.BigEndian.Uint16(b[10:])
	if major != manifestMajor {
		return manifestHeader{}, fmt.Errorf("%w: manifest %s has version %d.%d, this program reads %d.x; use the version that wrote it, or a newer one", ErrVersion, path, major, minor, manifestMajor)
	}
	h := manifestHeader{ledger: ledger.ID(binary.BigEndian.Uint64(b[24:])), attempt: AttemptID(b[32:48])} //nolint:gosec // tested below
	total, sections := binary.BigEndian.Uint64(b[16:]), binary.BigEndian.Uint32(b[48:])
	if binary.BigEndian.Uint32(b[12:]) != manifestHeaderSize || total > ManifestMax || sections > sectionsMax || h.ledger < 0 {
		return bad("header of %d bytes, %d bytes in all, %d sections, ledger %d", binary.BigEndian.Uint32(b[12:]), total, sections, h.ledger)
	}
	h.total, h.sections = int(total), int(sections)
	return h, nil
}

// DecodeManifest reads the stored form; path is the object's name, for errors. What it returns is consistent: every block lies
// in a cell, every cell in a stripe, and shards are as long as their cells.
func DecodeManifest(path string, b []byte) (*Manifest, error) {
	h, err := decodeManifestHeader(path, b)
	if err != nil {
		return nil, err
	}
	trailer := len(b) - manifestTrailerSize
	if h.total != len(b) || string(b[trailer+8:]) != manifestEnd || binary.BigEndian.Uint32(b[trailer+4:]) != uint32(len(b)&0xffffffff) { //nolint:gosec // low bits are meant
		return nil, corrupt.Errorf(path, int64(trailer), "manifest trailer", "%d bytes, the header says %d", len(b), h.total)
	}
	if objstore.CRC32C(b[:trailer]) != binary.BigEndian.Uint32(b[trailer:]) {
		return nil, corrupt.Errorf(path, int64(trailer), "manifest trailer", "CRC32C does not match")
	}
	sections, err := decodeDirectory(path, b, h)
	if err != nil {
		return nil, err
	}
	m := &Manifest{Ledger: h.ledger, Attempt: h.attempt}
	bodies := map[uint16][]byte{}
	for kind := range uint16(sectionsMax) {
		s := sections[kind]
		if s == nil {
			continue
		}
		body := b[s.offset:s.end()]
		if err := s.check(path, body); err != nil {
			return nil, err
		}
		bodies[kind] = body
		if _, err := m.decodeSection(kind, body); err != nil {
			return nil, corrupt.New(path, s.offset, fmt.Sprintf("manifest section %d", kind), err)
		}
	}
	if err := requireSections(path, sections); err != nil {
		return nil, err
	}
	if err = m.check(); err == nil {
		err = m.checkPages(bodies[sectionPages], bodies[sectionBlocks])
	}
	if err != nil {
		return nil, corrupt.New(path, 0, "manifest", err)
	}
	return m, nil
}

// sectionRef says where a section is.
type sectionRef struct {
	kind           uint16
	crc            uint32
	offset, length int64
}

func (s *sectionRef) end() int64 { return s.offset + s.length }

// known says whether this version reads the section.
func (s *sectionRef) known() bool { return s.kind >= sectionLedger && s.kind <= sectionPages }

func (s *sectionRef) check(path string, body []byte) error {
	if objstore.CRC32C(body) != s.crc {
		return corrupt.Errorf(path, s.offset, "manifest section", "CRC32C of section %d does not match", s.kind)
	}
	return nil
}

// decodeDirectory reads the directory of sections at the front of a manifest. Sections that it does not know are in it, unless they must
// be understood: then it fails.
func decodeDirectory(path string, b []byte, h manifestHeader) (map[uint16]*sectionRef, error) {
	out := map[uint16]*sectionRef{}
	trailer, last := uint64(h.total-manifestTrailerSize), uint16(0) //nolint:gosec // at least header and trailer
	for i := range h.sections {
		off := manifestHeaderSize + i*manifestDirSize
		if off+manifestDirSize > min(len(b), int(trailer)) { //nolint:gosec // at most ManifestMax
			return nil, corrupt.Errorf(path, int64(off), "manifest directory", "%d sections in %d bytes", h.sections, h.total)
		}
		d := b[off:]
		kind, flags := binary.BigEndian.Uint16(d), binary.BigEndian.Uint16(d[2:])
		start, length := binary.BigEndian.Uint64(d[8:]), binary.BigEndian.Uint64(d[16:])
		if start > trailer || length > trailer-start || kind <= last {
			return nil, corrupt.Errorf(path, int64(off), "manifest directory", "section %d of %d bytes at %d behind section %d", kind, length, start, last)
		}
		last = kind
		s := &sectionRef{kind: kind, crc: binary.BigEndian.Uint32(d[4:]), offset: int64(start), length: int64(length)} //nolint:gosec // bounded above
		if !s.known() && flags&mustUnderstand != 0 {
			return nil, fmt.Errorf("%w: manifest %s, version %d.%d, has section %d, which this program (manifest version %d.%d) must understand and does not; use the version that wrote it, or a newer one",
				ErrVersion, path, manifestMajor, binary.BigEndian.Uint16(b[10:]), kind, manifestMajor, manifestMinor)
		}
		out[kind] = s
	}
	return out, nil
}

// requireSections refuses a manifest that lacks what every one has.
func requireSections(path string, sections map[uint16]*sectionRef) error {
	for _, kind := range []uint16{sectionLedger, sectionGeometry, sectionPlacement, sectionStripes, sectionBlocks} {
		if sections[kind] == nil {
			return corrupt.Errorf(path, manifestHeaderSize, "manifest directory", "section %d is missing", kind)
		}
	}
	return nil
}

func (m *Manifest) decodeSection(kind uint16, body []byte) (known bool, err error) {
	r := &reader{b: body}
	switch kind {
	case sectionLedger:
		m.decodeLedger(r)
	case sectionGeometry:
		m.decodeGeometry(r)
	case sectionPlacement:
		m.decodePlacement(r)
	case sectionStripes:
		m.decodeStripes(r)
	case sectionBlocks:
		m.decodeBlocks(r)
	case sectionKeys:
		m.Key = &WrappedKey{KeyID: r.text16(keyIDMax), Algorithm: r.text16(keyIDMax), Key: r.bytes16(wrappedKeyMax)}
	case sectionInline:
		m.Inline = append([]byte{}, body...)
		return true, nil
	case sectionPages:
		return true, nil // compared with the index once that is there
	default:
		return false, nil
	}
	return true, r.end()
}
