package storage

import (
	"fmt"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/binderylog/bindery/entrylog"
	"github.com/dgraph-io/ristretto/v2"
)

// readCache holds verified pieces of entry logs for catch-up reads: blocks of whole records that begin in one 64 KiB
// bucket of a log. Most of its memory is ristretto's. In front of it lies a small window of the blocks read last, since
// ristretto admits asynchronously and may refuse: without the window a scan would read every block once per entry.
//
// Beside the blocks it remembers where entries lie (hints), so that a sequential or repeated read needs no index look-up.
// A hint counts only while its directory's generation is the same: any checkpoint, relocation or deletion ends it.
type readCache struct {
	s      *Storage
	main   *ristretto.Cache[uint64, *block]
	window [windowShards]windowShard
	hints  [hintShards]hintShard
	ahead  readAhead
	free   blockBuffers
}

const (
	bucketBits    = 16
	bucketSize    = 1 << bucketBits
	blockEntryMax = 128 << 10 // longer entries are read by themselves and not cached
	windowShards  = 8
	hintShards    = 16
	readCacheMin  = 1 << 20
)

// block is immutable but for its counters.
type block struct {
	key        uint64
	start, end int64 // in the log
	data       []byte
	recs       []blockRec
	refs       atomic.Int32 // the caches' and readers'; at 0 the memory goes back
	trigger    atomic.Bool  // reaching it starts the next read-ahead
}

type blockRec struct{ off, size uint32 } // of the record header relative to start; of the body

type windowShard struct {
	mu   sync.Mutex
	ring []*block // each with a reference
	next int
	_    [64]byte
}

type hintShard struct {
	mu    sync.Mutex
	slots []hint
	_     [64]byte
}

type hint struct {
	ledger, entry int64
	gen           uint64
	loc           entrylog.Location
	dir           uint8
	valid         bool
}

func newReadCache(s *Storage, bytes int64) (*readCache, error) {
	bytes = max(bytes, readCacheMin)
	window := bytes / 8
	c := &readCache{s: s}
	c.free.max = int(bytes / 16 / bucketSize)
	for i := range c.window {
		c.window[i].ring = make([]*block, max(4, window/windowShards/bucketSize))
	}
	slots := 1
	for slots < 4096 && int64(slots)*hintShards*64 < bytes/32 {
		slots *= 2
	}
	for i := range c.hints {
		c.hints[i].slots = make([]hint, slots)
	}
	var err error
	c.main, err = ristretto.NewCache(&ristretto.Config[uint64, *block]{
		NumCounters: max(1000, 10*bytes/bucketSize), MaxCost: bytes - window, BufferItems: 64, IgnoreInternalCost: true,
		OnExit: func(b *block) { c.release(b) },
	})
	if err != nil {
		return nil, fmt.Errorf("read cache of %d bytes: %w", bytes, err)
	}
	c.ahead.start(c)
	return c, nil
}

func (c *readCache) close() {
	c.ahead.close()
	c.main.Close()
}

// blockKey packs what names a block; a log has at most 2^40 bytes and there are at most 64 directories.
func blockKey(dir int, log entrylog.LogID, off int64) uint64 {
	return uint64(dir)<<58 | uint64(log)<<26 | uint64(off>>bucketBits)&(1<<26-1)
}

// get returns the block that covers the record at loc, with a reference, or nil.
func (c *readCache) get(dir int, loc entrylog.Location) *block {
	key := blockKey(dir, loc.Log, loc.Offset)
	end := loc.Offset + entrylog.RecordHeaderSize + int64(loc.Size)
	if b := c.window[key%windowShards].get(key, loc.Offset, end); b != nil {
		return b
	}
	b, ok := c.main.Get(key)
	if !ok || b == nil || !b.retain() {
		return nil
	}
	if b.key != key || b.start > loc.Offset || b.end < end {
		c.release(b)
		return nil
	}
	return b
}

func (w *windowShard) get(key uint64, off, end int64) *block {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.ring {
		if b != nil && b.key == key && b.start <= off && b.end >= end && b.retain() {
			return b
		}
	}
	return nil
}

func (b *block) retain() bool {
	for {
		n := b.refs.Load()
		if n == 0 {
			return false
		}
		if b.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (c *readCache) release(b *block) {
	if b != nil && b.refs.Add(-1) == 0 {
		c.free.put(b.data)
	}
}

// put adds a block, whose one reference it takes over.
func (c *readCache) put(b *block) {
	b.refs.Add(1) // the window's
	w := &c.window[b.key%windowShards]
	w.mu.Lock()
	old := w.ring[w.next]
	w.ring[w.next] = b
	w.next = (w.next + 1) % len(w.ring)
	w.mu.Unlock()
	c.release(old)
	if !c.main.Set(b.key, b, int64(len(b.data))+int64(len(b.recs))*8) {
		c.release(b)
	}
}

// fill cuts a chunk into blocks and adds them. It returns the number of records, the last one's ledger, and the end of
// the last whole record.
func (c *readCache) fill(dir int, chunk entrylog.Chunk) (f filled) {
	f.end = chunk.Offset
	var b *block
	for r, err := range chunk.Records() {
		if err != nil {
			break // reported when the record itself is asked for
		}
		off := r.Location.Offset
		size := entrylog.RecordHeaderSize + int64(r.Location.Size)
		if r.Location.Size > blockEntryMax {
			break
		}
		if key := blockKey(dir, chunk.Log, off); b == nil || b.key != key {
			c.finish(b, chunk)
			b = &block{key: key, start: off}
			f.blocks++
		}
		b.recs = append(b.recs, blockRec{uint32(off - b.start), r.Location.Size})
		b.end = off + size
		f.end, f.lastOff, f.ledger, f.records = b.end, off, r.Ledger, f.records+1
	}
	c.finish(b, chunk)
	return f
}

type filled struct {
	records, blocks int
	ledger          int64
	end, lastOff    int64
}

func (c *readCache) finish(b *block, chunk entrylog.Chunk) {
	if b == nil {
		return
	}
	src := chunk.Data[b.start-chunk.Offset : b.end-chunk.Offset]
	b.data = append(c.free.get(len(src)), src...)
	b.refs.Store(1)
	c.put(b)
}

// body returns the body of the record at loc if it is the entry's, in the block.
func (b *block) body(loc entrylog.Location, ledger, entry int64) []byte {
	at := loc.Offset - b.start + entrylog.RecordHeaderSize
	if at < entrylog.RecordHeaderSize || at+int64(loc.Size) > int64(len(b.data)) || loc.Size < entrylog.MinBody {
		return nil
	}
	body := b.data[at : at+int64(loc.Size)]
	if l, e := entrylog.IDs(body); l != ledger || e != entry {
		return nil
	}
	return body
}

// next returns the place of the record behind loc if it is the ledger's next entry.
func (b *block) next(loc entrylog.Location, ledger, entry int64) (entrylog.Location, bool) {
	rel := uint32(loc.Offset - b.start)
	i := sort.Search(len(b.recs), func(i int) bool { return b.recs[i].off > rel })
	if i == len(b.recs) {
		return entrylog.Location{}, false
	}
	n := entrylog.Location{Log: loc.Log, Offset: b.start + int64(b.recs[i].off), Size: b.recs[i].size}
	return n, b.body(n, ledger, entry+1) != nil
}

func (c *readCache) hintAt(ledger, entry int64) (*hintShard, *hint) {
	h := cacheHash(ledger, entry)
	sh := &c.hints[h%hintShards]
	return sh, &sh.slots[int(h/hintShards)%len(sh.slots)]
}

// locate returns what is remembered of an entry's place.
func (c *readCache) locate(d *dir, ledger, entry int64) (entrylog.Location, bool) {
	sh, h := c.hintAt(ledger, entry)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !h.valid || h.ledger != ledger || h.entry != entry || int(h.dir) != d.index || h.gen != d.gen.Load() {
		return entrylog.Location{}, false
	}
	return h.loc, true
}

// remember notes an entry's place, found when the directory's generation was gen.
func (c *readCache) remember(d *dir, gen uint64, ledger, entry int64, loc entrylog.Location) {
	sh, h := c.hintAt(ledger, entry)
	sh.mu.Lock()
	*h = hint{ledger: ledger, entry: entry, gen: gen, loc: loc, dir: uint8(d.index), valid: true}
	sh.mu.Unlock()
}

// blockBuffers keeps some memory of dead blocks for new ones.
type blockBuffers struct {
	mu   sync.Mutex
	max  int
	bufs [][]byte
}

const blockBufferSize = bucketSize + 16<<10

func (f *blockBuffers) get(n int) []byte {
	if n > blockBufferSize {
		return make([]byte, 0, n)
	}
	if n < bucketSize/2 { // the first bytes of a random read
		return make([]byte, 0, n)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if k := len(f.bufs); k > 0 {
		b := f.bufs[k-1]
		f.bufs = f.bufs[:k-1]
		return b[:0]
	}
	return make([]byte, 0, blockBufferSize)
}

func (f *blockBuffers) put(b []byte) {
	if cap(b) != blockBufferSize {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.bufs) < f.max {
		f.bufs = append(f.bufs, b)
	}
}
