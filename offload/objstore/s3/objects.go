package s3

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/binderylog/bindery/offload/objstore"
)

const (
	headerCRC  = "X-Amz-Checksum-Crc32c"
	headerAlgo = "X-Amz-Checksum-Algorithm"
	headerType = "X-Amz-Checksum-Type"
)

// writeHeader returns the headers of an object that is written: metadata, storage class, encryption at rest.
func (s *Store) writeHeader(meta map[string]string) http.Header {
	h := http.Header{}
	for name, value := range meta {
		h.Set("X-Amz-Meta-"+name, value)
	}
	if s.o.StorageClass != "" {
		h.Set("X-Amz-Storage-Class", s.o.StorageClass)
	}
	if s.o.SSE != "" {
		algo, id := s.o.SSE, ""
		if rest, ok := strings.CutPrefix(algo, "aws:kms:"); ok {
			algo, id = "aws:kms", rest
		}
		h.Set("X-Amz-Server-Side-Encryption", algo)
		if id != "" {
			h.Set("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id", id)
		}
	}
	return h
}

// protect adds the body's checksum; md5 returns what the library wants in its own argument.
func (s *Store) protect(h http.Header, body objstore.Body) (md5Base64 string) {
	switch s.o.Checksum {
	case CRC32C:
		h.Set(headerCRC, encodeCRC(body.CRC32C))
	case MD5:
		sum := md5.Sum(body.Data)
		return base64.StdEncoding.EncodeToString(sum[:])
	}
	return ""
}

func encodeCRC(crc uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
}

func decodeCRC(text string) (uint32, bool) {
	b, err := base64.StdEncoding.DecodeString(text) // a checksum of checksums ends in "-N" and does not decode
	if err != nil || len(b) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(b), true
}

// confirm compares the checksum in the answer to a write, if there is one, with what was sent.
func confirm(op objstore.Op, key string, reply http.Header, body objstore.Body) error {
	if got, ok := decodeCRC(reply.Get(headerCRC)); ok && got != body.CRC32C {
		return &objstore.Error{Kind: objstore.KindChecksum, Op: op, Key: key, MaybeDone: true,
			Err: fmt.Errorf("the store answers with CRC32C %08x, %08x was sent", got, body.CRC32C)}
	}
	return nil
}

// noETag refuses a success that no object store gives.
func (s *Store) noETag(op objstore.Op, key string) error {
	return &objstore.Error{Kind: objstore.KindForeign, Op: op, Key: key, Err: errors.New("an answer without an ETag"),
		Hint: "what answers at " + s.o.Endpoint + " is not an S3 server: correct the target's endpoint"}
}

// reader returns the body for one request. The library asks for the end of what it is given, so that nothing may hide behind it.
func reader(body objstore.Body) io.Reader { return bytes.NewReader(body.Data) }

// Put implements objstore.Objects.
func (s *Store) Put(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) (objstore.Info, error) {
	const op = objstore.OpPut
	if err := objstore.CheckPut(key, body, o.Meta); err != nil {
		return objstore.Info{}, err
	}
	h := s.writeHeader(o.Meta)
	sum := s.protect(h, body)
	if o.IfAbsent {
		h.Set("If-None-Match", "*")
	}
	info := objstore.Info{Key: key, Size: int64(len(body.Data)), Meta: o.Meta}
	err := s.call(ctx, op, key, h, func(ctx context.Context, x *exchange) error {
		got, err := s.core.PutObject(ctx, s.o.Bucket, key, reader(body), int64(len(body.Data)), sum, "", minio.PutObjectOptions{DisableContentSha256: true})
		if err != nil {
			return err
		}
		if info.ETag = got.ETag; info.ETag == "" {
			return s.noETag(op, key)
		}
		info.CRC32C, info.HasCRC32C = decodeCRC(got.ChecksumCRC32C)
		return confirm(op, key, x.reply, body)
	})
	if err != nil {
		return objstore.Info{}, err
	}
	return info, nil
}

// GetRange implements objstore.Objects.
func (s *Store) GetRange(ctx context.Context, key string, offset int64, dst []byte) (info objstore.Info, err error) {
	if err := objstore.CheckGet(key, offset, dst); err != nil {
		return objstore.Info{}, err
	}
	h := http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", offset, offset+int64(len(dst))-1)}}
	err = s.call(ctx, objstore.OpGet, key, h, func(ctx context.Context, x *exchange) error {
		body, got, _, err := s.core.GetObject(ctx, s.o.Bucket, key, minio.GetObjectOptions{})
		if err != nil {
			return err
		}
		defer body.Close()
		total, err := rangeTotal(key, x, offset, int64(len(dst)))
		if err != nil {
			return err
		}
		if n, err := io.ReadFull(body, dst); err != nil {
			return fmt.Errorf("body of %d bytes ended after %d: %w", len(dst), n, err)
		}
		if n, err := io.Copy(io.Discard, io.LimitReader(body, 1)); err != nil || n > 0 { // to its end, so that the connection is used again
			return fmt.Errorf("body does not end after %d bytes: %w", len(dst), errors.Join(err, io.ErrShortBuffer))
		}
		info = infoOf(key, got)
		info.Size = total
		return nil
	})
	if objstore.IsNotFound(err) && isWordless(err) {
		err = s.inWords(ctx, err)
	}
	if err != nil {
		return objstore.Info{}, err
	}
	return info, nil
}

// rangeTotal checks that an answer is the range that was asked for, and returns the length of the whole object.
func rangeTotal(key string, x *exchange, offset, length int64) (int64, error) {
	lie := func(format string, args ...any) error {
		return &objstore.Error{Kind: objstore.KindSize, Op: objstore.OpGet, Key: key, Status: x.status, Err: fmt.Errorf(format, args...),
			Hint: "the store, or a proxy before it, does not keep to what it announces: its answers can not be used"}
	}
	announced, err := strconv.ParseInt(x.reply.Get("Content-Length"), 10, 64)
	if err != nil {
		return 0, lie("an answer without a length")
	}
	if x.status == http.StatusOK { // the whole object
		if offset+length > announced {
			return 0, short(key, offset, length, announced)
		}
		if offset != 0 || announced != length {
			return 0, lie("the range was ignored: %d bytes announced, %d at %d asked for", announced, length, offset)
		}
		return announced, nil
	}
	first, last, total, ok := contentRange(x.reply.Get("Content-Range"))
	switch {
	case !ok:
		return 0, lie("content range %q", clip(x.reply.Get("Content-Range")))
	case total < offset+length:
		return 0, short(key, offset, length, total)
	case first != offset || last != offset+length-1 || announced != length:
		return 0, lie("%d bytes at %d asked for, %d to %d with a length of %d announced", length, offset, first, last, announced)
	}
	return total, nil
}

func short(key string, offset, length, have int64) error {
	return &objstore.Error{Kind: objstore.KindRange, Op: objstore.OpGet, Key: key, Err: fmt.Errorf("%d bytes at %d asked for, the object has %d", length, offset, have)}
}

// contentRange reads "bytes first-last/total".
func contentRange(text string) (first, last, total int64, ok bool) {
	rest, found := strings.CutPrefix(text, "bytes ")
	span, size, found2 := strings.Cut(rest, "/")
	from, to, found3 := strings.Cut(span, "-")
	first, err1 := strconv.ParseInt(from, 10, 64)
	last, err2 := strconv.ParseInt(to, 10, 64)
	total, err3 := strconv.ParseInt(size, 10, 64)
	ok = found && found2 && found3 && errors.Join(err1, err2, err3) == nil && 0 <= first && first <= last && last < total
	return first, last, total, ok
}

func infoOf(key string, o minio.ObjectInfo) objstore.Info {
	info := objstore.Info{Key: key, Size: o.Size, ETag: o.ETag, Modified: o.LastModified}
	info.CRC32C, info.HasCRC32C = decodeCRC(o.ChecksumCRC32C)
	if strings.EqualFold(o.ChecksumMode, "COMPOSITE") {
		info.HasCRC32C = false
	}
	if !info.HasCRC32C {
		info.CRC32C = 0
	}
	for name, value := range o.UserMetadata {
		if info.Meta == nil {
			info.Meta = map[string]string{}
		}
		info.Meta[strings.ToLower(name)] = value
	}
	return info
}

// Head implements objstore.Objects.
func (s *Store) Head(ctx context.Context, key string) (objstore.Info, error) {
	if err := objstore.CheckName(objstore.OpHead, key); err != nil {
		return objstore.Info{}, err
	}
	info, err := s.head(ctx, key)
	if k := objstore.KindOf(err); err == nil || !isWordless(err) {
		return info, err
	} else if err = s.inWords(ctx, err); objstore.KindOf(err) != k || k == objstore.KindNotFound {
		return objstore.Info{}, err
	}
	return s.head(ctx, key) // the listing was answered: it has mended what could be
}

func (s *Store) head(ctx context.Context, key string) (info objstore.Info, err error) {
	err = s.call(ctx, objstore.OpHead, key, nil, func(ctx context.Context, _ *exchange) error {
		got, err := s.core.StatObject(ctx, s.o.Bucket, key, minio.StatObjectOptions{Checksum: s.o.Checksum == CRC32C})
		if info = infoOf(key, got); err == nil && info.Size < 0 {
			err = &objstore.Error{Kind: objstore.KindSize, Op: objstore.OpHead, Key: key, Err: errors.New("an answer without a length"),
				Hint: "the store, or a proxy before it, does not say how long objects are: it can not be used"}
		}
		return err
	})
	if err != nil {
		return objstore.Info{}, err
	}
	return info, nil
}

// isWordless says that a refusal came without a word of S3, as all answers to HEAD do: an object, a bucket and a server that is none are all 404, a wrong
// key and a wrong clock both 403.
func isWordless(err error) bool {
	var e *objstore.Error
	return errors.As(err, &e) && e.Code == "" && e.Status >= 300 && e.Status < 500
}

// inWords asks for a listing, which has an answer in words: it returns that error, or the wordless one if the listing can be had.
func (s *Store) inWords(ctx context.Context, wordless error) error {
	var e, said *objstore.Error
	if !errors.As(wordless, &e) {
		return wordless
	}
	_, err := s.List(ctx, e.Key, "", 1)
	if err == nil || !errors.As(err, &said) || said.Kind == objstore.KindDenied { // who may not list is told 403 for what is absent, not 404
		return wordless
	}
	said.Op, said.Key = e.Op, e.Key
	return said
}

// Delete implements objstore.Objects.
func (s *Store) Delete(ctx context.Context, key string) error {
	const op = objstore.OpDelete
	if err := objstore.CheckName(op, key); err != nil {
		return err
	}
	err := s.call(ctx, op, key, nil, func(ctx context.Context, _ *exchange) error {
		return s.core.RemoveObject(ctx, s.o.Bucket, key, minio.RemoveObjectOptions{})
	})
	if objstore.IsNotFound(err) && isWordless(err) {
		err = s.inWords(ctx, err)
	}
	if objstore.IsNotFound(err) {
		return nil
	}
	return err
}

// List implements objstore.Objects.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) (out []objstore.Info, err error) {
	limit, err = objstore.CheckList(prefix, limit)
	if err != nil {
		return nil, err
	}
	err = s.call(ctx, objstore.OpList, prefix, nil, func(ctx context.Context, _ *exchange) error {
		out = nil
		last := ""
		o := minio.ListObjectsOptions{Prefix: prefix, StartAfter: after, MaxKeys: limit, Recursive: true, FetchOwner: new(bool)}
		for got := range s.core.Client.ListObjectsIter(ctx, s.o.Bucket, o) {
			if got.Err != nil {
				return got.Err
			}
			if last != "" && got.Key <= last { // otherwise a list that goes round has no end
				return &objstore.Error{Kind: objstore.KindSize, Op: objstore.OpList, Key: prefix, Err: fmt.Errorf("%q is listed behind %q", clip(got.Key), clip(last)),
					Hint: "the store, or a proxy before it, does not list keys in order, each once: it can not be used"}
			}
			last = got.Key
			if got.Key <= after || !strings.HasPrefix(got.Key, prefix) || strings.HasSuffix(got.Key, "/") {
				continue // some stores list a folder as an object, or do not know "after"
			}
			if out = append(out, objstore.Info{Key: got.Key, Size: got.Size, Modified: got.LastModified}); len(out) == limit {
				break
			}
		}
		return ctx.Err()
	})
	return out, err
}

// PutDamaged sends data with the checksum of something else, as if it had been damaged on the way. A store that checks refuses it with KindChecksum.
func (s *Store) PutDamaged(ctx context.Context, key string, data []byte) error {
	if err := objstore.CheckName(objstore.OpPut, key); err != nil {
		return err
	}
	h := http.Header{}
	sum := s.protect(h, objstore.NewBody(append([]byte{^data[0]}, data[1:]...)))
	return s.call(ctx, objstore.OpPut, key, h, func(ctx context.Context, _ *exchange) error {
		_, err := s.core.PutObject(ctx, s.o.Bucket, key, bytes.NewReader(data), int64(len(data)), sum, "", minio.PutObjectOptions{DisableContentSha256: true})
		return err
	})
}
