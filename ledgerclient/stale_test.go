package ledgerclient

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/wire"
	"github.com/binderylog/bindery/ledgerclient/placement"
)

// heldConn passes what a bookie answers on frame by frame; frames that hold wants wait for release.
type heldConn struct {
	net.Conn
	in   *io.PipeReader
	once sync.Once
}

func holdFrames(nc net.Conn, hold func(packet []byte) bool, release <-chan struct{}) net.Conn {
	r, w := io.Pipe()
	go func() {
		var mu sync.Mutex
		var wg sync.WaitGroup
		defer wg.Wait()
		pass := func(f []byte) error {
			mu.Lock()
			defer mu.Unlock()
			_, err := w.Write(f)
			return err
		}
		for {
			frame := make([]byte, wire.LengthSize)
			_, err := io.ReadFull(nc, frame)
			if err == nil {
				size, serr := wire.FrameSize(frame, 1<<20)
				if err = serr; err == nil {
					frame = append(frame, make([]byte, size-wire.LengthSize)...)
					_, err = io.ReadFull(nc, frame[wire.LengthSize:])
				}
			}
			if err != nil {
				_ = w.CloseWithError(err)
				return
			}
			if hold(frame[wire.LengthSize:]) {
				wg.Go(func() {
					<-release
					_ = pass(frame)
				})
			} else if pass(frame) != nil {
				return
			}
		}
	}()
	return &heldConn{Conn: nc, in: r}
}

func (c *heldConn) Read(b []byte) (int, error) { return c.in.Read(b) }

func (c *heldConn) Close() error {
	c.once.Do(func() { _ = c.in.Close() })
	return c.Conn.Close()
}

// attachClient is cluster.client with a dial function.
func (c *cluster) attachClient(dial DialFunc) *Client {
	c.t.Helper()
	store := c.tree.Open()
	views, err := metadata.LoadViews(context.Background(), store, metadata.DefaultRoot)
	require.NoError(c.t, err)
	client, err := Attach(store, views, &Options{AddTimeout: 20 * time.Second, ReadTimeout: 15 * time.Second, MetadataTimeout: 30 * time.Second, Logger: quietLogger()}, dial)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestStaleAnswerAfterReturn: a bookie answers an add, is replaced before the answer arrives, loses everything, and is chosen
// anew. The answer of its former life is no acknowledgement of what it is sent in this one.
func TestStaleAnswerAfterReturn(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	spare := c.addBookie("spare")
	x := c.bookies[2]
	release := make(chan struct{})
	defer func() {
		select {
		case <-release:
		default:
			close(release)
		}
	}()
	var dials atomic.Int64
	client := c.attachClient(func(ctx context.Context, addr string) (net.Conn, error) {
		nc, err := netDial(ctx, addr)
		if err != nil || addr != x.addr {
			return nc, err
		}
		dials.Add(1)
		return holdFrames(nc, func(p []byte) bool {
			var r wire.Response
			return p[0] == byte(wire.V2) && wire.DecodeResponse(wire.V2, p, &r) == nil && r.Op == wire.OpAdd && r.Code == wire.OK && r.Entry == 1
		}, release), nil
	})
	c.register(spare, true) // not chosen at first
	w, err := client.Create(ctx, CreateOptions{Quorum: quorum(3, 3, 3)})
	require.NoError(t, err)
	_, err = w.Append(ctx, payload(0))
	require.NoError(t, err)
	before := dials.Load()

	// x acknowledges entry 1, which nobody hears, and refuses entry 2: the spare takes its place.
	x.setFault(func(r *wire.Request) fault {
		return fault{act: r.Op == wire.OpAdd && r.Entry == 2, code: wire.ReadOnly}
	})
	c.register(spare, false)
	require.Eventually(t, func() bool {
		list, err := client.Candidates(ctx)
		return err == nil && slices.ContainsFunc(list, func(b placement.Bookie) bool { return b.ID == "spare" && !b.ReadOnly })
	}, 30*time.Second, time.Millisecond)
	var back atomic.Bool
	spare.setFault(func(r *wire.Request) fault {
		if r.Op != wire.OpAdd {
			return fault{}
		}
		if !back.Swap(true) { // x is emptied, and free to be chosen when the spare refuses in its turn
			x.wipe()
			x.setFault(func(r *wire.Request) fault { return fault{drop: r.Op == wire.OpAdd} })
			client.peer(x.id).pardon()
		}
		return fault{act: true, code: wire.ReadOnly}
	})
	w.AppendAsync(payload(1), func(EntryID, error) {})
	w.AppendAsync(payload(2), func(EntryID, error) {})
	require.Eventually(t, func() bool {
		return back.Load() && slices.Contains(c.record(w.ID()).Last().Bookies, x.id)
	}, 30*time.Second, time.Millisecond)
	close(release)
	require.Eventually(t, func() bool { return dials.Load() > before }, 30*time.Second, time.Millisecond, "x is talked to over another connection")
	require.Never(t, func() bool { return w.LastAddConfirmed() > 0 }, 300*time.Millisecond, 5*time.Millisecond, "x holds nothing now")
}

// TestReadAfterPartition: a read that nobody can answer does not wait out a pause that began before the network was whole.
func TestReadAfterPartition(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	var cut atomic.Bool
	client := c.attachClient(func(ctx context.Context, addr string) (net.Conn, error) {
		if cut.Load() {
			return nil, errors.New("no route to host")
		}
		return netDial(ctx, addr)
	})
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 9)
	require.NoError(t, w.Close(ctx))
	open, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, open, 0, 9)
	r, err := client.Open(ctx, w.ID(), OpenOptions{})
	require.NoError(t, err)
	for range 3 {
		cut.Store(true)
		for _, b := range c.bookies {
			for _, x := range client.peer(b.id).conns {
				if x != nil {
					x.fail(errConnClosed)
				}
			}
			<-client.peer(b.id).conn(wire.V2).dead // the attempt that the pause counts from
			<-client.peer(b.id).conn(wire.V3).dead
		}
		for range r.Entries(ctx, 0, 9) { // fails, and may fail again: nobody is there
			break
		}
		for _, b := range c.bookies {
			p := client.peer(b.id)
			p.mu.Lock()
			p.failedAt, p.lastErr = time.Now().Add(time.Minute), errConnClosed // a machine that is slow does not spend the pause elsewhere
			p.mu.Unlock()
		}
		cut.Store(false)
		readAll(t, r, 0, 9)
		_, err := client.Open(ctx, open.ID(), OpenOptions{}) // asks for the LAC
		require.NoError(t, err)
	}
}
