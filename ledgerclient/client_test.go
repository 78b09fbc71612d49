package ledgerclient

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/wire"
)

func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv(bookiesEnv)); err == nil {
		if err := serveBookies(n); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func quietLogger() *slog.Logger {
	if os.Getenv("BINDERY_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func quorum(e, w, a int) Quorum { return Quorum{Ensemble: e, Write: w, Ack: a} }

// payload is the content of entry e in tests; sizes vary, the third is empty.
func payload(e EntryID) []byte {
	n := int(e*37) % 300
	if e == 2 {
		n = 0
	}
	return bytes.Repeat([]byte{byte(e), byte(e >> 8), 'x'}, n)
}

// readAll reads a range and checks every payload.
func readAll(t testing.TB, r *Reader, first, last EntryID) {
	t.Helper()
	next := first
	for e, err := range r.Entries(testContext(t), first, last) {
		require.NoError(t, err)
		require.Equal(t, next, e.ID)
		require.True(t, bytes.Equal(payload(e.ID), e.Data), "entry %d", e.ID)
		next++
	}
	require.Equal(t, last+1, next)
}

func TestWriteAndReadBack(t *testing.T) {
	for _, q := range []Quorum{quorum(3, 3, 2), quorum(3, 2, 2), quorum(5, 3, 2), quorum(1, 1, 1), quorum(2, 1, 1)} {
		for _, d := range []DigestType{DigestCRC32C, DigestHMAC, DigestCRC32, DigestDummy} {
			t.Run(fmt.Sprintf("E%d/Qw%d/Qa%d/%v", q.Ensemble, q.Write, q.Ack, d), func(t *testing.T) {
				ctx := testContext(t)
				c := newCluster(t, q.Ensemble)
				client, _ := c.client()
				w, err := client.Create(ctx, CreateOptions{Quorum: q, Digest: d, Password: []byte("pw")})
				require.NoError(t, err)
				for e := range EntryID(20) {
					id, err := w.Append(ctx, payload(e))
					require.NoError(t, err)
					require.Equal(t, e, id)
					require.Equal(t, e, w.LastAddConfirmed())
				}
				var wg sync.WaitGroup
				for e := EntryID(20); e < 500; e++ {
					wg.Add(1)
					w.AppendAsync(payload(e), func(id EntryID, err error) {
						defer wg.Done()
						require.NoError(t, err)
						require.Equal(t, e, id)
					})
				}
				wg.Wait()
				// An open ledger is readable up to the LAC that its bookies know.
				open, err := client.Open(ctx, w.ID(), OpenOptions{Password: []byte("pw")})
				require.NoError(t, err)
				require.GreaterOrEqual(t, open.LastAddConfirmed(), EntryID(0))
				readAll(t, open, 0, open.LastAddConfirmed())
				require.NoError(t, open.Close())

				require.NoError(t, w.Close(ctx))
				require.NoError(t, w.Close(ctx))
				m := c.record(w.ID())
				require.Equal(t, StateClosed, m.State)
				require.Equal(t, EntryID(499), m.LastEntry)
				require.Equal(t, w.Length(), m.Length)
				c.checkStored(w.ID(), 499)
				r, err := client.Open(ctx, w.ID(), OpenOptions{Password: []byte("pw")})
				require.NoError(t, err)
				require.True(t, r.Sealed())
				require.Equal(t, EntryID(499), r.LastAddConfirmed())
				readAll(t, r, 0, 499)
				readAll(t, r, 123, 321)
				for range r.Entries(ctx, 500, 600) {
					t.Fatal("nothing lies beyond the end")
				}
				for range r.Entries(ctx, 0, 499) { // stopping early leaves nothing behind
					break
				}
				require.NoError(t, r.Close())
				for _, err := range r.Entries(ctx, 0, 10) {
					require.ErrorIs(t, err, ErrClosed)
				}
				_, err = w.Append(ctx, nil)
				require.ErrorIs(t, err, ErrClosed)
			})
		}
	}
}

func TestPasswords(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{Password: []byte("secret")})
	require.NoError(t, err)
	_, err = w.Append(ctx, payload(0))
	require.NoError(t, err)
	_, err = client.Open(ctx, w.ID(), OpenOptions{})
	require.ErrorIs(t, err, ErrUnauthorized)
	_, err = client.Open(ctx, w.ID(), OpenOptions{Password: []byte("wrong"), Recover: true})
	require.ErrorIs(t, err, ErrUnauthorized)
	require.Equal(t, StateOpen, c.record(w.ID()).State)
	r, err := client.Open(ctx, w.ID(), OpenOptions{Admin: true, Recover: true})
	require.NoError(t, err)
	readAll(t, r, 0, 0)
}

func TestDeleteAndList(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client()
	var ids []LedgerID
	for range 5 {
		w, err := client.Create(ctx, CreateOptions{})
		require.NoError(t, err)
		ids = append(ids, w.ID())
		require.NoError(t, w.Close(ctx))
	}
	require.NoError(t, client.Delete(ctx, ids[2]))
	require.ErrorIs(t, client.Delete(ctx, ids[2]), ErrNoSuchLedger)
	_, err := client.Open(ctx, ids[2], OpenOptions{})
	require.ErrorIs(t, err, ErrNoSuchLedger)
	_, err = client.Metadata(ctx, ids[2])
	require.ErrorIs(t, err, ErrNoSuchLedger)
	var listed []LedgerID
	for id, err := range client.Ledgers(ctx) {
		require.NoError(t, err)
		listed = append(listed, id)
	}
	require.Equal(t, []LedgerID{ids[0], ids[1], ids[3], ids[4]}, listed)
	m, err := client.Metadata(ctx, ids[0])
	require.NoError(t, err)
	require.Equal(t, EntryID(-1), m.LastEntry)
	require.Equal(t, "release", string(m.Custom["bindery.tier"]))
	bookies, err := client.Bookies(ctx)
	require.NoError(t, err)
	require.Len(t, bookies, 3)
	require.Equal(t, c.bookies[0].addr, bookies[0].Address)
}

func TestNotEnoughBookies(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 2)
	client, _ := c.client()
	_, err := client.Create(ctx, CreateOptions{})
	require.ErrorIs(t, err, ErrNotEnoughBookies)
	c.addBookie("late")
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	c.register(c.bookies[0], true)
	require.Eventually(t, func() bool {
		_, err := client.Create(ctx, CreateOptions{})
		return err != nil
	}, 30*time.Second, 10*time.Millisecond, "a read-only bookie is not chosen")
	require.NoError(t, w.Close(ctx))
}

func TestCallbacksRunInOrderAndMayAppend(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client(func(o *Options) { o.MaxPendingBytes = 64 << 10; o.MaxFrameBytes = 32 << 10 })
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	const n = 3000
	var next, running atomic.Int64
	done := make(chan struct{})
	var add func(EntryID, error)
	add = func(id EntryID, err error) {
		require.NoError(t, err)
		require.Equal(t, int64(1), running.Add(1), "one at a time")
		require.Equal(t, next.Load(), int64(id), "in entry order")
		if next.Add(1) == 2*n {
			close(done)
		} else if id < n {
			running.Add(-1)
			w.AppendAsync(payload(id), add) // from within a done function, with the budget used up again and again
			running.Add(1)
		}
		running.Add(-1)
	}
	for range n {
		w.AppendAsync(make([]byte, 500), add)
	}
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatalf("stuck after %d", next.Load())
	}
	require.NoError(t, w.Close(ctx))
	require.Equal(t, EntryID(2*n-1), c.record(w.ID()).LastEntry)
}

func TestAppendTooLarge(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client(func(o *Options) { o.MaxFrameBytes = 1 << 20 })
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	_, err = w.Append(ctx, make([]byte, 1<<20))
	require.ErrorIs(t, err, ErrTooLarge)
	big := bytes.Repeat([]byte("b"), 1<<20-400)
	id, err := w.Append(ctx, big)
	require.NoError(t, err)
	_, err = w.Append(ctx, []byte("small"))
	require.NoError(t, err)
	r, err := client.Open(ctx, w.ID(), OpenOptions{Recover: true})
	require.NoError(t, err)
	for e, err := range r.Entries(ctx, id, id) {
		require.NoError(t, err)
		require.True(t, bytes.Equal(big, e.Data))
	}
}

func TestCancelledAppendIsUnknown(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	hold := make(chan struct{})
	for _, b := range c.bookies {
		b.setFault(func(*wire.Request) fault { <-hold; return fault{} })
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err = w.Append(short, payload(0))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "outcome unknown")
	close(hold)
	id, err := w.Append(ctx, payload(1))
	require.NoError(t, err)
	require.Equal(t, EntryID(1), id, "the cancelled entry has its place")
	require.NoError(t, w.Close(ctx))
	r, err := client.Open(ctx, w.ID(), OpenOptions{})
	require.NoError(t, err)
	readAll(t, r, 0, 1)
	gone, cancel2 := context.WithCancel(ctx)
	cancel2()
	_, err = w.Append(gone, nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestClientCloseFailsPendingAdds(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	for _, b := range c.bookies {
		b.setFault(func(r *wire.Request) fault { return fault{drop: r.Op == wire.OpAdd} })
	}
	res := make(chan error, 2)
	go func() {
		_, err := w.Append(ctx, payload(0))
		res <- err
	}()
	w.AppendAsync(payload(1), func(_ EntryID, err error) { res <- err })
	time.Sleep(20 * time.Millisecond)
	require.NoError(t, client.Close())
	require.ErrorIs(t, <-res, ErrClosed)
	require.ErrorIs(t, <-res, ErrClosed)
	require.ErrorIs(t, client.Close(), ErrClosed)
	_, err = w.Append(ctx, nil)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, w.Force(ctx), ErrClosed)
	require.ErrorIs(t, w.Close(ctx), ErrClosed)
	_, err = client.Create(ctx, CreateOptions{})
	require.ErrorIs(t, err, ErrClosed)
	require.Equal(t, StateOpen, c.record(w.ID()).State, "left for recovery")
}

func TestTail(t *testing.T) {
	for _, q := range []Quorum{quorum(3, 3, 2), quorum(4, 2, 2)} {
		t.Run(fmt.Sprintf("E%d/Qw%d", q.Ensemble, q.Write), func(t *testing.T) {
			ctx := testContext(t)
			c := newCluster(t, q.Ensemble)
			client, _ := c.client(func(o *Options) { o.ExplicitLACInterval = 50 * time.Millisecond })
			w, err := client.Create(ctx, CreateOptions{Quorum: q})
			require.NoError(t, err)
			reader, _ := c.client()
			r, err := reader.Open(ctx, w.ID(), OpenOptions{})
			require.NoError(t, err)
			got := make(chan EntryID, 1000)
			done := make(chan error, 1)
			go func() {
				next := EntryID(0)
				for e, err := range r.Tail(ctx, 0) {
					if err != nil || e.ID != next || !bytes.Equal(e.Data, payload(e.ID)) {
						done <- fmt.Errorf("entry %d, want %d: %w", e.ID, next, err)
						return
					}
					next++
					got <- e.ID
				}
				done <- nil
			}()
			for e := range EntryID(50) {
				_, err := w.Append(ctx, payload(e))
				require.NoError(t, err)
			}
			// The last entry becomes visible while the writer is idle, by the explicit LAC.
			for last := EntryID(-1); last < 49; {
				select {
				case last = <-got:
				case err := <-done:
					t.Fatal(err)
				case <-time.After(time.Minute):
					t.Fatalf("the reader is stuck at %d", last)
				}
			}
			_, err = w.Append(ctx, payload(50))
			require.NoError(t, err)
			require.NoError(t, w.Close(ctx))
			require.NoError(t, <-done, "the iteration ends when the ledger is sealed")
			require.Equal(t, EntryID(50), <-got)
		})
	}
}
