package faulty

import (
	"context"
	"slices"

	"github.com/binderylog/bindery/offload/objstore"
)

// Capabilities implements objstore.Store.
func (s *Store) Capabilities() objstore.Capabilities { return s.in.Capabilities() }

// Close implements objstore.Store.
func (s *Store) Close() error { return s.in.Close() }

// body returns what reaches the store. It is a copy, so that a late request finds what was sent, whatever became of the caller's buffer.
func body(b objstore.Body, f Fault, checks bool) objstore.Body {
	b.Data = slices.Clone(b.Data)
	if f.effect == effectFlip {
		flip(b.Data, f.n)
		if !checks { // such a store keeps what it got
			b.CRC32C = objstore.CRC32C(b.Data)
		}
	}
	return b
}

func flip(b []byte, bit int64) {
	if len(b) > 0 {
		i := bit / 8 % int64(len(b))
		b[i] ^= 1 << (bit % 8)
	}
}

func lie(info *objstore.Info, f Fault) {
	if f.effect == effectSize {
		info.Size += f.n
	}
}

// Put implements objstore.Objects.
func (s *Store) Put(ctx context.Context, key string, b objstore.Body, o objstore.PutOptions) (info objstore.Info, err error) {
	c := Call{Op: objstore.OpPut, Key: key, Len: len(b.Data)}
	f := s.next(c)
	b = body(b, f, s.Capabilities().Checksums)
	err = s.do(ctx, c, f, func(ctx context.Context) (err error) {
		info, err = s.in.Put(ctx, key, b, o)
		return err
	})
	return info, err
}

// GetRange implements objstore.Objects.
func (s *Store) GetRange(ctx context.Context, key string, offset int64, dst []byte) (info objstore.Info, err error) {
	c := Call{Op: objstore.OpGet, Key: key, Off: offset, Len: len(dst)}
	f := s.next(c)
	err = s.do(ctx, c, f, func(ctx context.Context) (err error) {
		info, err = s.in.GetRange(ctx, key, offset, dst)
		return err
	})
	if err == nil && f.effect == effectFlip {
		flip(dst, f.n)
	}
	lie(&info, f)
	return info, err
}

// Head implements objstore.Objects.
func (s *Store) Head(ctx context.Context, key string) (info objstore.Info, err error) {
	c := Call{Op: objstore.OpHead, Key: key}
	f := s.next(c)
	err = s.do(ctx, c, f, func(ctx context.Context) (err error) {
		info, err = s.in.Head(ctx, key)
		return err
	})
	lie(&info, f)
	return info, err
}

// Delete implements objstore.Objects.
func (s *Store) Delete(ctx context.Context, key string) error {
	c := Call{Op: objstore.OpDelete, Key: key}
	return s.do(ctx, c, s.next(c), func(ctx context.Context) error { return s.in.Delete(ctx, key) })
}

// List implements objstore.Objects.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) (out []objstore.Info, err error) {
	c := Call{Op: objstore.OpList, Key: prefix}
	err = s.do(ctx, c, s.next(c), func(ctx context.Context) (err error) {
		out, err = s.in.List(ctx, prefix, after, limit)
		return err
	})
	return out, err
}

// CreateUpload implements objstore.Multipart.
func (s *Store) CreateUpload(ctx context.Context, key string, o objstore.UploadOptions) (id string, err error) {
	c := Call{Op: objstore.OpCreate, Key: key}
	err = s.do(ctx, c, s.next(c), func(ctx context.Context) (err error) {
		id, err = s.in.CreateUpload(ctx, key, o)
		return err
	})
	if err != nil {
		id = ""
	}
	return id, err
}

// PutPart implements objstore.Multipart.
func (s *Store) PutPart(ctx context.Context, key, id string, number int, b objstore.Body) (part objstore.Part, err error) {
	c := Call{Op: objstore.OpPart, Key: key, Part: number, Len: len(b.Data)}
	f := s.next(c)
	b = body(b, f, s.Capabilities().Checksums)
	err = s.do(ctx, c, f, func(ctx context.Context) (err error) {
		part, err = s.in.PutPart(ctx, key, id, number, b)
		return err
	})
	return part, err
}

// CompleteUpload implements objstore.Multipart.
func (s *Store) CompleteUpload(ctx context.Context, key, id string, parts []objstore.Part) (info objstore.Info, err error) {
	c := Call{Op: objstore.OpComplete, Key: key, Len: len(parts)}
	f := s.next(c)
	parts = slices.Clone(parts)
	err = s.do(ctx, c, f, func(ctx context.Context) (err error) {
		info, err = s.in.CompleteUpload(ctx, key, id, parts)
		return err
	})
	lie(&info, f)
	return info, err
}

// AbortUpload implements objstore.Multipart.
func (s *Store) AbortUpload(ctx context.Context, key, id string) error {
	c := Call{Op: objstore.OpAbort, Key: key}
	return s.do(ctx, c, s.next(c), func(ctx context.Context) error { return s.in.AbortUpload(ctx, key, id) })
}

// ListUploads implements objstore.Multipart.
func (s *Store) ListUploads(ctx context.Context, key string) (out []objstore.Upload, err error) {
	c := Call{Op: objstore.OpUploads, Key: key}
	err = s.do(ctx, c, s.next(c), func(ctx context.Context) (err error) {
		out, err = s.in.ListUploads(ctx, key)
		return err
	})
	return out, err
}
