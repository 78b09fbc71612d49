package journal

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
)

// Files of dir/current:
//
//	<id>.jnl    a segment; id is 16 hexadecimal digits and never used again
//	<id>.zero   a spare whose every block has been written once
//	<id>.alloc  a spare whose space is reserved, its blocks perhaps never written
//	journal.note  which segment has to be there; see note.go
const (
	currentDir  = "current"
	liveSuffix  = ".jnl"
	zeroSuffix  = ".zero"
	allocSuffix = ".alloc"
)

func fileName(dir string, id uint64, suffix string) string {
	return filepath.Join(dir, currentDir, fmt.Sprintf("%016x%s", id, suffix))
}

// parseName splits a name of dir/current. ok is false for names that are not ours.
func parseName(name string) (id uint64, suffix string, ok bool) {
	hex, suffix, found := strings.Cut(name, ".")
	if !found || len(hex) != 16 || strings.ToLower(hex) != hex {
		return 0, "", false
	}
	id, err := strconv.ParseUint(hex, 16, 64)
	if err != nil {
		return 0, "", false
	}
	switch suffix = "." + suffix; suffix {
	case liveSuffix, zeroSuffix, allocSuffix:
		return id, suffix, true
	}
	return 0, "", false
}

// segmentFile is a segment as found on disk.
type segmentFile struct {
	id       uint64
	name     string
	size     int64
	header   segmentHeader
	seal     seal
	repaired bool  // one of the header's copies was bad
	err      error // the header can not be read: a *corrupt.Error
}

// spareFile is a file without content that matters.
type spareFile struct {
	id     uint64 // of its name
	name   string
	zeroed bool
	done   int64 // not zeroed: bytes before this one have been written, as far as this process knows
}

// directory is what dir/current holds.
type directory struct {
	dir      string
	segments []*segmentFile // by id
	spares   []*spareFile
	maxID    uint64 // highest id in any name or header, and in the note
	note     *note  // nil: there is none, or it can not be read
	noteErr  error  // why it can not be read
}

// readDirectory lists dir/current and reads the segment headers.
func readDirectory(fs vfs.FS, dir string) (*directory, error) {
	d := &directory{dir: dir}
	// Before the names, so that what it names is among them also beside a running journal.
	var err error
	d.note, err = readNote(fs, dir)
	switch {
	case corrupt.Is(err):
		d.noteErr = err
	case err != nil:
		return nil, err
	case d.note != nil:
		d.maxID = d.note.highest
	}
	names, err := fs.List(filepath.Join(dir, currentDir))
	if errors.Is(err, iofs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list journal %s: %w", dir, err)
	}
	for _, n := range names {
		id, suffix, ok := parseName(n)
		if !ok {
			continue
		}
		d.maxID = max(d.maxID, id)
		name := filepath.Join(dir, currentDir, n)
		if suffix != liveSuffix {
			d.spares = append(d.spares, &spareFile{id: id, name: name, zeroed: suffix == zeroSuffix})
			continue
		}
		s, err := readSegmentFile(fs, name, id)
		if err != nil {
			return nil, err
		}
		d.segments = append(d.segments, s)
		if s.err == nil && s.header.flags&flagNoted != 0 && d.note == nil && d.noteErr == nil {
			d.noteErr = corrupt.New(filepath.Join(dir, currentDir, noteName), 0, "journal note", iofs.ErrNotExist)
		}
	}
	slices.SortFunc(d.segments, func(a, b *segmentFile) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	return d, nil
}

// readSegmentFile reads the header of a segment. Damage is in the result; the error says that the file can not be
// opened, or belongs to a newer version.
func readSegmentFile(fs vfs.FS, name string, id uint64) (*segmentFile, error) {
	f, err := fs.Open(name, vfs.Mode{})
	if err != nil {
		return nil, fmt.Errorf("open journal segment: %w", err)
	}
	defer f.Close() //nolint:errcheck // read only
	s := &segmentFile{id: id, name: name}
	if s.size, err = f.Size(); err != nil {
		return nil, fmt.Errorf("open journal segment: %w", err)
	}
	b := make([]byte, segmentHeaderBytes)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = corrupt.New(name, 0, "journal segment header", err)
		return s, nil
	}
	h, repaired, err := decodeSegmentHeader(b[:n])
	switch {
	case errors.Is(err, ErrFormatTooNew):
		return nil, fmt.Errorf("open journal segment %s: %w", name, err)
	case err != nil:
		s.err = corrupt.New(name, 0, "journal segment header", err)
	case h.id != id:
		s.err = corrupt.Errorf(name, 0, "journal segment header", "it says segment %016x", h.id)
	default:
		s.header, s.repaired, s.seal = h, repaired, sealOf(h.salt)
	}
	return s, nil
}
