package s3

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/faultproxy"
	"github.com/binderylog/bindery/offload/objstore/objstoretest"
	"github.com/binderylog/bindery/offload/objstore/s3test"
)

// wired is a bucket behind a fault proxy.
func wired(t *testing.T, sum Checksum) (*Store, *faultproxy.Proxy, *s3test.Server) {
	t.Helper()
	srv := s3test.Start(t, s3test.Options{})
	proxy := faultproxy.Start(t, srv.URL)
	o := options(t, srv)
	o.Endpoint, o.Checksum = proxy.URL, sum
	return open(t, o), proxy, srv
}

func put(s objstore.Store, key string, data []byte) error {
	_, err := s.Put(context.Background(), key, objstore.NewBody(data), objstore.PutOptions{})
	return err
}

func stored(t *testing.T, srv *s3test.Server, key string) ([]byte, bool) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(srv.Dir, "data", s3test.Bucket, key))
	if os.IsNotExist(err) {
		return nil, false
	}
	require.NoError(t, err)
	return b, true
}

// TestStatement32Wire: each way in which a read can go wrong has the kind that the table of answers gives it.
func TestStatement32Wire(t *testing.T) {
	s, proxy, _ := wired(t, CRC32C)
	require.NoError(t, put(s, "a", objstoretest.Bytes(1, 10_000)))
	for _, c := range []struct {
		name  string
		fault faultproxy.Fault
		kind  objstore.Kind
	}{
		{"truncated", faultproxy.CutReply(5000), objstore.KindTransient},
		{"empty", faultproxy.CutReply(0), objstore.KindTransient},
		{"longer than announced", faultproxy.WrongLength(-1), objstore.KindSize},
		{"shorter than announced", faultproxy.WrongLength(1), objstore.KindSize},
		{"404", faultproxy.Refuse(404, "NoSuchKey"), objstore.KindNotFound},
		{"404 of a proxy", faultproxy.HTML(404), objstore.KindForeign},
		{"403", faultproxy.Refuse(403, "AccessDenied"), objstore.KindDenied},
		{"416", faultproxy.Refuse(416, "InvalidRange"), objstore.KindRange},
		{"503", faultproxy.Refuse(503, "SlowDown"), objstore.KindThrottled},
		{"429", faultproxy.Refuse(429, "TooManyRequests"), objstore.KindThrottled},
		{"500", faultproxy.Refuse(500, "InternalError"), objstore.KindTransient},
		{"502 of a proxy", faultproxy.HTML(502), objstore.KindTransient},
		{"reset", faultproxy.Reset(), objstore.KindTransient},
		{"archived", faultproxy.Refuse(403, "InvalidObjectState"), objstore.KindArchived},
		{"ended token", faultproxy.Refuse(400, "ExpiredToken"), objstore.KindExpired},
	} {
		t.Run(c.name, func(t *testing.T) {
			proxy.Set(faultproxy.On("GET", faultproxy.Always(c.fault)))
			before := len(proxy.Requests())
			_, err := s.GetRange(context.Background(), "a", 100, make([]byte, 9000))
			require.Equal(t, c.kind, objstore.KindOf(err), "%v", err)
			require.False(t, objstore.Unclear(err), "a read changes nothing")
			most := 1
			if c.name == "reset" { // the pool takes it for a connection that was idle for too long
				most = 2
			}
			require.LessOrEqual(t, len(proxy.Requests())-before, most, "one request, whatever comes")
		})
	}
	for _, f := range []faultproxy.Fault{faultproxy.Hang(), faultproxy.Delay(time.Hour)} {
		proxy.Set(faultproxy.Always(f))
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		_, err := s.GetRange(ctx, "a", 0, make([]byte, 1))
		cancel()
		require.Equal(t, objstore.KindCanceled, objstore.KindOf(err), "%v", err)
	}
	proxy.Set(faultproxy.On("GET", faultproxy.Always(faultproxy.FlipReply(8))))
	got := make([]byte, 10)
	_, err := s.GetRange(context.Background(), "a", 0, got)
	require.NoError(t, err, "of a part of an object the store has no checksum: the block has its own")
	require.NotEqual(t, objstoretest.Bytes(1, 10_000)[:10], got)
}

// TestUnclearWrites: what may have been done says so, what was not does not.
func TestUnclearWrites(t *testing.T) {
	s, proxy, srv := wired(t, CRC32C)
	for _, c := range []struct {
		name            string
		fault           faultproxy.Fault
		kind            objstore.Kind
		unclear, stored bool
	}{
		{"lost reply", faultproxy.LoseReply(), objstore.KindTransient, true, true},
		{"cut request", faultproxy.CutRequest(5000), objstore.KindTransient, true, false},
		{"500", faultproxy.Refuse(500, "InternalError"), objstore.KindTransient, true, false},
		{"503", faultproxy.Refuse(503, "SlowDown"), objstore.KindThrottled, false, false},
		{"507", faultproxy.Refuse(507, "QuotaExceeded"), objstore.KindFull, false, false},
		{"412", faultproxy.Refuse(412, "PreconditionFailed"), objstore.KindExists, false, false},
		{"409", faultproxy.Refuse(409, "ConditionalRequestConflict"), objstore.KindExists, false, false},
	} {
		proxy.Set(faultproxy.On("PUT", faultproxy.Nth(1, c.fault)))
		key := "w/" + c.name
		err := put(s, key, objstoretest.Bytes(1, 10_000))
		require.Equal(t, c.kind, objstore.KindOf(err), "%s: %v", c.name, err)
		require.Equal(t, c.unclear, objstore.Unclear(err), c.name)
		_, there := stored(t, srv, key)
		require.Equal(t, c.stored, there, c.name)
	}
}

// TestStatement40 flips a bit of what is sent, and cuts it: with a checksum nothing damaged is ever stored, and what was there stays.
func TestStatement40(t *testing.T) {
	ctx := context.Background()
	data := objstoretest.Bytes(2, objstore.PartMin)
	for _, sum := range []Checksum{CRC32C, MD5} {
		t.Run(string(sum), func(t *testing.T) {
			s, proxy, srv := wired(t, sum)
			require.NoError(t, put(s, "old", []byte("what was there")))
			for _, f := range []faultproxy.Fault{faultproxy.FlipRequest(0), faultproxy.FlipRequest(8*objstore.PartMin - 1), faultproxy.FlipRequest(12_345_677)} {
				proxy.Set(faultproxy.On("PUT", faultproxy.Always(f)))
				for _, key := range []string{"old", "new"} {
					err := put(s, key, data)
					require.Equal(t, objstore.KindChecksum, objstore.KindOf(err), "%v", err)
				}
			}
			proxy.Set(faultproxy.On("PUT", faultproxy.Always(faultproxy.CutRequest(1<<20))))
			require.Equal(t, objstore.KindTransient, objstore.KindOf(put(s, "old", data)))
			proxy.Set(nil)
			have, _ := stored(t, srv, "old")
			require.Equal(t, "what was there", string(have))
			_, there := stored(t, srv, "new")
			require.False(t, there)

			id, err := s.CreateUpload(ctx, "up", objstore.UploadOptions{})
			require.NoError(t, err)
			for _, f := range []faultproxy.Fault{faultproxy.FlipRequest(99), faultproxy.CutRequest(1 << 20)} {
				proxy.Set(faultproxy.On("PUT", faultproxy.Nth(1, f), "partNumber=1"))
				_, err = s.PutPart(ctx, "up", id, 1, objstore.NewBody(data))
				require.Error(t, err)
			}
			// Statement 19: the part is sent again, whatever the store would list.
			p1, err := s.PutPart(ctx, "up", id, 1, objstore.NewBody(data))
			require.NoError(t, err)
			p2, err := s.PutPart(ctx, "up", id, 2, objstore.NewBody([]byte("end")))
			require.NoError(t, err)
			_, err = s.CompleteUpload(ctx, "up", id, []objstore.Part{p1, p2})
			require.NoError(t, err)
			have, _ = stored(t, srv, "up")
			require.Equal(t, objstore.CRC32C(append(data, "end"...)), objstore.CRC32C(have))
		})
	}
	t.Run("none", func(t *testing.T) { // what the check warns of
		s, proxy, srv := wired(t, None)
		proxy.Set(faultproxy.On("PUT", faultproxy.Always(faultproxy.FlipRequest(0))))
		require.NoError(t, put(s, "flipped", data))
		have, there := stored(t, srv, "flipped")
		require.True(t, there)
		require.NotEqual(t, objstore.CRC32C(data), objstore.CRC32C(have))
		info, err := s.Head(ctx, "flipped")
		require.NoError(t, err)
		require.False(t, info.HasCRC32C)

		proxy.Set(faultproxy.On("PUT", faultproxy.Always(faultproxy.CutRequest(1<<20))))
		err = put(s, "cut", data)
		require.True(t, objstore.Unclear(err), "%v", err)
		if have, there = stored(t, srv, "cut"); there { // some servers keep what came
			require.LessOrEqual(t, len(have), len(data))
		}
	})
}

// TestBodiesAreNotFramed: over plain http the body goes out as it is, with its checksum in a header, and is not signed in chunks.
func TestBodiesAreNotFramed(t *testing.T) {
	s, proxy, srv := wired(t, CRC32C)
	require.NoError(t, put(s, "a", []byte("body")))
	id, err := s.CreateUpload(context.Background(), "b", objstore.UploadOptions{})
	require.NoError(t, err)
	p, err := s.PutPart(context.Background(), "b", id, 1, objstore.NewBody([]byte("body")))
	require.NoError(t, err)
	_, err = s.CompleteUpload(context.Background(), "b", id, []objstore.Part{p})
	require.NoError(t, err)
	for _, r := range proxy.Requests() {
		require.Empty(t, r.Header.Get("Content-Encoding"), "%s %s", r.Method, r.Path)
		require.Empty(t, r.Header.Get("X-Amz-Trailer"))
		if r.Method == http.MethodPut {
			require.EqualValues(t, 4, r.Length)
			require.Equal(t, unsignedPayload, r.Header.Get("X-Amz-Content-Sha256"))
			require.Equal(t, encodeCRC(objstore.CRC32C([]byte("body"))), r.Header.Get(headerCRC))
		}
	}
	for _, key := range []string{"a", "b"} {
		have, _ := stored(t, srv, key)
		require.Equal(t, "body", string(have))
	}
	require.Len(t, proxy.Requests(), 4, "no request that was not asked for: no look-up of a region, no retry")
}

// TestStatement39S3ThroughFaults runs the whole suite while one request in twenty is refused or cut off before the server sees it.
func TestStatement39S3ThroughFaults(t *testing.T) {
	srv := s3test.Start(t, s3test.Options{})
	proxy := faultproxy.Start(t, srv.URL)
	slow, reset := faultproxy.Rate(1, 0.03, faultproxy.Refuse(503, "SlowDown")), faultproxy.Rate(2, 0.02, faultproxy.Reset())
	proxy.Set(func(r faultproxy.Request) faultproxy.Fault {
		if f := slow(r); f != (faultproxy.Fault{}) {
			return f
		}
		return reset(r)
	})
	objstoretest.Run(t, func(t *testing.T) objstore.Store {
		o := options(t, srv)
		o.Endpoint = proxy.URL
		s, err := Open(o)
		require.NoError(t, err)
		can := s.Capabilities()
		can.Nested = false
		target := objstore.NewTarget(s, objstore.TargetOptions{ID: "t1", RetryBase: time.Millisecond, RetryMax: 10})
		target.SetCapabilities(can)
		return target
	})
	require.Positive(t, proxy.Injected())
}

// TestALostReplyToAComplete (K5): the second complete is told that there is no such upload; the object says that it is done.
func TestALostReplyToAComplete(t *testing.T) {
	ctx := context.Background()
	s, proxy, _ := wired(t, CRC32C)
	target := objstore.NewTarget(s, objstore.TargetOptions{ID: "t1", RetryBase: time.Millisecond})
	id, err := target.CreateUpload(ctx, "a", objstore.UploadOptions{})
	require.NoError(t, err)
	p, err := target.PutPart(ctx, "a", id, 1, objstore.NewBody([]byte("body")))
	require.NoError(t, err)
	proxy.Set(faultproxy.On("POST", faultproxy.Nth(1, faultproxy.LoseReply()), "uploadId"))
	_, err = target.CompleteUpload(ctx, "a", id, []objstore.Part{p})
	require.NoError(t, err)
	require.Equal(t, 1, proxy.Injected())
	proxy.Set(faultproxy.On("POST", faultproxy.Nth(1, faultproxy.Refuse(200, "InternalError")), "uploadId"))
	id, err = target.CreateUpload(ctx, "b", objstore.UploadOptions{})
	require.NoError(t, err)
	p, err = target.PutPart(ctx, "b", id, 1, objstore.NewBody([]byte("body")))
	require.NoError(t, err)
	_, err = target.CompleteUpload(ctx, "b", id, []objstore.Part{p})
	require.NoError(t, err, "an error in an answer of status 200 is an error, and tried again")
	_, err = target.Head(ctx, "b")
	require.NoError(t, err)
}

// TestStatement33CancelledReads leave no goroutine (TestMain looks) and no connection in use.
func TestStatement33CancelledReads(t *testing.T) {
	s, proxy, _ := wired(t, CRC32C)
	require.NoError(t, put(s, "a", objstoretest.Bytes(1, 1<<20)))
	proxy.Set(faultproxy.On("GET", faultproxy.Always(faultproxy.Hang())))
	for range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		_, err := s.GetRange(ctx, "a", 0, make([]byte, 1<<20))
		cancel()
		require.Equal(t, objstore.KindCanceled, objstore.KindOf(err), "%v", err)
	}
	proxy.Set(nil)
	_, err := s.GetRange(context.Background(), "a", 0, make([]byte, 1<<20))
	require.NoError(t, err)
}
