package offload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
)

// ReaderOptions configure a Reader. Only Records and Targets are needed.
type ReaderOptions struct {
	Records *Records
	Targets *Targets
	Keys    KeySource // for encrypted ledgers

	BlockCacheBytes    int64   // default 256 MiB
	ManifestCacheBytes int64   // half of it for pages of large ones; default 64 MiB
	ReadAheadBytes     int64   // of one handle or range; default 8 MiB
	NoHedge            bool    // wait for slow targets
	HedgeBudget        float64 // share of reads that may be sent twice; default 0.05
	Report             func(Finding)
}

func (o *ReaderOptions) ensureDefaults() {
	if o.BlockCacheBytes <= 0 {
		o.BlockCacheBytes = 256 << 20
	}
	if o.ManifestCacheBytes <= 0 {
		o.ManifestCacheBytes = 64 << 20
	}
	if o.ReadAheadBytes <= 0 {
		o.ReadAheadBytes = 8 << 20
	}
	if o.HedgeBudget <= 0 {
		o.HedgeBudget = 0.05
	}
}

// Reader reads ledgers from the tier. One serves a whole process; it holds the caches.
type Reader struct {
	o         ReaderOptions
	t         *tier
	blocks    *lru[blockKey, *Block]
	manifests *lru[manifestKey, *copyOf]
}

// blockKey names a block for ever: an attempt's blocks never change.
type blockKey struct {
	attempt AttemptID
	number  int
}

type manifestKey struct {
	attempt AttemptID
	version metadata.Version // of the record: a repair moves shards
}

// NewReader returns a Reader. It holds no connection and starts no goroutine of its own.
func NewReader(o ReaderOptions) (*Reader, error) {
	if err := SelfTest(); err != nil {
		return nil, err
	}
	o.ensureDefaults()
	return newReader(o, newMetrics()), nil
}

func newReader(o ReaderOptions, m *metrics) *Reader {
	return &Reader{
		o: o,
		t: &tier{
			targets: o.Targets, keys: o.Keys, latencies: newLatencies(o.HedgeBudget), hedging: !o.NoHedge, pages: newPageCache(int(o.ManifestCacheBytes / 2)), m: m, report: o.Report,
		},
		blocks: newLRU[blockKey](int(o.BlockCacheBytes), func(b *Block) int { return b.Bytes + blockMemory }),
		manifests: newLRU[manifestKey](int(o.ManifestCacheBytes-o.ManifestCacheBytes/2), func(c *copyOf) int {
			return c.manifest.memory() + len(c.record.LedgerMetadata) + blockMemory
		}),
	}
}

// blockMemory is what a cached value takes beside its bytes.
const blockMemory = 256

// WriteMetrics prints the reader's metrics in the text form.
func (r *Reader) WriteMetrics(w io.Writer) { r.t.m.write(w) }

// Handle is an open ledger of the tier. It may be used by several goroutines; each sequential reader of single entries gets more of the
// read-ahead from a handle of its own.
type Handle struct {
	r    *Reader
	id   ledger.ID
	meta *ledger.Metadata

	mu     sync.Mutex
	c      *copyOf
	last   int // block that was read last by Entry
	window int64
}

// Open opens a ledger that the tier holds. ErrNotOffloaded says that it holds none that may be read; a ledger that is being deleted is
// metadata.ErrNoLedger, as one that never was. Metadata has the password, so that whoever opens is checked as before the release.
func (r *Reader) Open(ctx context.Context, id ledger.ID) (*Handle, error) {
	c, err := r.look(ctx, id)
	if err != nil {
		return nil, err
	}
	meta, err := metadata.DecodeLedger(r.o.Records.Key(id), c.record.LedgerMetadata)
	if err != nil {
		return nil, fmt.Errorf("ledger %d in the tier: %w", id, err)
	}
	return &Handle{r: r, id: id, meta: meta, c: c, last: -2}, nil
}

// look reads the record as it is now, and the manifest unless it is cached.
func (r *Reader) look(ctx context.Context, id ledger.ID) (*copyOf, error) {
	rec, v, err := r.o.Records.Read(ctx, id)
	switch {
	case errors.Is(err, ErrNoRecord):
		return nil, fmt.Errorf("ledger %d: %w", id, ErrNotOffloaded)
	case err != nil:
		return nil, err
	case rec.State == StateDeleting:
		return nil, fmt.Errorf("ledger %d was deleted: %w", id, metadata.ErrNoLedger)
	case rec.State == StateUploading:
		return nil, fmt.Errorf("ledger %d is being offloaded: %w", id, ErrNotOffloaded)
	}
	c, _, err := r.manifests.get(ctx, manifestKey{rec.Attempt, v}, func() (*copyOf, error) { return r.t.load(ctx, id, rec, v) })
	return c, err
}

// Metadata returns the ledger's record as it was when the ledger was offloaded. It is not to be changed.
func (h *Handle) Metadata() *ledger.Metadata { return h.meta }

// State returns the record's state when it was last looked at.
func (h *Handle) State() State { return h.copyOf().record.State }

// LastEntry returns the last entry.
func (h *Handle) LastEntry() ledger.EntryID { return h.copyOf().manifest.LastEntry }

// Length returns the payload bytes, as the ledger's record has them.
func (h *Handle) Length() int64 { return h.copyOf().manifest.Length }

func (h *Handle) copyOf() *copyOf {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.c
}

// Entry returns one entry. Its bytes belong to a cache and are not to be changed. After two consecutive blocks were read, further ones are
// fetched along, twice as many each time up to the read-ahead.
func (h *Handle) Entry(ctx context.Context, e ledger.EntryID) (Entry, error) {
	c := h.copyOf()
	if e < 0 || e > c.manifest.LastEntry {
		return Entry{}, fmt.Errorf("entry %d of ledger %d, whose last one is %d: %w", e, h.id, c.manifest.LastEntry, ErrNoEntry)
	}
	p, i, err := h.r.t.find(ctx, c, e)
	if err != nil {
		return Entry{}, fmt.Errorf("entry %d: %w", e, err)
	}
	b, err := h.block(ctx, c, p, i, h.ahead(p, i))
	if err != nil {
		return Entry{}, fmt.Errorf("entry %d: %w", e, err)
	}
	h.r.t.m.entriesRead.Inc()
	return b.Entries[e-b.First], nil
}

// Entries yields entries first to last, in order. An error is the last thing it yields. What is fetched ahead stays within the read-ahead,
// one GET per cell, and never goes behind last.
func (h *Handle) Entries(ctx context.Context, first, last ledger.EntryID) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		c := h.copyOf()
		if first < 0 || last > c.manifest.LastEntry {
			yield(Entry{}, fmt.Errorf("entries %d to %d of ledger %d, whose last one is %d: %w", first, last, h.id, c.manifest.LastEntry, ErrNoEntry))
			return
		}
		for blocks, err := range h.scan(ctx, c, first, last) {
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, b := range blocks {
				for i := range b.Entries {
					if e := &b.Entries[i]; e.ID < first || e.ID > last {
						continue
					}
					h.r.t.m.entriesRead.Inc()
					if !yield(b.Entries[i], nil) {
						return
					}
				}
			}
		}
	}
}

// ahead returns the last block to fetch along with block i, for a reader of single entries.
func (h *Handle) ahead(p *page, i int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch i {
	case h.last:
		return i
	case h.last + 1:
		h.window = min(max(2*h.window, int64(p.ref(i).stored)), h.r.o.ReadAheadBytes)
	default:
		h.window = 0
	}
	h.last = i
	return p.spanEnd(i, p.behind()-1, h.window)
}

// spanEnd returns the last block that one GET may fetch along with block i: of the same page and cell, up to last, and within a number of
// bytes.
func (p *page) spanEnd(i, last int, limit int64) int {
	last = min(last, p.behind()-1)
	end, n := i, int64(p.ref(i).stored)
	for end+1 <= last && p.ref(end+1).cell == p.ref(i).cell && n+int64(p.ref(end+1).stored) <= limit {
		end++
		n += int64(p.ref(end).stored)
	}
	return end
}

// block returns block i, from the cache or with the blocks up to end.
func (h *Handle) block(ctx context.Context, c *copyOf, p *page, i, end int) (*Block, error) {
	key := func(i int) blockKey { return blockKey{c.record.Attempt, i} }
	b, hit, err := h.r.blocks.get(ctx, key(i), func() (*Block, error) {
		blocks, degraded, err := h.r.t.blocks(ctx, c, p, i, end)
		if degraded || err != nil {
			blocks, err = h.again(ctx, c, p, i, end, blocks, err)
		}
		if err != nil {
			return nil, err
		}
		for j := 1; j < len(blocks); j++ {
			h.r.blocks.add(key(i+j), blocks[j])
		}
		return blocks[0], nil
	})
	if hit {
		h.r.t.m.cacheHits.Inc()
	}
	return b, err
}

// again looks whether the record has changed since: a repair moves shards and removes the old objects later. What could not be read by the
// old record is read by the new one.
func (h *Handle) again(ctx context.Context, old *copyOf, p *page, first, last int, blocks []*Block, err error) ([]*Block, error) {
	if ctx.Err() != nil {
		return blocks, err
	}
	c, lerr := h.r.look(ctx, h.id)
	if lerr != nil {
		if err != nil && (errors.Is(lerr, metadata.ErrNoLedger) || errors.Is(lerr, ErrNotOffloaded)) {
			return nil, lerr
		}
		return blocks, err // by the old record all is said
	}
	if c.version == old.version || c.record.Attempt != old.record.Attempt {
		return blocks, err
	}
	h.mu.Lock()
	h.c = c
	h.mu.Unlock()
	if err != nil {
		blocks, _, err = h.r.t.blocks(ctx, c, p, first, last)
	}
	return blocks, err
}

// scan yields the blocks of a range, cell by cell, with the next cells under way while one is used.
func (h *Handle) scan(ctx context.Context, c *copyOf, first, last ledger.EntryID) iter.Seq2[[]*Block, error] {
	type result struct {
		blocks []*Block
		err    error
	}
	type job struct {
		bytes int64
		done  chan result
	}
	return func(yield func([]*Block, error) bool) {
		if first > last {
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		var queue []job
		ahead := int64(0)
		_, end, err := h.r.t.find(ctx, c, last)
		if err != nil {
			yield(nil, err)
			return
		}
		p, next, err := h.r.t.find(ctx, c, first)
		if err != nil {
			yield(nil, err)
			return
		}
		for next <= end || len(queue) > 0 {
			for next <= end && len(queue) < c.manifest.Geometry.Data+1 && (len(queue) < 2 || ahead < h.r.o.ReadAheadBytes) {
				if next == p.behind() {
					if p, err = h.r.t.page(ctx, c, next); err != nil { // behind what is under way
						failed := job{done: make(chan result, 1)}
						failed.done <- result{nil, err}
						queue, next = append(queue, failed), end+1
						break
					}
				}
				of, from, to := p, next, p.spanEnd(next, end, max(h.r.o.ReadAheadBytes, int64(p.ref(next).stored)))
				j := job{done: make(chan result, 1)}
				for i := from; i <= to; i++ {
					j.bytes += int64(of.ref(i).stored)
				}
				wg.Go(func() {
					blocks, err := h.span(ctx, of, from, to)
					j.done <- result{blocks, err}
				})
				queue, ahead, next = append(queue, j), ahead+j.bytes, to+1
			}
			r := <-queue[0].done
			ahead -= queue[0].bytes
			queue = queue[1:]
			if !yield(r.blocks, r.err) || r.err != nil {
				return
			}
		}
	}
}

// span reads blocks of one cell for a scan. It uses the cache and leaves it alone: a scan would push out what is read again.
func (h *Handle) span(ctx context.Context, p *page, from, to int) ([]*Block, error) {
	c := h.copyOf()
	out := make([]*Block, 0, to-from+1)
	for i := from; i <= to; i++ {
		b, ok := h.r.blocks.peek(blockKey{c.record.Attempt, i})
		if !ok {
			break
		}
		out = append(out, b)
	}
	if from += len(out); from > to {
		return out, nil
	}
	blocks, degraded, err := h.r.t.blocks(ctx, c, p, from, to)
	if degraded || err != nil {
		blocks, err = h.again(ctx, c, p, from, to, blocks, err)
	}
	return append(out, blocks...), err
}
