package storage

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/binderylog/bindery/entrylog"
	"github.com/dgraph-io/ristretto/v2"
)

// readCache holds verified pieces of entry logs for catch-up reads: blocks of whole records that begin in one 64 KiB
// bucket of a log. Most of its memory is ristretto's. In front of it lies a small window of the blocks read last, since
// ristretto admits asynchronously and may refuse: without the window a scan would read every block once per entry.
//
// Beside the blocks it remembers runs that the index returned (hints), so that a sequential or repeated read needs no index
// look-up. A hint counts only while its directory's generation is the same: any ingestion or deletion ends it. It stands
// for the index only; the overlay is asked first, as always. What lies behind an entry in its log proves nothing about
// the next one, of which there may be a newer copy elsewhere.
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
	refs       atomic.Int32 // the caches' and readers'; at 0 the memory goes back
	trigger    atomic.Bool  // reaching it starts the next read-ahead
}

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
	ledger int64
	gen    uint64
	dir    int
	run    *entrylog.Run
}

func newReadCache(s *Storage, bytes int64) (*readCache, error) {
	bytes = max(bytes, readCacheMin)
	window := bytes / 8
	c := &readCache{s: s}
	c.free.max = int(bytes / 16 / blockBufferSize)
	for i := range c.window {
		c.window[i].ring = make([]*block, max(4, window/windowShards/blockBufferSize))
	}
	slots := 1
	for slots < 4096 && int64(slots)*hintShards*1024 < bytes/8 {
		slots *= 2
	}
	for i := range c.hints {
		c.hints[i].slots = make([]hint, slots)
	}
	var err error
	c.main, err = ristretto.NewCache(&ristretto.Config[uint64, *block]{
		NumCounters: max(1000, 10*bytes/bucketSize), MaxCost: bytes - bytes/16 - window, BufferItems: 64, IgnoreInternalCost: true,
		OnExit: func(b *block) { c.release(b) },
	})
	if err != nil {
		return nil, fmt.Errorf("read cache of %d bytes: %w", bytes, err)
	}
	c.ahead.start(c, bytes)
	return c, nil
}

func (c *readCache) close() error {
	err := c.ahead.close()
	c.main.Close()
	return err
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
	if !c.main.Set(b.key, b, int64(cap(b.data))) {
		c.release(b)
	}
}

// fill cuts a chunk into blocks and adds them. ledger is the one for whose sake it was read; records that begin at limit or
// behind are left out.
func (c *readCache) fill(dir int, chunk entrylog.Chunk, ledger, limit int64) (f filled) {
	f.end = chunk.Offset
	var b *block
	for r, err := range chunk.Records() {
		if err != nil {
			break // reported when the record itself is asked for
		}
		off := r.Location.Offset
		size := entrylog.RecordHeaderSize + int64(r.Location.Size)
		if off >= limit || r.Location.Size > blockEntryMax {
			break
		}
		if key := blockKey(dir, chunk.Log, off); b == nil || b.key != key {
			c.finish(b, chunk)
			b = &block{key: key, start: off}
		}
		b.end = off + size
		f.end, f.lastOff, f.ledger, f.records = b.end, off, r.Ledger, f.records+1
		if r.Ledger == ledger {
			f.useful = b.end - chunk.Offset
		}
	}
	c.finish(b, chunk)
	return f
}

// filled says what a chunk held.
type filled struct {
	records      int
	ledger       int64 // of the last record
	end, lastOff int64 // of the last record
	useful       int64 // bytes up to the last record of the ledger that was asked for
}

// finish adds a block, together with what is cached of its bucket if they touch.
func (c *readCache) finish(b *block, chunk entrylog.Chunk) {
	if b == nil {
		return
	}
	src := chunk.Data[b.start-chunk.Offset : b.end-chunk.Offset]
	old := c.peek(b.key)
	switch {
	case old == nil:
	case old.start <= b.start && old.end >= b.end:
		c.release(old)
		return
	case old.end == b.start:
		b.data = append(append(c.free.get(len(old.data)+len(src)), old.data...), src...)
		b.start = old.start
	case old.start == b.end:
		b.data = append(append(c.free.get(len(src)+len(old.data)), src...), old.data...)
		b.end = old.end
	}
	if b.data == nil {
		b.data = append(c.free.get(len(src)), src...)
	}
	if old != nil {
		c.release(old)
	}
	b.refs.Store(1)
	c.put(b)
}

// peek returns what is cached of a bucket, with a reference, or nil.
func (c *readCache) peek(key uint64) *block {
	if b := c.window[key%windowShards].widest(key); b != nil {
		return b
	}
	b, ok := c.main.Get(key)
	if !ok || b == nil || !b.retain() {
		return nil
	}
	if b.key != key {
		c.release(b)
		return nil
	}
	return b
}

func (w *windowShard) widest(key uint64) *block {
	w.mu.Lock()
	defer w.mu.Unlock()
	var best *block
	for _, b := range w.ring {
		if b != nil && b.key == key && (best == nil || b.end-b.start > best.end-best.start) {
			best = b
		}
	}
	if best == nil || !best.retain() {
		return nil
	}
	return best
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

// hintEntries is how many entries of a ledger share a hint.
const hintEntries = 1 << 10

func (c *readCache) hintAt(ledger, entry int64) (*hintShard, *hint) {
	h := cacheHash(ledger, entry/hintEntries)
	sh := &c.hints[h%hintShards]
	return sh, &sh.slots[int(h/hintShards)%len(sh.slots)]
}

// locate returns an entry's place if it is in the run that the index returned last for its neighbourhood.
func (c *readCache) locate(d *dir, ledger, entry int64) (entrylog.Location, bool) {
	sh, h := c.hintAt(ledger, entry)
	sh.mu.Lock()
	ok := h.run != nil && h.ledger == ledger && h.dir == d.index && h.gen == d.gen.Load()
	run := h.run
	sh.mu.Unlock()
	if !ok {
		return entrylog.Location{}, false
	}
	return run.Find(entry)
}

// remember notes a run that the index returned when the directory's generation was gen.
func (c *readCache) remember(d *dir, gen uint64, entry int64, run *entrylog.Run) {
	sh, h := c.hintAt(run.Ledger, entry)
	sh.mu.Lock()
	*h = hint{ledger: run.Ledger, gen: gen, dir: d.index, run: run}
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
