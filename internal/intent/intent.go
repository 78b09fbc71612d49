package intent

import (
	"context"
	"errors"
	"log/slog"
)

// Errors that callers test for.
var (
	// ErrPoisoned is returned by every call after a write or sync failed. The outcome of the failed call is unknown: its
	// record may or may not be found by the next Open. Close the log and open it again.
	ErrPoisoned = errors.New("intent log failed; close it and open it again")
	// ErrClosed is returned by calls after Close.
	ErrClosed = errors.New("intent log is closed")
	// ErrFull is returned by Append when MaxPending records are pending. Finish some.
	ErrFull = errors.New("too many pending intents")
	// ErrTooLarge is returned by Append for data longer than MaxRecord.
	ErrTooLarge = errors.New("intent record is too large")
)

// Limits. Each bounds memory: all pending records are held in memory.
const (
	MaxRecord  = 1 << 20 // bytes of one record's data
	MaxPending = 4096    // records that were appended and are not done
)

// Record is one intent.
type Record struct {
	ID   uint64 // never reused within a directory
	Data []byte // not to be modified
}

// Log is a durable list of intents that were announced and are not finished. It may be used by several goroutines.
type Log interface {
	// Append makes data durable and returns its id. data may be reused afterwards. If ctx ends first, the outcome is
	// unknown, and the record is among Pending if it was written.
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
	// Close waits for calls under way and closes the files. Pending intents stay.
	Close() error
}

// Recovered says what Open found.
type Recovered struct {
	Records  int     // whole records read
	Cut      *Cut    // the torn tail that was cut off, or nil
	Damage   []error // with Options.Salvage: each *corrupt.Error that was stepped over
	SetAside string  // with Options.Salvage: where the damaged log was moved to
}

// Cut names a torn tail: bytes of an append that was never acknowledged.
type Cut struct {
	Path   string
	Offset int64 // the file was cut here
	Bytes  int64 // how much was cut off
	Reason string
}

// Options configure a log. The zero value is fine.
type Options struct {
	// SegmentBytes is the size at which a new file is started. Default 1 MiB.
	SegmentBytes int
	// Salvage makes Open step over damaged records instead of failing with a *corrupt.Error: the damaged directory is
	// renamed aside, what is readable and pending goes into a new log, and Recovered lists the damage. Use it where
	// intents can be found again by looking at what they were about.
	Salvage bool
	// Logger receives one line for each cut, damage and poisoning. Default: none.
	Logger *slog.Logger
}

// EnsureDefaults fills in what was left zero.
func (o *Options) EnsureDefaults() {
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = 1 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}
