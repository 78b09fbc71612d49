package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/binderylog/bindery/bookie/index"
	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
)

// MarkSource is the journals as storage sees them.
type MarkSource interface {
	// Mark returns one position per journal, in the order of Options.Journals. A record appended before the call may
	// have any position; a record appended after it has at least the returned one. It is called before every swap.
	Mark() []uint64
}

// Storage is the ledger directories of one bookie.
type Storage struct {
	fs      vfs.FS
	o       Options
	log     *slog.Logger
	dirs    []*dir
	ledgers ledgerTable
	cache   *readCache
	damaged damagedList

	run         uint32 // number of this process run
	lastUnclean uint32 // highest earlier run that did not close
	clean       bool   // the run before closed
	degraded    atomic.Bool
	limits      atomic.Pointer[DiskLimits] // nil: those of o
	// seqBase is what the next change of any state raises its seq to at least: the run number above seqRunBits, and the
	// number of directories that failed in this run above seqFailureBits. So the state of a ledger that was begun again elsewhere,
	// since its directory failed, outranks the one that comes back with that directory.
	seqBase  atomic.Uint64
	births   births
	deleteMu sync.Mutex // held for the length of Delete
	missing  []dirMark  // rows of directories that are not here; guarded by markMu
	losses   []error    // guarded by markMu

	source  atomic.Pointer[MarkSource] // nil until Start
	markMu  sync.Mutex                 // guards marks and mark files; held across their writes, background goroutines only
	usable  []uint64                   // guarded by markMu
	closing bool                       // guarded by markMu: the marks say that the storage was closed

	// Goroutines of background work; Add only under mu while !closed.
	mu         sync.Mutex
	closed     bool
	ctx        context.Context // of all background work; ends with the storage
	cancel     context.CancelFunc
	stop       <-chan struct{} // ctx.Done()
	background sync.WaitGroup
	flushers   sync.WaitGroup
}

// goBackground starts a background goroutine unless the storage is closing.
func (s *Storage) goBackground(fn func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.background.Go(fn)
	return true
}

// Open opens the directories: it reads marks, logs, indexes and tombstones, finishes what a crash interrupted, and is
// ready for Replay. It holds no lock on the directories: the bookie does. On failure nothing stays open.
func Open(fsys vfs.FS, o Options) (s *Storage, err error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s = &Storage{fs: fsys, o: o, log: o.Logger}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.stop = s.ctx.Done()
	s.ledgers.init(s, o.IdleLedgersMax)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.abandon())
			s = nil
		}
	}()
	if s.cache, err = newReadCache(s, o.ReadCacheBytes); err != nil {
		return s, err
	}
	for i := range o.Dirs {
		d, err := s.openDir(i)
		if errors.Is(err, index.ErrFailed) && corrupt.Is(err) { // once more, without it
			d.wantRebuild(err)
			if cerr := d.close(); cerr != nil {
				s.log.Warn("a damaged ledger directory was not closed cleanly", "dir", d.path, "err", cerr)
			}
			d, err = s.openDir(i)
		}
		if d != nil {
			s.dirs = append(s.dirs, d)
		}
		if err != nil {
			return s, fmt.Errorf("ledger directory %s: %w", o.Dirs[i].Ledger, err)
		}
	}
	s.births.init(s.dirs)
	if err := s.settleMarks(); err != nil {
		return s, err
	}
	if err := s.damaged.open(s); err != nil {
		return s, err
	}
	for _, d := range s.dirs {
		if err := d.loadIntents(); err != nil {
			return s, fmt.Errorf("ledger directory %s: %w", d.path, err)
		}
	}
	for _, d := range s.dirs {
		s.flushers.Go(d.flusher)
		s.background.Go(d.keeper)
	}
	return s, nil
}

// abandon closes what a failed Open, or Close, leaves.
func (s *Storage) abandon() (err error) {
	s.cancel()
	if s.cache != nil {
		err = s.cache.close()
	}
	for _, d := range s.dirs {
		err = errors.Join(err, d.close())
	}
	return err
}

// Start ends replay: from now on checkpoints carry the marks of m. A first checkpoint begins at once, so that a bookie
// that was killed does not replay the same journal twice.
func (s *Storage) Start(m MarkSource) error {
	if n := len(m.Mark()); n != len(s.o.Journals) {
		return fmt.Errorf("%d marks for %d journals", n, len(s.o.Journals))
	}
	s.source.Store(&m)
	for _, d := range s.dirs {
		d.poke()
	}
	s.goBackground(s.finishDeletions)
	return nil
}

// takeMark returns the journals' marks, nil while replay lasts.
func (s *Storage) takeMark() []uint64 {
	if m := s.source.Load(); m != nil {
		return (*m).Mark()
	}
	return nil
}

// Clean reports whether the process before this one closed the storage.
func (s *Storage) Clean() bool { return s.clean }

// Ledger returns the handle of a ledger, pinned until Release. With create unset it fails with ErrNoLedger for a ledger
// that is unknown or deleted. With create set a handle comes back in every case but failed directories: for an unknown
// ledger an empty one, for a deleted one the tombstone. While this storage can not tell whether it knows a ledger, an
// unknown one is in limbo and fenced.
func (s *Storage) Ledger(id int64, create bool) (*Ledger, error) {
	if id < 0 {
		return nil, fmt.Errorf("%w: ledger id %d is negative", ErrBadEntry, id)
	}
	l, err := s.ledgers.get(id)
	if err != nil || create {
		return l, err
	}
	l.mu.Lock()
	known := l.Replica.Known()
	l.mu.Unlock()
	if !known {
		l.Release()
		return nil, ErrNoLedger
	}
	return l, nil
}

// Read returns an entry's body in dst if that is large enough; entry -1 is the highest one. See Ledger.Read.
func (s *Storage) Read(id, entry int64, dst []byte) ([]byte, error) {
	l, err := s.Ledger(id, false)
	if err != nil {
		return nil, err
	}
	defer l.Release()
	return l.Read(entry, dst)
}

// Checkpoint flushes every directory that works and returns once all that was stored before the call is durable and the
// mark says so.
func (s *Storage) Checkpoint(ctx context.Context) error {
	var reqs []*flushRequest
	for _, d := range s.dirs {
		if !d.failed.Load() {
			reqs = append(reqs, d.request())
		}
	}
	var err error
	for _, r := range reqs {
		err = errors.Join(err, r.wait(ctx))
	}
	return err
}

// Close flushes what works, notes a clean stop if nothing is left unflushed, and joins the goroutines. No handle may be
// used afterwards.
func (s *Storage) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.closed = true
	s.mu.Unlock()
	err := s.Checkpoint(context.Background())
	s.cancel()
	s.flushers.Wait()
	s.background.Wait()
	if err == nil && s.source.Load() != nil {
		err = s.noteClean()
	}
	return errors.Join(err, s.damaged.close(), s.abandon())
}
