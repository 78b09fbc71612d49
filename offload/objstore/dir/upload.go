package dir

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"syscall"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/offload/objstore"
)

const (
	copyChunk  = 1 << 20
	metaETag   = "etag"    // of a part
	uploadFile = "upload"  // its body is the key, its metadata what the object will have
	partName   = "p%05d"   // by number
	idLength   = 2 * 16    // hex digits
	etagFormat = "%08x-%s" // CRC32C and a random part: a part that was sent again is another one
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CreateUpload implements objstore.Multipart.
func (s *Store) CreateUpload(ctx context.Context, key string, o objstore.UploadOptions) (string, error) {
	const op = objstore.OpCreate
	if err := objstore.CheckUpload(key, o); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", s.fail(op, key, err)
	}
	id := random()
	foot := footer{size: int64(len(key)), crc: objstore.CRC32C([]byte(key)), modified: time.Now().UnixMilli(), meta: maps.Clone(o.Meta)}
	tmp, err := s.writeTmp(op, key, func(f vfs.File) (footer, error) {
		_, err := f.WriteAt([]byte(key), 0)
		return foot, err
	})
	if err != nil {
		return "", err
	}
	folder := s.inner("uploads", id)
	if err = vfs.MkdirAllSync(s.fs, folder); err == nil {
		err = s.move(tmp, folder, uploadFile)
	}
	if err != nil {
		_ = s.fs.Remove(tmp) // otherwise it goes when it is stale
		_ = s.fs.Remove(folder)
		return "", s.fail(op, key, err)
	}
	return id, nil
}

func (s *Store) move(tmp, folder, name string) error {
	if err := s.fs.Rename(tmp, folder+"/"+name); err != nil {
		return err
	}
	return s.fs.SyncDir(folder)
}

// upload returns the footer of an open upload of key.
func (s *Store) upload(ctx context.Context, op objstore.Op, key, id string) (footer, error) {
	if err := ctx.Err(); err != nil {
		return footer{}, s.fail(op, key, err)
	}
	have, foot, err := s.readUpload(id)
	switch {
	case err == nil && have == key:
		return foot, nil
	case err == nil, noUpload(err):
		return footer{}, s.absent(op, key, objstore.KindNoUpload, fmt.Errorf("no upload %s", id))
	}
	return footer{}, s.fail(op, key, err)
}

// noUpload reports whether an error of readUpload says that there is none: something else may stand in its place.
func noUpload(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, errForeign) || errors.Is(err, errFolder)
}

func (s *Store) readUpload(id string) (key string, foot footer, err error) {
	if len(id) != idLength {
		return "", footer{}, fs.ErrNotExist
	}
	for _, c := range id {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", footer{}, fs.ErrNotExist
		}
	}
	f, foot, err := openFooter(s.fs, s.inner("uploads", id, uploadFile))
	if err != nil {
		return "", footer{}, err
	}
	defer f.Close()
	if foot.size > objstore.KeyMax {
		return "", footer{}, errForeign
	}
	b := make([]byte, foot.size)
	if n, err := f.ReadAt(b, 0); n < len(b) {
		return "", footer{}, err
	}
	if objstore.CRC32C(b) != foot.crc {
		return "", footer{}, errForeign
	}
	return string(b), foot, nil
}

// PutPart implements objstore.Multipart.
func (s *Store) PutPart(ctx context.Context, key, id string, number int, body objstore.Body) (objstore.Part, error) {
	const op = objstore.OpPart
	if err := objstore.CheckPart(key, id, number, body); err != nil {
		return objstore.Part{}, err
	}
	if _, err := s.upload(ctx, op, key, id); err != nil {
		return objstore.Part{}, err
	}
	p := objstore.Part{Number: number, Size: int64(len(body.Data)), CRC32C: body.CRC32C, ETag: fmt.Sprintf(etagFormat, body.CRC32C, random()[:8])}
	foot := footer{size: p.Size, crc: p.CRC32C, modified: time.Now().UnixMilli(), meta: map[string]string{metaETag: p.ETag}}
	tmp, err := s.writeTmp(op, key, func(f vfs.File) (footer, error) {
		_, err := f.WriteAt(body.Data, 0)
		return foot, err
	})
	if err != nil {
		return objstore.Part{}, err
	}
	if err := s.move(tmp, s.inner("uploads", id), fmt.Sprintf(partName, number)); err != nil {
		_ = s.fs.Remove(tmp) // otherwise it goes when it is stale
		if errors.Is(err, fs.ErrNotExist) {
			return objstore.Part{}, s.absent(op, key, objstore.KindNoUpload, fmt.Errorf("upload %s was ended meanwhile", id))
		}
		return objstore.Part{}, s.fail(op, key, err)
	}
	return p, nil
}

// CompleteUpload implements objstore.Multipart. The parts are copied into one file; until it is in place the upload stays as it is, and can be completed again.
func (s *Store) CompleteUpload(ctx context.Context, key, id string, parts []objstore.Part) (objstore.Info, error) {
	const op = objstore.OpComplete
	if err := objstore.CheckComplete(key, id, parts); err != nil {
		return objstore.Info{}, err
	}
	up, err := s.upload(ctx, op, key, id)
	if err != nil {
		return objstore.Info{}, err
	}
	foot := footer{modified: time.Now().UnixMilli(), meta: up.meta}
	tmp, err := s.writeTmp(op, key, func(f vfs.File) (footer, error) {
		buf := make([]byte, copyChunk)
		for i, p := range parts {
			if err := s.appendPart(ctx, f, &foot, key, id, p, i == len(parts)-1, buf); err != nil {
				return foot, err
			}
		}
		return foot, nil
	})
	if err != nil {
		return objstore.Info{}, err
	}
	if err := s.publish(op, key, tmp); err != nil {
		return objstore.Info{}, err
	}
	_ = s.dropUpload(id) // the object is in place; what is left is found by ListUploads
	return foot.info(key), nil
}

// appendPart copies one part to the end of f, checking it on the way.
func (s *Store) appendPart(ctx context.Context, f vfs.File, foot *footer, key, id string, p objstore.Part, last bool, buf []byte) error {
	refuse := func(k objstore.Kind, format string, args ...any) error {
		return &objstore.Error{Kind: k, Op: objstore.OpComplete, Key: key, Err: fmt.Errorf(format, args...)}
	}
	in, have, err := openFooter(s.fs, s.inner("uploads", id, fmt.Sprintf(partName, p.Number)))
	if errors.Is(err, fs.ErrNotExist) {
		return refuse(objstore.KindMisuse, "part %d was never sent", p.Number)
	}
	if errors.Is(err, errForeign) || errors.Is(err, errFolder) { // no retry makes it one
		return refuse(objstore.KindMisuse, "part %d is no part any more: %w", p.Number, err)
	}
	if err != nil {
		return err
	}
	defer in.Close()
	if have.size != p.Size || have.crc != p.CRC32C || have.meta[metaETag] != p.ETag {
		return refuse(objstore.KindMisuse, "part %d is not the one that was sent last", p.Number)
	}
	if !last && have.size < objstore.PartMin {
		return refuse(objstore.KindMisuse, "part %d has %d bytes", p.Number, have.size)
	}
	crc := uint32(0)
	for at := int64(0); at < have.size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		chunk := buf[:min(int64(len(buf)), have.size-at)]
		if n, err := in.ReadAt(chunk, at); n < len(chunk) {
			return fmt.Errorf("read %d of %d bytes of part %d: %w", n, len(chunk), p.Number, err)
		}
		if _, err := f.WriteAt(chunk, foot.size); err != nil {
			return err
		}
		crc = crc32.Update(crc, castagnoli, chunk)
		foot.crc = crc32.Update(foot.crc, castagnoli, chunk)
		foot.size += int64(len(chunk))
		at += int64(len(chunk))
	}
	if crc != p.CRC32C {
		return refuse(objstore.KindChecksum, "part %d has CRC32C %08x on disk, %08x was sent", p.Number, crc, p.CRC32C)
	}
	return nil
}

// AbortUpload implements objstore.Multipart.
func (s *Store) AbortUpload(ctx context.Context, key, id string) error {
	if err := objstore.CheckAbort(key, id); err != nil {
		return err
	}
	_, err := s.upload(ctx, objstore.OpAbort, key, id)
	if objstore.KindOf(err) == objstore.KindNoUpload {
		return nil
	}
	if err == nil {
		if derr := s.dropUpload(id); derr != nil {
			err = s.fail(objstore.OpAbort, key, derr)
		}
	}
	return err
}

// dropUpload removes an upload: first what makes it one, so that a crash leaves parts without an upload and never the other way round. A part that comes
// in meanwhile is removed with the rest.
func (s *Store) dropUpload(id string) error {
	folder := s.inner("uploads", id)
	if err := s.fs.Remove(folder + "/" + uploadFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for range renameTries {
		names, err := s.fs.List(folder)
		if errors.Is(err, fs.ErrNotExist) {
			return s.fs.SyncDir(s.inner("uploads"))
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := s.fs.Remove(folder + "/" + name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if err := s.fs.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
	}
	return s.fs.SyncDir(s.inner("uploads"))
}

// ListUploads implements objstore.Multipart.
func (s *Store) ListUploads(ctx context.Context, key string) ([]objstore.Upload, error) {
	const op = objstore.OpUploads
	if err := objstore.CheckName(op, key); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, s.fail(op, key, err)
	}
	ids, err := s.fs.List(s.inner("uploads"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, s.ready(op, key)
	}
	if err != nil {
		return nil, s.fail(op, key, err)
	}
	var out []objstore.Upload
	for _, id := range ids {
		have, foot, err := s.readUpload(id)
		switch {
		case err == nil && have == key:
			out = append(out, objstore.Upload{Key: key, ID: id, Started: time.UnixMilli(foot.modified)})
		case err != nil && !noUpload(err):
			return nil, s.fail(op, key, err)
		}
	}
	return out, nil
}
