package s3

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/objstoretest"
	"github.com/binderylog/bindery/offload/objstore/s3test"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keyFile writes a credential.
func keyFile(t *testing.T, access, secretKey string) Credentials {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"access_key": "`+access+`", "secret_key": "`+secretKey+`"}`), 0o600))
	return Credentials{Source: "file", File: path}
}

// options of a bucket of the server.
func options(t *testing.T, srv *s3test.Server) Options {
	t.Helper()
	return Options{Endpoint: srv.URL, Region: s3test.Region, Bucket: s3test.Bucket, AllowInsecure: true, CAFile: srv.CAFile,
		Credentials: keyFile(t, s3test.AccessKey, s3test.SecretKey)}
}

// declared is a store whose server is known to do less than S3's own.
type declared struct {
	objstore.Store
	can objstore.Capabilities
}

func (d declared) Capabilities() objstore.Capabilities { return d.can }

func open(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestStatement39S3(t *testing.T) {
	for _, c := range []struct {
		name string
		o    s3test.Options
		sum  Checksum
	}{{"http", s3test.Options{}, CRC32C}, {"https", s3test.Options{TLS: true}, CRC32C}, {"http md5", s3test.Options{}, MD5}} {
		t.Run(c.name, func(t *testing.T) {
			srv := s3test.Start(t, c.o)
			objstoretest.Run(t, func(t *testing.T) objstore.Store {
				o := options(t, srv)
				o.Checksum = c.sum
				s := open(t, o)
				can := s.Capabilities()
				can.Nested = false // a gateway over files
				return declared{s, can}
			})
		})
	}
}

// TestStatement39ExternalServer runs the same suite against a server that somebody else runs: BINDERY_S3_ENDPOINT names it, BINDERY_S3_BUCKET an
// empty bucket of it that is for this test alone, BINDERY_S3_REGION its region if it is not the usual one; the key is in
// BINDERY_S3_ACCESS_KEY_ID and BINDERY_S3_SECRET_ACCESS_KEY. Without them it is a server of the test's own.
func TestStatement39ExternalServer(t *testing.T) {
	if os.Getenv("BINDERY_S3_ENDPOINT") == "" {
		srv := s3test.Start(t, s3test.Options{})
		for name, value := range map[string]string{
			"ENDPOINT": srv.URL, "REGION": s3test.Region, "BUCKET": s3test.Bucket, "ACCESS_KEY_ID": s3test.AccessKey, "SECRET_ACCESS_KEY": s3test.SecretKey,
		} {
			t.Setenv("BINDERY_S3_"+name, value)
		}
	}
	objstoretest.Run(t, func(t *testing.T) objstore.Store {
		s := open(t, Options{Endpoint: os.Getenv("BINDERY_S3_ENDPOINT"), Region: os.Getenv("BINDERY_S3_REGION"), Bucket: os.Getenv("BINDERY_S3_BUCKET"), AllowInsecure: true,
			Credentials: Credentials{Source: "env", EnvPrefix: "BINDERY_S3"}})
		report, err := objstore.CheckTarget(t.Context(), s)
		require.NoError(t, err)
		return declared{s, report.Capabilities}
	})
}
