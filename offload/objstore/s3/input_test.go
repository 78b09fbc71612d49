package s3

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/faultproxy"
	"github.com/binderylog/bindery/offload/objstore/s3test"
)

func TestCheckTargetOnARealServer(t *testing.T) {
	srv := s3test.Start(t, s3test.Options{})
	for sum, crc := range map[Checksum]bool{CRC32C: true, MD5: false, None: false} {
		o := options(t, srv)
		o.Checksum = sum
		report, err := objstore.CheckTarget(context.Background(), open(t, o))
		require.NoError(t, err, sum)
		require.Equal(t, sum != None, report.Capabilities.Checksums, sum)
		require.Equal(t, crc, report.Capabilities.StoredCRC, sum)
		require.Equal(t, crc, report.Capabilities.UploadCRC, sum)
		require.True(t, report.Capabilities.Conditional)
		require.True(t, report.Capabilities.Meta)
		require.False(t, report.Capabilities.Nested, "a gateway over files")
		require.Zero(t, report.ClockOffset)
		if sum == None {
			require.Contains(t, strings.Join(report.Warnings, "\n"), "set checksum to crc32c or md5")
		}
	}
	found, err := open(t, options(t, srv)).List(context.Background(), "", "", 10)
	require.NoError(t, err)
	require.Empty(t, found, "nothing is left")
}

// TestBadInput: each mistake in a target's settings is one error that says what to change, from the check and from every request.
func TestBadInput(t *testing.T) {
	plain, secure := s3test.Start(t, s3test.Options{}), s3test.Start(t, s3test.Options{TLS: true})
	proxy := faultproxy.Start(t, plain.URL)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := "http://" + l.Addr().String()
	require.NoError(t, l.Close())

	for _, c := range []struct {
		name   string
		srv    *s3test.Server
		change func(*Options)
		fault  faultproxy.Injector
		kind   objstore.Kind
		says   string
	}{
		{"access key", plain, func(o *Options) { o.Credentials = keyFile(t, "nobody", "hush-hush") }, nil,
			objstore.KindCredentials, `the store does not accept access key "nobody" with its secret: correct the target's credentials (file)`},
		{"secret key", plain, func(o *Options) { o.Credentials = keyFile(t, s3test.AccessKey, "hush-hush") }, nil,
			objstore.KindCredentials, `the store does not accept access key "test-access-key" with its secret`},
		{"no credential", plain, func(o *Options) { o.Credentials = Credentials{Source: "env", EnvPrefix: "ABSENT"} }, nil,
			objstore.KindCredentials, "ABSENT_ACCESS_KEY_ID, ABSENT_SECRET_ACCESS_KEY in the environment"},
		{"bucket", plain, func(o *Options) { o.Bucket = "no-such-bucket" }, nil,
			objstore.KindBucket, `there is no bucket "no-such-bucket" at http://127.0.0.1`},
		{"region", plain, func(o *Options) { o.Region = "us-wrong-2" }, nil,
			objstore.KindRegion, `set the target's region to "eu-test-1"; it is "us-wrong-2"`},
		{"http against https", secure, func(o *Options) { o.Endpoint = strings.Replace(o.Endpoint, "https:", "http:", 1) }, nil,
			objstore.KindScheme, "speaks TLS: set the target's endpoint to https://"},
		{"https against http", plain, func(o *Options) { o.Endpoint = strings.Replace(o.Endpoint, "http:", "https:", 1) }, nil,
			objstore.KindScheme, "does not speak TLS: set the target's endpoint to http:// and allow_insecure"},
		{"unknown certificate", secure, func(o *Options) { o.CAFile = "" }, nil,
			objstore.KindCertificate, "set ca_file to the certificate of whoever signed the server's"},
		{"name not in the certificate", secure, func(o *Options) { o.Endpoint = strings.Replace(o.Endpoint, "127.0.0.1", "localhost", 1) }, nil,
			objstore.KindCertificate, "set the target's endpoint to a name that the certificate holds"},
		{"nothing listens", plain, func(o *Options) { o.Endpoint = closed }, nil,
			objstore.KindUnreachable, "nothing listens at http://127.0.0.1"},
		{"no such host", plain, func(o *Options) { o.Endpoint = "http://no-such-host.invalid" }, nil,
			objstore.KindUnreachable, ""},
		{"clock", plain, func(o *Options) { o.Endpoint = proxy.URL }, faultproxy.Always(faultproxy.Skewed(3 * time.Hour)),
			objstore.KindClock, "this machine's clock differs from the store's by "},
		{"denied", plain, func(o *Options) { o.Endpoint = proxy.URL }, faultproxy.Always(faultproxy.Refuse(403, "AccessDenied")),
			objstore.KindDenied, `access key "test-access-key" may not do this in bucket "bindery-test": allow it to get, put, list, delete`},
		{"a web server", plain, func(o *Options) { o.Endpoint = proxy.URL }, faultproxy.Always(faultproxy.HTML(404)),
			objstore.KindForeign, "is not an S3 server: correct the target's endpoint"},
		{"a web server that likes everything", plain, func(o *Options) { o.Endpoint = proxy.URL }, faultproxy.On("PUT", faultproxy.Always(faultproxy.HTML(200))),
			objstore.KindForeign, "is not an S3 server: correct the target's endpoint"},
		{"redirect", plain, func(o *Options) { o.Endpoint = proxy.URL }, faultproxy.Always(faultproxy.Refuse(301, "PermanentRedirect")),
			objstore.KindRegion, "correct the target's region or endpoint"},
		{"full", plain, func(o *Options) { o.Endpoint = proxy.URL }, faultproxy.Always(faultproxy.Refuse(507, "XMinioStorageFull")),
			objstore.KindFull, "make room in the store, or raise the bucket's quota"},
		{"size", plain, func(o *Options) { o.Endpoint = proxy.URL }, faultproxy.On("HEAD", faultproxy.Always(faultproxy.WrongLength(1))),
			objstore.KindSize, "does not keep what it is given: it can not be used"},
		{"length of a range", plain, func(o *Options) { o.Endpoint = proxy.URL }, faultproxy.On("GET", faultproxy.Always(faultproxy.WrongLength(-1))),
			objstore.KindSize, "does not keep to what it announces: its answers can not be used"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options(t, c.srv)
			c.change(&o)
			proxy.Set(c.fault)
			s := open(t, o)
			_, err := objstore.CheckTarget(context.Background(), s)
			require.Equal(t, c.kind, objstore.KindOf(err), "%v", err)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "hush-hush")
			require.NotContains(t, err.Error(), s3test.SecretKey)
			require.NotContains(t, err.Error(), "\n")
			if !c.kind.Setup() || strings.Contains(c.name, "everything") {
				return
			}
			for op, err := range everyRequest(s) {
				require.Equal(t, c.kind, objstore.KindOf(err), "%s: %v", op, err)
				require.False(t, objstore.Unclear(err), "%s: %v", op, err)
			}
		})
	}
}

// everyRequest makes each request once.
func everyRequest(s objstore.Store) map[objstore.Op]error {
	ctx := context.Background()
	const key, id = "a/b", "0123456789abcdef"
	out := map[objstore.Op]error{}
	_, out[objstore.OpPut] = s.Put(ctx, key, objstore.NewBody([]byte("x")), objstore.PutOptions{})
	_, out[objstore.OpGet] = s.GetRange(ctx, key, 0, make([]byte, 1))
	_, out[objstore.OpHead] = s.Head(ctx, key)
	out[objstore.OpDelete] = s.Delete(ctx, key)
	_, out[objstore.OpList] = s.List(ctx, "a/", "", 10)
	_, out[objstore.OpCreate] = s.CreateUpload(ctx, key, objstore.UploadOptions{})
	_, out[objstore.OpPart] = s.PutPart(ctx, key, id, 1, objstore.NewBody([]byte("x")))
	_, out[objstore.OpComplete] = s.CompleteUpload(ctx, key, id, []objstore.Part{{Number: 1, Size: 1, ETag: "x"}})
	out[objstore.OpAbort] = s.AbortUpload(ctx, key, id)
	_, out[objstore.OpUploads] = s.ListUploads(ctx, key)
	return out
}

// TestAWrongClockIsMadeUpFor: the offset is learned from the refusal, once.
func TestAWrongClockIsMadeUpFor(t *testing.T) {
	srv := s3test.Start(t, s3test.Options{})
	o := options(t, srv)
	o.now = func() time.Time { return time.Now().Add(-2 * time.Hour) }
	s := open(t, o)
	report, err := objstore.CheckTarget(context.Background(), s)
	require.NoError(t, err)
	require.InDelta(t, 2*time.Hour, report.ClockOffset, float64(5*time.Minute))
	require.Contains(t, strings.Join(report.Warnings, "\n"), "this machine's clock differs from the store's by "+report.ClockOffset.String()+": set it")
}

// TestStatement41ANewCredentialIsUsed when the store refuses the old one.
func TestStatement41ANewCredentialIsUsed(t *testing.T) {
	srv := s3test.Start(t, s3test.Options{})
	o := options(t, srv)
	o.Credentials = keyFile(t, s3test.AccessKey, "old")
	s := open(t, o)
	put := func() error {
		_, err := s.Put(context.Background(), "a", objstore.NewBody([]byte("x")), objstore.PutOptions{})
		return err
	}
	require.Equal(t, objstore.KindCredentials, objstore.KindOf(put()))
	require.NoError(t, os.WriteFile(o.Credentials.File, []byte(`{"access_key":"`+s3test.AccessKey+`","secret_key":"`+s3test.SecretKey+`"}`), 0o600))
	require.NoError(t, put())
}

func TestSettingsAreChecked(t *testing.T) {
	ok := Options{Endpoint: "https://host", Bucket: "bucket", Credentials: Credentials{Source: "env"}}
	s, err := Open(ok)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	for says, change := range map[string]func(*Options){
		`endpoint "host:9000": it is http:// or https:// and a host`: func(o *Options) { o.Endpoint = "host:9000" },
		"nothing follows the host and port":                          func(o *Options) { o.Endpoint = "https://host/bucket" },
		"use https, or set allow_insecure":                           func(o *Options) { o.Endpoint = "http://host" },
		"bucket is empty":                                            func(o *Options) { o.Bucket = "" },
		`checksum "sha1"; crc32c, md5 or none`:                       func(o *Options) { o.Checksum = "sha1" },
		`sse "des"; AES256, aws:kms or aws:kms:KEY`:                  func(o *Options) { o.SSE = "des" },
		"ca_file: open /absent":                                      func(o *Options) { o.CAFile = "/absent" },
		"no credentials: set their source":                           func(o *Options) { o.Credentials.Source = "" },
	} {
		o := ok
		change(&o)
		_, err := Open(o)
		require.ErrorContains(t, err, says)
	}
}
