package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/binderylog/bindery/bookie/index"
	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/invariant"
)

// Collection of entry logs. What counts as dead is only what is durable: tombstones in checkpoints, the index, the file
// of deleted ledgers; never what a handle says, since a crash could take that back after the log is gone.

const (
	compactSourcesMax = 1 << 12
	compactBatch      = 4 << 20 // bytes of entries that are sorted in memory before they are written
	compactCheckpoint = 64 << 20
)

// compaction is one output log and the logs that it replaces.
type compaction struct {
	intent  uint64
	output  entrylog.LogID
	sources []entrylog.LogID
	busy    bool // somebody removes the sources; guarded by dir.finalMu
}

// Dirs returns the number of ledger directories. Those of the other calls for the collector are numbered from 0.
func (s *Storage) Dirs() int { return len(s.dirs) }

// DirLevel returns a directory's path and how full it was found last: 0 fine, 1 above the warning mark, 2 full, 3 failed.
func (s *Storage) DirLevel(i int) (path string, level int) {
	d := s.dirs[i]
	return d.path, int(d.diskState())
}

// CollectableLogs returns the logs of a directory whose content is final and in the index, oldest first.
func (s *Storage) CollectableLogs(i int) ([]entrylog.LogID, error) {
	d := s.dirs[i]
	if err := d.failure(); err != nil {
		return nil, err
	}
	var ids []entrylog.LogID
	for _, info := range d.log.Logs() {
		if d.collectable(info) {
			ids = append(ids, info.ID)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// collectable reports whether the collector may touch a log.
func (d *dir) collectable(info entrylog.LogInfo) bool {
	if info.Writing {
		return false
	}
	d.finalMu.Lock()
	waits := d.obsolete[info.ID] || slices.ContainsFunc(d.final, func(f entrylog.LogInfo) bool { return f.ID == info.ID })
	d.finalMu.Unlock()
	if waits {
		return false
	}
	ingested, err := d.ix.Ingested(info.ID)
	return err == nil && ingested
}

// LogUsage reads a log's footer and says how much of it is alive: bytes of entries, of them those whose ledger exists
// here, and the number of such ledgers. A damaged log's content is not known whole: it is neither deleted nor compacted.
func (s *Storage) LogUsage(i int, id entrylog.LogID) (bytes, live int64, ledgers int, damaged bool, err error) {
	d := s.dirs[i]
	footer, err := d.log.Footer(id)
	if corrupt.Is(err) {
		return 0, 0, 0, true, nil
	}
	if err != nil {
		return 0, 0, 0, false, fmt.Errorf("usage of entry log %s: %w", id, err)
	}
	damaged = len(footer.Damage) > 0 || footer.Info.Unreadable
	f := ingestFilter{d: d, log: id}
	for ledger, n := range footer.Ledgers {
		bytes += n
		dead, err := f.isDead(ledger)
		if err != nil {
			return 0, 0, 0, false, err
		}
		if !dead {
			live += n
			ledgers++
		}
	}
	return bytes, live, ledgers, damaged, nil
}

// RemoveLog deletes a log that holds no entry of a ledger that exists here. Ledger states that it alone holds are written
// again first.
func (s *Storage) RemoveLog(ctx context.Context, i int, id entrylog.LogID) error {
	d := s.dirs[i]
	_, _, ledgers, damaged, err := s.LogUsage(i, id)
	switch {
	case err != nil:
		return err
	case damaged:
		return fmt.Errorf("entry log %s: %w", id, errLogDamaged)
	case ledgers > 0:
		return fmt.Errorf("entry log %s holds entries of %d ledgers", id, ledgers)
	}
	return d.removeLog(ctx, id)
}

// errLogDamaged says that a log can not be collected because nobody knows what it holds.
var errLogDamaged = errors.New("content is not known whole")

func (d *dir) removeLog(ctx context.Context, id entrylog.LogID) error {
	if err := d.keepStates(ctx, id); err != nil {
		return fmt.Errorf("remove entry log %s: %w", id, err)
	}
	invariant.CrashPoint("gc.log.states-kept")
	d.gen.Add(1)
	// The file goes first. Were it forgotten first, a start in between would take it for a log that the index does not
	// have yet, and its old states, fences missing, for newer than those in the index.
	if err := d.log.Remove(id); err != nil && !errors.Is(err, entrylog.ErrNoLog) {
		return fmt.Errorf("remove entry log %s: %w", id, err)
	}
	invariant.CrashPoint("gc.log.removed")
	if err := d.dropGone(); err != nil {
		return fmt.Errorf("remove entry log %s: %w", id, err)
	}
	invariant.CrashPoint("gc.log.dropped")
	return nil
}

// dropGone makes the index forget the logs whose files are gone. One that is still being read, or that could not be
// deleted, is forgotten later.
func (d *dir) dropGone() error {
	d.indexMu.Lock()
	defer d.indexMu.Unlock()
	ids, err := d.ix.Logs()
	if err != nil {
		return err
	}
	there := map[entrylog.LogID]bool{}
	for _, info := range slices.Concat(d.log.Logs(), d.log.Pending()) {
		there[info.ID] = true
	}
	for _, m := range d.log.Missing() {
		there[m.Log] = true // see dropped
	}
	for _, id := range ids {
		if there[id] {
			continue
		}
		if err := d.ix.Drop(id); err != nil {
			return err
		}
	}
	return nil
}

// keepStates writes those ledger states again of which a log may hold the only copy.
func (d *dir) keepStates(ctx context.Context, id entrylog.LogID) error {
	footer, err := d.log.Footer(id)
	if err != nil {
		return err
	}
	again := 0
	for _, s := range footer.States {
		kept, err := d.keepState(&s)
		if err != nil {
			return err
		}
		if kept {
			again++
		}
	}
	if again == 0 {
		return nil
	}
	return d.request().wait(ctx)
}

func (d *dir) keepState(s *entrylog.LedgerState) (again bool, err error) {
	old, err := parseState(s.Ledger, s.Data)
	if errors.Is(err, errStateVersion) {
		return false, err
	}
	if err == nil && d.tombs.Load().dead(s.Ledger, old.birth) {
		return false, nil
	}
	l, lerr := d.s.Ledger(s.Ledger, true)
	if lerr != nil {
		return false, lerr
	}
	defer l.Release()
	l.mu.Lock()
	defer l.mu.Unlock()
	// A higher seq of the same life was changed since. If that change is not durable yet it is on a list, and the
	// checkpoint that the caller waits for writes it.
	if l.d != d || err == nil && (l.birth > old.birth || l.birth == old.birth && l.seq > old.seq) {
		return l.dirty || l.leaving, nil
	}
	l.StateChanged()
	return true, nil
}

// Compact copies what is alive in the given logs into a new one and removes them. limit is called before each piece of
// work with its bytes and may block; the copying stops when it fails. It returns the bytes copied. A damaged log is left
// out: skipped says which, and why.
func (s *Storage) Compact(ctx context.Context, i int, sources []entrylog.LogID, limit func(context.Context, int) error) (copied int64, skipped map[entrylog.LogID]error, err error) {
	d := s.dirs[i]
	if err := d.failure(); err != nil {
		return 0, nil, err
	}
	if len(sources) == 0 || len(sources) > compactSourcesMax {
		return 0, nil, fmt.Errorf("compaction of %d logs: 1 to %d are possible", len(sources), compactSourcesMax)
	}
	d.flushMu.Lock() // no flush begins a log meanwhile, and no deletion takes a floor
	w, err := d.log.NewCompactionWriter(sources...)
	if err == nil {
		raise(&d.maxLog, uint32(w.ID()))
	}
	d.flushMu.Unlock()
	if err != nil {
		return 0, nil, fmt.Errorf("compact: %w", err)
	}
	c := &copier{d: d, w: w, limit: limit}
	var done []entrylog.LogID
	skipped = map[entrylog.LogID]error{}
	for _, id := range sources {
		cerr := c.copyLog(ctx, id)
		var damage *logDamage
		switch {
		case cerr == nil:
			done = append(done, id)
		case errors.As(cerr, &damage):
			skipped[id] = cerr
		default:
			return c.copied, skipped, errors.Join(fmt.Errorf("compact entry log %s: %w", id, cerr), w.Abort())
		}
	}
	cerr := c.finish(ctx, done)
	return c.copied, skipped, cerr
}

// logDamage wraps what is wrong with a source: the other sources go on.
type logDamage struct{ err error }

func (e *logDamage) Error() string { return e.err.Error() }
func (e *logDamage) Unwrap() error { return e.err }

// copier copies live entries.
type copier struct {
	d       *dir
	w       *entrylog.CompactionWriter
	limit   func(context.Context, int) error
	copied  int64
	pending int64 // bytes written since the last checkpoint
	runs    entrylog.RunBuilder
	batch   []copiedEntry
	buf     []byte
}

type copiedEntry struct {
	ledger, entry int64
	start, end    int // in buf
}

// copyLog copies what is alive in one log. Records that can not be read fail it if the index names one of them. (Others
// are left by a crash in the middle of a flush: commit and tables on disk, entries not; the journal had them.)
func (c *copier) copyLog(ctx context.Context, id entrylog.LogID) error {
	footer, err := c.d.log.Footer(id)
	if err != nil {
		if corrupt.Is(err) {
			return &logDamage{err}
		}
		return err
	}
	if len(footer.Damage) > 0 {
		return &logDamage{fmt.Errorf("%w: %w", errLogDamaged, footer.Damage[0].Err)}
	}
	f := ingestFilter{d: c.d, log: id}
	var damage error
	copied := 0
	err = c.d.log.Scan(ctx, id, func(r entrylog.Record, rerr error) error {
		if rerr != nil {
			damage = rerr
			return nil
		}
		if err := c.limit(ctx, entrylog.RecordHeaderSize+len(r.Body)); err != nil {
			return err
		}
		alive, err := c.alive(&f, r.Ledger, r.Entry, r.Location)
		if err != nil || !alive {
			return err
		}
		copied++
		start := len(c.buf)
		c.buf = append(c.buf, r.Body...)
		c.batch = append(c.batch, copiedEntry{r.Ledger, r.Entry, start, len(c.buf)})
		if len(c.buf) >= compactBatch {
			return c.flush()
		}
		return nil
	})
	if err != nil {
		return err
	}
	if damage != nil {
		if err := c.checkCopied(&f, footer, copied, damage); err != nil {
			return err
		}
	}
	return c.flush()
}

// checkCopied counts what the index names in a log of which some records could not be read.
func (c *copier) checkCopied(f *ingestFilter, footer *entrylog.Footer, copied int, damage error) error {
	named := 0
	for r, err := range footer.Runs() {
		if err != nil {
			return &logDamage{err}
		}
		for i := range int(r.Count) {
			alive, err := c.alive(f, r.Ledger, r.First+int64(i), r.Location(i))
			if err != nil {
				return err
			}
			if alive {
				named++
			}
		}
	}
	if named != copied {
		return &logDamage{fmt.Errorf("%d of %d entries can not be read: %w", named-copied, named, damage)}
	}
	return nil
}

// alive reports whether the index still finds the entry in this place.
func (c *copier) alive(f *ingestFilter, ledger, entry int64, at entrylog.Location) (bool, error) {
	dead, err := f.isDead(ledger)
	if err != nil || dead {
		return false, err
	}
	loc, err := c.d.ix.Locate(ledger, entry)
	switch {
	case errors.Is(err, index.ErrNotFound):
		return false, nil
	case corrupt.Is(err):
		c.d.wantRebuild(err)
		return false, &logDamage{err}
	case err != nil:
		return false, err
	}
	return loc.Log == at.Log && loc.Offset == at.Offset, nil
}

// flush writes the batch, sorted, so that a ledger's entries come to lie together.
func (c *copier) flush() error {
	slices.SortFunc(c.batch, func(a, b copiedEntry) int {
		return cmp.Or(cmp.Compare(a.ledger, b.ledger), cmp.Compare(a.entry, b.entry))
	})
	for _, e := range c.batch {
		loc, err := c.w.Append(c.buf[e.start:e.end])
		if err != nil {
			return err
		}
		c.runs.Add(e.ledger, e.entry, loc)
		n := int64(e.end - e.start)
		c.copied += n
		c.pending += n
	}
	c.batch, c.buf = c.batch[:0], c.buf[:0]
	if c.pending < compactCheckpoint {
		return nil
	}
	return c.checkpoint()
}

func (c *copier) checkpoint() error {
	c.pending = 0
	if err := c.w.Checkpoint(c.runs.Runs(), nil); err != nil {
		return err
	}
	invariant.CrashPoint("gc.compact.copied")
	return nil
}

// finish makes the output durable and visible, puts it into the index and removes the sources that were copied whole.
func (c *copier) finish(ctx context.Context, sources []entrylog.LogID) error {
	d := c.d
	if c.copied == 0 {
		if err := c.w.Abort(); err != nil {
			return fmt.Errorf("compact: %w", err)
		}
		for _, id := range sources {
			if err := d.removeLog(ctx, id); err != nil {
				return err
			}
		}
		return nil
	}
	if err := c.checkpoint(); err != nil {
		return errors.Join(fmt.Errorf("compact: %w", err), c.w.Abort())
	}
	job := &compaction{output: c.w.ID(), sources: sources}
	var err error
	if job.intent, err = d.appendIntent(ctx, encodeCompactIntent(job.output, sources)); err != nil {
		return errors.Join(fmt.Errorf("compact: %w", err), c.w.Abort())
	}
	invariant.CrashPoint("gc.compact.intent")
	info, err := c.w.Seal()
	if err != nil {
		// The log may be there or not: the next start finds out.
		return errors.Join(fmt.Errorf("compact: %w", err), c.w.Abort())
	}
	invariant.CrashPoint("gc.compact.sealed")
	d.compactedBytes.Add(uint64(c.copied))
	d.finalMu.Lock()
	d.compactions[job.output] = job
	for _, id := range sources {
		d.obsolete[id] = true
	}
	d.finalMu.Unlock()
	d.addFinal(info)
	if err := d.ingest(ctx, info); err != nil {
		return fmt.Errorf("compact: %w", err) // the keeper tries again
	}
	d.doneFinal(info.ID)
	invariant.CrashPoint("gc.compact.indexed")
	return d.finishCompaction(ctx, job)
}

// readyCompactions returns compactions whose output is in the index.
func (d *dir) readyCompactions() []*compaction {
	d.finalMu.Lock()
	defer d.finalMu.Unlock()
	var ready []*compaction
	for _, c := range d.compactions {
		if !c.busy && !slices.ContainsFunc(d.final, func(f entrylog.LogInfo) bool { return f.ID == c.output }) {
			ready = append(ready, c)
		}
	}
	slices.SortFunc(ready, func(a, b *compaction) int { return cmp.Compare(a.output, b.output) })
	return ready
}

// finishCompaction removes the sources of a compaction whose output is in the index. Doing it again is harmless.
func (d *dir) finishCompaction(ctx context.Context, c *compaction) error {
	d.finalMu.Lock()
	if c.busy || d.compactions[c.output] != c {
		d.finalMu.Unlock()
		return nil
	}
	c.busy = true
	d.finalMu.Unlock()
	defer func() {
		d.finalMu.Lock()
		c.busy = false
		d.finalMu.Unlock()
	}()
	for _, id := range c.sources {
		if _, err := d.log.Log(id); errors.Is(err, entrylog.ErrNoLog) {
			continue
		}
		if err := d.removeLog(ctx, id); err != nil {
			return err
		}
	}
	if err := d.doneIntent(ctx, c.intent); err != nil {
		return fmt.Errorf("compact: %w", err)
	}
	d.finalMu.Lock()
	delete(d.compactions, c.output)
	for _, id := range c.sources {
		delete(d.obsolete, id)
	}
	d.finalMu.Unlock()
	invariant.CrashPoint("gc.compact.done")
	return nil
}

// RetryRemovals goes on with what could not be finished before: deletions of ledgers that met a full disk, and files of
// removed logs that could not be deleted. It returns how many of the latter are left.
func (s *Storage) RetryRemovals(i int) (left int, err error) {
	d := s.dirs[i]
	if d.failed.Load() {
		return 0, nil
	}
	s.deleteMu.Lock() // no deletion is under way: what is pending was cut off
	err = d.retryDeletions()
	s.deleteMu.Unlock()
	left, rerr := d.log.RetryRemovals()
	return left, errors.Join(err, rerr)
}

// Generation returns what Delete has to be given: it changes with every recovery add, fence and deletion of the ledger. ok
// is false if the ledger does not exist here.
func (s *Storage) Generation(id int64) (generation uint32, ok bool, err error) {
	l, err := s.Ledger(id, false)
	if errors.Is(err, ErrNoLedger) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer l.Release()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Replica.Generation, true, nil
}
