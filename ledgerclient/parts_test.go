package ledgerclient

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/digest"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
	"github.com/binderylog/bindery/ledgerclient/placement"
)

func TestBudgetServesInOrder(t *testing.T) {
	b := newBudget(100)
	require.NoError(t, b.acquire(nil, 80))
	got := make(chan int, 3)
	var wg sync.WaitGroup
	for i, n := range []int64{90, 10, 100} {
		wg.Go(func() {
			if err := b.acquire(context.Background(), n); err != nil {
				t.Error(err)
			}
			got <- i
			b.release(n)
		})
		require.Eventually(t, func() bool { return b.waiting.Load() == int32(i+1) }, 30*time.Second, time.Millisecond)
	}
	require.Empty(t, got, "10 would fit, but it is not its turn")
	b.release(80)
	require.Equal(t, 1, <-got+<-got, "the first two, in either order")
	require.Equal(t, 2, <-got)
	wg.Wait()
	require.Equal(t, int64(100), b.free.Load())

	// Who gives up leaves nothing behind and lets the next one through.
	require.NoError(t, b.acquire(nil, 60))
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan error, 1)
	go func() { gone <- b.acquire(ctx, 100) }()
	require.Eventually(t, func() bool { return b.waiting.Load() == 1 }, 30*time.Second, time.Millisecond)
	next := make(chan error, 1)
	go func() { next <- b.acquire(context.Background(), 40) }()
	require.Eventually(t, func() bool { return b.waiting.Load() == 2 }, 30*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled)
	require.NoError(t, <-next)
	b.release(100)
	require.Equal(t, int64(100), b.free.Load())

	require.NoError(t, b.acquire(nil, 100))
	go func() { gone <- b.acquire(context.Background(), 1) }()
	require.Eventually(t, func() bool { return b.waiting.Load() == 1 }, 30*time.Second, time.Millisecond)
	b.close(ErrClosed)
	require.ErrorIs(t, <-gone, ErrClosed)
	require.ErrorIs(t, b.acquire(context.Background(), 1), ErrClosed)
}

func TestBudgetUnderContention(t *testing.T) {
	b := newBudget(50)
	var used, most atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 1))
			for range 2000 {
				n := 1 + rnd.Int64N(20)
				ctx, cancel := context.WithCancel(context.Background())
				if rnd.IntN(10) == 0 {
					cancel()
				}
				if b.acquire(ctx, n) == nil {
					if u := used.Add(n); u > most.Load() {
						most.Store(u)
					}
					used.Add(-n)
					b.release(n)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.Equal(t, int64(50), b.free.Load())
	require.LessOrEqual(t, most.Load(), int64(50))
	require.Zero(t, b.waiting.Load())
}

type expireFunc func(int64)

func (f expireFunc) expire(now int64) { f(now) }

func TestWheel(t *testing.T) {
	var w wheel
	var fired []int64
	for _, n := range []int64{1, 3, 3, wheelSlots, wheelSlots + 3, 0} {
		w.after(n, expireFunc(func(now int64) { fired = append(fired, now) }))
	}
	for range wheelSlots + 10 {
		w.advance()
	}
	require.Equal(t, []int64{1, 1, 3, 3, wheelSlots, wheelSlots + 3}, fired)
	require.Equal(t, int64(1), ticks(time.Millisecond))
	require.Equal(t, int64(20), ticks(time.Second))
}

func TestChoosePicks(t *testing.T) {
	view := func(state string) []placement.Bookie {
		var v []placement.Bookie
		for i, s := range state {
			v = append(v, placement.Bookie{ID: BookieID(string(rune('A' + i))), ReadOnly: s == 'r', Quarantined: s == 'q'})
		}
		return v
	}
	ensemble := []BookieID{"A", "B", "C"}
	two := ledger.IndexSet(0).With(1).With(2)
	picks, ok := choosePicks(view("+qq++"), ensemble, two, false)
	require.True(t, ok)
	require.ElementsMatch(t, []BookieID{"D", "E"}, []BookieID{picks[0].Bookie, picks[1].Bookie})
	// One spare for two; B has come back, C has not.
	picks, ok = choosePicks(view("++q+"), ensemble, two, false)
	require.True(t, ok, "%v", picks)
	picks, ok = choosePicks(view("+qqrq"), ensemble, two, false)
	require.False(t, ok)
	require.Equal(t, []ledger.Pick{{Index: 1}, {Index: 2}}, picks)
	picks, ok = choosePicks(view("+qqrq"), ensemble, two, true)
	require.True(t, ok)
	require.Equal(t, []ledger.Pick{{Index: 1, Bookie: "B"}, {Index: 2, Bookie: "C"}}, picks, "in despair, those that are there")
	require.Equal(t, two, placed(picks))
}

// TestC56DigestOfAnySlice: payloads of all sizes, taken from the middle of a larger array, pipelined: what arrives is
// sealed over exactly those bytes.
func TestC56DigestOfAnySlice(t *testing.T) {
	ctx := testContext(t)
	for _, typ := range []DigestType{DigestCRC32, DigestHMAC, DigestCRC32C, DigestDummy} {
		c := newCluster(t, 3)
		client, _ := c.client()
		w, err := client.Create(ctx, CreateOptions{Digest: typ, Password: []byte("pw")})
		require.NoError(t, err)
		array := make([]byte, 70000)
		for i := range array {
			array[i] = byte(i * 7)
		}
		sizes := []int{0, 1, 3, 31, 32, 33, 4095, 4096, 65535, 2}
		var wg sync.WaitGroup
		for i, n := range sizes {
			wg.Add(1)
			w.AppendAsync(array[i:i+n], func(_ EntryID, err error) {
				defer wg.Done()
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		d, err := digest.New(typ, []byte("pw"))
		require.NoError(t, err)
		total := int64(0)
		for i, n := range sizes {
			total += int64(n)
			l := c.bookies[0].ledger(int64(w.ID()))
			require.Eventually(t, func() bool { _, has := c.bookies[0].holds(w.ID(), EntryID(i)); return has }, 30*time.Second, time.Millisecond)
			l.mu.Lock()
			body := l.entries[int64(i)]
			l.mu.Unlock()
			lac := int64(binary.BigEndian.Uint64(body[16:]))
			require.Less(t, lac, int64(i))
			want := d.Seal(nil, int64(w.ID()), int64(i), lac, total, array[i:i+n/2], array[i+n/2:i+n])
			require.True(t, bytes.Equal(want, body), "%v entry %d of %d bytes", typ, i, n)
		}
		require.NoError(t, w.Close(ctx))
	}
}

// TestC53ZeroLengthEntries: empty payloads first, in the middle and last.
func TestC53ZeroLengthEntries(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	for i := range 9 {
		id, err := w.Append(ctx, bytes.Repeat([]byte{'z'}, i%4*5%15))
		require.NoError(t, err)
		require.Equal(t, EntryID(i), id)
	}
	other, _ := c.client()
	r, err := other.Open(ctx, w.ID(), OpenOptions{Recover: true})
	require.NoError(t, err)
	require.Equal(t, EntryID(8), r.LastAddConfirmed())
	n := 0
	for e, err := range r.Entries(ctx, 0, 8) {
		require.NoError(t, err)
		require.Len(t, e.Data, n%4*5%15)
		n++
	}
	require.Equal(t, 9, n)
}

// TestConnKeepsFramesWhole: several goroutines send frames of all sizes over one connection whose peer reads in fits, so
// that direct writes are cut short and the sender takes over in the middle of a frame.
func TestConnKeepsFramesWhole(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	type seen struct{ from, n uint32 }
	got := make(chan seen, 100000)
	go func() {
		defer close(got)
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		_ = nc.(*net.TCPConn).SetReadBuffer(16 << 10)
		first := true
		for n := 0; ; n++ {
			if n%100 == 0 {
				time.Sleep(5 * time.Millisecond)
			}
			var head [4]byte
			if _, err := io.ReadFull(nc, head[:]); err != nil {
				return
			}
			body := make([]byte, binary.BigEndian.Uint32(head[:]))
			if _, err := io.ReadFull(nc, body); err != nil {
				return
			}
			if first { // the greeting
				first = false
				_, _ = nc.Write(wire.AppendResponse(nil, &wire.Response{Proto: wire.V3, Op: wire.OpBookieInfo}))
				continue
			}
			from, no := binary.BigEndian.Uint32(body), binary.BigEndian.Uint32(body[4:])
			for _, x := range body[8:] {
				if x != byte(from) {
					t.Errorf("foreign byte in frame %d of %d", no, from)
					return
				}
			}
			got <- seen{from, no}
		}
	}()
	c := newCluster(t, 1)
	client, _ := c.client()
	client.dial = func(ctx context.Context, _ string) (net.Conn, error) {
		nc, err := netDial(ctx, ln.Addr().String())
		if err == nil {
			_ = nc.(*net.TCPConn).SetWriteBuffer(16 << 10)
		}
		return nc, err
	}
	conn := client.peer("b0").conn(wire.V2)
	const senders, frames = 4, 300
	var wg sync.WaitGroup
	for s := range uint32(senders) {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(s), 5))
			for n := range uint32(frames) {
				size := 8 + rnd.IntN(2000)
				if rnd.IntN(50) == 0 {
					size = 14000
				}
				f := newFrame(size + 4)
				f.b = f.b[:size+4]
				binary.BigEndian.PutUint32(f.b, uint32(size))
				binary.BigEndian.PutUint32(f.b[4:], s)
				binary.BigEndian.PutUint32(f.b[8:], n)
				for i := range f.b[12:] {
					f.b[12+i] = byte(s)
				}
				if !conn.enqueue(f) {
					t.Error("connection died")
					return
				}
				if rnd.IntN(4) == 0 {
					time.Sleep(time.Duration(rnd.IntN(100)) * time.Microsecond)
				}
			}
		})
	}
	wg.Wait()
	next := make([]uint32, senders)
	for range senders * frames {
		select {
		case x, ok := <-got:
			require.True(t, ok)
			require.Equal(t, next[x.from], x.n, "frames of one sender keep their order")
			next[x.from]++
		case <-time.After(time.Minute):
			t.Fatal("frames are missing")
		}
	}
	conn.fail(errors.New("test is over"))
}

// TestChaos: bookies come and go and misbehave at random while one writer writes; then the writer dies, and recovery must
// find everything that was acknowledged. The seed is part of the name.
func TestChaos(t *testing.T) {
	seeds := 6
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(seed), 99))
			q := []Quorum{quorum(3, 3, 2), quorum(3, 2, 2), quorum(4, 3, 2)}[seed%3]
			c := newCluster(t, 7)
			client, _ := c.client(func(o *Options) {
				o.AddTimeout, o.Quarantine = 300*time.Millisecond, 200*time.Millisecond
			})
			ctx := testContext(t)
			w, err := client.Create(ctx, CreateOptions{Quorum: q})
			require.NoError(t, err)
			stop := make(chan struct{})
			var monkey sync.WaitGroup
			monkey.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(20+rnd.IntN(60)) * time.Millisecond):
					}
					b := c.bookies[rnd.IntN(len(c.bookies))]
					switch rnd.IntN(4) {
					case 0:
						b.stop()
						time.Sleep(time.Duration(rnd.IntN(100)) * time.Millisecond)
						b.start(t)
						c.register(b, false)
					case 1:
						code := []wire.Code{wire.IO, wire.TooMany, wire.ReadOnly}[rnd.IntN(3)]
						b.setFault(func(r *wire.Request) fault {
							return fault{act: r.Op == wire.OpAdd && r.Entry%7 == 3, code: code, after: true}
						})
					case 2:
						b.setFault(func(r *wire.Request) fault { return fault{drop: r.Op == wire.OpAdd && r.Entry%11 == 5} })
					case 3:
						for _, x := range c.bookies {
							x.setFault(nil)
						}
					}
				}
			})
			var acked atomic.Int64
			acked.Store(-1)
			var wg sync.WaitGroup
			room := make(chan struct{}, 32)
			for e, end := EntryID(0), time.Now().Add(800*time.Millisecond); time.Now().Before(end); e++ {
				if e%100 == 0 {
					time.Sleep(time.Millisecond)
				}
				room <- struct{}{}
				wg.Add(1)
				w.AppendAsync(payload(e), func(id EntryID, err error) {
					defer wg.Done()
					<-room
					if err != nil {
						return
					}
					if int64(id) != acked.Load()+1 {
						t.Errorf("acked %d after %d", id, acked.Load())
					}
					acked.Store(int64(id))
				})
			}
			require.NoError(t, client.Close())
			wg.Wait()
			close(stop)
			monkey.Wait()
			for _, b := range c.bookies {
				b.setFault(nil)
			}
			other, _ := c.client()
			r, err := other.Open(ctx, w.ID(), OpenOptions{Recover: true})
			require.NoError(t, err)
			require.GreaterOrEqual(t, int64(r.LastAddConfirmed()), acked.Load())
			readAll(t, r, 0, r.LastAddConfirmed())
			c.checkStored(w.ID(), r.LastAddConfirmed())
			t.Logf("acked %d, closed at %d, %d fragments", acked.Load(), r.LastAddConfirmed(), len(c.record(w.ID()).Fragments))
		})
	}
}
