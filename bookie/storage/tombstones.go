package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"sort"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
)

// idSet is a set of ledger ids: sorted, run-length coded, in pages. A deleted ledger costs two or three bytes where the
// ids around it belong to other bookies, and next to nothing where they do not. It is immutable once published; add
// returns a new set that shares the pages it did not touch.
type idSet struct {
	pages []idPage
	runs  int
	size  int // bytes of the pages' data
}

// idPage holds runs of ids: (gap, length-1) pairs of varints. The first gap is relative to first.
type idPage struct {
	first, last int64
	runs        int
	data        []byte
}

type idRun struct{ first, last int64 }

const (
	idPageRuns = 1024
	// tombstonesMax bounds the set, in memory and in its file: some 20 million deleted ledgers whose neighbours are not
	// deleted here. Beyond it nothing more is deleted (ErrTombstonesFull).
	tombstonesMax = 48 << 20
)

func (s *idSet) contains(id int64) bool {
	i := sort.Search(len(s.pages), func(i int) bool { return s.pages[i].last >= id })
	if i == len(s.pages) || s.pages[i].first > id {
		return false
	}
	for r := range s.pages[i].all() {
		if id <= r.last {
			return id >= r.first
		}
	}
	return false
}

// all yields the page's runs. The data was checked when it was built or read.
func (p *idPage) all() iter.Seq[idRun] {
	return func(yield func(idRun) bool) {
		b, next := p.data, p.first
		for len(b) > 0 {
			gap, n := binary.Uvarint(b)
			length, m := binary.Uvarint(b[max(n, 0):])
			if n <= 0 || m <= 0 {
				return
			}
			b = b[n+m:]
			r := idRun{first: next + int64(gap)}
			r.last = r.first + int64(length)
			if !yield(r) {
				return
			}
			next = r.last + 1
		}
	}
}

// all yields the set's runs in order.
func (s *idSet) all() iter.Seq[idRun] {
	return func(yield func(idRun) bool) {
		for i := range s.pages {
			for r := range s.pages[i].all() {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// add returns the set with the given sorted ids in it.
func (s *idSet) add(ids []int64) *idSet {
	return s.rewrite(ids, func(runs []idRun, ids []int64) []idRun {
		merged := make([]idRun, 0, len(runs)+len(ids))
		push := func(r idRun) {
			if n := len(merged); n > 0 && r.first-1 <= merged[n-1].last {
				merged[n-1].last = max(merged[n-1].last, r.last)
				return
			}
			merged = append(merged, r)
		}
		for _, r := range runs {
			for ; len(ids) > 0 && ids[0] < r.first; ids = ids[1:] {
				push(idRun{ids[0], ids[0]})
			}
			push(r)
		}
		for _, id := range ids {
			push(idRun{id, id})
		}
		return merged
	})
}

// remove returns the set without the given sorted ids.
func (s *idSet) remove(ids []int64) *idSet {
	return s.rewrite(ids, func(runs []idRun, ids []int64) []idRun {
		out := make([]idRun, 0, len(runs)+len(ids))
		for _, r := range runs {
			i, _ := slices.BinarySearch(ids, r.first)
			empty := false
			for ; i < len(ids) && ids[i] <= r.last; i++ {
				if ids[i] > r.first {
					out = append(out, idRun{r.first, ids[i] - 1})
				}
				if empty = ids[i] == r.last; !empty {
					r.first = ids[i] + 1
				}
			}
			if !empty {
				out = append(out, r)
			}
		}
		return out
	})
}

// rewrite applies fn to each page together with the ids that fall into it or into the gap behind it. Pages without ids
// are shared.
func (s *idSet) rewrite(ids []int64, fn func([]idRun, []int64) []idRun) *idSet {
	if len(ids) == 0 {
		return s
	}
	out := &idSet{}
	if len(s.pages) == 0 {
		out.append(fn(nil, ids))
		return out
	}
	for i := range s.pages {
		n := len(ids)
		if i+1 < len(s.pages) {
			n, _ = slices.BinarySearch(ids, s.pages[i+1].first)
		}
		if n == 0 {
			out.pages = append(out.pages, s.pages[i])
			out.runs, out.size = out.runs+s.pages[i].runs, out.size+len(s.pages[i].data)
			continue
		}
		out.append(fn(slices.Collect(s.pages[i].all()), ids[:n]))
		ids = ids[n:]
	}
	return out
}

// append adds runs that lie behind all others.
func (s *idSet) append(runs []idRun) {
	for len(runs) > 0 {
		n := min(len(runs), idPageRuns)
		p := idPage{first: runs[0].first, last: runs[n-1].last, runs: n}
		next := p.first
		for _, r := range runs[:n] {
			p.data = binary.AppendUvarint(p.data, uint64(r.first-next))
			p.data = binary.AppendUvarint(p.data, uint64(r.last-r.first))
			next = r.last + 1
		}
		s.pages = append(s.pages, p)
		s.runs, s.size = s.runs+n, s.size+len(p.data)
		runs = runs[n:]
	}
}

// The file of a directory's deleted ledgers, `current/tombstones`, replaced as a whole.
//
//	header: magic (8) | version (4) | births (4) | pages (4) | CRC32C of the header (4)
//	page:   first (8) | last (8) | runs (4) | length (4) | CRC32C of the page (4) | runs
const (
	tombstonesName    = "tombstones"
	tombstonesMagic   = "BNDRTOMB"
	tombstonesVersion = 1
	tombstonesHeader  = 24
	tombstonesPage    = 28
)

func encodeTombstones(s *idSet, births uint32) []byte {
	le := binary.LittleEndian
	b := append(make([]byte, 0, tombstonesHeader+s.runs*4), tombstonesMagic...)
	b = le.AppendUint32(b, tombstonesVersion)
	b = le.AppendUint32(b, births)
	b = le.AppendUint32(b, uint32(len(s.pages)))
	b = le.AppendUint32(b, crc32.Checksum(b, castagnoli))
	for i := range s.pages {
		p := &s.pages[i]
		at := len(b)
		b = le.AppendUint64(b, uint64(p.first))
		b = le.AppendUint64(b, uint64(p.last))
		b = le.AppendUint32(b, uint32(p.runs))
		b = le.AppendUint32(b, uint32(len(p.data)))
		sum := crc32.Update(crc32.Checksum(b[at:], castagnoli), castagnoli, p.data)
		b = le.AppendUint32(b, sum)
		b = append(b, p.data...)
	}
	return b
}

func decodeTombstones(b []byte) (s *idSet, births uint32, offset int64, err error) {
	le := binary.LittleEndian
	if len(b) < tombstonesHeader {
		return nil, 0, 0, fmt.Errorf("%d bytes, want at least %d", len(b), tombstonesHeader)
	}
	if string(b[:8]) != tombstonesMagic {
		return nil, 0, 0, fmt.Errorf("magic is %q, want %q", b[:8], tombstonesMagic)
	}
	if got, want := crc32.Checksum(b[:20], castagnoli), le.Uint32(b[20:]); got != want {
		return nil, 0, 0, fmt.Errorf("checksum is %08x, want %08x", got, want)
	}
	if v := le.Uint32(b[8:]); v != tombstonesVersion {
		return nil, 0, 0, fmt.Errorf("version %d, this program knows %d", v, tombstonesVersion)
	}
	births = le.Uint32(b[12:])
	pages := int(le.Uint32(b[16:]))
	if pages > (len(b)-tombstonesHeader)/tombstonesPage {
		return nil, 0, 0, fmt.Errorf("%d pages do not fit into %d bytes", pages, len(b))
	}
	s = &idSet{pages: make([]idPage, 0, pages)}
	at, prev := tombstonesHeader, int64(-2)
	for range pages {
		if len(b)-at < tombstonesPage {
			return nil, 0, int64(at), errors.New("a page is cut off")
		}
		h := b[at : at+tombstonesPage]
		p := idPage{first: int64(le.Uint64(h)), last: int64(le.Uint64(h[8:])), runs: int(le.Uint32(h[16:]))}
		n := int(le.Uint32(h[20:]))
		if n > len(b)-at-tombstonesPage {
			return nil, 0, int64(at), fmt.Errorf("page of %d bytes is cut off", n)
		}
		p.data = b[at+tombstonesPage : at+tombstonesPage+n]
		if got, want := crc32.Update(crc32.Checksum(h[:24], castagnoli), castagnoli, p.data), le.Uint32(h[24:]); got != want {
			return nil, 0, int64(at), fmt.Errorf("page checksum is %08x, want %08x", got, want)
		}
		if err := p.check(prev); err != nil {
			return nil, 0, int64(at), err
		}
		prev = p.last
		s.pages = append(s.pages, p)
		s.runs, s.size = s.runs+p.runs, s.size+n
		at += tombstonesPage + n
	}
	if at != len(b) {
		return nil, 0, int64(at), fmt.Errorf("%d bytes follow the last page", len(b)-at)
	}
	return s, births, 0, nil
}

// check tests that the page decodes to what its header says, and that it lies behind prev.
func (p *idPage) check(prev int64) error {
	if p.first < 0 || p.first <= prev || p.last < p.first || p.runs < 1 || p.runs > idPageRuns {
		return fmt.Errorf("page of %d runs from %d to %d is impossible", p.runs, p.first, p.last)
	}
	b, next, runs := p.data, uint64(p.first), 0
	for ; len(b) > 0; runs++ {
		gap, n := binary.Uvarint(b)
		if n <= 0 {
			return errors.New("a gap is cut off")
		}
		length, m := binary.Uvarint(b[n:])
		if m <= 0 {
			return errors.New("a length is cut off")
		}
		b = b[n+m:]
		if runs > 0 && gap == 0 || runs == 0 && gap != 0 {
			return errors.New("runs touch")
		}
		first := next + gap
		last := first + length
		if first < next || last < first || last > uint64(p.last) {
			return errors.New("ids overflow")
		}
		next = last + 1
	}
	if runs != p.runs || next != uint64(p.last)+1 {
		return fmt.Errorf("%d runs up to %d, the header says %d up to %d", runs, next-1, p.runs, p.last)
	}
	return nil
}

// readTombstones returns the set in dir; a missing file is the empty set.
func readTombstones(fsys vfs.FS, dir string) (*idSet, uint32, error) {
	name := filepath.Join(dir, tombstonesName)
	b, err := vfs.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return &idSet{}, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	s, births, off, err := decodeTombstones(b)
	if err != nil {
		return nil, 0, corrupt.New(name, off, "tombstones", err)
	}
	return s, births, nil
}

func writeTombstones(fsys vfs.FS, dir string, s *idSet, births uint32) error {
	return vfs.WriteFileAtomic(fsys, filepath.Join(dir, tombstonesName), encodeTombstones(s, births))
}
