package storage

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/binderylog/bindery/internal/vfs"
)

// writeCache holds entries between their add and their flush: an arena off the Go heap, and an open-addressing hash table
// on (ledger, entry) beside it. Entries of one ledger are chained from the newest to the oldest, so that a flush and a
// listing walk a ledger without looking at the others.
//
// A record in the arena, at a multiple of 8:
//
//	+------------+-----------+----------+----------+-----------+----------+------+-----------------+
//	| ledger (8) | entry (8) | size (4) | prev (4) | birth (4) | zero (4) | body | zeros to 8      |   native byte order
//	+------------+-----------+----------+----------+-----------+----------+------+-----------------+
//
// Concurrency: many goroutines put at once, each under its own ledger's lock, so one key is never put twice at a time.
// Space is taken by compare-and-swap, the record is written, then its offset is published in a table slot by
// compare-and-swap; a reader loads slots atomically and so sees whole records. A published record never changes; a slot
// moves only from empty to a key's offset and from there to a later offset of the same key. Both stand under a pin
// (decision 15): a writer's pin keeps the cache from being flushed while it is written, a reader's keeps it from being
// reused while it is read.
type writeCache struct {
	slot     int // 0 or 1: which of Ledger.in belongs to this cache
	memory   []byte
	arena    []byte
	table    []uint32 // offset/8 of a record, 0 if empty
	mask     uint32
	costMin  int64 // a record takes at least this much, which bounds the load of the table
	epoch    uint32
	used     atomic.Int64
	entries  atomic.Int64
	writers  pins
	readers  pins
	unpinned chan struct{} // capacity 1: some pin count of a closing cache reached zero

	mu      sync.Mutex
	ledgers []*Ledger // handles with entries here, each pinned; guarded by mu until the swap, then the flusher's
}

const (
	cacheHeader   = 32
	cacheStart    = 8        // offset 0 means "none"
	cacheMaxBytes = 32 << 30 // offsets are uint32 multiples of 8
	minCacheBytes = 64 << 10
	pinShards     = 8
)

// pins counts users, spread over cache lines.
type pins [pinShards]struct {
	n atomic.Int64
	_ [56]byte
}

func (p *pins) sum() (n int64) {
	for i := range p {
		n += p[i].n.Load()
	}
	return n
}

// newWriteCache returns a cache of about size bytes, its table included.
func newWriteCache(slot int, size int64) (*writeCache, error) {
	size = min(size, cacheMaxBytes) &^ 4095
	slots := int64(1) << (bits.Len64(uint64(size/80)) - 1) // a slot of 4 bytes for each 80 to 160 bytes
	memory, err := vfs.AllocOffHeap(int(size))
	if err != nil {
		return nil, err
	}
	c := &writeCache{slot: slot, memory: memory, mask: uint32(slots - 1), unpinned: make(chan struct{}, 1)}
	c.arena = memory[:size-4*slots]
	// The table is the end of the mapping: aligned, since sizes are multiples of 4096 and slots is a power of two.
	c.table = unsafe.Slice((*uint32)(unsafe.Pointer(&memory[size-4*slots])), slots)
	c.costMin = align8(int64(len(c.arena))*5/(4*slots) + 1) // at most four fifths of the slots are used
	c.epoch = 1
	c.used.Store(cacheStart)
	return c, nil
}

func (c *writeCache) free() error { return vfs.FreeOffHeap(c.memory) }

func align8(n int64) int64 { return (n + 7) &^ 7 }

// capacity is what costs may add up to.
func (c *writeCache) capacity() int64 { return int64(len(c.arena)) - cacheStart }

// cost returns what a body of n bytes takes of the capacity.
func (c *writeCache) cost(n int) int64 { return max(align8(cacheHeader+int64(n)), c.costMin) }

// reset empties the cache. Nobody has it pinned.
func (c *writeCache) reset() {
	clear(c.table)
	c.epoch++
	if c.epoch == 0 { // 0 is what a new handle's reference holds
		c.epoch = 1
	}
	c.used.Store(cacheStart)
	c.entries.Store(0)
	clear(c.ledgers)
	c.ledgers = c.ledgers[:0]
}

// cacheRef is a handle's share of one write cache, valid if epoch is the cache's. Guarded by the ledger's lock.
type cacheRef struct {
	epoch uint32
	head  uint32 // offset/8 of the ledger's newest record
	last  int64  // highest entry id
}

// put stores an entry and returns false if there is no room. The caller holds the ledger's lock and a writer's pin.
func (c *writeCache) put(id, entry int64, birth, prev uint32, body []byte) (at uint32, ok bool) {
	cost := c.cost(len(body))
	var off int64
	for {
		off = c.used.Load()
		if off+cost > int64(len(c.arena)) {
			return 0, false
		}
		if c.used.CompareAndSwap(off, off+cost) {
			break
		}
	}
	ne := binary.NativeEndian
	h := c.arena[off : off+cacheHeader]
	ne.PutUint64(h, uint64(id))
	ne.PutUint64(h[8:], uint64(entry))
	ne.PutUint32(h[16:], uint32(len(body)))
	ne.PutUint32(h[20:], prev)
	ne.PutUint32(h[24:], birth)
	ne.PutUint32(h[28:], 0)
	copy(c.arena[off+cacheHeader:], body)
	at = uint32(off / 8)
	for i := cacheHash(id, entry) & c.mask; ; i = (i + 1) & c.mask {
		slot := &c.table[i]
		cur := atomic.LoadUint32(slot)
		if cur == 0 {
			if atomic.CompareAndSwapUint32(slot, 0, at) {
				c.entries.Add(1)
				return at, true
			}
			cur = atomic.LoadUint32(slot) // another key took it
		}
		if r := c.record(cur); r.ledger == id && r.entry == entry {
			atomic.StoreUint32(slot, at) // the latest copy wins
			return at, true
		}
	}
}

// cacheRecord is a decoded record header.
type cacheRecord struct {
	ledger, entry int64
	prev, birth   uint32
	body          []byte // in the arena
}

func (c *writeCache) record(at uint32) cacheRecord {
	ne := binary.NativeEndian
	off := int64(at) * 8
	h := c.arena[off : off+cacheHeader]
	n := int64(ne.Uint32(h[16:]))
	return cacheRecord{
		ledger: int64(ne.Uint64(h)), entry: int64(ne.Uint64(h[8:])), prev: ne.Uint32(h[20:]), birth: ne.Uint32(h[24:]),
		body: c.arena[off+cacheHeader : off+cacheHeader+n : off+cacheHeader+n],
	}
}

// get returns the latest body of an entry, in the arena, or nil. Records of an earlier life of the ledger do not count.
// The caller holds a pin.
func (c *writeCache) get(id, entry int64, birth uint32) []byte {
	for i := cacheHash(id, entry) & c.mask; ; i = (i + 1) & c.mask {
		at := atomic.LoadUint32(&c.table[i])
		if at == 0 {
			return nil
		}
		if r := c.record(at); r.ledger == id && r.entry == entry {
			if r.birth != birth {
				return nil
			}
			return r.body
		}
	}
}

func cacheHash(id, entry int64) uint32 {
	hi, lo := bits.Mul64(uint64(id)^0x9E3779B97F4A7C15, uint64(entry)^0xD1B54A32D192ED03)
	h := (hi ^ lo) * 0xA0761D6478BD642F
	return uint32(h >> 32)
}

// unpin of either kind tells a waiting flusher when a count drops to zero.
func (c *writeCache) unpin(p *pins, shard uint32) {
	if p[shard].n.Add(-1) == 0 {
		select {
		case c.unpinned <- struct{}{}:
		default:
		}
	}
}

// await returns once nobody holds a pin of the given kind. The cache is out of reach for new ones: whoever pins it now
// finds that out and lets go at once.
func (c *writeCache) await(p *pins) {
	for p.sum() != 0 {
		<-c.unpinned
	}
}
