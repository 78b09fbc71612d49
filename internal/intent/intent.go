package intent

import (
	"context"
	"errors"
	"log/slog"

	"github.com/binderylog/bindery/internal/invariant"
)

// Errors that callers test for.
var (
	// ErrPoisoned is returned by every call after a write or sync failed; a write that failed for want of space alone is
	// taken back instead, and fails with ENOSPC or EDQUOT. The outcome of the failed call is unknown: its
	// record may or may not be found by the next Open. Close the log and open it again.
	ErrPoisoned = errors.New("intent log failed; close it and open it again")
	// ErrClosed is returned by calls after Close.
	ErrClosed = errors.New("intent log is closed")
	// ErrFull is returned by Append when MaxPending intents or MaxPendingBytes of them are pending. Finish some.
	ErrFull = errors.New("too many pending intents")
	// ErrTooLarge is returned by Append for data longer than MaxRecord.
	ErrTooLarge = errors.New("intent is too large")
)

// Limits. They bound memory, where all pending intents are held, and the file, which is read whole.
const (
	MaxRecord       = 1 << 20  // bytes of one intent's data
	MaxPending      = 4096     // intents that were appended and are not done
	MaxPendingBytes = 16 << 20 // bytes of their data
	maxSegmentBytes = 16 << 20
)

// Record is one intent.
type Record struct {
	ID   uint64 // never reused within a directory
	Data []byte // not to be modified
}

// Log is a durable list of intents that were announced and are not finished. It may be used by several goroutines.
type Log interface {
	// Append makes data durable and returns its id. data may be reused afterwards. If ctx ends first, the outcome is
	// unknown, and the intent is among Pending if it was written. On a full disk it fails with ENOSPC or EDQUOT, nothing
	// is written, and it may be called again once there is space.
	Append(ctx context.Context, data []byte) (uint64, error)
	// Done makes durable that the intents are finished, so that no later Open returns them. An id that is not pending
	// is skipped: finishing twice is fine.
	Done(ctx context.Context, ids ...uint64) error
	// Pending returns the unfinished intents, oldest first.
	Pending() []Record
	// Recovered says what Open found and did.
	Recovered() Recovered
	// Err returns why the log is poisoned, or nil.
	Err() error
	// Close waits for calls under way and closes the files. Pending intents stay. A second Close does nothing.
	Close() error
}

// Recovered says what Open found.
type Recovered struct {
	Records  int     // whole records read
	Cut      *Cut    // the torn tail that was cut off, or nil
	Damage   []error // with Options.Salvage: each *corrupt.Error that was stepped over
	SetAside string  // with Options.Salvage: where the damaged generation was moved to
}

// Cut names a torn tail: what was left of appends that nobody was told had succeeded.
type Cut struct {
	Path   string
	Offset int64 // the file was cut here
	Bytes  int64 // so much was cut off
	Reason error // what was wrong with the first record cut off
}

// Options configure a log. The zero value is fine.
type Options struct {
	// SegmentBytes is the size at which a file with as much garbage as pending data is replaced. Default 1 MiB, at most
	// 16 MiB.
	SegmentBytes int64
	// Salvage makes Open step over damage instead of failing with a *corrupt.Error: the damaged generation is set aside,
	// what can be read and is pending goes into a new one, and Recovered lists the damage. A damaged "done" brings its
	// intent back. Use it where intents may be carried out twice, and missing ones are found by looking at what they
	// were about.
	Salvage bool
	// Holder says who opens the log, for whoever finds it open: it is part of the error that these get. Default: nothing.
	Holder string
	// Logger receives one line for each cut, damage, failed change of generation and poisoning. Default: none.
	Logger *slog.Logger
}

// EnsureDefaults fills in what was left zero and bounds what was not.
func (o *Options) EnsureDefaults() {
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = 1 << 20
	}
	o.SegmentBytes = invariant.Override("intent.segment", min(o.SegmentBytes, maxSegmentBytes))
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}
