package bookie

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/wire"
)

// TestBudgetLanes: ordinary requests leave a tenth for the others, lines are served in order, large requests get the lane.
func TestBudgetLanes(t *testing.T) {
	b := newBudget(1000)
	never := make(chan struct{})
	require.Equal(t, int64(900), b.acquire(900, laneOrdinary, never))
	require.False(t, b.try(1, laneOrdinary))
	require.True(t, b.try(100, laneReserved))
	require.False(t, b.try(1, laneReserved))
	order := make(chan string, 3)
	var wg sync.WaitGroup
	wait := func(name string, n int64, l lane) {
		wg.Go(func() {
			b.acquire(n, l, never)
			order <- name
		})
	}
	wait("first", 500, laneOrdinary)
	require.Eventually(t, func() bool { return b.nWaiting.Load() == 1 }, 30*time.Second, time.Millisecond)
	wait("second", 10, laneOrdinary)
	require.Eventually(t, func() bool { return b.nWaiting.Load() == 2 }, 30*time.Second, time.Millisecond)
	require.True(t, b.pressed())
	wait("reserved", 50, laneReserved)
	require.Eventually(t, func() bool { return b.nWaiting.Load() == 3 }, 30*time.Second, time.Millisecond)
	b.release(60)
	require.Equal(t, "reserved", <-order)
	b.release(300)
	require.Equal(t, int32(2), b.nWaiting.Load(), "the first in line is too large, and nobody passes it")
	b.release(600)
	wg.Wait()
	require.ElementsMatch(t, []string{"first", "second"}, []string{<-order, <-order})
	require.Equal(t, int64(1000-60-300-600+50+500+10), b.used.Load())

	b = newBudget(1000)
	require.Equal(t, int64(900), b.acquire(5000, laneOrdinary, never), "clipped to the lane")
	cancel := make(chan struct{})
	got := make(chan int64)
	go func() { got <- b.acquire(10, laneOrdinary, cancel) }()
	require.Eventually(t, b.pressed, 30*time.Second, time.Millisecond)
	close(cancel)
	require.Zero(t, <-got)
	require.False(t, b.pressed())
	b.add(500) // an answer that was larger than thought
	require.False(t, b.try(1, laneReserved))
	b.release(1400)
	require.Zero(t, b.used.Load())
}

func (s *server) used() int64 {
	used, _, _ := s.inFlight()
	return used
}

func (s *server) allowed() int64 {
	_, limit, _ := s.inFlight()
	return limit
}

func TestBudgetStress(t *testing.T) {
	b := newBudget(1000)
	var held, most atomic.Int64
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			cancel := make(chan struct{})
			for i := range 2000 {
				n := b.acquire(int64(1+(g*31+i*7)%400), lane(g%2), cancel)
				if h := held.Add(n); h > most.Load() {
					most.Store(h)
				}
				held.Add(-n)
				b.release(n)
			}
		})
	}
	wg.Wait()
	require.Zero(t, b.used.Load())
	require.Zero(t, b.nWaiting.Load())
	require.LessOrEqual(t, most.Load(), int64(1000))
}

// A peer that does not read its answers is not read any more, holds a bounded number of bytes, and is cut in the end.
func TestSlowClient(t *testing.T) {
	b := startBookie(t, bookieConfig{mod: func(o *Options) { o.SlowClientTimeout = 4 * time.Second }})
	c := b.dial()
	payload := string(make([]byte, 200<<10))
	for e := range int64(10) {
		c.add(1, e, payload)
	}
	slow := b.dial()
	require.NoError(t, slow.c.(*net.TCPConn).SetReadBuffer(4<<10))
	req := encode(t, wire.Request{Op: wire.OpRead, Ledger: 1, Entry: 3})
	for range 500 { // 100 MB of answers
		slow.write(req)
	}
	require.Eventually(t, func() bool { return b.srv.used() > 1<<20 }, 30*time.Second, time.Millisecond)
	most := int64(0)
	for range 50 {
		most = max(most, b.srv.used())
		require.Equal(t, wire.OK, c.read(wire.V2, 1, 1).Code, "others are served")
		time.Sleep(10 * time.Millisecond)
	}
	require.LessOrEqual(t, most, connOutHigh+int64(b.o.ReadWorkers+1)*(210<<10)+500*readOverhead+bufLarge)
	require.Eventually(t, func() bool { return b.srv.m.slowClosed.Load() == 1 }, 30*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { return b.srv.used() <= 2*bufSmall+1<<20 }, 30*time.Second, 10*time.Millisecond)
	require.Contains(t, b.logs.String(), "does not read its answers")
	require.Equal(t, wire.OK, c.read(wire.V2, 1, 1).Code)
}

// Many stuck peers together stay within the budget, and those that read are served.
func TestManySlowClients(t *testing.T) {
	b := startBookie(t, bookieConfig{mod: func(o *Options) { o.InFlightBytes = 4 << 20; o.SlowClientTimeout = 4 * time.Second }})
	c := b.dial()
	for e := range int64(10) {
		c.add(1, e, string(make([]byte, 100<<10)))
	}
	req := encode(t, wire.Request{Op: wire.OpRead, Ledger: 1, Entry: 3})
	for range 30 {
		slow := b.dial()
		require.NoError(t, slow.c.(*net.TCPConn).SetReadBuffer(4<<10))
		for range 60 { // 6 MB of answers each
			slow.write(req)
		}
	}
	limit := b.o.InFlightBytes + 30*(110<<10) + int64(b.o.ReadWorkers)*(110<<10) // one answer each, when the budget is full
	most := int64(0)
	for start := time.Now(); time.Since(start) < 2*time.Second; {
		most = max(most, b.srv.used())
		require.Equal(t, wire.OK, c.read(wire.V2, 1, 1).Code)
		c.add(2, most, "adds are taken again as soon as somebody is cut")
	}
	require.LessOrEqual(t, most, limit)
	require.Eventually(t, func() bool { return b.srv.m.slowClosed.Load() == 30 }, 30*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { return b.srv.used() <= bufLarge }, 30*time.Second, 10*time.Millisecond)
}

// Peers that stop in the middle of a large frame keep nobody from sending large frames, or small ones.
func TestPartOfALargeFrame(t *testing.T) {
	b := startBookie(t, bookieConfig{mod: func(o *Options) {
		o.InFlightBytes = 4 << 20
		o.Storage.WriteCacheBytes = 32 << 20
	}})
	frame := encode(t, addReq(wire.V2, 1, 0, -1, string(make([]byte, 3<<20))))
	for range 2 { // room for one: each is cut in its turn
		go func(c *client) { _, _ = c.c.Write(frame[:len(frame)/2]) }(b.dial())
	}
	require.Eventually(t, b.srv.frames.pressed, 30*time.Second, time.Millisecond)
	small, large := b.dial(), b.dial()
	for e := range int64(50) {
		small.add(2, e, "x")
	}
	go func() { _, _ = large.c.Write(encode(t, addReq(wire.V2, 3, 0, -1, string(make([]byte, 2<<20))))) }()
	require.Equal(t, wire.OK, large.recv(wire.V2).Code)
	require.EqualValues(t, 2, b.srv.m.slowClosed.Load())
}

// Many peers that send large frames at the same time, piece by piece, all get through with room for one frame.
func TestLargeFramesTakeTurns(t *testing.T) {
	b := startBookie(t, bookieConfig{mod: func(o *Options) {
		o.InFlightBytes = 4 << 20
		o.Storage.WriteCacheBytes = 32 << 20
	}})
	var clients []*client
	for i := range int64(12) {
		c := b.dial()
		clients = append(clients, c)
		frame := encode(t, addReq(wire.V2, i, 0, -1, string(make([]byte, 900<<10))))
		go func() {
			for len(frame) > 0 {
				n := min(len(frame), 100<<10)
				if _, err := c.c.Write(frame[:n]); err != nil {
					return
				}
				frame = frame[n:]
				time.Sleep(time.Millisecond)
			}
		}()
	}
	for _, c := range clients {
		require.Equal(t, wire.OK, c.recv(wire.V2).Code)
	}
	require.Zero(t, b.srv.m.slowClosed.Load())
	require.Eventually(t, func() bool { return b.srv.used() == 0 }, 30*time.Second, time.Millisecond)
}

// Peers that ask for much and crawl do not stop adds; they are cut when others wait for the room of their answers.
func TestCrawlingReaders(t *testing.T) {
	b := startBookie(t, bookieConfig{mod: func(o *Options) { o.InFlightBytes = 4 << 20 }})
	c := b.dial()
	for e := range int64(10) {
		c.add(1, e, string(make([]byte, 100<<10)))
	}
	req := bytes.Repeat(encode(t, wire.Request{Op: wire.OpRead, Ledger: 1, Entry: 3}), 4000)
	done := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(done)
	for range 30 {
		slow := b.dial()
		require.NoError(t, slow.c.(*net.TCPConn).SetReadBuffer(4<<10))
		go func() { _, _ = slow.c.Write(req) }()
		wg.Go(func() {
			one := make([]byte, 1)
			for {
				select {
				case <-done:
					return
				case <-time.After(10 * time.Millisecond):
				}
				if _, err := slow.c.Read(one); err != nil {
					return
				}
			}
		})
	}
	for e := range int64(200) {
		c.add(2, e, string(make([]byte, 10<<10)))
	}
	require.LessOrEqual(t, b.srv.budget.used.Load(), 2*b.srv.budget.limit[laneReserved].Load())
}

// A peer that reads slowly, but reads, gets everything.
func TestSlowReaderGetsEverything(t *testing.T) {
	b := startBookie(t, bookieConfig{mod: func(o *Options) { o.InFlightBytes = 1 << 20 }})
	b.dial().add(1, 0, string(make([]byte, 50<<10)))
	c := b.dial()
	const n = 400
	req := encode(t, wire.Request{Op: wire.OpRead, Ledger: 1})
	go func() {
		for range n {
			_, _ = c.c.Write(req)
		}
	}()
	for i := range n {
		require.Equal(t, wire.OK, c.recv(wire.V2).Code)
		if i%20 == 0 {
			time.Sleep(20 * time.Millisecond)
		}
	}
	require.Eventually(t, func() bool { return b.srv.used() == 0 }, 30*time.Second, time.Millisecond)
}

// TestReservedLane (decision 18): with the budget full of adds that the disk does not take, fences and reads get through.
func TestReservedLane(t *testing.T) {
	fs := newStallFS(newMemFS(), "/journal/")
	b := startBookie(t, bookieConfig{fs: fs, mod: func(o *Options) { o.InFlightBytes = 2 << 20 }})
	b.dial().add(1, 0, "x")
	b.dial().add(2, 0, "x")
	fs.stall(true)
	defer fs.stall(false)
	payload := string(make([]byte, 20<<10))
	var clients []*client
	for range 4 {
		c := b.dial()
		clients = append(clients, c)
		go func() {
			for e := int64(1); e <= 60; e++ {
				if _, err := c.c.Write(encode(t, addReq(wire.V2, 1, e, e-1, payload))); err != nil {
					return
				}
			}
		}()
	}
	require.Eventually(t, b.srv.budget.pressed, 30*time.Second, time.Millisecond)
	used := b.srv.used()
	require.LessOrEqual(t, used, b.o.InFlightBytes)
	require.Equal(t, wire.OK, b.dial().read(wire.V2, 1, 0).Code, "a read")
	f := b.dial()
	f.write(encode(t, wire.Request{Op: wire.OpRead, Ledger: 2, Entry: -1, Flags: wire.Fence, Key: keyK}))
	require.Eventually(t, func() bool { return b.srv.fences.has(2) }, 30*time.Second, time.Millisecond, "the fence is set and on its way to the disk")
	f.silent(50 * time.Millisecond)
	r := addReq(wire.V2, 1, 100, 0, "recovery")
	r.Flags = wire.RecoveryAdd
	rc := b.dial()
	rc.write(encode(t, r))
	require.Eventually(t, func() bool { return b.dial().read(wire.V2, 1, 100).Code == wire.OK }, 30*time.Second, 10*time.Millisecond)
	fs.stall(false)
	require.Equal(t, wire.OK, f.recv(wire.V2).Code)
	require.Equal(t, wire.OK, rc.recv(wire.V2).Code)
	for _, c := range clients {
		for range 60 {
			require.Equal(t, wire.OK, c.recv(wire.V2).Code)
		}
	}
	require.Eventually(t, func() bool { return b.srv.used() == 0 || !b.srv.budget.pressed() }, 30*time.Second, time.Millisecond)
}

// Connections that have gone idle hold no buffers, and nothing is left in the budget.
func TestIdleConnectionsAreCheap(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	var clients []*client
	for i := range 50 {
		c := b.dial()
		clients = append(clients, c)
		for e := range int64(20) {
			c.write(encode(t, addReq(wire.V2, int64(i), e, e-1, string(make([]byte, 5000)))))
		}
		for range 20 {
			require.Equal(t, wire.OK, c.recv(wire.V2).Code)
		}
		require.Equal(t, wire.OK, c.read(wire.V2, int64(i), 3).Code)
	}
	require.Eventually(t, func() bool { return b.srv.used() == 0 }, 30*time.Second, time.Millisecond)
	require.Equal(t, int64(50), b.srv.m.connections.Load())
	for _, c := range clients {
		_ = c.c.Close()
	}
	require.Eventually(t, func() bool { return b.srv.m.connections.Load() == 0 }, 30*time.Second, time.Millisecond)
}

// A client that goes away in the middle leaves nothing behind.
func TestAbandonedConnections(t *testing.T) {
	fs := newStallFS(newMemFS(), "/journal/")
	b := startBookie(t, bookieConfig{fs: fs})
	b.dial().add(1, 0, "x")
	fs.stall(true)
	defer fs.stall(false)
	for i := range 20 {
		c := b.dial()
		for e := range int64(30) {
			c.write(encode(t, addReq(wire.V2, int64(i)+10, e, e-1, string(make([]byte, 3000)))))
		}
		c.write(encode(t, wire.Request{Op: wire.OpRead, Ledger: 1, Entry: -1, Flags: wire.Fence, Key: keyK}))
		c.write([]byte{0, 1, 0, 0, 2, 1})
		if i%2 == 0 {
			_ = c.c.(*net.TCPConn).SetLinger(0)
		}
		require.Eventually(t, func() bool { return b.srv.addsInProgress.Load() >= int64(i) }, 30*time.Second, time.Millisecond)
		_ = c.c.Close()
	}
	fs.stall(false)
	require.Eventually(t, func() bool {
		return b.srv.used() == 0 && b.srv.addsInProgress.Load() == 0 && b.srv.m.connections.Load() <= 1
	}, 30*time.Second, time.Millisecond)
	require.Equal(t, wire.OK, b.dial().read(wire.V2, 1, 0).Code)
}

// Frames larger than any buffer of the pools arrive whole, in both forms, with small ones around them.
func TestLargeFrames(t *testing.T) {
	b := startBookie(t, bookieConfig{mod: func(o *Options) { o.Storage.WriteCacheBytes = 64 << 20 }})
	c := b.dial()
	sizes := []int{10, 300 << 10, 20, 4<<20 + 1, 5 << 20, 30, 256<<10 - 64, 4096, 32 << 10}
	go func() {
		for e, n := range sizes {
			_, _ = c.c.Write(encode(t, addReq(wire.V2, 1, int64(e), -1, string(make([]byte, n)))))
		}
	}()
	for range sizes {
		require.Equal(t, wire.OK, c.recv(wire.V2).Code)
	}
	for e, n := range sizes {
		got, err := crc.Open(c.read(wire.V2, 1, int64(e)).Body, 1, int64(e))
		require.NoError(t, err)
		require.Len(t, got.Payload, n)
	}
	require.Eventually(t, func() bool { return b.srv.used() == 0 }, 30*time.Second, time.Millisecond)
}
