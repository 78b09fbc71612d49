package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	iofs "io/fs"
	"path/filepath"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/vfs"
)

// The note tells a journal whose last segments were deleted from one that never had them: what lies before a segment is
// known from its header, what lay behind the last one only from here. It is written when a segment has got its name, before
// the segment takes a group, and before the newest one goes. Two slots are written in turn, in place, so that this needs no
// space. docs/formats/journal.md has the format.
const (
	noteName  = "journal.note"
	noteSlot  = vfs.Align
	noteBytes = 60
)

var noteMagic = [8]byte{'B', 'N', 'D', 'R', 'Y', 'J', 'N', 'T'}

// note is its content.
type note struct {
	seq     uint64 // the higher one counts
	highest uint64 // ids of segments up to here have been used
	newest  uint64 // the segment with the highest id that there has to be, 0: none
	last    uint64 // after a clean end: no record lies above this position; otherwise 0
	gone    uint64 // records up to this position are missing: a mark above it needs none of them
}

func (n *note) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, noteBytes)
	copy(b, noteMagic[:])
	le.PutUint16(b[8:], formatVersion)
	for i, v := range []uint64{n.seq, n.highest, n.newest, n.last, n.gone} {
		le.PutUint64(b[16+8*i:], v)
	}
	le.PutUint32(b[56:], crc32.Checksum(b[:56], castagnoli))
	return b
}

// decodeNote reads a slot.
func decodeNote(b []byte) (note, error) {
	le := binary.LittleEndian
	switch {
	case len(b) < noteBytes:
		return note{}, fmt.Errorf("%d bytes, want %d", len(b), noteBytes)
	case [8]byte(b[:8]) != noteMagic:
		return note{}, fmt.Errorf("magic is %q", b[:8])
	case le.Uint16(b[8:]) > formatVersion:
		return note{}, fmt.Errorf("%w: note format %d, this version knows %d", ErrFormatTooNew, le.Uint16(b[8:]), formatVersion)
	case crc32.Checksum(b[:56], castagnoli) != le.Uint32(b[56:]):
		return note{}, errors.New("checksum does not match")
	}
	n := note{seq: le.Uint64(b[16:]), highest: le.Uint64(b[24:]), newest: le.Uint64(b[32:]), last: le.Uint64(b[40:]), gone: le.Uint64(b[48:])}
	if n.newest > n.highest {
		return note{}, fmt.Errorf("segment %016x is above the highest, %016x", n.newest, n.highest)
	}
	return n, nil
}

// readNote returns the note of a directory, nil if it has none. One that can not be read is a *corrupt.Error.
func readNote(fs vfs.FS, dir string) (*note, error) {
	name := filepath.Join(dir, currentDir, noteName)
	f, err := fs.Open(name, vfs.Mode{})
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open journal note: %w", err)
	}
	defer f.Close() //nolint:errcheck // read only
	var best *note
	var damage error
	for slot := range int64(2) {
		b := make([]byte, noteBytes)
		k, err := f.ReadAt(b, slot*noteSlot)
		if err != nil && !errors.Is(err, io.EOF) {
			damage = corrupt.New(name, slot*noteSlot, "journal note", err)
			continue
		}
		n, err := decodeNote(b[:k])
		switch {
		case errors.Is(err, ErrFormatTooNew):
			return nil, fmt.Errorf("%s: %w", name, err)
		case err != nil:
			damage = corrupt.New(name, slot*noteSlot, "journal note", err)
		case best == nil || n.seq > best.seq:
			best = &n
		}
	}
	if best != nil {
		return best, nil
	}
	return nil, damage
}

// writeNote replaces the note durably. A failed write is repeated by the next call, in the same slot: the other one holds.
func (j *Journal) writeNote(n note) (err error) {
	n.seq = j.note.seq + 1
	n.highest = max(n.highest, j.note.highest)
	n.gone = max(n.gone, j.note.gone)
	name := filepath.Join(j.current(), noteName)
	if !j.noted {
		n.seq = 1
		b := make([]byte, 2*noteSlot)
		copy(b, n.encode())
		copy(b[noteSlot:], n.encode())
		if err := vfs.WriteFileAtomic(j.fs, name, b); err != nil {
			return fmt.Errorf("make journal note: %w", err)
		}
		j.note, j.noted = n, true
		return nil
	}
	f, err := j.fs.Open(name, vfs.Mode{Write: true})
	if err != nil {
		return fmt.Errorf("write journal note: %w", err)
	}
	_, err = f.WriteAt(n.encode(), int64(n.seq&1)*noteSlot)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write journal note: %w", err)
	}
	j.note = n
	invariant.CrashPoint("journal.noted")
	return nil
}

// noteNamed notes that segment id has its name.
func (j *Journal) noteNamed(id uint64) error { return j.writeNote(note{highest: id, newest: id}) }

// noteGone notes, before segment s goes, which one is the newest then.
func (j *Journal) noteGone(s *segment) error {
	if !j.noted || s.id != j.note.newest {
		return nil
	}
	n := note{last: j.note.last}
	for _, other := range j.live {
		if other.id < s.id {
			n.newest = max(n.newest, other.id)
		}
	}
	return j.writeNote(n)
}

// noteClosed notes that no record lies behind those that are durable now.
func (j *Journal) noteClosed() {
	n := j.note
	n.last = max(j.lastRecord, j.lastSeq)
	if err := j.writeNote(n); err != nil {
		j.o.Logger.Warn("journal: the clean end could not be noted", "journal", j.dir, "error", err)
	}
}
