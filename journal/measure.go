package journal

import (
	"time"

	"github.com/binderylog/bindery/internal/vfs"
)

// DurableFile writes to a file as a journal with that method does. It is for programs that measure or predict what a
// journal will do on a disk: they run its code, not something like it.
type DurableFile struct {
	vfs.File
	m method
}

// OpenDurable opens the file name in dir, which must exist, with one of the methods of journal.io, except auto.
func OpenDurable(fs vfs.FS, dir, name string, io IOMethod) (*DurableFile, error) {
	switch io {
	case IODSync, IOFdatasync, IORWFDSync, IOBuffered:
	default:
		return nil, &UnsupportedIOError{Method: io}
	}
	m := methodOf(io, false)
	f, err := m.open(fs, dir, name)
	if err != nil {
		return nil, err
	}
	return &DurableFile{File: f, m: m}, nil
}

// Write writes p, which is durable afterwards if Syncs is false.
func (f *DurableFile) Write(p []byte, off int64) error { return f.m.write(f.File, p, off) }

// Syncs reports whether what was written is durable only after Sync.
func (f *DurableFile) Syncs() bool { return f.m.sync }

// MayStart is the rule by which a group starts beside others in flight: with inflight of at most limit under way, bytes
// in the group, so long since the last start, and so long a write taking on average.
func MayStart(inflight, limit, bytes int, sinceStart, syncTime time.Duration) bool {
	return mayStart(inflight, limit, bytes, int64(sinceStart), int64(syncTime))
}

// GroupBytes is what a group with so many records of so many bytes in all takes on disk.
func GroupBytes(records, bytes int) int {
	return extent(groupHeaderBytes + records*RecordOverhead + bytes)
}
