package s3

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/offload/objstore"
)

// requests makes one request of each kind.
func requests(s *Store) map[objstore.Op]func(context.Context) error {
	body := objstore.NewBody(bytes.Repeat([]byte("x"), 1<<20))
	return map[objstore.Op]func(context.Context) error{
		objstore.OpPut: func(ctx context.Context) error {
			_, err := s.Put(ctx, "k", body, objstore.PutOptions{IfAbsent: true})
			return err
		},
		objstore.OpGet: func(ctx context.Context) error {
			_, err := s.GetRange(ctx, "k", 0, make([]byte, 4096))
			return err
		},
		objstore.OpHead:   func(ctx context.Context) error { _, err := s.Head(ctx, "k"); return err },
		objstore.OpDelete: func(ctx context.Context) error { return s.Delete(ctx, "k") },
		objstore.OpList:   func(ctx context.Context) error { _, err := s.List(ctx, "k", "", 10); return err },
		objstore.OpCreate: func(ctx context.Context) error {
			_, err := s.CreateUpload(ctx, "k", objstore.UploadOptions{})
			return err
		},
		objstore.OpPart: func(ctx context.Context) error { _, err := s.PutPart(ctx, "k", "id", 1, body); return err },
		objstore.OpComplete: func(ctx context.Context) error {
			_, err := s.CompleteUpload(ctx, "k", "id", []objstore.Part{{Number: 1, Size: 9, ETag: "e"}})
			return err
		},
		objstore.OpAbort:   func(ctx context.Context) error { return s.AbortUpload(ctx, "k", "id") },
		objstore.OpUploads: func(ctx context.Context) error { _, err := s.ListUploads(ctx, "k"); return err },
	}
}

// talker is a server that does with a connection whatever a test likes, once a request's head has arrived or without waiting for it.
func talker(t *testing.T, talk func(c net.Conn, ended <-chan struct{})) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test's own listener
	require.NoError(t, err)
	ended, all := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(all)
		var open []chan struct{}
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			done := make(chan struct{})
			open = append(open, done)
			go func() {
				defer close(done)
				defer c.Close()
				talk(c, ended)
			}()
		}
		for _, d := range open {
			<-d
		}
	}()
	t.Cleanup(func() { close(ended); _ = l.Close(); <-all })
	return "http://" + l.Addr().String()
}

// head reads a request's head, and throws away what follows in the background of the connection's buffer.
func head(c net.Conn) bool {
	b, one := []byte{}, make([]byte, 1)
	for !bytes.HasSuffix(b, []byte("\r\n\r\n")) && len(b) < 1<<16 {
		if _, err := c.Read(one); err != nil {
			return false
		}
		b = append(b, one[0])
	}
	return true
}

// TestHalfSilentServers: whatever a server does not say, each request ends with its deadline, and none is taken for done or for "not there".
func TestHalfSilentServers(t *testing.T) {
	ok := "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 4096\r\n\r\n"
	trickle := func(c net.Conn, ended <-chan struct{}, text string) {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i = (i + 1) % len(text) {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			if _, err := io.WriteString(c, text[i:i+1]); err != nil {
				return
			}
		}
	}
	for name, talk := range map[string]func(c net.Conn, ended <-chan struct{}){
		"accepts":           func(_ net.Conn, ended <-chan struct{}) { <-ended },
		"reads":             func(c net.Conn, ended <-chan struct{}) { head(c); <-ended },
		"begins the head":   func(c net.Conn, ended <-chan struct{}) { head(c); _, _ = io.WriteString(c, ok[:20]); <-ended },
		"stops in the body": func(c net.Conn, ended <-chan struct{}) { head(c); _, _ = io.WriteString(c, ok+"<x>"); <-ended },
		"trickles the head": func(c net.Conn, ended <-chan struct{}) {
			head(c)
			trickle(c, ended, "HTTP/1.1 200 OK\r\nA: aaaaaaaaaaa\r\n")
		},
		"trickles the body": func(c net.Conn, ended <-chan struct{}) { head(c); _, _ = io.WriteString(c, ok); trickle(c, ended, " ") },
		"trickles a refusal": func(c net.Conn, ended <-chan struct{}) {
			head(c)
			_, _ = io.WriteString(c, strings.Replace(ok, "200 OK", "404 Not Found", 1))
			trickle(c, ended, " ")
		},
		"closes in the head": func(c net.Conn, _ <-chan struct{}) { head(c); _, _ = io.WriteString(c, ok[:20]) },
		"closes in the body": func(c net.Conn, _ <-chan struct{}) { head(c); _, _ = io.WriteString(c, ok+"<x>") },
		"closes at once":     func(net.Conn, <-chan struct{}) {},
	} {
		t.Run(name, func(t *testing.T) {
			url := talker(t, talk)
			s := open(t, Options{Endpoint: url, Bucket: "bucket", AllowInsecure: true, Credentials: keyFile(t, "a", "s")})
			for op, send := range requests(s) {
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				err := send(ctx)
				cancel()
				require.Less(t, time.Since(start), 20*time.Second, "%s", op)
				if err != nil {
					require.Contains(t, []objstore.Kind{objstore.KindCanceled, objstore.KindTransient, objstore.KindUnreachable, objstore.KindSize}, objstore.KindOf(err), "%s: %v", op, err)
					continue
				}
				// The head of an answer is all that these wait for.
				require.Contains(t, []string{"stops in the body", "trickles the body", "closes in the body"}, name, "%s", op)
				require.Contains(t, []objstore.Op{objstore.OpPut, objstore.OpPart, objstore.OpHead, objstore.OpDelete, objstore.OpAbort}, op)
			}
		})
	}
}

// TestEndlessAnswersAreRefused: what the library reads whole has a bound.
func TestEndlessAnswersAreRefused(t *testing.T) {
	var sent atomic.Int64
	chunk := bytes.Repeat([]byte("<Contents><Key>k</Key></Contents>"), 1000)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", `"e"`)
		_, _ = io.WriteString(w, "<ListBucketResult>")
		for sent.Load() < 512<<20 {
			n, err := w.Write(chunk)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}))
	defer srv.Close()
	s := open(t, Options{Endpoint: srv.URL, Bucket: "bucket", AllowInsecure: true, Credentials: keyFile(t, "a", "s")})
	for op, send := range requests(s) {
		if op == objstore.OpHead || op == objstore.OpGet {
			continue
		}
		sent.Store(0)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // it is not about speed
		err := send(ctx)
		require.NoError(t, ctx.Err())
		cancel()
		switch op {
		case objstore.OpComplete: // its library looks at what it could read
			require.True(t, objstore.Unclear(err), "%s: %v", op, err)
		case objstore.OpList, objstore.OpUploads, objstore.OpCreate:
			require.Equal(t, objstore.KindForeign, objstore.KindOf(err), "%s: %v", op, err)
			require.ErrorContains(t, err, "an answer of more than")
		}
		require.Less(t, sent.Load(), int64(128<<20), "%s", op)
	}
}

// TestASilentCredentialServiceHoldsNobodyUp while the credential that is to be renewed still holds.
func TestASilentCredentialServiceHoldsNobodyUp(t *testing.T) {
	ended, fetched := make(chan struct{}), make(chan struct{})
	now := time.Now()
	k := &keyring{now: func() time.Time { return now }, cur: secret{accessKey: "old", secretKey: "s", expires: now.Add(time.Minute)}, have: true}
	k.fetch = func(context.Context) (secret, error) {
		<-ended
		close(fetched)
		return secret{}, fmt.Errorf("gone")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := k.get(ctx)
	require.NoError(t, err)
	require.Equal(t, "old", got.accessKey)
	require.NoError(t, ctx.Err(), "there is time left for the request")
	close(ended)
	<-fetched
}
