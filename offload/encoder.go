package offload

import (
	"context"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload/objstore"
)

// Compression says what happens to blocks before they are coded.
type Compression uint8

// The kinds of compression.
const (
	CompressNone Compression = 0
	CompressZstd Compression = 1 // every block, and stored raw where that is smaller
	CompressAuto Compression = 2 // the first block of a cell decides for the rest of it
)

// compressGain is what the first block of a cell must save for CompressAuto to go on.
const compressGain = 0.12

// plan is everything that stays the same while a ledger is encoded.
type plan struct {
	ledger      ledger.ID
	attempt     AttemptID
	geometry    Geometry
	digest      ledger.DigestType
	cellBytes   int
	blockBytes  int // as blockBytesFor returned it
	inlineBytes int
	compression Compression
	dataKey     []byte // nil: not encrypted
	epoch       uint32
}

// blocksExpectedMax bounds the room that is made for blocks before there are any.
const blocksExpectedMax = 1 << 20

// blocksOf is about how many blocks payloads of so many bytes take.
func (p *plan) blocksOf(length int64) int {
	n := length / int64(p.blockBytes)
	return int(min(n+n/64+1, blocksExpectedMax)) // headers and digests come on top
}

// progress is what an encoder has done by the end of a stripe; one that is given it goes on from there.
type progress struct {
	next    ledger.EntryID
	base    int64 // payload bytes before next
	blocks  []blockRef
	content contentHash
	stripes []stripe
}

// codedStripe is a stripe with its bytes on its way to the targets. The cells go back to the pool one by one.
type codedStripe struct {
	index    int
	final    bool
	cells    [][]byte // Data + Parity, each as long as it is stored
	info     stripe
	blocks   []blockRef
	contents []contentSum
	next     ledger.EntryID
	base     int64
}

// encoder packs entries into blocks, cells and stripes, and codes each stripe. One goroutine.
type encoder struct {
	plan
	coder   *coder
	codec   *blockCodec
	builder *blockBuilder
	pool    *bufferPool
	emit    func(context.Context, *codedStripe) error // takes the cells over

	done     progress
	cells    []openCell // of the stripe being filled; the last one is open
	contents []contentSum
	number   uint32 // of the next block with entries
	sealed   []byte
	compress bool // the open cell's blocks are compressed
}

// openCell is a data cell with the blocks in it.
type openCell struct {
	buf    []byte
	blocks []blockRef
}

func newEncoder(p plan, from progress, pool *bufferPool, emit func(context.Context, *codedStripe) error) (*encoder, error) {
	size, ok := digestSize(p.digest)
	if !ok {
		return nil, fmt.Errorf("ledger %d has digest type %d, which this version does not know", p.ledger, p.digest)
	}
	c, err := newCoder(p.geometry)
	if err != nil {
		return nil, err
	}
	e := &encoder{plan: p, coder: c, codec: &blockCodec{digestSize: size}, builder: newBlockBuilder(size), pool: pool, emit: emit, done: from, number: from.content.blocks}
	if p.compression != CompressNone {
		if e.codec.compressor, err = newCompressor(); err != nil {
			return nil, err
		}
	}
	if p.dataKey != nil {
		if e.codec.sealer, err = newSealer(p.dataKey, p.ledger, p.attempt, p.epoch); err != nil {
			return nil, err
		}
	}
	e.builder.reset(from.next, from.base)
	return e, nil
}

// next is the entry that add wants.
func (e *encoder) next() ledger.EntryID { return e.builder.first + ledger.EntryID(e.builder.count) }

// add takes the next entry, whose bytes are copied.
func (e *encoder) add(ctx context.Context, entry *Entry) error {
	if len(entry.Payload) > e.cellBytes-entryOverheadMax {
		return fmt.Errorf("entry %d of ledger %d has %d bytes and does not fit a cell of %d; raise the cell size", entry.ID, e.ledger, len(entry.Payload), e.cellBytes)
	}
	b := e.builder
	grown := b.rawLen() + len(b.skews) + len(entry.Payload) + len(entry.Digest) + 3*10
	if b.count > 0 && (grown > e.blockLimit() || b.count == blockEntriesMax) {
		if err := e.seal(ctx); err != nil {
			return err
		}
	}
	return b.add(entry)
}

// blockLimit is how large the block being gathered may get: what its cell has left counts, if blocks keep their size and it
// still fits.
func (e *encoder) blockLimit() int {
	limit := e.blockBytes
	if n := len(e.cells); n > 0 && e.codec.compressor == nil {
		if left := e.cellBytes - len(e.cells[n-1].buf) - blockHeaderSize - sealOverhead; left >= e.builder.rawLen() {
			limit = min(limit, left)
		}
	}
	return limit
}

// seal makes a block of what was gathered and puts it into a cell.
func (e *encoder) seal(ctx context.Context) error {
	b := e.builder
	if b.count == 0 {
		return nil
	}
	var c *openCell
	var block []byte
	large := b.count == 1 && b.rawLen() > e.blockBytes
	if e.codec.compressor == nil && e.codec.sealer == nil {
		var err error
		if c, err = e.cellFor(ctx, blockHeaderSize+b.rawLen()); err != nil {
			return err
		}
		start := len(c.buf)
		if c.buf, _, err = e.codec.seal(c.buf, b, uint64(e.number), false, large); err != nil {
			return err
		}
		block = c.buf[start:]
	} else {
		try := e.compression == CompressZstd || e.compression == CompressAuto && (e.compress || len(e.cells) == 0 || len(e.cells[len(e.cells)-1].blocks) == 0)
		sealed, saved, err := e.codec.seal(e.sealed[:0], b, uint64(e.number), try, large)
		if e.sealed = sealed; err != nil {
			return err
		}
		if c, err = e.cellFor(ctx, len(sealed)); err != nil {
			return err
		}
		if len(c.blocks) == 0 {
			e.compress = e.compression == CompressZstd || e.compression == CompressAuto && saved >= compressGain
		}
		start := len(c.buf)
		c.buf = append(c.buf, sealed...)
		block = c.buf[start:]
	}
	h, err := parseBlockHeader(block)
	if err != nil {
		return err
	}
	c.blocks = append(c.blocks, blockRef{
		first: b.first, number: e.number, offset: uint32(len(c.buf) - len(block)), stored: uint32(len(block)), raw: uint32(h.raw), crc: h.crc, //nolint:gosec // within a cell
	})
	e.contents = append(e.contents, b.content())
	e.number++
	b.reset(b.first+ledger.EntryID(b.count), b.base+b.sum)
	return nil
}

// cellFor returns the cell that a block of n bytes goes to. A full stripe leaves only now, when it is known not to be the last.
func (e *encoder) cellFor(ctx context.Context, n int) (*openCell, error) {
	if n > e.cellBytes {
		return nil, fmt.Errorf("block of entry %d has %d bytes and does not fit a cell of %d; raise the cell size", e.builder.first, n, e.cellBytes)
	}
	if l := len(e.cells); l > 0 {
		if c := &e.cells[l-1]; len(c.buf)+n <= e.cellBytes {
			return c, nil
		}
		if l == e.geometry.Data {
			if err := e.flush(ctx, false); err != nil {
				return nil, err
			}
		}
	}
	buf, err := e.pool.get(ctx)
	if err != nil {
		return nil, err
	}
	e.cells = append(e.cells, openCell{buf: buf})
	return &e.cells[len(e.cells)-1], nil
}

// finish codes what is left. inline is not nil for a ledger so small that its blocks belong into the manifest.
func (e *encoder) finish(ctx context.Context) (inline []byte, err error) {
	if err := e.seal(ctx); err != nil {
		return nil, err
	}
	if len(e.done.stripes) == 0 && len(e.cells) == 1 && len(e.cells[0].buf) <= e.inlineBytes {
		c := e.cells[0]
		inline = append([]byte{}, c.buf...)
		e.done.blocks = c.blocks
		e.done.content.add(e.contents)
		e.done.next, e.done.base = e.builder.first, e.builder.base
		e.pool.put(c.buf)
		e.cells = nil
		return inline, nil
	}
	if len(e.cells) == 0 {
		return nil, nil
	}
	return nil, e.flush(ctx, true)
}

// abort gives the buffers back.
func (e *encoder) abort() {
	for _, c := range e.cells {
		e.pool.put(c.buf)
	}
	e.cells = nil
}

// flush codes the stripe and hands it on.
func (e *encoder) flush(ctx context.Context, final bool) error {
	if len(e.done.stripes) == stripesMax {
		return fmt.Errorf("ledger %d needs more than %d stripes of %d cells of %d bytes; raise the cell size", e.ledger, stripesMax, e.geometry.Data, e.cellBytes)
	}
	if final {
		e.cells = recut(e.cells, e.geometry.Data, e.cellBytes, e.pool)
	} else {
		e.fill()
	}
	s, err := e.code(ctx)
	if err != nil {
		return err
	}
	s.final = final
	return e.emit(ctx, s)
}

// fill brings cells that a large entry left short to the size that S3 asks of parts.
func (e *encoder) fill() {
	for i := range e.cells {
		c := &e.cells[i]
		if len(c.buf) >= objstore.PartMin {
			continue
		}
		next := e.builder.first // the block that did not fit any more begins there
		if i+1 < len(e.cells) {
			next = e.cells[i+1].blocks[0].first
		}
		offset := len(c.buf)
		c.buf = appendFill(c.buf, next, objstore.PartMin-offset)
		h, _ := parseBlockHeader(c.buf[offset:])
		h.crc = blockCRC(c.buf[offset:])
		c.blocks = append(c.blocks, blockRef{first: next, offset: uint32(offset), stored: uint32(len(c.buf) - offset), raw: uint32(h.raw), crc: h.crc}) //nolint:gosec // within a cell
	}
}

// code computes parity and checksums of the cells at hand and begins a new stripe.
func (e *encoder) code(ctx context.Context) (*codedStripe, error) {
	k, n := e.geometry.Data, e.geometry.Shards()
	s := &codedStripe{index: len(e.done.stripes), cells: make([][]byte, n), contents: e.contents, next: e.builder.first, base: e.builder.base}
	s.info = stripe{lengths: make([]uint32, k), crcs: make([]uint32, n)}
	for i := range e.cells {
		s.info.lengths[i] = uint32(len(e.cells[i].buf)) //nolint:gosec // a cell
	}
	longest := int(s.info.longest())
	for i := range n {
		var err error
		switch {
		case i < len(e.cells):
			s.cells[i] = e.cells[i].buf
		default:
			s.cells[i], err = e.pool.get(ctx)
		}
		if err != nil {
			for j := len(e.cells); j < i; j++ {
				e.pool.put(s.cells[j])
			}
			return nil, err
		}
		s.cells[i] = extend(s.cells[i], longest)
	}
	if err := e.coder.encode(s.cells); err != nil {
		return nil, err
	}
	first := uint32(s.index * k) //nolint:gosec // at most stripesMax x DataShardsMax
	for i := range s.cells {
		s.cells[i] = s.cells[i][:s.info.length(i)]
		s.info.crcs[i] = objstore.CRC32C(s.cells[i])
		if i < len(e.cells) {
			for _, b := range e.cells[i].blocks {
				b.cell = first + uint32(i) //nolint:gosec // as above
				s.blocks = append(s.blocks, b)
			}
		}
	}
	e.cells, e.contents = e.cells[:0], nil
	e.done.stripes = append(e.done.stripes, s.info)
	e.done.blocks = append(e.done.blocks, s.blocks...)
	e.done.content.add(s.contents)
	e.done.next, e.done.base = s.next, s.base
	return s, nil
}

// recut spreads the blocks of the last stripe evenly over k cells, in order, so that parity is not longer than it must be.
func recut(cells []openCell, k, cellBytes int, pool *bufferPool) []openCell {
	if k == 1 {
		return cells
	}
	var sizes []int
	total := 0
	for _, c := range cells {
		for _, b := range c.blocks {
			sizes = append(sizes, int(b.stored))
			total += int(b.stored)
		}
	}
	ends := spreadEvenly(sizes, total, k, cellBytes)
	if ends == nil {
		return cells
	}
	out := make([]openCell, 0, k)
	from, at := 0, 0 // cell and block that come next
	block := 0
	for _, end := range ends {
		buf, ok := pool.tryGet()
		if !ok {
			buf = nil
		}
		c := openCell{buf: buf}
		for ; block < end; block++ {
			src := &cells[from]
			b := src.blocks[at]
			data := src.buf[b.offset : b.offset+b.stored]
			b.offset = uint32(len(c.buf)) //nolint:gosec // within a cell
			c.buf = append(c.buf, data...)
			c.blocks = append(c.blocks, b)
			if at++; at == len(src.blocks) {
				pool.put(src.buf)
				from, at = from+1, 0
			}
		}
		if !ok {
			// Beyond the pool's bound for a moment; by now the cells that were used up are back.
			pool.adopt()
		}
		out = append(out, c)
	}
	return out
}

// spreadEvenly returns where each of at most k cells ends, each with at least one block, or nil if a cell would get too large.
func spreadEvenly(sizes []int, total, k, cellBytes int) []int {
	var ends []int
	at := 0
	for i := 0; i < k && at < len(sizes); i++ {
		want := float64(total) / float64(k-i)
		size := sizes[at]
		at++
		for at < len(sizes) && (i == k-1 || abs(float64(size+sizes[at])-want) <= abs(float64(size)-want)) {
			size += sizes[at]
			at++
		}
		if size > cellBytes {
			return nil
		}
		total -= size
		ends = append(ends, at)
	}
	return ends
}

func abs(v float64) float64 { return max(v, -v) }

// contentHash is the digest over the content of all blocks with entries, in their order. Copies go on together.
type contentHash struct {
	hasher *xxh3.Hasher // nil: no blocks yet
	blocks uint32
}

func (c *contentHash) add(sums []contentSum) {
	if c.hasher == nil {
		c.hasher = xxh3.New()
	}
	for i := range sums {
		_, _ = c.hasher.Write(sums[i][:]) // never fails
	}
	c.blocks += uint32(len(sums)) //nolint:gosec // bounded by the manifest
}

func (c *contentHash) sum() contentSum {
	if c.hasher == nil {
		return xxh3.New().Sum128().Bytes()
	}
	return c.hasher.Sum128().Bytes()
}
