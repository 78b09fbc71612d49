package bookie

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/journal"
)

// engine is the part of a bookie that keeps data: its journals and its storage, opened and replayed together.
type engine struct {
	o        *Options
	journals []*journal.Journal
	st       *storage.Storage
	figures  *storage.Figures
	state    *state

	replayDone, replayTotal atomic.Int64  // bytes
	wake                    chan struct{} // has room for one: a directory has failed, look at the disks now
	looking                 sync.Mutex    // serialises checkDisks
	disks                   atomic.Pointer[storage.DiskReport]
}

// lastDisks returns what the last look at the disks has found.
func (e *engine) lastDisks() storage.DiskReport {
	if r := e.disks.Load(); r != nil {
		return *r
	}
	return storage.DiskReport{}
}

// replayed is what the journals held, as far as it matters afterwards.
type replayed struct {
	records, bytes int64
	took           time.Duration
	suspects       []int64 // ledgers hit by damage that names them
	all            error   // not nil: any ledger may be hit, and why
}

// openEngine opens journals and storage. journalIDs are the stable ids of the journal directories.
func openEngine(o *Options, journalIDs []string, st *state) (*engine, error) {
	e := &engine{o: o, state: st, wake: make(chan struct{}, 1)}
	if err := e.open(journalIDs); err != nil {
		return nil, errors.Join(err, e.abandon())
	}
	return e, nil
}

func (e *engine) open(journalIDs []string) error {
	o := e.o
	for i, dir := range o.JournalDirs {
		jo := o.Journal
		jo.Label = fmt.Sprint(i)
		jo.Relaxed = o.Durability == DurabilityRelaxed
		jo.OnWaiting = e.lookNow
		j, err := journal.Open(o.FS, dir, jo)
		if err != nil {
			return openFailed("journal directory", dir, err)
		}
		e.journals = append(e.journals, j)
	}
	so := o.Storage
	so.Dirs = so.Dirs[:0:0]
	for i, dir := range o.LedgerDirs {
		d := storage.DirOptions{Ledger: dir}
		if len(o.IndexDirs) > 0 {
			d.Index = o.IndexDirs[i]
		}
		so.Dirs = append(so.Dirs, d)
	}
	so.Journals = journalIDs
	so.OnCheckpoint = e.trim
	so.OnDirFailed = e.dirFailed
	st, err := storage.Open(o.FS, so)
	if err != nil {
		return openFailed("storage", "", err)
	}
	e.st, e.figures = st, storage.NewFigures(st)
	return nil
}

// openFailed gives the error of an Open the exit code that it stands for.
func openFailed(what, dir string, err error) error {
	code := ExitIO
	if errors.Is(err, journal.ErrFormatTooNew) {
		code = ExitFormat
	}
	if dir == "" {
		return exitErrorf(code, "open %s: %w", what, err)
	}
	return exitErrorf(code, "open %s %s: %w", what, dir, err)
}

// trim is told where a restart would begin to replay: the journals may drop what lies before.
func (e *engine) trim(mark []uint64) {
	for i, p := range mark {
		if err := e.journals[i].Trim(journal.Position(p)); err != nil && !errors.Is(err, journal.ErrClosed) {
			e.o.Logger.Warn("a journal could not drop old segments", "journal", e.o.JournalDirs[i], "err", err)
		}
	}
}

func (e *engine) dirFailed(dir string, err error) {
	e.o.Logger.Error("a ledger directory has failed; its ledgers are answered with unknown and the bookie is read-only", "dir", dir, "err", err)
	e.state.set(ReasonDisk, true, "ledger directory failed: "+dir)
	e.lookNow()
}

// lookNow has the disks looked at without waiting for the next time.
func (e *engine) lookNow() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Mark implements storage.MarkSource.
func (e *engine) Mark() []uint64 {
	m := make([]uint64, len(e.journals))
	for i, j := range e.journals {
		m[i] = uint64(j.Mark())
	}
	return m
}

// replay feeds the storage with what the journals hold from the usable mark on.
func (e *engine) replay(ctx context.Context) (replayed, error) {
	start := time.Now()
	var out replayed
	marks := e.st.Marks()
	for _, j := range e.journals {
		e.replayTotal.Add(int64(j.Stats().Segments) * e.o.Journal.SegmentSize)
	}
	for i := range e.journals {
		from := journal.Position(marks[i])
		if from == 0 && len(e.st.Lost()) == 0 {
			from = 1 // nothing was ever flushed: every group has to be there
		}
		r, err := e.replayOne(ctx, i, from)
		if err != nil {
			return out, fmt.Errorf("replay journal %s: %w", e.o.JournalDirs[i], err)
		}
		out.records += r.Records
		out.bytes += r.Bytes
		for _, d := range r.Damage {
			e.o.Logger.Error("journal damaged", "journal", e.o.JournalDirs[i], "segment", d.Segment, "offset", d.Offset, "err", d.Err)
			if d.Known {
				out.suspects = append(out.suspects, int64(d.Tag)) //nolint:gosec // a ledger id
			}
		}
		if r.Cut != nil {
			e.o.Logger.Info("journal ends in groups that were not written whole; they were never acknowledged",
				"journal", e.o.JournalDirs[i], "segment", r.Cut.Segment, "offset", r.Cut.Offset, "groups", r.Cut.Groups)
		}
		if !r.Whole {
			out.all = fmt.Errorf("journal %s is damaged: %w", e.o.JournalDirs[i], damageOf(r))
		}
	}
	e.replayTotal.Store(e.replayDone.Load())
	out.took = time.Since(start)
	return out, nil
}

func damageOf(r journal.Replayed) error {
	for _, d := range r.Damage {
		if !d.Known && d.Err != nil {
			return d.Err
		}
	}
	return errors.New("records are missing")
}

func (e *engine) replayOne(ctx context.Context, i int, from journal.Position) (journal.Replayed, error) {
	lastLine := time.Now()
	return e.journals[i].Replay(from, func(r journal.Record) error {
		e.replayDone.Add(int64(len(r.Payload)))
		if time.Since(lastLine) > time.Second {
			lastLine = time.Now()
			e.o.Logger.Info("replaying", "journal", e.o.JournalDirs[i], "done_bytes", e.replayDone.Load())
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		return e.st.Replay(storage.Record{Journal: i, Position: uint64(r.Position), Kind: r.Kind, Tag: r.Tag, Payload: r.Payload})
	})
}

// roomWait is how long a start with a full journal directory waits for a checkpoint, which frees the journal's segments. One
// that takes longer is not lost: checkDisks tries again.
const roomWait = 2 * time.Second

// start ends the replay: the journals take records, and what was replayed is synced. A journal whose disk has no room for
// a segment is left waiting: the bookie serves what needs no journal, read-only, and checkDisks tries again.
func (e *engine) start(ctx context.Context) error {
	e.state.waiting.Store(1<<len(e.journals) - 1)
	if err := e.startJournals(true); err != nil {
		return err
	}
	if err := e.st.Start(e); err != nil {
		return withExit(ExitIO, err)
	}
	if e.state.waiting.Load() == 0 {
		return nil
	}
	e.flushForRoom(ctx)
	return e.startJournals(false)
}

// startJournals starts the journals that wait, and notes which of them still do for want of space.
func (e *engine) startJournals(first bool) error {
	waiting := e.state.waiting.Load()
	for i, j := range e.journals {
		if waiting&(1<<i) == 0 {
			continue
		}
		err := j.Start()
		switch {
		case err == nil:
			waiting &^= 1 << i
			if !first {
				e.o.Logger.Info("there is room for the journal again", "journal", e.o.JournalDirs[i])
			}
		case !vfs.IsNoSpace(err):
			return openFailed("journal directory", e.o.JournalDirs[i], err)
		case first:
			e.o.Logger.Error("a journal directory is full: fences and writes of its ledgers are refused until there is room for a segment",
				"journal", e.o.JournalDirs[i], "err", err)
		}
	}
	e.state.waiting.Store(waiting)
	return nil
}

// checkDisks measures the directories and moves the read-only machine.
func (e *engine) checkDisks(ctx context.Context) {
	e.looking.Lock()
	defer e.looking.Unlock()
	if e.state.waiting.Load() != 0 {
		if err := e.startJournals(false); err != nil {
			e.o.Logger.Error("a journal that waited for space can not be started", "err", err)
			e.state.journalFailed(err)
		}
	}
	if i, _ := e.journalWithoutRoom(); i >= 0 && e.state.waiting.Load() == 0 {
		e.flushForRoom(ctx)
	}
	r := e.st.CheckDisks()
	e.disks.Store(&r)
	if i, blocked := e.journalWithoutRoom(); i >= 0 {
		r.ReadOnly, r.RecoveryRoom = true, r.RecoveryRoom && !blocked
		r.Reason = "journal directory full: " + e.o.JournalDirs[i]
	}
	e.state.set(ReasonDisk, r.ReadOnly, r.Reason)
	e.state.setRecoveryRoom(r.RecoveryRoom)
}

// journalWithoutRoom returns the first journal that has no room for a segment, -1 for none, and whether any of them takes
// nothing at all. One that runs and has room left in its segment takes recovery adds and fences.
func (e *engine) journalWithoutRoom() (first int, blocked bool) {
	first = -1
	starting := e.state.waiting.Load()
	for i, j := range e.journals {
		stuck, err := j.Waiting()
		stuck = stuck || starting&(1<<i) != 0
		if first < 0 && (stuck || err != nil) {
			first = i
		}
		blocked = blocked || stuck
	}
	return first, blocked
}

// flushForRoom flushes to the ledger directories what the journals hold, so that they have their segments back.
func (e *engine) flushForRoom(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, roomWait)
	defer cancel()
	if err := e.st.Checkpoint(ctx); err != nil {
		e.o.Logger.Warn("what a full journal directory holds could not be flushed", "err", err)
	}
}

// watchDisks calls checkDisks from time to time until ctx ends.
func (e *engine) watchDisks(ctx context.Context) {
	t := time.NewTicker(e.o.DiskCheckInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.wake:
		case <-t.C:
		}
		e.checkDisks(ctx)
	}
}

// stop makes everything durable and closes: first the journals' tails, then a last checkpoint, then the files. What an
// acknowledgement promised is on disk in the journals whatever fails here.
func (e *engine) stop() error {
	var err error
	for _, j := range e.journals {
		if jerr := syncJournal(j); jerr != nil && !errors.Is(jerr, journal.ErrPoisoned) && !errors.Is(jerr, journal.ErrWaiting) {
			err = errors.Join(err, jerr)
		}
	}
	err = errors.Join(err, e.st.Close())
	for _, j := range e.journals {
		if jerr := j.Close(); jerr != nil && !errors.Is(jerr, journal.ErrPoisoned) {
			err = errors.Join(err, jerr)
		}
	}
	return err
}

// abandon closes after a failed start.
func (e *engine) abandon() error {
	var err error
	if e.st != nil {
		err = e.st.Close()
	}
	for _, j := range e.journals {
		err = errors.Join(err, j.Close())
	}
	return err
}

// syncDone is the sink of one forced sync.
type syncDone chan error

func (d syncDone) JournalDone(_ journal.Token, err error) { d <- err }
func (d syncDone) JournalFlush()                          {}

// syncJournal waits until everything appended to j is durable, or for room that there is not.
func syncJournal(j *journal.Journal) error {
	done := make(syncDone, 1)
	if _, err := j.Append(0, 0, nil, done, journal.Token{}); err != nil {
		return err
	}
	j.Commit()
	t := time.NewTicker(100 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-t.C:
			if blocked, err := j.Waiting(); blocked {
				return err
			}
		}
	}
}
