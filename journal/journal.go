package journal

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
)

// Journal is one journal directory.
type Journal struct {
	fs     vfs.FS
	dir    string
	o      Options
	epoch  time.Time // nanoseconds below count from here
	budget budget
	m      *journalMetrics

	// life is held by Replay, Start, Trim and Close from beginning to end, so that they do not overlap. Until started is
	// set it guards everything that mu guards afterwards, but for what Stats and Mark look at. It is taken before mu.
	life sync.Mutex

	// Set by Start, constant afterwards.
	io method

	syncTurn chan struct{} // held during a group's sync; a channel, since the wait is as long as a disk's
	syncErr  error         // of the first sync that failed; guarded by syncTurn

	// What the last Replay found. Guarded by life.
	found   *directory // nil makes Start read again
	from    Position
	lastSeq uint64 // last group on disk before Start

	// Guarded by life until Start, then the preparer's; after it has ended, Close's.
	note  note // as it is on disk; gone may be ahead
	noted bool // there is one that can be read

	mu      sync.Mutex // guards everything down to the goroutines' part
	started bool
	closing bool // no more appends; what is there goes out without waiting for company
	stop    bool // the goroutines end
	err     error

	// Until started.
	startErr error    // why the last Start failed, a *NotStartedError
	onDisk   int      // segments
	end      Position // of what was replayed

	maxID      uint64     // highest segment id ever used
	newest     uint64     // id of the segment drawn last
	cur        *segment   // the open group's
	planned    []*segment // those after it, at most one
	unprepared []*segment // identities without a file yet, in order
	live       []*segment // those before cur, by id
	nextSeq    uint64     // sequence of the open group

	pool     groupPool
	open     *group // being filled; nil until the next append
	sealed   queue  // full, waiting for a slot
	flight   queue  // being written, or written before one ahead of them
	done     queue  // durable or failed, to be acknowledged
	inflight int    // writes under way
	acking   bool   // a worker runs acknowledgements

	written    uint64 // every group up to this has been written
	durable    uint64 // every group up to this is durable
	lastRecord uint64 // last written group that holds records
	covered    uint64 // highest S of a durable group
	cover      bool   // write an empty group so that S covers lastRecord
	coverAt    int64  // not before this time

	lastStart int64 // when the last write was started
	syncTime  int64 // moving average of a write's duration, nanoseconds

	work    sync.Cond // workers wait here
	idle    int       // how many
	kicked  bool      // one was woken and has not looked yet
	drained sync.Cond // Close waits here

	keeperAt int64 // the keeper's next look; 0: none
	trimTo   uint64

	// The preparer will not try again before these times.
	prepRetry, trimRetry, spareRetry int64
	pause                            time.Duration // between two tries

	waiting error       // why the next segment can not be had, a *WaitingError; nil if all is well
	blocked atomic.Bool // and groups wait for it: Reserve refuses. Written under mu

	forces   []force    // relaxed: they wait for a sync
	unsynced []*segment // relaxed: written since the last sync was started
	writtenS uint64     // relaxed: highest S of a written group

	spares  []*spareFile
	peak    [2]int // most live segments in this and the last period
	peakEnd int64

	st Stats

	// Goroutines: GroupsInFlight+1 workers, the keeper, the preparer, and in relaxed mode the syncer.
	wg         sync.WaitGroup
	stopped    chan struct{}
	keeperWake chan struct{}
	prepWake   chan struct{}
	syncerWake chan struct{}

	dirty sinkSet // the acknowledging worker's
}

// Open reads the directory dir/current, which may be missing or empty. It writes nothing.
func Open(fs vfs.FS, dir string, o Options) (*Journal, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	d, err := readDirectory(fs, dir)
	if err != nil {
		return nil, err
	}
	j := &Journal{fs: fs, dir: dir, o: o, epoch: time.Now(), maxID: d.maxID, onDisk: len(d.segments), pause: retryPause}
	j.syncTurn = make(chan struct{}, 1)
	j.budget.limit = int64(o.QueueBytes)
	j.budget.fail(ErrNotStarted)
	j.pool.size = groupBufferBytes(o.MaxGroupBytes)
	j.work.L, j.drained.L = &j.mu, &j.mu
	j.m = newJournalMetrics(j)
	return j, nil
}

// now is the time since the journal was opened, never 0.
func (j *Journal) now() int64 { return int64(time.Since(j.epoch)) + 1 }

// current is the directory that holds the files.
func (j *Journal) current() string { return filepath.Join(j.dir, currentDir) }

// Replay calls fn with every record at or after from, in order; fn may be nil. It must come before Start and may be
// repeated. The payload of a record is valid until fn returns. An error of fn ends it and is returned. What can not be
// read is in the result, not in the error: the error says that the directory can not be read at all.
func (j *Journal) Replay(from Position, fn func(Record) error) (Replayed, error) {
	j.life.Lock()
	defer j.life.Unlock()
	j.mu.Lock()
	late := j.started || j.closing
	j.mu.Unlock()
	if late {
		return Replayed{}, errors.New("replay comes before the journal is started")
	}
	return j.replay(from, fn)
}

// replay reads the directory anew. life is held.
func (j *Journal) replay(from Position, fn func(Record) error) (Replayed, error) {
	var r Replayed
	j.found = nil
	d, err := readDirectory(j.fs, j.dir)
	if err != nil {
		return r, err
	}
	w := newWalk(j.fs, d, uint64(from), &r)
	w.emit, w.direct = fn, j.o.IO != IOBuffered
	if err := w.run(); err != nil {
		return r, err
	}
	j.found, j.from, j.lastSeq = d, from, w.last
	j.maxID = max(j.maxID, d.maxID)
	j.note, j.noted = note{}, d.note != nil
	if j.noted {
		j.note = *d.note
	}
	if w.missing { // so that it is found again until the mark lies behind it, whatever is changed from here on
		j.note.gone = max(j.note.gone, uint64(from), w.last, 1)
	}
	j.adopt(d, w)
	j.report(&r)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.end, j.onDisk = r.End, len(d.segments)
	if r.Cut != nil {
		j.st.Cuts++
	}
	j.st.Damaged += uint64(len(r.Damage))
	j.st.Repaired += uint64(r.Repaired)
	return r, nil
}

// report logs what a replay found wrong.
func (j *Journal) report(r *Replayed) {
	if c := r.Cut; c != nil {
		j.o.Logger.Warn("journal: torn tail cut", "journal", j.dir, "segment", fmt.Sprintf("%016x", c.Segment),
			"offset", c.Offset, "position", uint64(c.Position), "groups_behind", c.Groups, "reason", c.Reason)
	}
	const lines = 10
	for i, d := range r.Damage {
		if i == lines {
			j.o.Logger.Error("journal: more damage, not logged", "journal", j.dir, "places", len(r.Damage)-i)
			break
		}
		j.o.Logger.Error("journal: damage", "journal", j.dir, "position", uint64(d.Position), "error", d.Err)
	}
}

// Reserve takes room for n body bytes, waiting at most timeout for it (ErrBusy). Append consumes len(body) of it. It
// must not be called with a lock held that an acknowledgement needs. n larger than the whole queue waits until it is
// empty.
func (j *Journal) Reserve(n int, timeout time.Duration) error {
	return j.budget.take(int64(n), timeout)
}

// Release gives back what Reserve took and no Append will consume. A negative n takes room without waiting, whether there
// is any or not: for small records that must not wait and of which there are few.
func (j *Journal) Release(n int) { j.budget.give(int64(n)) }

// Append adds a record to the open group and returns the group's position. It copies body, never touches the disk and
// does not allocate. Room for len(body) must have been reserved; an error leaves the reservation to the caller, and sink
// does not hear of the record. The record is written once Commit has been called.
//
// kind 0 carries no record: its sink hears once everything appended before is durable, also in relaxed mode.
func (j *Journal) Append(kind uint8, tag uint64, body []byte, sink Sink, t Token) (Position, error) {
	if kind == 0 {
		return j.force(sink, t)
	}
	if len(body) > j.o.MaxRecordBytes {
		return 0, fmt.Errorf("%w: %d bytes, the limit is %d", ErrRecordTooLarge, len(body), j.o.MaxRecordBytes)
	}
	crc := crc32.Checksum(body, castagnoli)
	n := RecordOverhead + len(body)
	var large *group
	if groupHeaderBytes+n > j.pool.size {
		var err error
		if large, err = newLargeGroup(body); err != nil {
			return 0, fmt.Errorf("journal group buffer: %w", err)
		}
	}
	j.mu.Lock()
	g, err := j.roomLocked(n, large)
	if err != nil {
		j.mu.Unlock()
		if large != nil {
			err = errors.Join(err, large.free())
		}
		return 0, err
	}
	g.add(kind, tag, body, crc)
	g.acks = append(g.acks, ack{sink, t})
	p := Position(g.seq)
	j.mu.Unlock()
	return p, nil
}

// acceptLocked says why nothing may be appended, or nil.
func (j *Journal) acceptLocked() error {
	switch {
	case j.err != nil:
		return j.err
	case j.closing:
		return ErrClosed
	case !j.started && j.startErr != nil:
		return j.startErr
	case !j.started:
		return ErrNotStarted
	}
	return nil
}

// openLocked returns the open group, without regard to its room.
func (j *Journal) openLocked() (*group, error) {
	if j.open == nil {
		g, err := j.pool.get()
		if err != nil {
			return nil, fmt.Errorf("journal group buffer: %w", err)
		}
		j.open = g
	}
	return j.open, nil
}

// roomLocked returns the open group with room for a record of n bytes, header included, bound to a segment. large, if not
// nil, is a group made for that record; it becomes the open one.
func (j *Journal) roomLocked(n int, large *group) (*group, error) {
	if err := j.acceptLocked(); err != nil {
		return nil, err
	}
	g, err := j.openLocked()
	if err != nil {
		return nil, err
	}
	if !g.fits(n) || g.large && g.records > 0 {
		next := large
		if next == nil { // before anything changes, so that a failure leaves all as it was
			if next, err = j.pool.get(); err != nil {
				return nil, fmt.Errorf("journal group buffer: %w", err)
			}
		}
		if g.content() {
			g.write = g.records > 0
			j.sealLocked(g)
			j.sealed.push(g)
		} else {
			j.pool.put(g)
		}
		j.open, g = next, next
	}
	if g.records == 0 {
		if g.opened == 0 {
			g.opened = j.now()
		}
		j.bindLocked(g, len(g.buf))
	}
	return g, nil
}

// force answers sink once everything before is durable.
func (j *Journal) force(sink Sink, t Token) (Position, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.acceptLocked(); err != nil {
		return 0, err
	}
	if j.o.Relaxed {
		after := j.nextSeq - 1
		if j.open != nil && j.open.records > 0 {
			after = j.open.seq
		}
		j.forces = append(j.forces, force{after, ack{sink, t}})
		j.kickSyncer()
		return Position(j.nextSeq), nil
	}
	g, err := j.openLocked()
	if err != nil {
		return 0, err
	}
	if g.opened == 0 {
		g.opened = j.now()
	}
	g.acks = append(g.acks, ack{sink, t})
	return Position(j.nextSeq), nil
}

// Mark returns the position of the open group: records appended from now on have this position or a later one.
func (j *Journal) Mark() Position {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.started {
		return j.end
	}
	return Position(j.nextSeq)
}

// Err returns nil, or why the journal takes nothing more (ErrPoisoned).
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// poisonLocked fails the journal for ever. Nothing in flight is acknowledged, whatever becomes of it.
func (j *Journal) poisonLocked(op string, cause error) {
	if j.err != nil {
		return
	}
	j.err = &PoisonedError{Dir: j.dir, Op: op, Cause: cause}
	j.st.Failed = true
	j.o.Logger.Error("journal failed; it takes nothing more until a restart", "journal", j.dir, "op", op, "error", cause)
	j.budget.open() // only to replace what a full disk left there
	j.budget.fail(j.err)
	j.work.Broadcast()
	j.drained.Broadcast()
	j.kickSyncer()
}

// Waiting returns why the next segment can not be had, a *WaitingError, or nil: then all is well. The preparer goes on
// trying. blocked says that nothing more can be written before it succeeds; until then there is room in the segment at hand.
func (j *Journal) Waiting() (blocked bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.blocked.Load(), j.waiting
}

// Blocked is the first result of Waiting, at the price of a load.
func (j *Journal) Blocked() bool { return j.blocked.Load() }

// waitingLocked notes that the next segment can not be had, or, with nil, that it can.
func (j *Journal) waitingLocked(err error) {
	before := j.waiting
	j.waiting = nil
	if err != nil {
		j.waiting = &WaitingError{Dir: j.dir, Cause: err}
	}
	changed := (before == nil) != (err == nil)
	switch {
	case changed && err != nil:
		j.o.Logger.Error("journal: the next segment can not be had; it is tried again", "journal", j.dir, "error", err)
	case changed:
		j.o.Logger.Info("journal: the next segment is there", "journal", j.dir)
	}
	if j.gateLocked(); changed && j.o.OnWaiting != nil {
		j.o.OnWaiting()
	}
}

// gateLocked makes Reserve refuse while groups wait for a segment that can not be had, and take again afterwards. What has
// room already is appended and waits.
func (j *Journal) gateLocked() {
	blocked := j.waiting != nil && !j.cur.ready
	if j.err != nil || j.closing || blocked == j.blocked.Load() {
		return
	}
	j.blocked.Store(blocked)
	j.budget.open()
	if blocked {
		j.budget.fail(j.waiting)
	}
	if j.o.OnWaiting != nil {
		j.o.OnWaiting()
	}
}

// Close writes what was appended, makes it durable, and joins the journal's goroutines. If no segment can be had for it, it
// fails. A second call does nothing.
func (j *Journal) Close() error {
	j.life.Lock()
	defer j.life.Unlock()
	j.mu.Lock()
	if j.closing {
		j.mu.Unlock()
		return nil
	}
	j.closing = true
	j.budget.open() // only to replace ErrNotStarted
	j.budget.fail(cmp.Or(j.err, ErrClosed))
	if !j.started {
		err := j.err
		j.mu.Unlock()
		return err
	}
	j.drainLocked()
	if j.err == nil && j.lastRecord > j.covered { // so that S covers the last records: damage to them will be noticed
		j.cover, j.coverAt = true, 0
		j.drainLocked()
	}
	j.stop = true
	j.work.Broadcast()
	close(j.stopped)
	j.mu.Unlock()
	j.wg.Wait()

	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.noteClosed()
	}
	return errors.Join(j.err, j.releaseLocked())
}

// drainLocked waits until everything appended is durable and acknowledged, or the journal has failed and everybody knows.
func (j *Journal) drainLocked() {
	j.work.Broadcast()
	j.kickSyncer()
	j.kickPreparer() // who waits for a segment gets one last try
	for !j.emptyLocked() {
		j.drained.Wait()
	}
}

func (j *Journal) emptyLocked() bool {
	return (j.open == nil || !j.open.content()) && j.sealed.len() == 0 && j.flight.len() == 0 && j.done.len() == 0 &&
		!j.acking && len(j.forces) == 0 && (j.err != nil || !j.cover && j.durable >= j.written)
}

// releaseLocked closes files and frees buffers.
func (j *Journal) releaseLocked() error {
	var errs []error
	for _, s := range append(append(append([]*segment(nil), j.live...), j.planned...), j.cur) {
		if s != nil && s.file != nil {
			errs = append(errs, s.file.Close())
			s.file = nil
		}
	}
	if j.open != nil {
		j.pool.put(j.open)
		j.open = nil
	}
	errs = append(errs, j.pool.shrink(0))
	return errors.Join(errs...)
}
