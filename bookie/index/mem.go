package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/vfs"
)

// memStore is a keyValue in memory. Its files are a snapshot (path) and the changes since (path.log), both made of frames:
//
//	length (4) | CRC32C over sequence and payload (4) | sequence (8) | payload
//
// A snapshot is one frame; its sequence is that of the last change in it. A change is one frame per transaction, padded
// with nothing. A torn last frame is a transaction that was never acknowledged; but a bad frame with good ones behind it is
// damage.
type memStore struct {
	fs   vfs.FS
	path string
	ro   bool

	mu      sync.RWMutex // guards everything below: transactions that write hold it for writing
	buckets [buckets]sorted
	seq     uint64 // of the last change
	log     vfs.File
	end     int64 // of the log
	snap    int64 // size of the snapshot
	failed  error
}

const (
	memFrameHeader = 16
	memFrameMax    = 64 << 20
	memLogMax      = 256 << 10 // past this size, and that of the snapshot, a new snapshot is written
)

func (s *memStore) logPath() string { return s.path + ".log" }

func openMemStore(fsys vfs.FS, path string, o *Options) (*memStore, error) {
	s := &memStore{fs: fsys, path: path, ro: o.ReadOnly}
	if err := s.load(o); err != nil {
		return nil, errors.Join(fmt.Errorf("open index %s: %w", path, err), s.close())
	}
	return s, nil
}

func (s *memStore) load(o *Options) error {
	b, err := vfs.ReadFile(s.fs, s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if o.MustExist || o.ReadOnly {
			return corrupt.New(s.path, 0, "index", err)
		}
		if err := s.fs.Remove(s.logPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err // changes without their snapshot mean nothing
		}
		if err := vfs.WriteFileAtomic(s.fs, s.path, frame(0, nil)); err != nil {
			return err
		}
		b = frame(0, nil)
	case err != nil:
		return err
	}
	seq, payload, rest, err := unframe(b)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes follow", len(rest))
	}
	if err == nil {
		err = s.apply(payload)
	}
	if err != nil {
		return corrupt.New(s.path, 0, "index snapshot", err)
	}
	s.seq, s.snap = seq, int64(len(b))
	return s.replay()
}

// replay applies the changes since the snapshot.
func (s *memStore) replay() error {
	b, err := vfs.ReadFile(s.fs, s.logPath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	at := 0
	for at < len(b) {
		seq, payload, rest, err := unframe(b[at:])
		if err != nil {
			if laterFrame(b[at+1:], s.seq) {
				return corrupt.New(s.logPath(), int64(at), "index change", err)
			}
			break // torn
		}
		if seq > s.seq {
			if seq != s.seq+1 {
				return corrupt.Errorf(s.logPath(), int64(at), "index change", "change %d follows change %d", seq, s.seq)
			}
			if err := s.apply(payload); err != nil {
				return corrupt.New(s.logPath(), int64(at), "index change", err)
			}
			s.seq = seq
		}
		at = len(b) - len(rest)
	}
	if s.ro {
		return nil
	}
	if s.log, err = s.fs.Open(s.logPath(), vfs.Mode{Write: true, Create: true}); err != nil {
		return err
	}
	if err := s.log.Truncate(int64(at)); err != nil {
		return err
	}
	if err := s.log.Sync(); err != nil {
		return err
	}
	s.end = int64(at)
	return s.fs.SyncDir(filepath.Dir(s.path))
}

// laterFrame reports whether a whole frame lies anywhere in b, of a change after seq.
func laterFrame(b []byte, seq uint64) bool {
	for i := range b {
		if got, _, _, err := unframe(b[i:]); err == nil && got > seq {
			return true
		}
	}
	return false
}

func frame(seq uint64, payload []byte) []byte {
	b := make([]byte, memFrameHeader, memFrameHeader+len(payload))
	binary.LittleEndian.PutUint32(b, uint32(len(payload)))
	binary.LittleEndian.PutUint64(b[8:], seq)
	b = append(b, payload...)
	binary.LittleEndian.PutUint32(b[4:], checksum(b))
	return b
}

// checksum covers everything but itself.
func checksum(b []byte) uint32 {
	sealed := seal(b[:4], slices.Clone(b[8:]))
	return binary.LittleEndian.Uint32(sealed[len(sealed)-crcSize:])
}

func unframe(b []byte) (seq uint64, payload, rest []byte, err error) {
	if len(b) < memFrameHeader {
		return 0, nil, nil, errShort
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n > memFrameMax || n > int64(len(b)-memFrameHeader) {
		return 0, nil, nil, fmt.Errorf("frame of %d bytes: %w", n, errShort)
	}
	whole := b[:memFrameHeader+n]
	if checksum(whole) != binary.LittleEndian.Uint32(whole[4:]) {
		return 0, nil, nil, errors.New("checksum does not match")
	}
	return binary.LittleEndian.Uint64(b[8:]), whole[memFrameHeader:], b[len(whole):], nil
}

// A payload is a sequence of: bucket (1) | key length | value length + 1, or 0 for a deletion | key | value.
func appendChange(b []byte, bk bucket, key, value []byte, del bool) []byte {
	b = append(b, byte(bk))
	b = binary.AppendUvarint(b, uint64(len(key)))
	if del {
		b = binary.AppendUvarint(b, 0)
		return append(b, key...)
	}
	b = binary.AppendUvarint(b, uint64(len(value))+1)
	return append(append(b, key...), value...)
}

// apply makes the changes of a payload.
func (s *memStore) apply(payload []byte) error {
	n := numbers{b: payload}
	for len(n.b) > 0 {
		bk := bucket(n.b[0])
		n.b = n.b[1:]
		klen, vlen := n.next(), n.next()
		if n.err != nil || bk >= buckets || klen > uint64(len(n.b)) || vlen > uint64(len(n.b))+1 || vlen > 0 && klen+vlen-1 > uint64(len(n.b)) {
			return errShort
		}
		key := n.b[:klen]
		n.b = n.b[klen:]
		if vlen == 0 {
			s.buckets[bk].del(key)
			continue
		}
		s.buckets[bk].put(key, n.b[:vlen-1])
		n.b = n.b[vlen-1:]
	}
	return nil
}

func (s *memStore) view(fn func(kvTx) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return fn(&memTx{s: s})
}

func (s *memStore) update(fn func(kvTx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	tx := &memTx{s: s}
	err := fn(tx)
	if err == nil && len(tx.payload) > 0 {
		invariant.CrashPoint("index.tx-filled")
		if err = s.commit(tx.payload); err == nil {
			invariant.CrashPoint("index.tx-committed")
		}
	}
	if err != nil {
		for i := len(tx.undo) - 1; i >= 0; i-- {
			tx.undo[i]()
		}
		return err
	}
	s.maybeSnapshot()
	return nil
}

// commit makes a change durable. A full disk leaves the log as it was, if cutting it back works; any other failure is
// final.
func (s *memStore) commit(payload []byte) error {
	b := frame(s.seq+1, payload)
	if _, err := s.log.WriteAt(b, s.end); err != nil {
		if terr := s.log.Truncate(s.end); terr != nil || !vfs.IsNoSpace(err) {
			s.failed = errors.Join(err, terr)
			return s.failed
		}
		return err
	}
	if err := s.log.Sync(); err != nil {
		s.failed = err
		return err
	}
	s.seq++
	s.end += int64(len(b))
	return nil
}

// maybeSnapshot writes a new snapshot once the log is long. Its failure changes nothing: the log goes on.
func (s *memStore) maybeSnapshot() {
	if s.end < max(memLogMax, s.snap) {
		return
	}
	var payload []byte
	for bk := range s.buckets {
		for _, leaf := range s.buckets[bk].leaves {
			for _, e := range leaf {
				payload = appendChange(payload, bucket(bk), e.key, e.value, false)
			}
		}
	}
	if len(payload) > memFrameMax {
		return // too large for a twin that serves tests; the log keeps everything
	}
	b := frame(s.seq, payload)
	if err := vfs.WriteFileAtomic(s.fs, s.path, b); err != nil {
		return
	}
	s.snap = int64(len(b))
	// Changes that the snapshot holds are skipped by their sequence, so the log may be cut now or later.
	if err := s.log.Truncate(0); err != nil {
		s.failed = err
		return
	}
	s.end = 0
}

func (s *memStore) check(func(error)) error { return nil }

func (s *memStore) size() (sizes, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return sizes{file: s.snap + s.end, used: s.snap + s.end}, nil
}

func (s *memStore) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log == nil {
		return nil
	}
	f := s.log
	s.log = nil
	s.failed = ErrClosed
	return f.Close()
}

// memTx is a transaction: it changes the store in place and can undo that.
type memTx struct {
	s       *memStore
	payload []byte
	undo    []func()
}

func (t *memTx) get(b bucket, key []byte) []byte { return t.s.buckets[b].get(key) }

func (t *memTx) put(b bucket, key, value []byte) error {
	t.remember(b, key)
	t.payload = appendChange(t.payload, b, key, value, false)
	t.s.buckets[b].put(key, value)
	return nil
}

func (t *memTx) del(b bucket, key []byte) error {
	if t.s.buckets[b].get(key) == nil {
		return nil
	}
	t.remember(b, key)
	t.payload = appendChange(t.payload, b, key, nil, true)
	t.s.buckets[b].del(key)
	return nil
}

func (t *memTx) remember(b bucket, key []byte) {
	key = bytes.Clone(key)
	old := t.s.buckets[b].get(key)
	t.undo = append(t.undo, func() {
		if old == nil {
			t.s.buckets[b].del(key)
			return
		}
		t.s.buckets[b].put(key, old)
	})
}

func (t *memTx) cursor(b bucket) kvCursor { return &memCursor{m: &t.s.buckets[b]} }
