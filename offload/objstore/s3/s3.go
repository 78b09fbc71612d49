// Package s3 is the object store in a bucket of an S3 service.
//
// Requests and answers are minio-go's, one low-level call each, with its retries off; its types do not leave this package. What decides about
// safety is ours: signatures (sign.go), what goes over the wire (transport.go), what an answer means (classify.go), credentials (credentials.go).
//
// Invariants:
//   - A body is sent with its length and, unless the target says otherwise, its CRC32C in a header; never in aws-chunked frames, which some servers
//     store as data.
//   - "Not found" is said only if the store said so in S3's own words; an answer to HEAD, which has no words, is confirmed by a listing.
//   - A redirect is not followed.
//   - No answer but an object's bytes is read beyond 16 MiB; a service that gives credentials and does not answer holds no request up while the old
//     one is valid.
//   - A request that was refused because of the credential or the clock, and so was not carried out, is sent once more with a new credential or the
//     clock's offset, if those differ from what was used. Nothing else is sent twice, but a read on a pooled connection that turns out to be closed.
//
// Safe for concurrent use. Goroutines: those of net/http's connection pool, which Close ends.
package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/binderylog/bindery/offload/objstore"
)

// Checksum says how bodies are protected on their way in.
type Checksum string

// The checksums.
const (
	CRC32C Checksum = "crc32c" // the default: checked on arrival, kept by the store
	MD5    Checksum = "md5"    // for stores that do not know CRC32C
	None   Checksum = "none"   // a cut body may be stored: only for stores that know neither
)

// Options of a bucket.
type Options struct {
	Endpoint      string // http:// or https://, host, and port if it is not the usual one
	Region        string // default us-east-1
	Bucket        string
	VirtualHost   bool // the bucket is part of the host name instead of the path
	AllowInsecure bool // plain http may be used
	CAFile        string
	Checksum      Checksum
	StorageClass  string
	SSE           string // "AES256", "aws:kms" or "aws:kms:KEY": asked of the store for each object
	Credentials   Credentials

	now func() time.Time
}

// EnsureDefaults fills what is empty.
func (o *Options) EnsureDefaults() {
	if o.Region == "" {
		o.Region = "us-east-1"
	}
	if o.Checksum == "" {
		o.Checksum = CRC32C
	}
	if o.now == nil {
		o.now = time.Now
	}
}

// Validate says what is wrong, by the setting's name.
func (o *Options) Validate() error {
	u, err := url.Parse(o.Endpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("endpoint %q: it is http:// or https:// and a host", o.Endpoint)
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil:
		return fmt.Errorf("endpoint %q: nothing follows the host and port; bucket and prefix are settings of their own", o.Endpoint)
	case u.Scheme == "http" && !o.AllowInsecure:
		return fmt.Errorf("endpoint %q is plain http, which anybody on the way can read and change: use https, or set allow_insecure", o.Endpoint)
	case o.Bucket == "":
		return errors.New("bucket is empty")
	}
	switch o.Checksum {
	case CRC32C, MD5, None:
	default:
		return fmt.Errorf("checksum %q; crc32c, md5 or none", o.Checksum)
	}
	if o.SSE != "" && o.SSE != "AES256" && o.SSE != "aws:kms" && !strings.HasPrefix(o.SSE, "aws:kms:") {
		return fmt.Errorf("sse %q; AES256, aws:kms or aws:kms:KEY", o.SSE)
	}
	return nil
}

// Store is a bucket.
type Store struct {
	o      Options
	region string
	core   *minio.Core
	base   *http.Transport
	wire   *transport
}

var _ objstore.Store = (*Store)(nil)

// Open returns the bucket. Nothing is sent yet: objstore.CheckTarget finds out whether it can be used.
func Open(o Options) (*Store, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	base, err := newBase(o.CAFile)
	if err != nil {
		return nil, fmt.Errorf("ca_file: %w", err)
	}
	fetch, err := o.Credentials.source(&http.Client{Timeout: 30 * time.Second, Transport: bounded{base}}, o.Region)
	if err != nil {
		return nil, err
	}
	s := &Store{o: o, region: o.Region, base: base}
	keys := &keyring{fetch: fetch, now: o.now}
	if o.Credentials.Source != "file" && o.Credentials.Source != "env" {
		keys.rest = remoteRest
	}
	s.wire = &transport{base: base, keys: keys, region: o.Region, now: o.now}
	u, _ := url.Parse(o.Endpoint) // Validate has done so
	lookup := minio.BucketLookupPath
	if o.VirtualHost {
		lookup = minio.BucketLookupDNS
	}
	s.core, err = minio.NewCore(u.Host, &minio.Options{
		Creds:  credentials.NewStatic("", "", "", credentials.SignatureAnonymous), // transport signs
		Secure: u.Scheme == "https", Transport: s.wire, Region: o.Region, BucketLookup: lookup, MaxRetries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("endpoint %q: %w", o.Endpoint, err)
	}
	return s, nil
}

// Close implements objstore.Store.
func (s *Store) Close() error {
	s.base.CloseIdleConnections()
	return nil
}

// Capabilities implements objstore.Store: those of the service that defined S3. CheckTarget finds out what this one can do.
func (s *Store) Capabilities() objstore.Capabilities {
	crc := s.o.Checksum == CRC32C
	return objstore.Capabilities{Checksums: s.o.Checksum != None, StoredCRC: crc, UploadCRC: crc, Conditional: true, Meta: true, Nested: true}
}

// CredentialExpires returns when the credential in use ends; zero: never, or none was fetched yet.
func (s *Store) CredentialExpires() time.Time { return s.wire.keys.expires() }

// ClockOffset returns what was added to this machine's clock because the store asked for it.
func (s *Store) ClockOffset() time.Duration { return time.Duration(s.wire.skew.Load()) }

// call makes one request. send is called again if the store refused it unseen and the reason could be mended.
func (s *Store) call(ctx context.Context, op objstore.Op, key string, header http.Header, send func(context.Context, *exchange) error) error {
	for first := true; ; first = false {
		x, err := s.once(ctx, header, send)
		if err == nil {
			return nil
		}
		e := s.classify(ctx, op, key, x, err)
		if !first || !s.mend(ctx, e, x) {
			return e
		}
	}
}

func (s *Store) once(ctx context.Context, header http.Header, send func(context.Context, *exchange) error) (*exchange, error) {
	rctx, cancel := context.WithCancel(ctx)
	defer cancel()
	x := &exchange{header: header, cancel: cancel}
	err := send(context.WithValue(rctx, exchangeKey{}, x), x)
	x.body.takeBack()
	return x, err
}

// mend renews the credential or learns the store's clock. It reports whether the same request may succeed now.
func (s *Store) mend(ctx context.Context, e *objstore.Error, x *exchange) bool {
	switch e.Kind {
	case objstore.KindClock:
		_, learned := s.wire.learn(x.reply)
		return learned
	case objstore.KindExpired, objstore.KindCredentials, objstore.KindDenied:
		if x.status == 0 { // there was none to begin with
			return false
		}
		_, ok := s.wire.keys.another(ctx, x.key)
		return ok
	}
	return false
}
