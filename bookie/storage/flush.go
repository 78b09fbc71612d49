package storage

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/vfs"
)

// flushRequest asks a flusher for a checkpoint that covers everything stored before the request.
type flushRequest struct {
	d    *dir
	done chan error // capacity 1
}

// request queues a checkpoint.
func (d *dir) request() *flushRequest {
	r := &flushRequest{d: d, done: make(chan error, 1)}
	d.reqMu.Lock()
	if d.reqClosed {
		r.done <- ErrClosed
	} else {
		d.reqs = append(d.reqs, r)
	}
	d.reqMu.Unlock()
	d.poke()
	select {
	case d.urgent <- struct{}{}:
	default:
	}
	return r
}

// wait returns the outcome of the request.
func (r *flushRequest) wait(ctx context.Context) error {
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// takeRequests returns the requests that wait, and with closing set turns later ones away.
func (d *dir) takeRequests(closing bool) []*flushRequest {
	d.reqMu.Lock()
	defer d.reqMu.Unlock()
	reqs := d.reqs
	d.reqs = nil
	d.reqClosed = d.reqClosed || closing
	return reqs
}

// requested reports whether somebody waits for a checkpoint.
func (d *dir) requested() bool {
	d.reqMu.Lock()
	defer d.reqMu.Unlock()
	return len(d.reqs) > 0
}

// poke makes the flusher look at its directory.
func (d *dir) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// flusher is the one goroutine that flushes the directory (C20): when the current cache is half full, when somebody asks,
// and every FlushInterval.
func (d *dir) flusher() {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("bindery", "flusher", "dir", d.path)))
	timer := time.NewTimer(d.s.o.FlushInterval)
	defer timer.Stop()
	for {
		select {
		case <-d.s.stop:
			for _, r := range d.takeRequests(true) {
				r.done <- ErrClosed
			}
			return
		case <-d.wake:
		case <-timer.C:
		}
		reqs := d.takeRequests(false) // one checkpoint serves all that wait
		err := d.checkpoint(len(reqs) > 0)
		if err != nil && !d.failed.Load() {
			if jerr := d.rejournal(); jerr != nil {
				d.s.log.Warn("a directory that can not flush holds the journals back", "dir", d.path, "err", jerr)
			}
		}
		for _, r := range reqs {
			r.done <- err
		}
		wait := d.s.o.FlushInterval
		if err != nil && !d.failed.Load() {
			wait = min(wait, flushRetry)
		}
		timer.Reset(wait)
		if err == nil && (d.halfFull() || d.requested()) {
			d.poke()
		}
	}
}

// flushRetry is how long a flusher waits before it tries again on a full disk.
const flushRetry = time.Second

// halfFull reports whether the current cache should be flushed.
func (d *dir) halfFull() bool {
	c := d.current.Load()
	return c.used.Load() >= c.capacity()/2
}

// flushWork is what one checkpoint makes durable. It survives an attempt that failed for lack of space.
type flushWork struct {
	mark    []uint64
	cache   *writeCache // nil if it was empty
	changed []*Ledger   // each pinned
}

// checkpoint makes everything stored before the call durable (decision 9). It runs on the flusher's goroutine only.
func (d *dir) checkpoint(urgent bool) error {
	d.work.urgent = urgent
	if err := d.failure(); err != nil {
		return err
	}
	if d.retry != nil { // what a full disk left goes first, with its own, older mark
		if err := d.flush(); err != nil {
			return err
		}
	}
	d.swap()
	return d.flush()
}

// swap takes the mark, then the current cache and the list of changed states.
func (d *dir) swap() {
	w := &flushWork{mark: d.s.takeMark()}
	d.setPending(true)
	invariant.CrashPoint("storage.flush.marked")
	if c := d.current.Load(); c.used.Load() != cacheStart {
		other := d.caches[1-c.slot]
		// The order of these stores is the order in which readers look: an entry is always in one of them.
		d.flushing.Store(c)
		d.current.Store(other)
		c.await(&c.writers)
		w.cache = c
		d.taken.Add(cacheStart - c.used.Load())
		d.wakeWaiters()
		d.load.Store(d.load.Load()/2 + c.used.Load()/2)
	}
	w.changed = d.takeDirty()
	d.retry = w
	invariant.CrashPoint("storage.flush.swapped")
}

// flush writes d.retry. On success nothing is left of it. On a full disk it stays for the next attempt; after any other
// error the directory has failed.
func (d *dir) flush() error {
	start := time.Now()
	d.flushMu.Lock()
	defer d.flushMu.Unlock()
	w := d.retry
	page, err := d.writeOnce(w)
	if vfs.IsNoSpace(err) && d.useReserve("a flush") {
		page, err = d.writeOnce(w)
	}
	if err != nil {
		d.flushFailures.Add(1)
		if isPassing(err) {
			if vfs.IsNoSpace(err) {
				d.markFull()
			}
			return fmt.Errorf("flush %s: %w", d.path, err)
		}
		d.fail(fmt.Errorf("flush: %w", err))
		return d.failure()
	}
	invariant.CrashPoint("storage.flush.synced")
	if page != nil {
		d.overlayMu.Lock()
		d.ov.add(page)
		d.overlayMu.Unlock()
		d.gen.Add(1)
	}
	d.release(w)
	d.flushes.Add(1)
	d.flushNanos.Add(uint64(time.Since(start)))
	// The journal holds what began these lives: it may not be trimmed before the list of deleted ledgers knows of them.
	if err := d.forgetTombstones(); err != nil {
		return fmt.Errorf("flush %s: %w", d.path, err)
	}
	d.setPending(false)
	if err := d.s.advance(d, w.mark); err != nil {
		return err
	}
	invariant.CrashPoint("storage.flush.done")
	return d.failure()
}

// release lets go of what is durable and served by the overlay.
func (d *dir) release(w *flushWork) {
	if c := w.cache; c != nil {
		d.flushing.Store(nil)
		c.await(&c.readers)
		for _, l := range c.ledgers {
			d.s.ledgers.release(l)
		}
		c.reset()
		if cap(c.ledgers) > 16*flushKept {
			c.ledgers = nil
		}
		d.wakeWaiters()
	}
	for _, l := range w.changed {
		l.mu.Lock()
		l.leaving = false
		l.mu.Unlock()
		d.s.ledgers.release(l)
	}
	d.work.trim()
	d.retry = nil
}

// flushBuffers are reused from flush to flush.
type flushBuffers struct {
	entries []flushEntry
	states  []entrylog.LedgerState
	data    []byte
	ends    []int // of each state in data
	late    []*Ledger
	urgent  bool // somebody waits for this checkpoint: no pacing
}

// trim lets go of handles, and of memory that only an unusual flush needed.
func (b *flushBuffers) trim() {
	clear(b.late)
	clear(b.states)
	if cap(b.states) > flushKept || cap(b.late) > flushKept {
		b.states, b.data, b.ends, b.late = nil, nil, nil, nil
	}
	if cap(b.entries) > 16*flushKept {
		b.entries = nil
	}
}

// flushKept is how many ledgers' worth of memory a flush keeps for the next.
const flushKept = 4 << 10

type flushEntry struct {
	entry int64
	at    uint32
}

// writeOnce appends entries, runs and states to the log and syncs. It may be called again after a failure.
func (d *dir) writeOnce(w *flushWork) (*page, error) {
	if w.cache == nil && len(w.changed) == 0 {
		return nil, nil
	}
	var runs entrylog.RunBuilder
	d.work.late = d.work.late[:0]
	if w.cache != nil {
		if err := d.writeEntries(w.cache, &runs); err != nil {
			return nil, d.abort(err)
		}
	}
	invariant.CrashPoint("storage.flush.appended")
	table := runs.Runs()
	states := d.encodeStates(w.changed, d.work.late)
	if err := d.log.Checkpoint(table, states); err != nil {
		return nil, d.abort(err)
	}
	log := d.log.Durable().Log
	raise(&d.maxLog, uint32(log))
	slices.SortFunc(states, func(a, b entrylog.LedgerState) int { return compareInt64(a.Ledger, b.Ledger) })
	return pagesOf(log, table, states), nil
}

// abort drops a failed attempt from the log.
func (d *dir) abort(err error) error {
	if aerr := d.log.Abort(); aerr != nil && !isPassing(err) {
		err = errors.Join(err, aerr)
	}
	return err
}

// writeEntries appends the cache's entries, sorted by ledger and entry, at the pace at which the other cache fills.
func (d *dir) writeEntries(c *writeCache, runs *entrylog.RunBuilder) error {
	slices.SortFunc(c.ledgers, func(a, b *Ledger) int { return compareInt64(a.id, b.id) })
	p := newPacer(d, c.used.Load())
	first := true
	for i, l := range c.ledgers {
		if i > 0 && c.ledgers[i-1] == l {
			continue // it was deleted and re-created between two adds
		}
		chain, dirty := d.chain(c, l)
		if dirty {
			d.work.late = append(d.work.late, l)
		}
		for _, e := range chain {
			r := c.record(e.at)
			loc, err := d.append(r.body, first)
			if err != nil {
				return err
			}
			first = false
			runs.Add(r.ledger, r.entry, loc)
			d.flushedEntries.Add(1)
			d.flushedBytes.Add(uint64(len(r.body)))
			p.wrote(int64(len(r.body)))
		}
	}
	return nil
}

// append appends an entry. The first one of a flush goes to a log above all floors: a ledger that came back after its
// deletion may not share a log with its earlier life.
func (d *dir) append(body []byte, first bool) (entrylog.Location, error) {
	for {
		loc, err := d.log.Append(body)
		if err != nil {
			return loc, err
		}
		raise(&d.maxLog, uint32(loc.Log))
		if !first || uint32(loc.Log) > d.rollAbove.Load() {
			return loc, nil
		}
		// Ids are taken one after the other, and a floor is never far above them: it is the id of a log that exists, or
		// that an earlier process had begun.
		if err := d.log.Abort(); err != nil {
			return loc, err
		}
		if err := d.log.Roll(); err != nil {
			return loc, err
		}
	}
}

// chain returns a ledger's entries in the cache, ascending, of each the latest copy, and whether its state has changed.
func (d *dir) chain(c *writeCache, l *Ledger) ([]flushEntry, bool) {
	l.mu.Lock()
	at := uint32(0)
	if ref := l.in[c.slot]; ref.epoch == c.epoch {
		at = ref.head
	}
	dirty := l.dirty
	l.mu.Unlock()
	list := d.work.entries[:0]
	for at != 0 {
		r := c.record(at)
		list = append(list, flushEntry{r.entry, at})
		at = r.prev
	}
	slices.Reverse(list) // now in order of arrival, which mostly is the order of entries
	if !slices.IsSortedFunc(list, func(a, b flushEntry) int { return compareInt64(a.entry, b.entry) }) {
		slices.SortStableFunc(list, func(a, b flushEntry) int { return compareInt64(a.entry, b.entry) })
	}
	out := list[:0]
	for _, e := range list {
		if n := len(out); n > 0 && out[n-1].entry == e.entry {
			out[n-1] = e // the later copy wins
			continue
		}
		out = append(out, e)
	}
	d.work.entries = list
	return out, dirty
}

// encodeStates returns the present states of changed ledgers. A ledger whose state changes from now on goes to the next
// checkpoint's list. Ledgers of late, whose first entry came before the swap and whose state changed right after it, are on
// that list already, and are written here as well: no entry may become durable before the state that it came with.
func (d *dir) encodeStates(changed, late []*Ledger) []entrylog.LedgerState {
	b := &d.work
	b.states, b.data, b.ends = b.states[:0], b.data[:0], b.ends[:0]
	for _, l := range changed {
		l.mu.Lock()
		l.dirty, l.leaving = false, true
		b.encodeLocked(l)
		l.mu.Unlock()
	}
	for _, l := range late {
		l.mu.Lock()
		if !l.leaving { // it is not among the changed ones
			b.encodeLocked(l)
		}
		l.mu.Unlock()
	}
	start := 0
	for i, end := range b.ends {
		b.states[i].Data = b.data[start:end]
		start = end
	}
	return b.states
}

// encodeLocked appends a ledger's state. The ledger is locked.
func (b *flushBuffers) encodeLocked(l *Ledger) {
	b.data = l.AppendState(b.data)
	b.states = append(b.states, entrylog.LedgerState{Ledger: l.id})
	b.ends = append(b.ends, len(b.data))
}

func compareInt64(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
