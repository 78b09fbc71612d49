package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/invariant"
)

// boltLockWait is how long opening waits for another process to let go of the file.
const boltLockWait = time.Second

// defaultMapSize is address space mapped at once: mapping more later would wait for all readers.
func defaultMapSize() int64 {
	if runtime.GOOS == "windows" || ^uintptr(0)>>32 == 0 { // there the file would grow to the mapping's size
		return 0
	}
	return 16 << 30
}

// boltStore is a keyValue kept by bbolt.
//
// bbolt trusts its file: on damage it panics, or follows a page number out of the file and faults. Every call into it
// therefore runs guarded.
type boltStore struct {
	db    *bolt.DB
	file  *os.File // db's
	path  string
	log   *slog.Logger
	stuck atomic.Bool // a panic may have left bbolt's locks held
}

// openBoltStore opens or creates the file.
func openBoltStore(path string, o *Options) (*boltStore, error) {
	fresh, err := checkBoltFile(path, o)
	if err != nil {
		return nil, err
	}
	if fresh {
		if err := createBolt(path); err != nil {
			return nil, fmt.Errorf("create index %s: %w", path, err)
		}
	}
	s := &boltStore{path: path, log: o.Logger}
	err = s.guard(func() (err error) {
		s.db, err = bolt.Open(path, 0o644, &bolt.Options{
			Timeout: boltLockWait, ReadOnly: o.ReadOnly, FreelistType: bolt.FreelistMapType, InitialMmapSize: int(o.InitialMapSize),
			OpenFile: func(name string, flag int, perm os.FileMode) (f *os.File, err error) {
				f, err = os.OpenFile(name, flag, perm)
				s.file = f
				return f, err
			},
		})
		if err != nil {
			return err
		}
		return s.db.View(func(tx *bolt.Tx) error {
			for _, name := range bucketNames {
				if tx.Bucket([]byte(name)) == nil {
					return corrupt.Errorf(path, 0, "index", "there is no bucket %q", name)
				}
			}
			return nil
		})
	})
	if err != nil {
		err = errors.Join(fmt.Errorf("open index %s: %w", path, err), s.close())
		if errors.Is(err, berrors.ErrTimeout) {
			err = fmt.Errorf("another process has it open: %w", err)
		}
		return nil, err
	}
	return s, nil
}

// createBolt makes an index without content under another name, and renames it: a crash leaves none, or a whole one.
func createBolt(path string) error {
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	db, err := bolt.Open(tmp, 0o644, &bolt.Options{Timeout: boltLockWait})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, name := range bucketNames {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	invariant.CrashPoint("index.file-built")
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncParent(path)
}

// syncParent makes the name of a new file durable.
func syncParent(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Layout of a bbolt meta page, version 2: a page header, then the fields, in the byte order of the machine.
const (
	boltMetaAt    = 16
	boltMetaSize  = 64
	boltMetaMagic = 0xED0CDAED
	boltMetaSum   = 56
)

// checkBoltFile refuses a file with a bad meta page, or with branch pages that are no tree. bbolt would go on with the other one, which is the state before the
// last transaction: that would silently undo what the caller was told is durable.
func checkBoltFile(path string, o *Options) (fresh bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		if o.MustExist || o.ReadOnly {
			return false, corrupt.New(path, 0, "index", err)
		}
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close() //nolint:errcheck // read only
	metas, err := readBoltMetas(f, path)
	if err != nil {
		return false, err
	}
	newest := newestMeta(&metas)
	return false, newest.tree(f, path, false).walk(newest.root)
}

// boltMeta is what a meta page says.
type boltMeta struct {
	root, pages, txid uint64
}

func newestMeta(metas *[2]boltMeta) *boltMeta {
	if metas[1].txid > metas[0].txid {
		return &metas[1]
	}
	return &metas[0]
}

// tree prepares a walk.
func (m *boltMeta) tree(f io.ReaderAt, path string, deep bool) *boltTree {
	return &boltTree{f: f, path: path, pageSize: int64(os.Getpagesize()), pages: m.pages, deep: deep, parent: map[uint64]struct{}{}, ne: binary.NativeEndian}
}

// readBoltMetas reads both meta pages; both must be whole.
func readBoltMetas(f *os.File, path string) (metas [2]boltMeta, err error) {
	st, err := f.Stat()
	if err != nil {
		return metas, err
	}
	pageSize := int64(os.Getpagesize())
	for i := range metas {
		var b [boltMetaAt + boltMetaSize]byte
		off := int64(i) * pageSize
		if _, err := f.ReadAt(b[:], off); err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the file ends before it")
			}
			return metas, corrupt.New(path, off, "index meta page", err)
		}
		m := b[boltMetaAt:]
		ne := binary.NativeEndian
		sum := fnv.New64a()
		_, _ = sum.Write(m[:boltMetaSum])
		switch {
		case ne.Uint32(m) != boltMetaMagic:
			return metas, corrupt.Errorf(path, off, "index meta page", "magic is %08x, want %08x", ne.Uint32(m), uint32(boltMetaMagic))
		case ne.Uint64(m[boltMetaSum:]) != sum.Sum64():
			return metas, corrupt.Errorf(path, off, "index meta page", "checksum is %016x, want %016x", ne.Uint64(m[boltMetaSum:]), sum.Sum64())
		case int64(ne.Uint32(m[8:])) != pageSize:
			return metas, corrupt.Errorf(path, off, "index meta page", "page size is %d, this machine's is %d", ne.Uint32(m[8:]), pageSize)
		case ne.Uint64(m[40:]) > uint64(st.Size())/uint64(pageSize):
			return metas, corrupt.Errorf(path, off, "index meta page", "%d pages in use, the file has %d bytes", ne.Uint64(m[40:]), st.Size())
		}
		metas[i] = boltMeta{root: ne.Uint64(m[16:]), pages: ne.Uint64(m[40:]), txid: ne.Uint64(m[48:])}
	}
	if metas[0].txid+1 != metas[1].txid && metas[1].txid+1 != metas[0].txid {
		return metas, corrupt.Errorf(path, 0, "index meta page", "transactions %d and %d do not follow one another", metas[0].txid, metas[1].txid)
	}
	return metas, nil
}

// guard runs fn so that neither a panic nor a fault on the mapping leaves it.
func (s *boltStore) guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			s.stuck.Store(true)
			err = corrupt.Errorf(s.path, 0, "index", "%v", r)
			s.log.Error("bbolt gave up on a damaged index", "file", s.path, "cause", r, "stack", string(debug.Stack()))
		}
	}()
	return fn()
}

func (s *boltStore) view(fn func(kvTx) error) error {
	return s.guard(func() error {
		return s.db.View(func(tx *bolt.Tx) error { return fn(&boltTx{tx: tx}) })
	})
}

func (s *boltStore) update(fn func(kvTx) error) error {
	return s.guard(func() error {
		err := s.db.Update(func(tx *bolt.Tx) error {
			t := &boltTx{tx: tx}
			if err := fn(t); err != nil {
				return err
			}
			if err := t.deletePending(); err != nil {
				return err
			}
			invariant.CrashPoint("index.tx-filled")
			return nil
		})
		if err == nil {
			invariant.CrashPoint("index.tx-committed")
		}
		return err
	})
}

// check walks all pages on its own first: bbolt's check runs on a goroutine that no guard reaches, and believes what it
// reads. It keeps writers out, readers not: the meta page and the list of free pages must stay as they are.
func (s *boltStore) check(fn func(error)) error {
	return s.guard(func() (err error) {
		readOnly := s.db.IsReadOnly()
		tx, err := s.db.Begin(!readOnly)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, tx.Rollback()) }()
		f, err := os.Open(s.path)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // read only
		metas, err := readBoltMetas(f, s.path)
		if err != nil {
			return err
		}
		newest := newestMeta(&metas)
		if err := newest.tree(f, s.path, true).walk(newest.root); err != nil {
			return err
		}
		for err := range tx.Check() {
			fn(corrupt.New(s.path, 0, "index page", err))
		}
		return nil
	})
}

func (s *boltStore) size() (z sizes, err error) {
	err = s.guard(func() error {
		st, err := os.Stat(s.path)
		if err != nil {
			return err
		}
		free := s.db.Stats()
		z = sizes{file: st.Size(), free: int64(free.FreePageN+free.PendingPageN) * int64(os.Getpagesize())}
		return s.db.View(func(tx *bolt.Tx) error {
			z.used = tx.Size() - z.free // the file is grown ahead of that
			return nil
		})
	})
	return z, err
}

// close closes the file. After a panic bbolt may hold locks that closing would wait for; then only the file is unlocked and
// closed, and the mapping stays: address space that nobody uses any more.
func (s *boltStore) close() error {
	if s.db != nil && !s.stuck.Load() {
		return s.guard(s.db.Close)
	}
	if s.file == nil {
		return nil
	}
	// When opening failed, bbolt may have closed it already; then there is nothing to do.
	err := errors.Join(unlockFile(s.file), s.file.Close())
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// boltTx is a transaction. Deletions wait for its end, and its cursors pass them over: bbolt's cursors lose their way among
// pages that deletions have emptied (Last may not return, Prev may stop too early).
type boltTx struct {
	tx      *bolt.Tx
	b       [buckets]*bolt.Bucket
	pending [buckets]map[string]bool // keys to be deleted
	order   []pendingDelete          // with those that were put again meanwhile
}

type pendingDelete struct {
	b   bucket
	key []byte
}

func (t *boltTx) bucket(b bucket) *bolt.Bucket {
	if t.b[b] == nil {
		t.b[b] = t.tx.Bucket([]byte(bucketNames[b]))
		if t.b[b] == nil {
			panic(fmt.Sprintf("bucket %q is gone", bucketNames[b])) // guard turns it into corruption
		}
		t.b[b].FillPercent = 0.9 // keys come mostly in order
	}
	return t.b[b]
}

func (t *boltTx) get(b bucket, key []byte) []byte {
	if t.pending[b][string(key)] {
		return nil
	}
	return t.bucket(b).Get(key)
}

func (t *boltTx) put(b bucket, key, value []byte) error {
	delete(t.pending[b], string(key))
	return t.bucket(b).Put(key, value)
}

func (t *boltTx) del(b bucket, key []byte) error {
	if t.get(b, key) == nil {
		return nil
	}
	if t.pending[b] == nil {
		t.pending[b] = map[string]bool{}
	}
	t.pending[b][string(key)] = true
	t.order = append(t.order, pendingDelete{b, bytes.Clone(key)})
	return nil
}

func (t *boltTx) deletePending() error {
	for _, d := range t.order {
		if t.pending[d.b][string(d.key)] {
			if err := t.bucket(d.b).Delete(d.key); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *boltTx) cursor(b bucket) kvCursor {
	return &boltCursor{c: t.bucket(b).Cursor(), gone: t.pending[b]}
}

type boltCursor struct {
	c    *bolt.Cursor
	gone map[string]bool // keys to pass over
	end  bool            // behind the last key
}

func (c *boltCursor) seek(key []byte) (k, v []byte) {
	return c.forward(c.c.Seek(key))
}

func (c *boltCursor) next() (k, v []byte) {
	return c.forward(c.c.Next())
}

// forward goes on from k to the next key that is there.
func (c *boltCursor) forward(k, v []byte) ([]byte, []byte) {
	for k != nil && c.gone[string(k)] {
		k, v = c.c.Next()
	}
	c.end = k == nil
	return k, v
}

func (c *boltCursor) prev() (k, v []byte) {
	if c.end {
		c.end = false
		k, v = c.c.Last()
	} else {
		k, v = c.c.Prev()
	}
	for k != nil && c.gone[string(k)] {
		k, v = c.c.Prev()
	}
	return k, v
}
