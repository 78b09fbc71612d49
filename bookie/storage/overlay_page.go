package storage

import (
	"encoding/binary"
	"iter"
	"sort"

	"github.com/binderylog/bindery/entrylog"
)

// page is the run table and the changed states of one checkpoint, or of several of one log merged: what the overlay is
// made of. It is immutable. Runs are sorted by ledger and entry and do not overlap. They are coded in blocks, each run as
// gap, count and whether all sizes are equal, offset relative to the end of the run before, sizes; in a checkpoint that
// is one to four bytes an entry, or a few bytes a run where sizes are equal.
type page struct {
	log    entrylog.LogID
	blocks []pageBlock
	data   []byte

	stateIDs  []int64  // sorted
	stateEnds []uint32 // end of each state in stateData
	stateData []byte
}

// pageBlock is up to blockEntries entries of one ledger.
type pageBlock struct {
	ledger      int64
	first, last int64  // entry ids
	offset      int64  // of the first record
	pos, end    uint32 // in data
}

// blockEntries bounds what a look-up has to decode.
const blockEntries = 256

// pageBuilder builds a page from runs in order of ledger and entry.
type pageBuilder struct {
	p          *page
	b          pageBlock
	entries    int
	next       int64 // entry id expected next in the block
	nextOffset int64
	open       bool
}

func newPageBuilder(log entrylog.LogID) *pageBuilder { return &pageBuilder{p: &page{log: log}} }

// add takes a run that lies behind all that were added. Runs longer than a block are cut.
func (w *pageBuilder) add(r *entrylog.Run) {
	uniform := len(r.Sizes) == 1
	for i, off := 0, r.Offset; i < int(r.Count); {
		first := r.First + int64(i)
		if w.open && (w.b.ledger != r.Ledger || w.entries >= blockEntries) {
			w.closeBlock()
		}
		if !w.open {
			w.b = pageBlock{ledger: r.Ledger, first: first, offset: off, pos: uint32(len(w.p.data))}
			w.open, w.entries, w.next, w.nextOffset = true, 0, first, off
		}
		n := int(r.Count) - i
		if !uniform {
			n = min(n, blockEntries-w.entries)
		}
		off = w.addPart(r, i, n, first, off, uniform)
		i += n
	}
}

func (w *pageBuilder) addPart(r *entrylog.Run, i, n int, first, off int64, uniform bool) int64 {
	d := w.p.data
	d = binary.AppendUvarint(d, uint64(first-w.next))
	d = binary.AppendUvarint(d, uint64(n)<<1|uint64(bit(uniform, 1)))
	d = binary.AppendVarint(d, off-w.nextOffset)
	if uniform {
		d = binary.AppendUvarint(d, uint64(r.Sizes[0]))
		off += int64(n) * (entrylog.RecordHeaderSize + int64(r.Sizes[0]))
		w.entries += min(n, 4) // costs as little to decode as one entry
	} else {
		for _, s := range r.Sizes[i : i+n] {
			d = binary.AppendUvarint(d, uint64(s))
			off += entrylog.RecordHeaderSize + int64(s)
		}
		w.entries += n
	}
	w.p.data = d
	w.next, w.nextOffset = first+int64(n), off
	w.b.last = first + int64(n) - 1
	return off
}

func (w *pageBuilder) closeBlock() {
	w.b.end = uint32(len(w.p.data))
	w.p.blocks = append(w.p.blocks, w.b)
	w.open = false
}

// state adds a ledger state; ids ascend.
func (w *pageBuilder) state(id int64, data []byte) {
	w.p.stateIDs = append(w.p.stateIDs, id)
	w.p.stateData = append(w.p.stateData, data...)
	w.p.stateEnds = append(w.p.stateEnds, uint32(len(w.p.stateData)))
}

func (w *pageBuilder) finish() *page {
	if w.open {
		w.closeBlock()
	}
	p := w.p
	// Pages live long: give back what append took in advance.
	p.blocks, p.data = clip(p.blocks), clip(p.data)
	p.stateIDs, p.stateEnds, p.stateData = clip(p.stateIDs), clip(p.stateEnds), clip(p.stateData)
	return p
}

func clip[T any](s []T) []T {
	if cap(s)-len(s) <= len(s)/8 {
		return s
	}
	return append(make([]T, 0, len(s)), s...)
}

// size is the page's memory in bytes.
func (p *page) size() int {
	const blockSize = 48
	return len(p.blocks)*blockSize + len(p.data) + len(p.stateIDs)*12 + len(p.stateData)
}

// pageRun is a decoded run of a block. Sizes are decoded only when asked for.
type pageRun struct {
	first  int64
	count  int
	offset int64
	size   uint32 // of every entry, if uniform
	sizes  []byte // varints otherwise
}

func (r *pageRun) last() int64 { return r.first + int64(r.count) - 1 }

// cursor walks a block's runs.
type cursor struct {
	data       []byte
	next       int64
	nextOffset int64
}

func (p *page) cursor(b *pageBlock) cursor {
	return cursor{data: p.data[b.pos:b.end], next: b.first, nextOffset: b.offset}
}

func (c *cursor) read(r *pageRun) bool {
	if len(c.data) == 0 {
		return false
	}
	gap, n := binary.Uvarint(c.data)
	c.data = c.data[n:]
	head, n := binary.Uvarint(c.data)
	c.data = c.data[n:]
	delta, n := binary.Varint(c.data)
	c.data = c.data[n:]
	r.first, r.count, r.offset = c.next+int64(gap), int(head>>1), c.nextOffset+delta
	c.next = r.first + int64(r.count)
	if head&1 != 0 {
		size, n := binary.Uvarint(c.data)
		c.data = c.data[n:]
		r.size, r.sizes = uint32(size), nil
		c.nextOffset = r.offset + int64(r.count)*(entrylog.RecordHeaderSize+int64(size))
		return true
	}
	r.sizes = c.data
	off := r.offset
	for range r.count {
		size, n := binary.Uvarint(c.data)
		c.data = c.data[n:]
		off += entrylog.RecordHeaderSize + int64(size)
	}
	r.sizes = r.sizes[:len(r.sizes)-len(c.data)]
	c.nextOffset = off
	return true
}

// locate returns the place of the run's i-th entry.
func (r *pageRun) locate(log entrylog.LogID, i int) entrylog.Location {
	if r.sizes == nil {
		return entrylog.Location{Log: log, Offset: r.offset + int64(i)*(entrylog.RecordHeaderSize+int64(r.size)), Size: r.size}
	}
	off, b := r.offset, r.sizes
	for range i {
		size, n := binary.Uvarint(b)
		b = b[n:]
		off += entrylog.RecordHeaderSize + int64(size)
	}
	size, _ := binary.Uvarint(b)
	return entrylog.Location{Log: log, Offset: off, Size: uint32(size)}
}

// run converts to the form that entry logs and index speak.
func (r *pageRun) run(ledger int64, log entrylog.LogID) entrylog.Run {
	out := entrylog.Run{Ledger: ledger, First: r.first, Log: log, Offset: r.offset, Count: uint32(r.count)}
	if r.sizes == nil {
		out.Sizes = []uint32{r.size}
		return out
	}
	out.Sizes = make([]uint32, r.count)
	for i, b := 0, r.sizes; i < r.count; i++ {
		size, n := binary.Uvarint(b)
		b = b[n:]
		out.Sizes[i] = uint32(size)
	}
	return out
}

// find returns the place of an entry, if the page has it.
func (p *page) find(ledger, entry int64) (entrylog.Location, bool) {
	i := sort.Search(len(p.blocks), func(i int) bool {
		b := &p.blocks[i]
		return b.ledger > ledger || b.ledger == ledger && b.first > entry
	}) - 1
	if i < 0 || p.blocks[i].ledger != ledger || p.blocks[i].last < entry {
		return entrylog.Location{}, false
	}
	var r pageRun
	for c := p.cursor(&p.blocks[i]); c.read(&r) && r.first <= entry; {
		if entry <= r.last() {
			return r.locate(p.log, int(entry-r.first)), true
		}
	}
	return entrylog.Location{}, false
}

// last returns the ledger's highest entry id in the page.
func (p *page) last(ledger int64) (int64, bool) {
	i := sort.Search(len(p.blocks), func(i int) bool { return p.blocks[i].ledger > ledger }) - 1
	if i < 0 || p.blocks[i].ledger != ledger {
		return -1, false
	}
	return p.blocks[i].last, true
}

// ledgerBlocks returns the blocks of a ledger.
func (p *page) ledgerBlocks(ledger int64) []pageBlock {
	lo := sort.Search(len(p.blocks), func(i int) bool { return p.blocks[i].ledger >= ledger })
	hi := lo + sort.Search(len(p.blocks)-lo, func(i int) bool { return p.blocks[lo+i].ledger > ledger })
	return p.blocks[lo:hi]
}

// state returns a ledger's state bytes, if the page has one.
func (p *page) state(id int64) ([]byte, bool) {
	i := sort.Search(len(p.stateIDs), func(i int) bool { return p.stateIDs[i] >= id })
	if i == len(p.stateIDs) || p.stateIDs[i] != id {
		return nil, false
	}
	return p.stateAt(i), true
}

func (p *page) stateAt(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = p.stateEnds[i-1]
	}
	return p.stateData[start:p.stateEnds[i]]
}

// runs yields the page's runs in order of ledger and entry.
func (p *page) runs() iter.Seq[entrylog.Run] {
	return func(yield func(entrylog.Run) bool) {
		for i := range p.blocks {
			b := &p.blocks[i]
			var r pageRun
			for c := p.cursor(b); c.read(&r); {
				if !yield(r.run(b.ledger, p.log)) {
					return
				}
			}
		}
	}
}

// ledgersAfter returns up to limit ids above after of ledgers with runs or states in the page.
func (p *page) ledgersAfter(after int64, limit int) []int64 {
	var ids []int64
	i := sort.Search(len(p.blocks), func(i int) bool { return p.blocks[i].ledger > after })
	j := sort.Search(len(p.stateIDs), func(j int) bool { return p.stateIDs[j] > after })
	for len(ids) < limit && (i < len(p.blocks) || j < len(p.stateIDs)) {
		var id int64
		switch {
		case j == len(p.stateIDs) || i < len(p.blocks) && p.blocks[i].ledger <= p.stateIDs[j]:
			id = p.blocks[i].ledger
		default:
			id = p.stateIDs[j]
		}
		for i < len(p.blocks) && p.blocks[i].ledger == id {
			i++
		}
		if j < len(p.stateIDs) && p.stateIDs[j] == id {
			j++
		}
		ids = append(ids, id)
	}
	return ids
}
