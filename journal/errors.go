package journal

import (
	"errors"
	"fmt"

	"github.com/binderylog/bindery/internal/vfs"
)

// Errors that callers test for.
var (
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("the journal is closed")
	// ErrNotStarted is returned by Append and Reserve before Start, after a Start that failed with its cause.
	ErrNotStarted = errors.New("the journal is not started")
	// ErrBusy is returned by Reserve when no room came free in time.
	ErrBusy = errors.New("the journal's queue is full")
	// ErrPoisoned is returned by everything after a write or sync of a group, or the sync of a segment's name, failed. Nothing that the failure
	// covered was acknowledged, nothing is retried; only a restart makes the directory usable again.
	ErrPoisoned = errors.New("the journal failed and takes nothing more until a restart")
	// ErrWaiting is returned by Reserve while no segment can be had for further records. Nothing is lost: what was appended
	// is written, and records are taken again, once one can be had.
	ErrWaiting = errors.New("the journal waits for a segment")
	// ErrRecordTooLarge is returned by Append for a body above Options.MaxRecordBytes.
	ErrRecordTooLarge = errors.New("the record is larger than the journal takes")
	// ErrFormatTooNew is returned by Open for a directory that a newer version wrote.
	ErrFormatTooNew = errors.New("the journal was written by a newer version")
)

// PoisonedError is the state of a failed journal. It matches ErrPoisoned and its cause.
type PoisonedError struct {
	Dir   string
	Op    string // what was being done
	Cause error
}

// Error implements error.
func (e *PoisonedError) Error() string {
	return fmt.Sprintf("journal %s: %s: %v; this journal takes nothing more until a restart", e.Dir, e.Op, e.Cause)
}

// Unwrap makes errors.Is see both the state and what led to it.
func (e *PoisonedError) Unwrap() []error { return []error{ErrPoisoned, e.Cause} }

// WaitingError is the state of a journal that can not get its next segment, most likely for want of space. It matches
// ErrWaiting and its cause.
type WaitingError struct {
	Dir   string
	Cause error
}

// Error implements error.
func (e *WaitingError) Error() string {
	return fmt.Sprintf("journal %s has no room for its next segment and tries again: free space there: %v", e.Dir, e.Cause)
}

// Unwrap makes errors.Is see both the state and what led to it.
func (e *WaitingError) Unwrap() []error { return []error{ErrWaiting, e.Cause} }

// NotStartedError is the state of a journal whose Start failed. It matches ErrNotStarted and its cause.
type NotStartedError struct{ Cause error }

// Error implements error.
func (e *NotStartedError) Error() string { return fmt.Sprintf("%v: %v", ErrNotStarted, e.Cause) }

// Unwrap makes errors.Is see both the state and what led to it.
func (e *NotStartedError) Unwrap() []error { return []error{ErrNotStarted, e.Cause} }

// NoSpaceError is returned by Start when there is no spare segment and no space for one. What the directory holds can be
// replayed and trimmed all the same, and Start may be called again. It matches ENOSPC or EDQUOT.
type NoSpaceError struct {
	Dir  string
	Need int64 // bytes of a segment
	Err  error
}

// Error implements error.
func (e *NoSpaceError) Error() string {
	return fmt.Sprintf("start journal %s: no space for a segment of %d bytes and no spare one: free space, or trim the journal: %v", e.Dir, e.Need, e.Err)
}

// Unwrap returns the cause.
func (e *NoSpaceError) Unwrap() error { return e.Err }

// NoDirectIOError says that the directory's file system refuses direct I/O.
type NoDirectIOError struct {
	Dir    string
	Method IOMethod
	Err    error
}

// Error implements error.
func (e *NoDirectIOError) Error() string {
	return fmt.Sprintf(`journal %s: journal.io = %q needs direct I/O: %v; move the journal to a file system that has it (ext4, xfs), or set journal.io = "buffered"`, e.Dir, e.Method, e.Err)
}

// Unwrap returns the cause.
func (e *NoDirectIOError) Unwrap() error { return e.Err }

// Is matches vfs.ErrNoDirectIO whatever the cause was.
func (e *NoDirectIOError) Is(target error) bool { return target == vfs.ErrNoDirectIO }

// UnsupportedIOError says that a method of journal.io does not exist in this build or on this system.
type UnsupportedIOError struct{ Method IOMethod }

// Error implements error.
func (e *UnsupportedIOError) Error() string {
	return fmt.Sprintf(`journal.io = %q is not supported by this build; use "auto", "dsync", "fdatasync" or "buffered"`, e.Method)
}

// Is matches errors.ErrUnsupported.
func (e *UnsupportedIOError) Is(target error) bool { return target == errors.ErrUnsupported }
