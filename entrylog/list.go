package entrylog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/vfs"
)

// The file listName names the logs that have to be there, so that one that somebody deleted is missed: the names of files
// say only what is there. A log is put on the list when it is durable, before anything in it is promised, and taken off before
// its file is deleted; one that is there and not on the list is put on it by Open. It is two slots, written in turn and in
// place, so that neither needs space; docs/formats/entrylog.md has the format.
const (
	listName    = "entrylog.list"
	listMagic   = "BNDRYLST"
	listHeader  = 32
	listSlotMin = 64 << 10
	listSlotMax = 1 << 28
)

// logList is its content.
type logList struct {
	seq uint64
	ids []LogID // ascending
}

func (l *logList) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, listHeader, listHeader+1024)
	next := uint64(0) // first id that can follow
	for i := 0; i < len(l.ids); {
		n := 1
		for i+n < len(l.ids) && l.ids[i+n] == l.ids[i]+LogID(n) {
			n++
		}
		b = binary.AppendUvarint(b, uint64(l.ids[i])-next)
		b = binary.AppendUvarint(b, uint64(n))
		next = uint64(l.ids[i]) + uint64(n)
		i += n
	}
	copy(b, listMagic)
	le.PutUint16(b[8:], Version)
	le.PutUint32(b[12:], uint32(len(b)-listHeader))
	le.PutUint64(b[16:], l.seq)
	le.PutUint32(b[24:], listCRC(b))
	return b
}

func listCRC(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:24], castagnoli), castagnoli, b[listHeader:])
}

// decodeList reads a slot.
func decodeList(b []byte) (*logList, error) {
	le := binary.LittleEndian
	switch {
	case len(b) < listHeader:
		return nil, fmt.Errorf("%d bytes, want at least %d", len(b), listHeader)
	case string(b[:8]) != listMagic:
		return nil, fmt.Errorf("magic is %q, want %q", b[:8], listMagic)
	case uint64(le.Uint32(b[12:])) > uint64(len(b)-listHeader):
		return nil, fmt.Errorf("length %d is out of range", le.Uint32(b[12:]))
	}
	b = b[:listHeader+int(le.Uint32(b[12:]))]
	if listCRC(b) != le.Uint32(b[24:]) {
		return nil, errors.New("checksum does not match")
	}
	if v := le.Uint16(b[8:]); v == 0 || v > Version {
		return nil, fmt.Errorf("%w: version %d, this program knows %d", ErrVersion, v, Version)
	}
	l := &logList{seq: le.Uint64(b[16:])}
	next := uint64(0)
	for p := b[listHeader:]; len(p) > 0; {
		gap, n := binary.Uvarint(p)
		if n <= 0 {
			return nil, errors.New("a span is cut off")
		}
		p = p[n:]
		count, n := binary.Uvarint(p)
		if n <= 0 {
			return nil, errors.New("a span is cut off")
		}
		p = p[n:]
		const idEnd = 1 << 32
		if gap >= idEnd || count == 0 || count > idEnd || next+gap+count > idEnd || next+gap == 0 {
			return nil, fmt.Errorf("span of %d logs, %d behind %d", count, gap, next)
		}
		if len(l.ids)+int(count) > listIDsMax {
			return nil, fmt.Errorf("more than %d logs", listIDsMax)
		}
		for i := range count {
			l.ids = append(l.ids, LogID(next+gap+i))
		}
		next += gap + count
	}
	return l, nil
}

// listIDsMax bounds what a few bytes can make a reader hold. No directory has as many files.
const listIDsMax = 1 << 24

// readList reads the file. What is there and can not be read is a *corrupt.Error; there is no list then.
func (s *Store) readList() (*logList, error) {
	name := filepath.Join(s.dir, listName)
	info, err := s.fs.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info.Size < 2*listHeader || info.Size > 2*listSlotMax || info.Size%2 != 0 {
		return nil, corrupt.Errorf(name, 0, "list of entry logs", "%d bytes", info.Size)
	}
	b, err := vfs.ReadFile(s.fs, name)
	if err != nil {
		return nil, corrupt.New(name, 0, "list of entry logs", err)
	}
	slot := len(b) / 2
	var best *logList
	var damage error
	for i := range 2 {
		l, err := decodeList(b[i*slot : (i+1)*slot])
		switch {
		case errors.Is(err, ErrVersion):
			return nil, fmt.Errorf("%s: %w", name, err)
		case err != nil:
			damage = corrupt.New(name, int64(i*slot), "list of entry logs", err)
		case best == nil || l.seq > best.seq:
			best = l
		}
	}
	if best == nil {
		return nil, damage
	}
	s.listSlot = int64(slot)
	return best, nil
}

// writeList makes ids the list, durably. rmu is held, or the store is not open yet. A failed write is repeated by the next
// one, in the same slot: the other one holds.
func (s *Store) writeList(ids []LogID) (err error) {
	next := logList{seq: s.listed.seq + 1, ids: ids}
	b := next.encode()
	name := filepath.Join(s.dir, listName)
	if s.listSlot == 0 || int64(len(b)) > s.listSlot {
		slot := int64(listSlotMin)
		for slot < 2*int64(len(b)) {
			slot *= 2
		}
		file := make([]byte, 2*slot)
		copy(file, b)
		copy(file[slot:], b)
		if err := vfs.WriteFileAtomic(s.fs, name, file); err != nil {
			return noSpace(fmt.Errorf("make the list of entry logs: %w", err))
		}
		s.listed, s.listSlot = next, slot
		return nil
	}
	f, err := s.fs.Open(name, vfs.Mode{Write: true})
	if err == nil {
		_, err = f.WriteAt(b, int64(next.seq&1)*s.listSlot)
		if err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return noSpace(fmt.Errorf("write the list of entry logs: %w", err))
	}
	s.listed = next
	invariant.CrashPoint("entrylog.listed")
	return nil
}

// list puts a log on the list.
func (s *Store) list(id LogID) error {
	s.rmu.Lock()
	defer s.rmu.Unlock()
	i, found := slices.BinarySearch(s.listed.ids, id)
	if found {
		return nil
	}
	return s.writeList(slices.Insert(slices.Clone(s.listed.ids), i, id))
}

// removeUnlisted deletes the file of a log that could not be put on the list. As nobody knows what became of that write, it is
// written once more without the log; if that fails too the file stays, and the next start deals with it.
func (s *Store) removeUnlisted(path string) error {
	s.rmu.Lock()
	defer s.rmu.Unlock()
	if err := s.writeList(s.listed.ids); err != nil {
		return err
	}
	return s.fs.Remove(path)
}

// unlist takes a log off the list. rmu is held, or the store is not open yet. Without a list there is nothing to do.
func (s *Store) unlist(id LogID) error {
	i, found := slices.BinarySearch(s.listed.ids, id)
	if !found || s.listSlot == 0 {
		return nil
	}
	return s.writeList(slices.Delete(slices.Clone(s.listed.ids), i, i+1))
}

// onList reports whether a log has been put on the list.
func (s *Store) onList(id LogID) bool {
	_, found := slices.BinarySearch(s.listed.ids, id)
	return found
}

// makeList sees to it that there is a list: without one, a log does not say that there is.
func (s *Store) makeList() error {
	s.rmu.Lock()
	defer s.rmu.Unlock()
	if s.listSlot > 0 {
		return nil
	}
	return s.writeList(s.listed.ids)
}

// compareList compares the list with the logs that were found. What is missing is damage, and stays on the list; what the
// list does not have is put on it, unless the list can not be read: that is not to be forgotten before the caller has taken note.
func (s *Store) compareList(logs []*found, listErr error, r *Recovered) error {
	path := filepath.Join(s.dir, listName)
	want := slices.Clone(s.listed.ids)
	for _, f := range logs {
		if f.d.known && f.l.meta.flags&flagListed != 0 && s.listSlot == 0 && listErr == nil {
			listErr = corrupt.New(path, 0, "list of entry logs", fs.ErrNotExist)
		}
		if s.logs[f.l.meta.id] == nil {
			continue // it was removed, or would have been
		}
		if i, found := slices.BinarySearch(want, f.l.meta.id); !found {
			want = slices.Insert(want, i, f.l.meta.id)
		}
	}
	for _, id := range s.listed.ids {
		if s.logs[id] != nil || s.o.ReadOnly && slices.ContainsFunc(logs, func(f *found) bool { return f.l.meta.id == id }) {
			continue
		}
		s.missing = append(s.missing, Damage{Log: id, Runs: true, States: true, Err: corrupt.New(s.path(id, logSuffix), 0, "entry log", fs.ErrNotExist)})
	}
	if c := (*corrupt.Error)(nil); errors.As(listErr, &c) {
		s.missing = append(s.missing, Damage{Runs: true, States: true, Err: c})
	} else if listErr != nil {
		return listErr
	}
	r.Damage = append(r.Damage, s.missing...)
	if s.o.ReadOnly || listErr != nil {
		s.listed.ids = want // for the next write
		return nil
	}
	if s.listSlot > 0 && slices.Equal(want, s.listed.ids) {
		return nil
	}
	err := s.writeList(want)
	if errors.Is(err, ErrNoSpace) { // before the next log is begun
		s.listed.ids = want
		return nil
	}
	return err
}

// Missing returns the logs that have to be there and are not; Log 0 stands for those that a lost list may have named. They
// were among Recovered.Damage.
func (s *Store) Missing() []Damage {
	s.rmu.Lock()
	defer s.rmu.Unlock()
	return slices.Clone(s.missing)
}

// AcceptMissing takes what is missing off the list: the caller has made durable that it may have lost what lay there.
func (s *Store) AcceptMissing() error {
	s.rmu.Lock()
	defer s.rmu.Unlock()
	if len(s.missing) == 0 {
		return nil
	}
	kept := slices.DeleteFunc(slices.Clone(s.listed.ids), func(id LogID) bool {
		return slices.ContainsFunc(s.missing, func(d Damage) bool { return d.Log == id })
	})
	if err := s.writeList(kept); err != nil {
		return err
	}
	s.missing = nil
	return nil
}
