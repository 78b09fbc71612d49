package journal

import (
	"fmt"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
)

// What follows looks at a directory without opening it as a journal: for tests and for the command line. It writes nothing.
// On the directory of a running journal it sees a state that is some groups old.

// States of a file of a journal directory.
const (
	StateSegment   = "segment"
	StateZeroed    = "zeroed spare"
	StateAllocated = "allocated spare"
)

// FileInfo describes a file of a journal directory.
type FileInfo struct {
	ID    uint64
	Name  string
	State string
	Size  int64

	// Of segments only.
	Fresh        bool     // the first one of a run: begun by Start
	Previous     uint64   // id of the segment before it
	CutAfter     Position // fresh: what follows this position in earlier segments is cut
	First, Last  Position // groups that count; 0 if there are none
	Groups       int64
	Records      int64
	PayloadBytes int64
	UsedBytes    int64 // header, groups and padding
	Created      time.Time
	Err          error // the header can not be read
}

// Contents is what List found.
type Contents struct {
	Files    []FileInfo // segments by id, then spares
	Replayed Replayed   // of the whole directory
	Durable  Position   // highest S in any group: everything up to it was durable
}

// List describes the files of dir/current. It reads every group.
func List(fs vfs.FS, dir string) (*Contents, error) {
	d, err := readDirectory(fs, dir)
	if err != nil {
		return nil, err
	}
	c := &Contents{}
	byID := map[uint64]int{}
	for _, s := range d.segments {
		byID[s.id] = len(c.Files)
		f := FileInfo{ID: s.id, Name: s.name, State: StateSegment, Size: s.size, Err: s.err}
		if s.err == nil {
			f.Fresh, f.Previous = s.header.fresh(), s.header.prev
			f.Created = time.Unix(0, s.header.created)
			f.UsedBytes = segmentHeaderBytes
			if f.Fresh {
				f.CutAfter = Position(s.header.prevLast)
			}
		}
		c.Files = append(c.Files, f)
	}
	for _, s := range d.spares {
		f := FileInfo{ID: s.id, Name: s.name, State: StateAllocated}
		if s.zeroed {
			f.State = StateZeroed
		}
		info, err := fs.Stat(s.name)
		if err != nil {
			return nil, fmt.Errorf("list journal %s: %w", dir, err)
		}
		f.Size = info.Size
		c.Files = append(c.Files, f)
	}
	w := newWalk(fs, d, 0, &c.Replayed)
	w.onGroup = func(s *segmentFile, off int64, h groupHeader) error {
		f := &c.Files[byID[s.id]]
		if f.First == 0 {
			f.First = Position(h.sequence)
		}
		f.Last = Position(h.sequence)
		f.Groups++
		f.UsedBytes = max(f.UsedBytes, off+h.extent())
		c.Durable = max(c.Durable, Position(h.durable))
		return nil
	}
	w.emit = func(r Record) error {
		f := &c.Files[byID[r.Segment]]
		f.Records++
		f.PayloadBytes += int64(len(r.Payload))
		return nil
	}
	return c, w.run()
}

// Group is a group as Dump shows it.
type Group struct {
	Position Position
	Segment  uint64
	Offset   int64
	Bytes    int64 // on disk, with header and padding
	Records  int
	Durable  Position // every group up to it was durable when this one was written
	Written  time.Time
}

// Dump calls group for every group at or after from, and record for each of its records. Both may be nil. An error of
// either ends it and is returned.
func Dump(fs vfs.FS, dir string, from Position, group func(Group) error, record func(Record) error) (Replayed, error) {
	var r Replayed
	d, err := readDirectory(fs, dir)
	if err != nil {
		return r, err
	}
	w := newWalk(fs, d, uint64(from), &r)
	w.emit = record
	if group != nil {
		w.onGroup = func(s *segmentFile, off int64, h groupHeader) error {
			return group(Group{
				Position: Position(h.sequence),
				Segment:  s.id,
				Offset:   off,
				Bytes:    h.extent(),
				Records:  int(h.records),
				Durable:  Position(h.durable),
				Written:  time.Unix(0, h.written),
			})
		}
	}
	return r, w.run()
}

// Check reads a directory from end to end and reports what it holds and what is wrong with it. The error says that it can
// not be read at all.
func Check(fs vfs.FS, dir string) (Replayed, error) { return Dump(fs, dir, 0, nil, nil) }
