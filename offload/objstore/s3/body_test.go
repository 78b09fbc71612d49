package s3

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/offload/objstore"
)

// TestABufferIsTheCallersAgain: a server that answers, or a caller that gives up, before the body is sent gets none of what the buffer holds later.
func TestABufferIsTheCallersAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex
	var later []byte // what arrived after the answer
	answered := make(chan struct{})
	var wg sync.WaitGroup
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer wg.Done()
		c, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n")
		<-answered
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		b, _ := io.ReadAll(buf)
		mu.Lock()
		later = append(later, b...)
		mu.Unlock()
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	defer func() { _ = srv.Close(); <-done }()

	s := open(t, Options{Endpoint: "http://" + l.Addr().String(), Bucket: "bucket", AllowInsecure: true, Credentials: keyFile(t, "a", "b")})
	data := make([]byte, 16<<20) // more than any socket takes by itself
	wg.Add(1)
	_, err = s.Put(context.Background(), "a", objstore.NewBody(data), objstore.PutOptions{})
	require.Equal(t, objstore.KindThrottled, objstore.KindOf(err), "%v", err)
	for i := range data {
		data[i] = 0xff // the race detector looks, too
	}
	close(answered)
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	require.Less(t, len(later), len(data))
	require.Equal(t, -1, bytes.IndexByte(later, 0xff), "what came later is what was sent")
}

func TestABodyThatWasTakenBackIsNotRead(t *testing.T) {
	b := &lentBody{r: io.NopCloser(bytes.NewReader([]byte("body")))}
	p := make([]byte, 2)
	n, err := b.Read(p)
	require.NoError(t, err)
	require.Equal(t, "bo", string(p[:n]))
	b.takeBack()
	n, err = b.Read(p)
	require.ErrorIs(t, err, errTakenBack)
	require.Zero(t, n)
	require.NoError(t, b.Close())
	(*lentBody)(nil).takeBack()
}
