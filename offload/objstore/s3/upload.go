package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/minio/minio-go/v7"

	"github.com/binderylog/bindery/offload/objstore"
)

// CreateUpload implements objstore.Multipart.
func (s *Store) CreateUpload(ctx context.Context, key string, o objstore.UploadOptions) (id string, err error) {
	const op = objstore.OpCreate
	if err := objstore.CheckUpload(key, o); err != nil {
		return "", err
	}
	h := s.writeHeader(o.Meta)
	if s.o.Checksum == CRC32C {
		h.Set(headerAlgo, "CRC32C")
		h.Set(headerType, "FULL_OBJECT")
	}
	err = s.call(ctx, op, key, h, func(ctx context.Context, _ *exchange) error {
		id, err = s.core.NewMultipartUpload(ctx, s.o.Bucket, key, minio.PutObjectOptions{})
		if err == nil && id == "" {
			err = &objstore.Error{Kind: objstore.KindForeign, Op: op, Key: key, Err: errors.New("an answer without an upload id"),
				Hint: "what answers at " + s.o.Endpoint + " is not an S3 server: correct the target's endpoint"}
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

// PutPart implements objstore.Multipart.
func (s *Store) PutPart(ctx context.Context, key, id string, number int, body objstore.Body) (part objstore.Part, err error) {
	const op = objstore.OpPart
	if err := objstore.CheckPart(key, id, number, body); err != nil {
		return objstore.Part{}, err
	}
	h := http.Header{}
	sum := s.protect(h, body)
	err = s.call(ctx, op, key, h, func(ctx context.Context, x *exchange) error {
		got, err := s.core.PutObjectPart(ctx, s.o.Bucket, key, id, number, reader(body), int64(len(body.Data)),
			minio.PutObjectPartOptions{Md5Base64: sum, DisableContentSha256: true})
		if err != nil {
			return err
		}
		if got.ETag == "" {
			return s.noETag(op, key)
		}
		part = objstore.Part{Number: number, Size: int64(len(body.Data)), CRC32C: body.CRC32C, ETag: got.ETag}
		return confirm(op, key, x.reply, body)
	})
	if err != nil {
		return objstore.Part{}, err
	}
	return part, nil
}

// CompleteUpload implements objstore.Multipart.
func (s *Store) CompleteUpload(ctx context.Context, key, id string, parts []objstore.Part) (objstore.Info, error) {
	const op = objstore.OpComplete
	if err := objstore.CheckComplete(key, id, parts); err != nil {
		return objstore.Info{}, err
	}
	list, size := make([]minio.CompletePart, len(parts)), int64(0)
	for i, p := range parts {
		list[i] = minio.CompletePart{PartNumber: p.Number, ETag: p.ETag}
		if s.o.Checksum == CRC32C {
			list[i].ChecksumCRC32C = encodeCRC(p.CRC32C)
		}
		size += p.Size
	}
	info := objstore.Info{Key: key, Size: size}
	h := http.Header{}
	if s.o.Checksum == CRC32C {
		h.Set(headerType, "FULL_OBJECT")
	}
	err := s.call(ctx, op, key, h, func(ctx context.Context, _ *exchange) error {
		got, err := s.core.CompleteMultipartUpload(ctx, s.o.Bucket, key, id, list, minio.PutObjectOptions{})
		if err != nil {
			return err
		}
		info.ETag = got.ETag
		if got.ChecksumMode == "FULL_OBJECT" {
			info.CRC32C, info.HasCRC32C = decodeCRC(got.ChecksumCRC32C)
		}
		return nil
	})
	if err != nil {
		return objstore.Info{}, err
	}
	return info, nil
}

// AbortUpload implements objstore.Multipart.
func (s *Store) AbortUpload(ctx context.Context, key, id string) error {
	const op = objstore.OpAbort
	if err := objstore.CheckAbort(key, id); err != nil {
		return err
	}
	err := s.call(ctx, op, key, nil, func(ctx context.Context, _ *exchange) error {
		return s.core.AbortMultipartUpload(ctx, s.o.Bucket, key, id)
	})
	if objstore.KindOf(err) == objstore.KindNoUpload {
		return nil
	}
	return err
}

const uploadPagesMax = 100 // of 1,000: more open uploads of one key are not believed

// ListUploads implements objstore.Multipart.
func (s *Store) ListUploads(ctx context.Context, key string) (out []objstore.Upload, err error) {
	const op = objstore.OpUploads
	if err := objstore.CheckName(op, key); err != nil {
		return nil, err
	}
	keyMarker, idMarker := "", ""
	for range uploadPagesMax {
		var page minio.ListMultipartUploadsResult
		err := s.call(ctx, op, key, nil, func(ctx context.Context, _ *exchange) (err error) {
			page, err = s.core.ListMultipartUploads(ctx, s.o.Bucket, key, keyMarker, idMarker, "", 1000)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, u := range page.Uploads {
			if u.Key == key {
				out = append(out, objstore.Upload{Key: key, ID: u.UploadID, Started: u.Initiated})
			}
		}
		if !page.IsTruncated || page.NextKeyMarker == keyMarker && page.NextUploadIDMarker == idMarker || page.NextKeyMarker > key {
			return out, nil
		}
		keyMarker, idMarker = page.NextKeyMarker, page.NextUploadIDMarker
	}
	return nil, &objstore.Error{Kind: objstore.KindForeign, Op: op, Key: key, Err: fmt.Errorf("a listing of uploads that does not end after %d pages", uploadPagesMax)}
}
