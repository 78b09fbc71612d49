package offload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload/objstore"
)

// page is a run of consecutive blocks of an index: all of a manifest that was read whole, or one page of a large one. It is not changed.
type page struct {
	first int // index of its first block
	refs  []blockRef
	end   ledger.EntryID // the first entry behind it
}

func (p *page) ref(i int) *blockRef { return &p.refs[i-p.first] }

// behind is the index of the first block that is not in it.
func (p *page) behind() int { return p.first + len(p.refs) }

// entries is the number of entries of a block; a fill block has none.
func (p *page) entries(i int) int64 {
	if i+1 < p.behind() {
		return int64(p.ref(i+1).first - p.ref(i).first)
	}
	return int64(p.end - p.ref(i).first)
}

// find returns the block that holds entry e: the last one that does not begin behind it.
func (p *page) find(e ledger.EntryID) int {
	return p.first + sort.Search(len(p.refs), func(i int) bool { return p.refs[i].first > e }) - 1
}

// pageIndex says where the pages of a manifest are that was not read whole.
type pageIndex struct {
	total int // blocks
	at    int64
	refs  []pageRef
}

// pageRef is one page of an index.
type pageRef struct {
	first  ledger.EntryID
	offset int64 // in the object
	length int
	crc    uint32
	number uint32 // of its first block, among those with entries
}

// Sizes of an index that is read by pages.
const (
	manifestWholeMax = 4 << 20  // up to so much a manifest is fetched with one request and kept whole
	manifestFront    = 64 << 10 // of a larger one this much is fetched first
	manifestPartsMax = 8 << 20  // and so much at most beside the pages
	manifestGap      = 64 << 10 // parts so close to each other are fetched together
	pageBytesMax     = 20 + pageBlocks/8 + pageBlocks*(10+5+5+4)
	pageCacheBytes   = 16 << 20 // of a worker
)

// encodePages is the section that makes pages readable alone: the checksum of what stands before them in the index, and the number of each
// one's first block. It is written if there are several pages.
func (m *Manifest) encodePages(blocks []byte) []byte {
	pages := (len(m.blocks) + pageBlocks - 1) / pageBlocks
	b := binary.BigEndian.AppendUint32(nil, uint32(pages))                               //nolint:gosec // bounded by ManifestMax
	b = binary.BigEndian.AppendUint32(b, objstore.CRC32C(blocks[:12+pages*pageDirSize])) // count, pages, directory
	number := uint32(0)
	for i := range m.blocks {
		if i%pageBlocks == 0 {
			b = binary.BigEndian.AppendUint32(b, number)
		}
		if m.entriesOf(i) > 0 {
			number++
		}
	}
	return b
}

// checkPages compares the section with an index that is there as a whole.
func (m *Manifest) checkPages(section []byte, blocks []byte) error {
	if section == nil {
		return nil
	}
	if len(m.blocks) == 0 || string(m.encodePages(blocks)) != string(section) {
		return errors.New("section of pages does not belong to the index")
	}
	return nil
}

// readManifest takes the parts of a large manifest that reading needs at once; pages are fetched when they are. get fills a buffer from
// an offset of the object. A manifest without the section of pages is read whole.
func readManifest(path string, size int64, get func(offset int64, b []byte) error) (*Manifest, error) {
	front := make([]byte, min(size, manifestFront))
	if err := get(0, front); err != nil {
		return nil, err
	}
	h, err := decodeManifestHeader(path, front)
	if err != nil {
		return nil, err
	}
	if int64(h.total) != size {
		return nil, corrupt.Errorf(path, 0, "manifest header", "%d bytes, the object has %d", h.total, size)
	}
	sections, err := decodeDirectory(path, front, h)
	if err != nil {
		return nil, err
	}
	if sections[sectionPages] == nil || sections[sectionBlocks] == nil {
		b := make([]byte, size)
		if err := get(0, b); err != nil {
			return nil, err
		}
		return DecodeManifest(path, b)
	}
	if err := requirePacked(path, sections, h); err != nil {
		return nil, err
	}
	parts := newParts(front, get)
	index := *sections[sectionBlocks]
	index.length = min(index.length, 12+(sections[sectionPages].length-8)/4*pageDirSize)
	trailer := sectionRef{offset: size - manifestTrailerSize, length: manifestTrailerSize}
	parts.want(index, trailer)
	for kind, s := range sections {
		if kind != sectionBlocks && s.known() {
			parts.want(*s)
		}
	}
	if err := parts.fetch(path); err != nil {
		return nil, err
	}
	if t := parts.of(trailer); string(t[8:]) != manifestEnd || binary.BigEndian.Uint32(t[4:]) != uint32(size&0xffffffff) { //nolint:gosec // low bits are meant
		return nil, corrupt.Errorf(path, trailer.offset, "manifest trailer", "it does not end a manifest of %d bytes", size)
	}
	m := &Manifest{Ledger: h.ledger, Attempt: h.attempt}
	for kind := range uint16(sectionsMax) {
		s := sections[kind]
		if s == nil || kind == sectionBlocks || !s.known() {
			continue
		}
		body := parts.of(*s)
		if err := s.check(path, body); err != nil {
			return nil, err
		}
		if kind == sectionPages {
			err = m.decodePages(index.offset, sections[sectionBlocks].length, parts.of(index), body)
		} else {
			_, err = m.decodeSection(kind, body)
		}
		if err != nil {
			return nil, corrupt.New(path, s.offset, fmt.Sprintf("manifest section %d", kind), err)
		}
	}
	if err := requireSections(path, sections); err != nil {
		return nil, err
	}
	if err := m.checkHead(); err != nil {
		return nil, corrupt.New(path, 0, "manifest", err)
	}
	return m, nil
}

// requirePacked sees that sections follow each other without a gap: where one ends is then known twice.
func requirePacked(path string, sections map[uint16]*sectionRef, h manifestHeader) error {
	end := int64(manifestHeaderSize + manifestDirSize*h.sections)
	for _, kind := range slices.Sorted(maps.Keys(sections)) {
		if s := sections[kind]; s.offset != end {
			return corrupt.Errorf(path, s.offset, "manifest directory", "section %d begins at %d, the one before ends at %d", kind, s.offset, end)
		}
		end = sections[kind].end()
	}
	if trailer := int64(h.total - manifestTrailerSize); end != trailer {
		return corrupt.Errorf(path, end, "manifest directory", "the sections end at %d, the trailer begins at %d", end, trailer)
	}
	return nil
}

// decodePages reads where the pages are from the front of the index and the section of pages. at and length are those of the whole index.
func (m *Manifest) decodePages(at, length int64, front, section []byte) error {
	r := &reader{b: section}
	pages, crc := int(r.uint32()), r.uint32()
	if r.err != nil || len(section) != 8+4*pages || len(front) != 12+pages*pageDirSize {
		return fmt.Errorf("%d pages in %d bytes, with an index of %d", pages, len(section), length)
	}
	if objstore.CRC32C(front) != crc {
		return errors.New("CRC32C of the page directory does not match")
	}
	d := &reader{b: front}
	total := d.int64()
	if n := int(d.uint32()); n != pages || total <= 0 || total > length/blockColumnsMin || int64(pages) != (total+pageBlocks-1)/pageBlocks {
		return fmt.Errorf("%d blocks on %d pages in %d bytes", total, n, length)
	}
	x := &pageIndex{total: int(total), at: at, refs: make([]pageRef, pages)}
	offset := int64(len(front))
	for i := range x.refs {
		p := &x.refs[i]
		p.first = ledger.EntryID(d.int64())
		block, start := d.int64(), d.int64()
		p.crc, p.number, p.offset = d.uint32(), r.uint32(), at+start
		switch {
		case block != int64(i)*pageBlocks || start < offset || start > length, i > 0 && p.first < x.refs[i-1].first, int64(p.number) > block:
			return fmt.Errorf("page %d: entry %d, block %d with number %d, at %d", i, p.first, block, p.number, start)
		case i > 0:
			x.refs[i-1].length = int(start - offset)
		}
		offset = start
	}
	x.refs[pages-1].length = int(length - offset)
	for i := range x.refs {
		if n := x.refs[i].length; n <= 0 || n > pageBytesMax {
			return fmt.Errorf("page %d has %d bytes", i, n)
		}
	}
	m.pages = x
	return errors.Join(d.end(), r.end())
}

// decodePageAlone takes one page of an index apart.
func (m *Manifest) decodePageAlone(n int, b []byte) (*page, error) {
	x := m.pages
	p := &page{first: n * pageBlocks, refs: make([]blockRef, min(pageBlocks, x.total-n*pageBlocks)), end: m.LastEntry + 1}
	if n+1 < len(x.refs) {
		p.end = x.refs[n+1].first
	}
	if objstore.CRC32C(b) != x.refs[n].crc {
		return nil, fmt.Errorf("CRC32C of page %d does not match", n)
	}
	r := &reader{b: b}
	decodePage(r, uint64(x.refs[n].first), p.refs) //nolint:gosec // not negative
	if err := r.end(); err != nil {
		return nil, fmt.Errorf("page %d: %w", n, err)
	}
	if err := m.checkPage(p, x.refs[n].number); err != nil {
		return nil, fmt.Errorf("page %d: %w", n, err)
	}
	return p, nil
}

// pageOf returns the index of the page that holds entry e.
func (x *pageIndex) pageOf(e ledger.EntryID) int {
	return max(sort.Search(len(x.refs), func(i int) bool { return x.refs[i].first > e })-1, 0)
}

// pageKey names a page for ever: an attempt's manifest never changes.
type pageKey struct {
	attempt AttemptID
	n       int
}

func newPageCache(limit int) *lru[pageKey, *page] {
	return newLRU[pageKey](limit, func(p *page) int { return len(p.refs)*32 + blockMemory })
}

// page returns the page that block i is on.
func (t *tier) page(ctx context.Context, c *copyOf, i int) (*page, error) {
	if c.manifest.pages == nil {
		return c.whole, nil
	}
	n := i / pageBlocks
	p, _, err := t.pages.get(ctx, pageKey{c.record.Attempt, n}, func() (*page, error) { return t.fetchPage(ctx, c, n) })
	return p, err
}

// find returns the block that holds entry e, and the page that it is on.
func (t *tier) find(ctx context.Context, c *copyOf, e ledger.EntryID) (*page, int, error) {
	at := 0
	if x := c.manifest.pages; x != nil {
		at = x.pageOf(e) * pageBlocks
	}
	p, err := t.page(ctx, c, at)
	if err != nil {
		return nil, 0, err
	}
	return p, p.find(e), nil
}

// fetchPage reads a page from the first copy of the manifest that has it.
func (t *tier) fetchPage(ctx context.Context, c *copyOf, n int) (*page, error) {
	key := ManifestName(c.record.Attempt, c.id)
	x := &c.manifest.pages.refs[n]
	var causes []error
	for _, target := range c.record.Manifest.Targets {
		p, err := t.pageFrom(ctx, c, target, key, n, x)
		if err == nil {
			return p, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		t.found(Finding{Ledger: c.id, Kind: FindingManifest, Target: target, Object: key, Shard: -1, Err: err})
		causes = append(causes, onTarget(target, err))
	}
	return nil, noManifest(c.id, causes)
}

func (t *tier) pageFrom(ctx context.Context, c *copyOf, target, key string, n int, x *pageRef) (*page, error) {
	store, err := t.targets.store(target)
	if err != nil {
		return nil, err
	}
	b := make([]byte, x.length)
	if _, err := store.GetRange(ctx, key, x.offset, b); err != nil {
		return nil, err
	}
	p, err := c.manifest.decodePageAlone(n, b)
	if err != nil {
		return nil, corrupt.New(key, x.offset, "manifest page", err)
	}
	return p, nil
}

// noManifest is the error where no copy helped: damage if all of them are damaged, otherwise it may be better later.
func noManifest(id ledger.ID, causes []error) error {
	err := fmt.Errorf("manifest of ledger %d: no good copy: %w", id, errors.Join(causes...))
	for _, cause := range causes {
		if !corrupt.Is(cause) {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	if len(causes) == 0 {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}
