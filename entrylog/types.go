package entrylog

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
)

// LogID names an entry log of one directory. Ids grow and are never used twice, not even after a log was removed.
type LogID uint32

// String returns the id as it stands in file names.
func (id LogID) String() string { return fmt.Sprintf("%x", uint32(id)) }

// Location is the place of one entry: the record header's offset in a log, and the length of the entry's body.
type Location struct {
	Log    LogID
	Offset int64
	Size   uint32
}

// IsZero reports whether l names no place. No record lies at offset 0.
func (l Location) IsZero() bool { return l.Offset == 0 }

// String returns the location as operators read it: log in hexadecimal, offset in decimal.
func (l Location) String() string { return fmt.Sprintf("%s@%d+%d", l.Log, l.Offset, l.Size) }

// LedgerState is what the storage wants to find again about a ledger: key, fence, limbo, explicit LAC, tombstone. The
// bytes are the storage's own.
type LedgerState struct {
	Ledger int64
	Data   []byte
}

// Position is a place in a directory's logs. Everything before it was synced.
type Position struct {
	Log    LogID
	Offset int64
}

// LogInfo describes a log.
type LogInfo struct {
	ID LogID
	// Precedence orders logs by the age of their content where two of them hold the same entry or state: the higher
	// one is newer, equal ones are ordered by ID. It equals ID, except for what a compaction wrote: there it is the
	// highest precedence of its sources, so that an entry added again meanwhile stays the newer one.
	Precedence LogID
	Size       int64     // bytes in the file, for an unsealed log up to the last checkpoint
	Created    time.Time // to the millisecond
	Sealed     bool      // ends in a footer; false for the log being written, and for those that could not be sealed
	Compaction bool      // written by a compaction
	Writing    bool      // entries are being appended
	Failed     bool      // a write or sync failed; what was checkpointed before is readable, nothing is appended
	Unreadable bool      // neither header nor checkpoint nor footer could be read: nothing is known about its entries
}

// Before reports whether what i holds is older than what other holds.
func (i LogInfo) Before(other LogInfo) bool {
	if i.Precedence != other.Precedence {
		return i.Precedence < other.Precedence
	}
	return i.ID < other.ID
}

// Options configure a Store. The zero value means the defaults.
type Options struct {
	// LogSize is the size in bytes past which a log is sealed, at the next checkpoint. Default 1 GiB.
	LogSize int64
	// BufferSize is the size in bytes of each of the two write buffers, a multiple of vfs.Align. Default 1 MiB.
	BufferSize int
	// PreallocateSize is the step in bytes in which the file system reserves space for a growing log, up to LogSize; beyond
	// it, where the log may end any moment, steps are at most 4 MiB. Default 64 MiB, at most LogSize.
	PreallocateSize int64
	// BufferedWrites writes through the page cache. By default writes are direct, and Open fails with
	// vfs.ErrNoDirectIO where the file system has no direct I/O.
	BufferedWrites bool
	// DirectReads makes Read and ReadRange bypass the page cache.
	DirectReads bool
	// ReadOnly opens the directory for inspection: nothing is written, unsealed logs stay so.
	ReadOnly bool
	// OpenFilesMax bounds the read handles kept open. Default 256.
	OpenFilesMax int
	// Durable is the position up to which the caller knows the directory to have been synced (Store.Durable at the
	// last checkpoint, kept with the mark); nothing behind it was promised to be there. If less is found, Open reports
	// damage instead of a torn tail. The zero value claims nothing: then damage in the last checkpoint of a log may pass
	// for a torn tail, and a torn tail for damage.
	Durable Position
	// MinLog is the highest log id that the caller has heard of (from the index). New logs get higher ids.
	MinLog LogID
	// OnSealed is called after a log has got its footer, and after a failed log was given up: its content is final.
	// It runs on the store's sealing goroutine, one call at a time, and must not call Close. Logs that Open finds
	// sealed, or seals, are not reported: see Recovered.
	OnSealed func(LogInfo)
	// Logger receives what operators should know. Default slog.Default().
	Logger *slog.Logger
}

// Sizes that are part of the design. Every length read from a file is checked against them before memory is taken.
const (
	// MaxBody is the largest entry body: the largest frame that a bookie accepts.
	MaxBody = 5<<20 + 64<<10
	// MinBody is the smallest: ledger id, entry id, and the LAC that bookies read from it.
	MinBody = 24
	// MaxState is the largest LedgerState.Data.
	MaxState = 64 << 10
	// MaxRunEntries is the largest Run.Count; RunBuilder begins another run there.
	MaxRunEntries = 8192

	defaultLogSize         = 1 << 30
	defaultBufferSize      = 1 << 20
	defaultPreallocateSize = 64 << 20
	defaultOpenFilesMax    = 256
)

// EnsureDefaults fills in what is zero.
func (o *Options) EnsureDefaults() {
	if o.LogSize == 0 {
		o.LogSize = defaultLogSize
	}
	if o.BufferSize == 0 {
		o.BufferSize = defaultBufferSize
	}
	if o.PreallocateSize == 0 {
		o.PreallocateSize = min(defaultPreallocateSize, max(o.LogSize, vfs.Align))
	}
	if o.OpenFilesMax == 0 {
		o.OpenFilesMax = defaultOpenFilesMax
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
}

// Validate reports what can not work.
func (o *Options) Validate() error {
	switch {
	case o.LogSize < vfs.Align || o.LogSize > 1<<40:
		return fmt.Errorf("entry log size %d is not between %d and %d bytes", o.LogSize, vfs.Align, int64(1)<<40)
	case o.BufferSize < vfs.Align || o.BufferSize%vfs.Align != 0 || o.BufferSize > 1<<28:
		return fmt.Errorf("entry log buffer size %d is not a multiple of %d between that and 256 MiB", o.BufferSize, vfs.Align)
	case o.PreallocateSize < 0:
		return fmt.Errorf("entry log preallocation %d is negative", o.PreallocateSize)
	case o.OpenFilesMax < 1:
		return fmt.Errorf("entry log open files %d is less than 1", o.OpenFilesMax)
	}
	return nil
}

// Errors that callers test for. Damage is always a *corrupt.Error with file and offset, never one of these.
var (
	// ErrNoLog is returned when a location's log has been removed. Look the entry up again: compaction may have moved
	// it.
	ErrNoLog = errors.New("no such entry log")
	// ErrFailed is returned, wrapped in what happened, once a write or sync of the current log has failed. Nothing
	// appended since the last checkpoint is durable. Call Abort, then repeat the whole flush: it goes to a new log.
	ErrFailed = errors.New("entry log failed")
	// ErrNoSpace is returned when the file system is full. Nothing appended since the last checkpoint is durable. Free
	// space (the reserve, a garbage collection), call Abort, then repeat the whole flush.
	ErrNoSpace = errors.New("no space for the entry log")
	// ErrBody is returned for a body that no log takes: shorter than MinBody or longer than MaxBody.
	ErrBody = errors.New("entry body has no valid length")
	// ErrNotFinal is returned when the content of the log that is being written is asked for as a whole.
	ErrNotFinal = errors.New("entry log is still being written")
	// ErrReadOnly is returned when a store opened for inspection is asked to write.
	ErrReadOnly = errors.New("entry logs are open for inspection only")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("entry log store is closed")
)
