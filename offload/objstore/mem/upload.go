package mem

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/binderylog/bindery/offload/objstore"
)

// CreateUpload implements objstore.Multipart.
func (s *Store) CreateUpload(ctx context.Context, key string, o objstore.UploadOptions) (string, error) {
	if err := objstore.CheckUpload(key, o); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	u := &upload{
		Upload: objstore.Upload{Key: key, ID: fmt.Sprintf("upload-%d", s.serial), Started: s.now()},
		meta:   maps.Clone(o.Meta), parts: map[int]part{},
	}
	s.uploads[u.ID] = u
	return u.ID, nil
}

// PutPart implements objstore.Multipart.
func (s *Store) PutPart(ctx context.Context, key, id string, number int, body objstore.Body) (objstore.Part, error) {
	if err := objstore.CheckPart(key, id, number, body); err != nil {
		return objstore.Part{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u, err := s.uploadLocked(ctx, objstore.OpPart, key, id)
	if err != nil {
		return objstore.Part{}, err
	}
	s.serial++
	p := part{
		data: slices.Clone(body.Data),
		Part: objstore.Part{Number: number, Size: int64(len(body.Data)), CRC32C: body.CRC32C, ETag: fmt.Sprintf("part-%d", s.serial)},
	}
	u.parts[number] = p
	return p.Part, nil
}

func (s *Store) uploadLocked(ctx context.Context, op objstore.Op, key, id string) (*upload, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	u := s.uploads[id]
	if u == nil || u.Key != key {
		return nil, fail(objstore.KindNoUpload, op, key, "no upload %s", id)
	}
	return u, nil
}

// CompleteUpload implements objstore.Multipart.
func (s *Store) CompleteUpload(ctx context.Context, key, id string, parts []objstore.Part) (objstore.Info, error) {
	if err := objstore.CheckComplete(key, id, parts); err != nil {
		return objstore.Info{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u, err := s.uploadLocked(ctx, objstore.OpComplete, key, id)
	if err != nil {
		return objstore.Info{}, err
	}
	var data []byte
	for i, want := range parts {
		have, ok := u.parts[want.Number]
		if !ok || have.Part != want {
			return objstore.Info{}, fail(objstore.KindMisuse, objstore.OpComplete, key, "part %d is not the one that was sent last", want.Number)
		}
		if i < len(parts)-1 && len(have.data) < objstore.PartMin {
			return objstore.Info{}, fail(objstore.KindMisuse, objstore.OpComplete, key, "part %d has %d bytes", want.Number, len(have.data))
		}
		data = append(data, have.data...)
	}
	info, err := s.storeLocked(objstore.OpComplete, key, data, objstore.CRC32C(data), u.meta)
	if err == nil {
		delete(s.uploads, id)
	}
	return info, err
}

// AbortUpload implements objstore.Multipart.
func (s *Store) AbortUpload(ctx context.Context, key, id string) error {
	if err := objstore.CheckAbort(key, id); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.uploads[id]; u != nil && u.Key == key {
		delete(s.uploads, id)
	}
	return nil
}

// ListUploads implements objstore.Multipart.
func (s *Store) ListUploads(ctx context.Context, key string) ([]objstore.Upload, error) {
	if err := objstore.CheckName(objstore.OpUploads, key); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var out []objstore.Upload
	for _, u := range s.Uploads() {
		if u.Key == key {
			out = append(out, u)
		}
	}
	return out, nil
}

// Uploads returns every open upload, by key and id.
func (s *Store) Uploads() []objstore.Upload {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]objstore.Upload, 0, len(s.uploads))
	for _, u := range s.uploads {
		out = append(out, u.Upload)
	}
	slices.SortFunc(out, func(a, b objstore.Upload) int { return strings.Compare(a.Key+"\x00"+a.ID, b.Key+"\x00"+b.ID) })
	return out
}

// ExpireUploads drops every open upload, as servers do after a day.
func (s *Store) ExpireUploads() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.uploads)
}

// Keys returns every key, sorted.
func (s *Store) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

// Bytes returns the bytes of all objects together.
func (s *Store) Bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int64(0)
	for _, o := range s.objects {
		n += int64(len(o.data))
	}
	return n
}

// Wipe loses everything.
func (s *Store) Wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.objects)
	clear(s.folders)
	clear(s.uploads)
}

// Damage replaces the bytes of an object by what change makes of a copy of them; what the store says about checksum and ETag stays, as it does when a
// disk rots. It reports whether there is such an object.
func (s *Store) Damage(key string, change func([]byte) []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[key]
	if !ok {
		return false
	}
	o.data = change(slices.Clone(o.data))
	o.info.Size = int64(len(o.data))
	s.objects[key] = o
	return true
}
