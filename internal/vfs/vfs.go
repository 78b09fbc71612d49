// Package vfs is the file system as this program sees it: a small interface with an implementation on the operating
// system, one in memory that can crash (memfs) and one that injects errors (errorfs).
//
// Invariants every implementation keeps:
//   - A File's Sync returning nil makes its data and size durable; it does not make its name durable. SyncDir does.
//   - Rename replaces the target atomically; it is durable after SyncDir of the parent.
//   - Errors are *fs.PathError (or wrap one), so errors.Is with fs.ErrNotExist, syscall.ENOSPC and the like works.
//   - A File may be used by several goroutines at once; ReadAt and WriteAt do not share a position.
//
// The package starts no goroutine.
package vfs

import (
	"errors"
	"io"
	"syscall"
)

// Align is the alignment in bytes of memory, offset and length that every direct-I/O file of ours uses. It is a multiple
// of the logical block of all devices met so far; Open with Direct fails with ErrNoDirectIO where it does not suffice.
const Align = 4096

// Errors that callers test for.
var (
	// ErrLocked is returned by Lock when another process, or another Lock call, holds the file.
	ErrLocked = errors.New("locked by another process")
	// ErrNoDirectIO is returned by Open with Direct when the file system refuses it. There is no silent fallback.
	ErrNoDirectIO = errors.New("the file system does not support direct I/O")
)

// IsNoSpace reports whether err says that a disk, or somebody's share of it, is full.
func IsNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Mode says how a file is opened. The zero value opens an existing file for buffered reading.
type Mode struct {
	Write     bool // also for writing
	Create    bool // create it if it does not exist
	Exclusive bool // with Create: fail with fs.ErrExist if it exists
	Direct    bool // O_DIRECT: memory, offset and length of every ReadAt and WriteAt are multiples of Align
	DSync     bool // O_DSYNC: WriteAt returns once data and size are durable
}

// Usage is the space of the file system that holds a directory.
type Usage struct {
	Total, Available   int64 // bytes; Available is what an unprivileged process may still write
	Inodes, InodesFree int64
}

// Info describes a file.
type Info struct {
	Size    int64
	Dir     bool
	Special bool // a pipe, a device or a socket: opening or reading it may wait for ever
}

// FS is a file system.
type FS interface {
	// Open opens name in the given mode.
	Open(name string, m Mode) (File, error)
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// Rename moves oldName to newName, replacing it.
	Rename(oldName, newName string) error
	// MkdirAll creates dir and its missing parents.
	MkdirAll(dir string) error
	// List returns the names in dir, sorted.
	List(dir string) ([]string, error)
	// Stat describes name.
	Stat(name string) (Info, error)
	// SyncDir makes the names in dir durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock on the file name, creating it, or fails with ErrLocked at once. Closing releases it.
	Lock(name string) (io.Closer, error)
	// Usage returns the space of the file system that holds dir.
	Usage(dir string) (Usage, error)
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Name returns the name the file was opened with.
	Name() string
	// Size returns the file's length in bytes.
	Size() (int64, error)
	// Sync makes written data and the size durable (fdatasync).
	Sync() error
	// Truncate sets the size.
	Truncate(size int64) error
	// Preallocate reserves space for [0, size) and sets the size to at least size; the range reads as zeros where
	// nothing was written. It fails with ENOSPC rather than leaving part of the range unreserved.
	Preallocate(size int64) error
	// DropCache tells the system that the cached pages of [off, off+n) will not be needed.
	DropCache(off, n int64)
}
