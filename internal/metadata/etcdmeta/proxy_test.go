package etcdmeta

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/metadatatest"
)

// proxy stands between a client and etcd. It can swallow what etcd answers, and cut connections.
type proxy struct {
	l  net.Listener
	to string
	wg sync.WaitGroup

	mu      sync.Mutex
	swallow bool
	conns   []net.Conn
}

func newProxy(t *testing.T, to string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{l: l, to: to}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, in, out)
		p.mu.Unlock()
		p.wg.Go(func() { _, _ = io.Copy(out, in); _ = out.Close() })
		p.wg.Go(func() {
			defer in.Close()
			b := make([]byte, 32<<10)
			for {
				n, err := out.Read(b)
				if err != nil {
					return
				}
				p.mu.Lock()
				silent := p.swallow
				p.mu.Unlock()
				if silent {
					continue
				}
				if _, err := in.Write(b[:n]); err != nil {
					return
				}
			}
		})
	}
}

func (p *proxy) setSwallow(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallow = on
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// TestAnswerLost sends a write whose answer never arrives: the time-out and the broken connection alike leave its outcome
// unknown, and it did happen.
func TestAnswerLost(t *testing.T) {
	e := startEtcd(t, t.TempDir())
	direct := openStore(t, e, Options{})
	defer direct.Close()
	for _, tc := range []struct {
		name string
		cut  bool
	}{{"timeout", false}, {"connection cut", true}} {
		t.Run(tc.name, func(t *testing.T) {
			p := newProxy(t, e.Endpoints()[0])
			s, err := Open(context.Background(), Options{Endpoints: []string{p.l.Addr().String()}, Timeout: 30 * time.Second})
			require.NoError(t, err)
			defer s.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 800*time.Millisecond)
			defer cancel()
			p.setSwallow(true)
			if tc.cut {
				ctx = context.Background()
				go func() {
					// once the write is there, the connection breaks
					wctx, wcancel := context.WithTimeout(context.Background(), time.Minute)
					defer wcancel()
					for ev := range direct.Watch(wctx, "/answer/"+tc.name) {
						if ev.Kind == metadata.EventPut {
							break
						}
					}
					p.cut()
				}()
			}
			_, err = s.Put(ctx, "/answer/"+tc.name, []byte("x"), metadata.Absent)
			require.ErrorIs(t, err, metadata.ErrUnknownOutcome)
			require.NotErrorIs(t, err, metadata.ErrUnavailable)
			require.Eventually(t, func() bool {
				kv, err := direct.Get(context.Background(), "/answer/"+tc.name)
				return err == nil && string(kv.Value) == "x"
			}, 30*time.Second, 10*time.Millisecond)

			// The typed view finds out by itself what became of a creation.
			p.setSwallow(false)
			p.cut()
			l := metadata.NewLedgers(s, "/answer-"+tc.name)
			_, err = s.Get(context.Background(), "/answer/"+tc.name)
			require.NoError(t, err)
			p.setSwallow(true)
			time.AfterFunc(200*time.Millisecond, func() { p.setSwallow(false); p.cut() })
			v, err := l.Create(context.Background(), 7, metadatatest.Record())
			require.NoError(t, err)
			_, rv, err := l.Read(context.Background(), 7)
			require.NoError(t, err)
			require.Equal(t, v, rv)
		})
	}
}
