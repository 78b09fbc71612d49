package objstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// WithPrefix returns the part of a store whose keys begin with prefix and a slash; keys are given and listed without them. An empty prefix is the
// whole store.
func WithPrefix(in Store, prefix string) (Store, error) {
	prefix = strings.Trim(prefix, "/")
	if prefix == "" {
		return in, nil
	}
	if err := CheckKey(prefix); err != nil {
		return nil, fmt.Errorf("prefix: %w", err)
	}
	return &prefixed{in, prefix + "/"}, nil
}

type prefixed struct {
	in     Store
	prefix string
}

// key returns the full key. A bad one stays bad and whole, so that the driver refuses it by the name that the caller knows.
func (p *prefixed) key(key string) string {
	if CheckKey(key) != nil {
		return key
	}
	return p.prefix + key
}

func (p *prefixed) cut(info Info, err error) (Info, error) {
	info.Key = strings.TrimPrefix(info.Key, p.prefix)
	return info, err
}

func (p *prefixed) Capabilities() Capabilities { return p.in.Capabilities() }
func (p *prefixed) Close() error               { return p.in.Close() }

func (p *prefixed) CredentialExpires() time.Time {
	if e, ok := p.in.(expirer); ok {
		return e.CredentialExpires()
	}
	return time.Time{}
}

func (p *prefixed) Put(ctx context.Context, key string, body Body, o PutOptions) (Info, error) {
	return p.cut(p.in.Put(ctx, p.key(key), body, o))
}

func (p *prefixed) GetRange(ctx context.Context, key string, offset int64, dst []byte) (Info, error) {
	return p.cut(p.in.GetRange(ctx, p.key(key), offset, dst))
}

func (p *prefixed) Head(ctx context.Context, key string) (Info, error) {
	return p.cut(p.in.Head(ctx, p.key(key)))
}

func (p *prefixed) Delete(ctx context.Context, key string) error {
	return p.in.Delete(ctx, p.key(key))
}

func (p *prefixed) List(ctx context.Context, prefix, after string, limit int) ([]Info, error) {
	if after != "" {
		after = p.prefix + after
	}
	out, err := p.in.List(ctx, p.prefix+prefix, after, limit)
	for i := range out {
		out[i].Key = strings.TrimPrefix(out[i].Key, p.prefix)
	}
	return out, err
}

func (p *prefixed) CreateUpload(ctx context.Context, key string, o UploadOptions) (string, error) {
	return p.in.CreateUpload(ctx, p.key(key), o)
}

func (p *prefixed) PutPart(ctx context.Context, key, id string, number int, body Body) (Part, error) {
	return p.in.PutPart(ctx, p.key(key), id, number, body)
}

func (p *prefixed) CompleteUpload(ctx context.Context, key, id string, parts []Part) (Info, error) {
	return p.cut(p.in.CompleteUpload(ctx, p.key(key), id, parts))
}

func (p *prefixed) AbortUpload(ctx context.Context, key, id string) error {
	return p.in.AbortUpload(ctx, p.key(key), id)
}

func (p *prefixed) ListUploads(ctx context.Context, key string) ([]Upload, error) {
	out, err := p.in.ListUploads(ctx, p.key(key))
	for i := range out {
		out[i].Key = strings.TrimPrefix(out[i].Key, p.prefix)
	}
	return out, err
}

func (p *prefixed) PutDamaged(ctx context.Context, key string, data []byte) error {
	if d, ok := p.in.(damager); ok {
		return d.PutDamaged(ctx, p.key(key), data)
	}
	return &Error{Kind: KindChecksum, Op: OpPut, Key: key, Err: errDamaged}
}

func (p *prefixed) ClockOffset() time.Duration {
	if c, ok := p.in.(clockwise); ok {
		return c.ClockOffset()
	}
	return 0
}

// errDamaged is what every driver without a wire says of a body that does not match its checksum.
var errDamaged = errors.New("the body does not match its checksum")
