package storage

import "errors"

// Errors that callers test for. Damaged bytes are always a *corrupt.Error with file and offset, never one of these.
var (
	// ErrNoEntry is returned when the ledger is known here and this bookie vouches that it does not hold the entry.
	ErrNoEntry = errors.New("no such entry")
	// ErrNoLedger is returned when the ledger was never seen here or was deleted.
	ErrNoLedger = errors.New("no such ledger")
	// ErrUnknown is returned when this bookie can neither give the entry nor deny it: the ledger is in limbo, its
	// directory failed, or a directory is missing that may have held it. Another bookie has to be asked.
	ErrUnknown = errors.New("unknown: this bookie may have lost data of the ledger")
	// ErrCacheFull is returned by Reserve when no room came free in time. Ask again later; flushing is behind.
	ErrCacheFull = errors.New("write cache is full")
	// ErrDirFailed is returned, wrapped in the cause, when the ledger's directory failed. Replace the disk and repair
	// its share.
	ErrDirFailed = errors.New("ledger directory failed")
	// ErrDirFull is returned for adds to a ledger whose directory has reached the full mark.
	ErrDirFull = errors.New("ledger directory is full")
	// ErrBadEntry is returned for a body whose length is not between MinEntry and MaxEntry, or whose ids are not those
	// of the add.
	ErrBadEntry = errors.New("invalid entry")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("storage is closed")
	// ErrChanged is returned by a local delete that found the ledger changed since it was judged. Judge it again.
	ErrChanged = errors.New("ledger changed since it was judged")
	// ErrTombstonesFull is returned by a local delete when the list of deleted ledgers has reached its bound. Move the
	// bookie's data to a new one; nothing is lost.
	ErrTombstonesFull = errors.New("too many deleted ledgers are remembered")
)
