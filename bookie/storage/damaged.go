package storage

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/binderylog/bindery/internal/vfs"
)

// Damaged is an entry that could not be read back.
type Damaged struct{ Ledger, Entry int64 }

// damagedList is the bounded durable list of damaged entries that auto-recovery drains (decision 20). It lies in one file,
// `current/damaged` of the first directory that takes it, replaced as a whole by a goroutine that runs only while there is
// something to write. Losing the last additions in a crash is harmless: reading the entry adds it again.
type damagedList struct {
	s       *Storage
	mu      sync.Mutex
	set     map[Damaged]bool // guarded by mu
	dropped int64            // guarded by mu
	dirty   bool             // guarded by mu
	writing bool             // guarded by mu
}

// The file: magic (8) | version (4) | count (4) | dropped (8), then per entry ledger (8) | entry (8), then CRC32C (4) of
// everything before. Little-endian.
const (
	damagedName    = "damaged"
	damagedMagic   = "BNDRDMGD"
	damagedVersion = 1
	damagedHeader  = 24
)

func encodeDamaged(list []Damaged, dropped int64) []byte {
	le := binary.LittleEndian
	b := append(make([]byte, 0, damagedHeader+16*len(list)+4), damagedMagic...)
	b = le.AppendUint32(b, damagedVersion)
	b = le.AppendUint32(b, uint32(len(list)))
	b = le.AppendUint64(b, uint64(dropped))
	for _, e := range list {
		b = le.AppendUint64(b, uint64(e.Ledger))
		b = le.AppendUint64(b, uint64(e.Entry))
	}
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeDamaged(b []byte) (list []Damaged, dropped int64, err error) {
	le := binary.LittleEndian
	if len(b) < damagedHeader+4 || string(b[:8]) != damagedMagic {
		return nil, 0, errors.New("not a list of damaged entries")
	}
	body := b[:len(b)-4]
	if got, want := crc32.Checksum(body, castagnoli), le.Uint32(b[len(b)-4:]); got != want {
		return nil, 0, fmt.Errorf("checksum is %08x, want %08x", got, want)
	}
	if v := le.Uint32(b[8:]); v != damagedVersion {
		return nil, 0, fmt.Errorf("version %d, this program knows %d", v, damagedVersion)
	}
	n := int(le.Uint32(b[12:]))
	if n != (len(body)-damagedHeader)/16 || len(body) != damagedHeader+16*n {
		return nil, 0, fmt.Errorf("%d entries in %d bytes", n, len(body))
	}
	dropped = int64(le.Uint64(b[16:]))
	for i := range n {
		e := body[damagedHeader+16*i:]
		d := Damaged{int64(le.Uint64(e)), int64(le.Uint64(e[8:]))}
		if d.Ledger < 0 || d.Entry < 0 || dropped < 0 {
			return nil, 0, fmt.Errorf("negative numbers in entry %d", i)
		}
		list = append(list, d)
	}
	return list, dropped, nil
}

// open reads the list. One that is damaged itself is dropped with a warning: nothing is lost but the reminder.
func (q *damagedList) open(s *Storage) error {
	q.s, q.set = s, map[Damaged]bool{}
	for _, d := range s.dirs {
		name := filepath.Join(d.cur, damagedName)
		b, err := vfs.ReadFile(s.fs, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		list, dropped, err := decodeDamaged(b)
		if err != nil {
			s.log.Warn("the list of damaged entries can not be read; it begins anew", "file", name, "err", err)
			continue
		}
		q.dropped += dropped
		for _, e := range list {
			q.set[e] = true
		}
	}
	return nil
}

// add puts an entry on the list and has it written in the background.
func (q *damagedList) add(e Damaged) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.set[e] {
		return
	}
	if len(q.set) >= q.s.o.DamagedMax {
		q.dropped++
		return
	}
	q.set[e] = true
	q.changedLocked()
}

// forget takes the entries of deleted ledgers off the list.
func (q *damagedList) forget(ledgers []int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.set) == 0 {
		return
	}
	gone := make(map[int64]bool, len(ledgers))
	for _, id := range ledgers {
		gone[id] = true
	}
	before := len(q.set)
	for e := range q.set {
		if gone[e.Ledger] {
			delete(q.set, e)
		}
	}
	if len(q.set) != before {
		q.changedLocked()
	}
}

func (q *damagedList) changedLocked() {
	q.dirty = true
	if !q.writing {
		q.writing = q.s.goBackground(q.writer)
	}
}

// writer writes the list until it is written as it stands.
func (q *damagedList) writer() {
	for {
		q.mu.Lock()
		if !q.dirty {
			q.writing = false
			q.mu.Unlock()
			return
		}
		q.dirty = false
		data := encodeDamaged(q.sortedLocked(), q.dropped)
		q.mu.Unlock()
		if err := q.write(data); err != nil {
			q.s.log.Warn("the list of damaged entries could not be written", "err", err)
		}
	}
}

// write puts the list into the first directory that takes it.
func (q *damagedList) write(data []byte) error {
	err := error(nil)
	for _, d := range q.s.dirs {
		if d.failed.Load() {
			continue
		}
		if err = vfs.WriteFileAtomic(q.s.fs, filepath.Join(d.cur, damagedName), data); err == nil {
			return nil
		}
	}
	return err
}

func (q *damagedList) sortedLocked() []Damaged {
	list := make([]Damaged, 0, len(q.set))
	for e := range q.set {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b Damaged) int {
		return cmp.Or(cmp.Compare(a.Ledger, b.Ledger), cmp.Compare(a.Entry, b.Entry))
	})
	return list
}

// close writes what is not written yet; the background goroutines have ended.
func (q *damagedList) close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.set == nil || !q.dirty {
		return nil
	}
	q.dirty = false
	return q.write(encodeDamaged(q.sortedLocked(), q.dropped))
}

// Damaged returns the durable list of damaged entries, and how many did not fit into it.
func (s *Storage) Damaged() (list []Damaged, dropped int64) {
	s.damaged.mu.Lock()
	defer s.damaged.mu.Unlock()
	return s.damaged.sortedLocked(), s.damaged.dropped
}

// DamagedOf returns the damaged entries of one ledger, in order.
func (s *Storage) DamagedOf(ledger int64) []int64 {
	q := &s.damaged
	q.mu.Lock()
	defer q.mu.Unlock()
	var list []int64
	for e := range q.set {
		if e.Ledger == ledger {
			list = append(list, e.Entry)
		}
	}
	slices.Sort(list)
	return list
}

// Repaired takes an entry off the list: auto-recovery has written it again, or its ledger is gone.
func (s *Storage) Repaired(e Damaged) {
	q := &s.damaged
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.set[e] {
		delete(q.set, e)
		q.changedLocked()
	}
}
