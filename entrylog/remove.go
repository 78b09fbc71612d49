package entrylog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/vfs"
)

// Remove deletes a log. From the moment it is called, reads of the log fail with ErrNoLog; the file goes when the last
// reader has left. If deleting fails, the error says why and the log stays pending: see RetryRemovals. A log that is
// being written or sealed is refused with ErrNotFinal.
func (s *Store) Remove(id LogID) error {
	if s.o.ReadOnly {
		return ErrReadOnly
	}
	s.mu.Lock()
	l := s.logs[id]
	switch {
	case s.closed:
		s.mu.Unlock()
		return ErrClosed
	case l == nil:
		s.mu.Unlock()
		return fmt.Errorf("remove entry log %s: %w", id, ErrNoLog)
	case l.info.Writing || l.sealing:
		s.mu.Unlock()
		return fmt.Errorf("remove entry log %s: %w", id, ErrNotFinal)
	}
	l.removing = true
	readers := l.refs
	s.mu.Unlock()
	if readers > 0 {
		return nil // the last one deletes it
	}
	return s.deleteFile(l, true)
}

// deleteFile deletes the file of a log without readers, a large one in steps if the caller has the time. Its failure leaves the
// log pending.
func (s *Store) deleteFile(l *logFile, steps bool) error {
	s.mu.Lock()
	if l.deleting || l.gone || l.refs > 0 {
		s.mu.Unlock()
		return nil
	}
	l.deleting = true
	f, size := s.handles.dropLocked(l), l.info.Size
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		l.deleting = false
		s.mu.Unlock()
	}()
	if f != nil {
		_ = f.Close() // read only
	}
	if err := s.noteRemoval(l); err != nil {
		return fmt.Errorf("remove entry log %s: %w", l.meta.id, err)
	}
	invariant.CrashPoint("entrylog.removal-noted")
	if steps && size > 2*removeStep {
		if err := s.shrink(l, size); err != nil {
			s.o.Logger.Warn("an entry log is deleted at once, not in steps", "file", l.path, "err", err)
		}
	}
	err := s.fs.Remove(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // an earlier try got this far
	}
	if err == nil {
		invariant.CrashPoint("entrylog.removed")
		err = s.fs.SyncDir(s.dir)
	}
	if err != nil {
		return fmt.Errorf("remove entry log %s: %w", l.meta.id, err)
	}
	s.mu.Lock()
	l.gone = true
	if s.logs[l.meta.id] == l {
		delete(s.logs, l.meta.id)
	}
	s.mu.Unlock()
	return nil
}

// noteRemoval makes durable that a log need not be there.
func (s *Store) noteRemoval(l *logFile) error {
	s.rmu.Lock()
	defer s.rmu.Unlock()
	if err := s.rememberRemoval(l); err != nil {
		return err
	}
	return s.unlist(l.meta.id)
}

// Freed space of a file system that is mounted with discard goes to the device as requests that hold up everybody's writes:
// for tenths of a second when it is that of a large log. So such a log shrinks in steps, and the disk is left to others for
// several times as long as each took: on an idle disk that is a few milliseconds, on a busy one much more.
const (
	removeStep     = 4 << 20
	removePause    = 10 * time.Millisecond // after a step, at least
	removeRest     = 4                     // times what the step took
	removePauseMax = time.Second
)

// shrink takes the space of a log that is not needed any more away in steps, unless the disk is nearly full. Before the first of
// them the file durably gets a name under which the next start deletes it: cut short, it would pass for a damaged log.
func (s *Store) shrink(l *logFile, size int64) error {
	if u, err := s.fs.Usage(s.dir); err != nil || u.Available < 4*size {
		return err
	}
	aside := s.path(l.meta.id, removingSuffix)
	if l.path != aside {
		if err := s.fs.Rename(l.path, aside); err != nil {
			return err
		}
		s.mu.Lock()
		l.path = aside
		s.mu.Unlock()
		if err := s.fs.SyncDir(s.dir); err != nil {
			return err
		}
	}
	f, err := s.fs.Open(aside, vfs.Mode{Write: true})
	if err != nil {
		return err
	}
	for at := size - removeStep; at > 0 && err == nil; at -= removeStep {
		begun := time.Now()
		if err = f.Truncate(at); err == nil {
			err = f.Sync() // the file system lets go of the space
		}
		select {
		case <-time.After(min(max(removePause, removeRest*time.Since(begun)), removePauseMax)):
		case <-s.stop:
			at = 0 // no time left
		}
	}
	return errors.Join(err, f.Close())
}

// discard deletes a log that was never seen by a reader.
func (s *Store) discard(l *logFile) error {
	s.mu.Lock()
	l.removing, l.sealing = true, false
	busy := l.refs > 0
	s.mu.Unlock()
	if busy {
		return nil
	}
	return s.deleteFile(l, false)
}

// RetryRemovals tries once more to delete what Remove could not, and returns how many logs are still pending.
func (s *Store) RetryRemovals() (left int, err error) {
	s.mu.Lock()
	var idle []*logFile
	for _, l := range s.logs {
		if l.removing && l.refs == 0 {
			idle = append(idle, l)
		}
	}
	s.mu.Unlock()
	for _, l := range idle {
		err = errors.Join(err, s.deleteFile(l, true))
	}
	return len(s.Pending()), err
}

// Pending returns the logs whose removal has not worked yet; their space is not free.
func (s *Store) Pending() []LogInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	var infos []LogInfo
	for _, l := range s.logs {
		if l.removing {
			infos = append(infos, l.info)
		}
	}
	sortInfos(infos)
	return infos
}

// The file removedName remembers what the names of the remaining logs no longer show once the newest one is deleted. It is
// two blocks, written in turn and in place, so that deleting works on a full disk:
//
//	magic "BNDRYREM" | version (2) | zero (2) | highest id ever used (4) | durable log deleted (4) | sequence (4) | CRC32C (4)
const (
	removedMagic = "BNDRYREM"
	removedSlot  = blockSize
	removedSize  = 28
)

// removed is its content.
type removed struct {
	highest LogID // ids up to here were used
	durable LogID // the log that Store.Durable named at that time, or a newer one, was deleted
	seq     uint32
}

func (r removed) encode() []byte {
	b := make([]byte, removedSize)
	copy(b, removedMagic)
	binary.LittleEndian.PutUint16(b[8:], Version)
	binary.LittleEndian.PutUint32(b[12:], uint32(r.highest))
	binary.LittleEndian.PutUint32(b[16:], uint32(r.durable))
	binary.LittleEndian.PutUint32(b[20:], r.seq)
	binary.LittleEndian.PutUint32(b[24:], crc32.Checksum(b[:24], castagnoli))
	return b
}

func decodeRemoved(b []byte) (removed, error) {
	le := binary.LittleEndian
	switch {
	case len(b) < removedSize:
		return removed{}, fmt.Errorf("%d bytes, want %d", len(b), removedSize)
	case string(b[:8]) != removedMagic:
		return removed{}, fmt.Errorf("magic is %q, want %q", b[:8], removedMagic)
	case crc32.Checksum(b[:24], castagnoli) != le.Uint32(b[24:]):
		return removed{}, errors.New("checksum does not match")
	case le.Uint16(b[8:]) != Version:
		return removed{}, fmt.Errorf("%w: version %d, this program knows %d", ErrVersion, le.Uint16(b[8:]), Version)
	}
	return removed{LogID(le.Uint32(b[12:])), LogID(le.Uint32(b[16:])), le.Uint32(b[20:])}, nil
}

// readRemoved reads the file, or makes it. If a slot is damaged, ids far above all that can have been used are next: that
// wastes some of four billion, while a repeated id would make the index take one log for another.
func (s *Store) readRemoved() error {
	name := filepath.Join(s.dir, removedName)
	b, err := vfs.ReadFile(s.fs, name)
	if errors.Is(err, fs.ErrNotExist) {
		if s.o.ReadOnly {
			return nil
		}
		if err := s.makeRemoved(); err != nil && !vfs.IsNoSpace(err) {
			return err
		} // on a full disk it is made before the first removal
		return nil
	}
	if err != nil {
		return err
	}
	s.hasRemoved = true
	var damage error
	for slot := range 2 {
		at := min(slot*removedSlot, len(b))
		r, err := decodeRemoved(b[at:min(at+removedSize, len(b))])
		if errors.Is(err, ErrVersion) {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err != nil {
			damage = err
		} else if r.seq >= s.removed.seq {
			s.removed = r
		}
	}
	if damage == nil {
		return nil
	}
	highest := max(s.removed.highest, s.o.MinLog, s.o.Durable.Log)
	names, err := s.fs.List(s.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if id, ok := parseName(name, logSuffix); ok {
			highest = max(highest, id)
		}
	}
	s.removed.highest = highest + 1<<16
	s.o.Logger.Warn("the record of removed entry logs is damaged; ids are skipped", "file", name, "next", s.removed.highest+1, "err", damage)
	return nil
}

// makeRemoved writes the file whole.
func (s *Store) makeRemoved() error {
	b := make([]byte, 2*removedSlot)
	copy(b, s.removed.encode())
	copy(b[removedSlot:], s.removed.encode())
	if err := vfs.WriteFileAtomic(s.fs, filepath.Join(s.dir, removedName), b); err != nil {
		return err
	}
	s.hasRemoved = true
	return nil
}

// rememberRemoval updates the file if the log about to be deleted is the newest, or the one that Store.Durable names. rmu is
// held.
func (s *Store) rememberRemoval(l *logFile) (err error) {
	s.mu.Lock()
	newest := true
	for id := range s.logs {
		newest = newest && id <= l.meta.id
	}
	durable := l.meta.id >= s.durable.Log && !l.info.Compaction
	r := s.removed
	if newest || durable {
		r.highest = s.nextID - 1
		if durable {
			r.durable = max(r.durable, l.meta.id)
		}
		r.seq++
	}
	same := r.highest == s.removed.highest && r.durable == s.removed.durable
	s.mu.Unlock()
	if same || !newest && !durable {
		return nil
	}
	if !s.hasRemoved {
		if err := s.makeRemoved(); err != nil {
			return noSpace(err)
		}
	}
	f, err := s.fs.Open(filepath.Join(s.dir, removedName), vfs.Mode{Write: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteAt(r.encode(), int64(r.seq%2)*removedSlot); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	s.mu.Lock()
	s.removed = r
	s.mu.Unlock()
	return nil
}
