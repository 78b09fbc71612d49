// Package mem is the object store in memory: what tests run on, as strict as the strictest real store.
//
// It keeps the whole contract of objstore, checksums and conditional writes included, and refuses what any real store refuses: small parts,
// a key that is a folder of another. Besides it can be operated on as no client could: Wipe, Damage, ExpireUploads, Keys. Faults of requests
// (lost replies, cut bodies, throttling) are not its business: objstore/faulty puts them in front of any store.
//
// Safe for concurrent use; starts no goroutine.
package mem

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/binderylog/bindery/offload/objstore"
)

// Store is an object store in memory.
type Store struct {
	now func() time.Time

	mu      sync.Mutex
	objects map[string]object  // guarded by mu; data is never changed in place
	folders map[string]int     // guarded by mu: how many objects have a key below this one
	uploads map[string]*upload // guarded by mu; by id
	serial  int                // guarded by mu: makes ids and ETags
}

type object struct {
	data []byte
	info objstore.Info
}

type upload struct {
	objstore.Upload
	meta  map[string]string
	parts map[int]part
}

type part struct {
	data []byte
	objstore.Part
}

var _ objstore.Store = (*Store)(nil)

// New returns an empty store.
func New() *Store {
	return &Store{now: time.Now, objects: map[string]object{}, folders: map[string]int{}, uploads: map[string]*upload{}}
}

// Capabilities implements objstore.Store.
func (s *Store) Capabilities() objstore.Capabilities {
	return objstore.Capabilities{Checksums: true, StoredCRC: true, UploadCRC: true, Conditional: true, Meta: true}
}

// Close implements objstore.Store.
func (s *Store) Close() error { return nil }

// Put implements objstore.Objects.
func (s *Store) Put(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) (objstore.Info, error) {
	if err := objstore.CheckPut(key, body, o.Meta); err != nil {
		return objstore.Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return objstore.Info{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.objects[key]; there && o.IfAbsent {
		return objstore.Info{}, fail(objstore.KindExists, objstore.OpPut, key, "there is an object already")
	}
	return s.storeLocked(objstore.OpPut, key, slices.Clone(body.Data), body.CRC32C, o.Meta)
}

func (s *Store) storeLocked(op objstore.Op, key string, data []byte, crc uint32, meta map[string]string) (objstore.Info, error) {
	if s.folders[key] > 0 {
		return objstore.Info{}, fail(objstore.KindMisuse, op, key, "there are objects below this key: it would be a folder and an object")
	}
	for folder := range foldersOf(key) {
		if _, there := s.objects[folder]; there {
			return objstore.Info{}, fail(objstore.KindMisuse, op, key, "%s would be a folder and an object", folder)
		}
	}
	if _, there := s.objects[key]; !there {
		s.countLocked(key, 1)
	}
	s.serial++
	info := objstore.Info{
		Key: key, Size: int64(len(data)), CRC32C: crc, HasCRC32C: true, ETag: fmt.Sprintf("etag-%d", s.serial),
		Modified: s.now(), Meta: maps.Clone(meta),
	}
	s.objects[key] = object{data: data, info: info}
	return info, nil
}

// foldersOf yields what a file system would keep key in.
func foldersOf(key string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range len(key) {
			if key[i] == '/' && !yield(key[:i]) {
				return
			}
		}
	}
}

func (s *Store) countLocked(key string, n int) {
	for folder := range foldersOf(key) {
		if s.folders[folder] += n; s.folders[folder] == 0 {
			delete(s.folders, folder)
		}
	}
}

// GetRange implements objstore.Objects.
func (s *Store) GetRange(ctx context.Context, key string, offset int64, dst []byte) (objstore.Info, error) {
	if err := objstore.CheckGet(key, offset, dst); err != nil {
		return objstore.Info{}, err
	}
	o, err := s.lookup(ctx, objstore.OpGet, key)
	if err != nil {
		return objstore.Info{}, err
	}
	if have := int64(len(o.data)); have-int64(len(dst)) < offset {
		return objstore.Info{}, fail(objstore.KindRange, objstore.OpGet, key, "%d bytes at %d asked for, the object has %d", len(dst), offset, have)
	}
	copy(dst, o.data[offset:])
	return o.info, nil
}

// Head implements objstore.Objects.
func (s *Store) Head(ctx context.Context, key string) (objstore.Info, error) {
	if err := objstore.CheckName(objstore.OpHead, key); err != nil {
		return objstore.Info{}, err
	}
	o, err := s.lookup(ctx, objstore.OpHead, key)
	return o.info, err
}

func (s *Store) lookup(ctx context.Context, op objstore.Op, key string) (object, error) {
	if err := ctx.Err(); err != nil {
		return object{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[key]
	if !ok {
		return object{}, fail(objstore.KindNotFound, op, key, "no such object")
	}
	return o, nil
}

// Delete implements objstore.Objects.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := objstore.CheckName(objstore.OpDelete, key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.objects[key]; there {
		delete(s.objects, key)
		s.countLocked(key, -1)
	}
	return nil
}

// List implements objstore.Objects.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]objstore.Info, error) {
	limit, err := objstore.CheckList(prefix, limit)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []objstore.Info
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if key <= after || !strings.HasPrefix(key, prefix) {
			continue
		}
		if len(out) == limit {
			break
		}
		in := s.objects[key].info
		out = append(out, objstore.Info{Key: key, Size: in.Size, Modified: in.Modified})
	}
	return out, nil
}

func fail(k objstore.Kind, op objstore.Op, key, format string, args ...any) error {
	return &objstore.Error{Kind: k, Op: op, Key: key, Err: fmt.Errorf(format, args...)}
}
