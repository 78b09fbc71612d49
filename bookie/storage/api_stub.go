package storage

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/vfs"
)

const (
	maxJournals   = 64
	maxJournalID  = 64
	minCacheBytes = 64 << 10
)

var errNotYet = errors.New("not yet")

// MarkSource is the journals as storage sees them.
type MarkSource interface {
	// Mark returns one position per journal, in the order of Options.Journals. A record appended before the call may
	// have any position; a record appended after it has at least the returned one. It is called before every swap.
	Mark() []uint64
}

// Storage is the ledger directories of one bookie.
type Storage struct{}

// Open opens the directories: it reads marks, logs, indexes and tombstones, finishes what a crash interrupted, and is
// ready for Replay. It holds no lock on the directories: the bookie does.
func Open(fs vfs.FS, o Options) (*Storage, error) { return nil, errNotYet }

// Marks returns the usable mark: one position per journal, from which Replay has to be fed.
func (s *Storage) Marks() []uint64 { return nil }

// Lost says what this storage knows to be missing: directories, marks that went back, logs with damage, indexes that
// could not be rebuilt whole. If it is not empty, the bookie has to treat itself as one that lost something: see
// MarkLimbo and AcceptLoss. Until AcceptLoss every ledger unknown here is answered with ErrUnknown.
func (s *Storage) Lost() []error { return nil }

// Clean reports whether the process before this one closed the storage.
func (s *Storage) Clean() bool { return false }

// Replay applies one journal record. Records of one journal come in order; those of several journals may be mixed. Damage
// that the journal reports by ledger goes to MarkLimbo.
func (s *Storage) Replay(r Record) error { return errNotYet }

// Start ends replay: from now on checkpoints carry the marks of m.
func (s *Storage) Start(m MarkSource) error { return errNotYet }

// Ledger returns the handle of a ledger, pinned until Release. With create unset it fails with ErrNoLedger for a ledger
// that is unknown or deleted, and with ErrUnknown if this storage can not tell. With create set a handle comes back in
// every case but a failed directory: for an unknown ledger an empty one (in limbo and fenced while this storage can not
// tell), for a deleted one the tombstone.
func (s *Storage) Ledger(id int64, create bool) (*Ledger, error) { return nil, errNotYet }

// Read returns an entry's body in dst if that is large enough; entry -1 is the highest one. See Ledger.Read.
func (s *Storage) Read(id, entry int64, dst []byte) ([]byte, error) { return nil, errNotYet }

// Checkpoint flushes every directory that works and returns once all that was stored before the call is durable and the
// mark says so.
func (s *Storage) Checkpoint(ctx context.Context) error { return errNotYet }

// MarkLimbo puts ledgers, known here or not, in limbo and fences them, durably.
func (s *Storage) MarkLimbo(ctx context.Context, ids []int64) error { return errNotYet }

// MarkLimboAll does so for every ledger known here.
func (s *Storage) MarkLimboAll(ctx context.Context) error { return errNotYet }

// AcceptLoss forgets what Lost reported, durably, after MarkLimbo has been called for every ledger that may be
// concerned.
func (s *Storage) AcceptLoss(ctx context.Context) error { return errNotYet }

// Ledgers returns up to limit ids above after (-1 for all) of ledgers known here, ascending.
func (s *Storage) Ledgers(after int64, limit int) ([]int64, error) { return nil, errNotYet }

// CheckDisks measures every directory, moves its state, refills or keeps the ballast and reports. The bookie calls it
// every few seconds.
func (s *Storage) CheckDisks() DiskReport { return DiskReport{} }

// Damaged is an entry that could not be read back.
type Damaged struct{ Ledger, Entry int64 }

// Damaged returns the durable list of damaged entries, and how many did not fit into it.
func (s *Storage) Damaged() (list []Damaged, dropped int64) { return nil, 0 }

// Repaired takes an entry off the list: auto-recovery has written it again, or its ledger is gone.
func (s *Storage) Repaired(d Damaged) error { return errNotYet }

// Check reads everything and calls fn for each thing wrong.
func (s *Storage) Check(ctx context.Context, fn func(error)) error { return errNotYet }

// WritePrometheus writes the metrics.
func (s *Storage) WritePrometheus(w io.Writer) {}

// Close flushes what works, notes a clean stop and joins the goroutines. No handle may be used afterwards.
func (s *Storage) Close() error { return errNotYet }

// Ledger is the one handle of a ledger. Its lock guards Replica and orders the ledger's adds, fences and journal
// records: the caller locks it, asks Replica, calls Put or StateChanged, appends to the journal, and unlocks. Nothing that
// waits for a disk or a socket may be called while it is held; of this type that is Reserve, LAC, Last, Read, ReadBatch
// and Entries.
type Ledger struct {
	// Replica is the ledger's durable state, read and changed under the lock. After a change call StateChanged.
	Replica ledger.Replica
}

// ID returns the ledger's id.
func (l *Ledger) ID() int64 { return 0 }

// Lock takes the ledger's lock.
func (l *Ledger) Lock() {}

// Unlock releases it.
func (l *Ledger) Unlock() {}

// Release ends the use of the handle.
func (l *Ledger) Release() {}

// Reserve makes sure that the write cache has room for an entry of n bytes and waits up to timeout for it. It fails with
// ErrCacheFull, ErrDirFull (unless recovery is set), ErrDirFailed or ErrBadEntry. The room is used up by Put or given back
// by Unreserve.
func (l *Ledger) Reserve(n int, recovery bool, timeout time.Duration) error { return errNotYet }

// Unreserve gives back the room of an entry that was not stored.
func (l *Ledger) Unreserve(n int) {}

// Put stores an entry in room that was reserved; it is visible to reads at once and wakes watchers whose LAC it passes.
// The ledger is locked. It fails only if the directory has failed meanwhile; the room is used up in any case.
func (l *Ledger) Put(entry int64, body []byte) error { return errNotYet }

// StateChanged notes that Replica changed: the new state goes out with the next checkpoint. The ledger is locked. It must
// be called before the state's record is appended to a journal. It wakes all watchers if the ledger is fenced or deleted
// now.
func (l *Ledger) StateChanged() {}

// AppendState appends the payload of a KindState record. The ledger is locked.
func (l *Ledger) AppendState(dst []byte) []byte { return dst }

// LAC returns the highest LAC that the stored entries and the explicit LAC carry, -1 if there is none.
func (l *Ledger) LAC() (int64, error) { return 0, errNotYet }

// Watch calls fn once, with the ledger locked, as soon as the LAC exceeds after, or the ledger is fenced or deleted; fn
// must not block nor call the ledger. If that is so already, it returns false and does not keep fn. The watch is dropped
// with Unwatch, which reports whether fn will never be called.
func (l *Ledger) Watch(after int64, fn func(lac int64)) (w *Watch, waiting bool, err error) {
	return nil, false, errNotYet
}

// Unwatch ends a watch. It must not be called from fn.
func (l *Ledger) Unwatch(w *Watch) bool { return false }

// Watch is a registered wait for a LAC.
type Watch struct{}

// Last returns the highest entry id stored here, ErrNoEntry if there is none, or ErrUnknown in limbo.
func (l *Ledger) Last() (int64, error) { return 0, errNotYet }

// Read returns an entry's body in dst if that is large enough; entry -1 is the highest one. It fails with ErrNoEntry,
// ErrNoLedger (deleted), ErrUnknown, or a *corrupt.Error.
func (l *Ledger) Read(entry int64, dst []byte) ([]byte, error) { return nil, errNotYet }

// ReadBatch calls fn for consecutive entries from first on until fn returns false or an entry can not be read; body is
// valid during the call. It fails as Read does if the first one can not be read, and returns nil otherwise.
func (l *Ledger) ReadBatch(first int64, fn func(entry int64, body []byte) bool) error { return errNotYet }

// Range is a run of entry ids, both ends included.
type Range struct{ First, Last int64 }

// Entries returns the ids of the ledger's entries, ascending.
func (l *Ledger) Entries() ([]Range, error) { return nil, errNotYet }
