package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
)

// The mark file of a ledger directory, `current/mark`, has two slots of markSlot bytes that are written in turn, so that a
// torn write leaves the other one. docs/formats/mark.md draws it.
const (
	markName      = "mark"
	lastMarkName  = "lastMark"
	markMagic     = "BNDRMARK"
	markVersion   = 1
	markHeader    = 32
	markSlot      = 64 << 10
	maxJournals   = 64
	maxJournalID  = 64
	markRowsMax   = 2 * MaxDirs // this directory's own row, and rows of the others, missing ones included
	markFlagClean = 1 << 0
	markFlagLost  = 1 << 1

	rowFlagFailed = 1 << 0
)

// poisonLastMark is the content of `current/lastMark`, which Apache BookKeeper reads as "journal file 2^63-2, offset 0"
// and refuses to start on, since that file never exists: it can not serve our directories as if they were empty.
var poisonLastMark = [16]byte{0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFE}

// errNoMark says that a directory has no mark file, or only an empty one.
var errNoMark = errors.New("no mark file")

// markTable is the content of one mark file: the directory's own row and what it knows of the other directories.
type markTable struct {
	seq         uint64 // of this table; the slot with the higher one counts
	run         uint32 // number of the process run that wrote it
	lastUnclean uint32 // highest run that did not close the storage
	births      uint32 // highest birth number given out
	clean       bool   // the run closed the storage
	lost        bool   // something was found missing here and has not been accepted yet
	journals    []string
	rows        []dirMark // rows[0] is the directory's own
}

// dirMark is one directory's row.
type dirMark struct {
	id      uint64
	failed  bool              // the directory failed: its mark no longer holds the journals back
	durable entrylog.Position // end of its entry logs at that mark
	pos     []uint64          // by markTable.journals
}

// encodeMark returns a whole slot's used part.
//
//	header: magic (8) | version (2) | flags (2) | payload length (4) | seq (8) | CRC32C (4) | zero (4)
//	payload: run (4) | last unclean run (4) | births (4) | journals (4), each: length (1) id |
//	         rows (4), each: id (8) | flags (4) | log (4) | offset (8) | a position (8) per journal
//
// Integers are little-endian; the CRC covers the payload and the header without the CRC.
func encodeMark(t *markTable) []byte {
	le := binary.LittleEndian
	b := make([]byte, markHeader, 512)
	b = le.AppendUint32(b, t.run)
	b = le.AppendUint32(b, t.lastUnclean)
	b = le.AppendUint32(b, t.births)
	b = le.AppendUint32(b, uint32(len(t.journals)))
	for _, id := range t.journals {
		b = append(b, byte(len(id)))
		b = append(b, id...)
	}
	b = le.AppendUint32(b, uint32(len(t.rows)))
	for _, r := range t.rows {
		b = le.AppendUint64(b, r.id)
		b = le.AppendUint32(b, uint32(bit(r.failed, rowFlagFailed)))
		b = le.AppendUint32(b, uint32(r.durable.Log))
		b = le.AppendUint64(b, uint64(r.durable.Offset))
		for i := range t.journals {
			b = le.AppendUint64(b, r.pos[i])
		}
	}
	copy(b, markMagic)
	le.PutUint16(b[8:], markVersion)
	le.PutUint16(b[10:], uint16(bit(t.clean, markFlagClean)|bit(t.lost, markFlagLost)))
	le.PutUint32(b[12:], uint32(len(b)-markHeader))
	le.PutUint64(b[16:], t.seq)
	le.PutUint32(b[24:], markCRC(b))
	return b
}

func markCRC(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:24], castagnoli), castagnoli, b[markHeader:])
}

// decodeMark reads one slot.
func decodeMark(b []byte) (*markTable, error) {
	le := binary.LittleEndian
	if len(b) < markHeader {
		return nil, fmt.Errorf("%d bytes, want at least %d", len(b), markHeader)
	}
	if string(b[:8]) != markMagic {
		return nil, fmt.Errorf("magic is %q, want %q", b[:8], markMagic)
	}
	n := le.Uint32(b[12:])
	if n > markSlot-markHeader || int(n) > len(b)-markHeader {
		return nil, fmt.Errorf("payload length %d is out of range", n)
	}
	b = b[:markHeader+int(n)]
	if got, want := markCRC(b), le.Uint32(b[24:]); got != want {
		return nil, fmt.Errorf("checksum is %08x, want %08x", got, want)
	}
	if v := le.Uint16(b[8:]); v != markVersion {
		return nil, fmt.Errorf("version %d, this program knows %d", v, markVersion)
	}
	flags := le.Uint16(b[10:])
	t := &markTable{seq: le.Uint64(b[16:]), clean: flags&markFlagClean != 0, lost: flags&markFlagLost != 0}
	p := parser{b: b[markHeader:]}
	t.run, t.lastUnclean, t.births = p.fixed32(), p.fixed32(), p.fixed32()
	journals := p.fixed32()
	if journals > maxJournals {
		p.fail(fmt.Sprintf("%d journals, at most %d are possible", journals, maxJournals))
	}
	for range journals {
		if p.err != nil {
			return nil, p.err
		}
		if len(p.b) < 1 || len(p.b) < 1+int(p.b[0]) || p.b[0] > maxJournalID {
			p.fail("a journal id is cut off or too long")
			return nil, p.err
		}
		k := int(p.b[0])
		t.journals = append(t.journals, string(p.b[1:1+k]))
		p.b = p.b[1+k:]
	}
	rows := p.fixed32()
	if rows == 0 || rows > markRowsMax {
		p.fail(fmt.Sprintf("%d directories, 1 to %d are possible", rows, markRowsMax))
	}
	for range rows {
		if p.err != nil {
			return nil, p.err
		}
		r := dirMark{id: p.fixed64(), failed: p.fixed32()&rowFlagFailed != 0}
		r.durable.Log, r.durable.Offset = entrylog.LogID(p.fixed32()), int64(p.fixed64())
		r.pos = make([]uint64, len(t.journals))
		for i := range r.pos {
			r.pos[i] = p.fixed64()
		}
		t.rows = append(t.rows, r)
	}
	if p.err == nil && len(p.b) != 0 {
		p.fail(fmt.Sprintf("%d bytes follow the last directory", len(p.b)))
	}
	return t, p.err
}

// readMark returns the newest table of the mark file in dir, errNoMark if there is none, or a *corrupt.Error if neither
// slot can be read.
func readMark(fsys vfs.FS, dir string) (*markTable, error) {
	name := filepath.Join(dir, markName)
	f, err := fsys.Open(name, vfs.Mode{})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoMark
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	var best *markTable
	var damage *corrupt.Error
	empty := true
	buf := make([]byte, markSlot)
	for slot := range int64(2) {
		n, err := f.ReadAt(buf, slot*markSlot)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if allZero(buf[:n]) {
			continue
		}
		empty = false
		t, err := decodeMark(buf[:n])
		if err != nil {
			damage = corrupt.New(name, slot*markSlot, "mark", err)
			continue
		}
		if best == nil || t.seq > best.seq {
			best = t
		}
	}
	switch {
	case best != nil:
		return best, nil
	case empty:
		return nil, errNoMark
	}
	return nil, damage
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// createMark makes an empty mark file and the poisoned lastMark, durably.
func createMark(fsys vfs.FS, dir string) error {
	if err := vfs.WriteFileAtomic(fsys, filepath.Join(dir, lastMarkName), poisonLastMark[:]); err != nil {
		return err
	}
	return vfs.WriteFileAtomic(fsys, filepath.Join(dir, markName), make([]byte, 2*markSlot))
}

// openMark opens the mark file for writing. It stays open: a checkpoint shall not fail for want of a file handle.
func openMark(fsys vfs.FS, dir string) (vfs.File, error) {
	return fsys.Open(filepath.Join(dir, markName), vfs.Mode{Write: true})
}

// writeMark puts t into the slot that its sequence number chooses, and syncs. The file keeps its size, so neither space
// nor a directory entry is needed.
func writeMark(f vfs.File, t *markTable) error {
	b := encodeMark(t)
	if len(b) > markSlot {
		return fmt.Errorf("mark of %d bytes exceeds its slot", len(b))
	}
	if _, err := f.WriteAt(b, int64(t.seq&1)*markSlot); err != nil {
		return err
	}
	return f.Sync()
}

// posFor returns the row's position in the journal with the given id, 0 if it does not know it.
func (t *markTable) posFor(row *dirMark, journal string) uint64 {
	if i := slices.Index(t.journals, journal); i >= 0 {
		return row.pos[i]
	}
	return 0
}
