package ledgerclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/internal/wire"
)

// appendMany appends entries first..last and waits for all of them.
func appendMany(t testing.TB, w *Writer, first, last EntryID) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make(chan error, int(last-first)+1)
	for e := first; e <= last; e++ {
		wg.Add(1)
		w.AppendAsync(payload(e), func(id EntryID, err error) {
			defer wg.Done()
			if err == nil && id != e {
				err = fmt.Errorf("got id %d, want %d", id, e)
			}
			if err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
}

func sealAndCheck(t testing.TB, c *cluster, w *Writer, last EntryID) {
	t.Helper()
	require.NoError(t, w.Close(testContext(t)))
	m := c.record(w.ID())
	require.Equal(t, StateClosed, m.State)
	require.Equal(t, last, m.LastEntry)
	c.checkStored(w.ID(), last)
	client, _ := c.client()
	r, err := client.Open(testContext(t), w.ID(), OpenOptions{})
	require.NoError(t, err)
	readAll(t, r, 0, last)
}

func TestBookieDies(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 5)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 99)
	for n := range 2 { // two members die one after the other
		victim := c.record(w.ID()).Last().Bookies[n]
		c.bookie(victim).stop()
		first := w.LastAddConfirmed() + 1
		appendMany(t, w, first, first+99)
		require.Eventually(t, func() bool { // the other two may have done all the work before the failure was noticed
			appendMany(t, w, w.LastAddConfirmed()+1, w.LastAddConfirmed()+1)
			return !slices.Contains(c.record(w.ID()).Last().Bookies, victim)
		}, 30*time.Second, time.Millisecond)
	}
	// The dead ones hold what was acknowledged before they died.
	for _, b := range c.bookies {
		if b.ln == nil {
			b.start(t)
		}
	}
	sealAndCheck(t, c, w, w.LastAddConfirmed())
}

func TestBookieDiesUnderLoad(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 6)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{Quorum: quorum(3, 2, 2)})
	require.NoError(t, err)
	var killer sync.WaitGroup
	killer.Go(func() {
		for n := range 3 {
			time.Sleep(30 * time.Millisecond)
			c.bookie(c.record(w.ID()).Last().Bookies[n]).stop()
		}
	})
	last := EntryID(-1)
	for deadline := time.Now().Add(600 * time.Millisecond); time.Now().Before(deadline); last += 50 {
		appendMany(t, w, last+1, last+50)
	}
	killer.Wait()
	require.GreaterOrEqual(t, len(c.record(w.ID()).Fragments), 2)
	for _, b := range c.bookies {
		b.mu.Lock()
		down := b.ln == nil
		b.mu.Unlock()
		if down {
			b.start(t)
		}
	}
	sealAndCheck(t, c, w, last)
}

// TestEachAddError: every answer but OK, silence, and a closed connection lead to another bookie, except those that say
// that the ledger is not ours any more.
func TestEachAddError(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault fault
		fatal error
	}{
		{"IO", fault{act: true, code: wire.IO}, nil},
		{"BadReq", fault{act: true, code: wire.BadReq}, nil},
		{"BadVersion", fault{act: true, code: wire.BadVersion}, nil},
		{"ReadOnly", fault{act: true, code: wire.ReadOnly}, nil},
		{"TooMany", fault{act: true, code: wire.TooMany}, nil},
		{"NoLedger", fault{act: true, code: wire.NoLedger}, nil},
		{"Silent", fault{drop: true}, nil},
		{"HangsUp", fault{close: true}, nil},
		{"Fenced", fault{act: true, code: wire.Fenced}, ErrFenced},
		{"Unauthorized", fault{act: true, code: wire.UA}, ErrUnauthorized},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			c := newCluster(t, 4)
			client, _ := c.client(func(o *Options) {
				if tc.fault.drop {
					o.AddTimeout = 2 * time.Second
				}
			})
			w, err := client.Create(ctx, CreateOptions{})
			require.NoError(t, err)
			appendMany(t, w, 0, 9)
			victim := c.record(w.ID()).Last().Bookies[1]
			c.bookie(victim).setFault(func(r *wire.Request) fault {
				if r.Op == wire.OpAdd {
					return tc.fault
				}
				return fault{}
			})
			if tc.fatal != nil {
				require.Eventually(t, func() bool {
					_, err = w.Append(ctx, payload(10))
					return err != nil
				}, 30*time.Second, time.Millisecond)
				require.ErrorIs(t, err, tc.fatal)
				_, err = w.Append(ctx, nil)
				require.ErrorIs(t, err, tc.fatal)
				// Nobody had begun a recovery, so the writer could close the ledger at what it had confirmed.
				require.NoError(t, w.Close(ctx))
				m := c.record(w.ID())
				require.Equal(t, StateClosed, m.State)
				require.Equal(t, w.LastAddConfirmed(), m.LastEntry)
				return
			}
			appendMany(t, w, 10, 29)
			require.Eventually(t, func() bool {
				_, err := w.Append(ctx, nil)
				require.NoError(t, err)
				return !slices.Contains(c.record(w.ID()).Last().Bookies, victim)
			}, 30*time.Second, 20*time.Millisecond)
			require.NoError(t, w.Close(ctx))
			c.checkStored(w.ID(), w.LastAddConfirmed())
		})
	}
}

// TestDegraded: with no bookie left to take the place of a dead one the writer goes on with an ack quorum, and takes the
// bookie back when it has registered anew.
func TestDegraded(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 49)
	b := c.bookies[1]
	b.stop()
	appendMany(t, w, 50, 99)
	require.Len(t, c.record(w.ID()).Fragments, 1, "the record needs no change")
	b.start(t)
	c.register(b, false)
	next := EntryID(100)
	require.Eventually(t, func() bool {
		appendMany(t, w, next, next)
		next++
		_, back := b.holds(w.ID(), next-1)
		return back
	}, 30*time.Second, 50*time.Millisecond)
	sealAndCheck(t, c, w, next-1)
}

// TestAllBookiesVanishForAMoment: the writer's own network is cut. It rides it out.
func TestAllBookiesVanishForAMoment(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 9)
	for _, b := range c.bookies {
		b.stop()
	}
	time.AfterFunc(300*time.Millisecond, func() {
		for _, b := range c.bookies {
			b.start(t)
		}
	})
	appendMany(t, w, 10, 19)
	sealAndCheck(t, c, w, 19)
}

// TestAllBookiesGone: the writer gives up with an error that says which bookie did what, and closes at what it had.
func TestAllBookiesGone(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 9)
	for _, b := range c.bookies {
		b.stop()
	}
	_, err = w.Append(ctx, payload(10))
	require.ErrorIs(t, err, ErrNotEnoughBookies)
	var q *QuorumError
	require.ErrorAs(t, err, &q)
	require.Equal(t, 2, q.Need)
	var be *BookieError
	require.ErrorAs(t, err, &be)
	require.NoError(t, w.Close(ctx))
	require.Equal(t, EntryID(9), c.record(w.ID()).LastEntry)
}

// TestC63RegisteredButUnreachable: bookies that nobody can reach are registered. A writer gets over each of them once, and
// the record does not fill with fragments.
func TestC63RegisteredButUnreachable(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 4)
	for i := range 6 {
		ghost := c.addBookie(fmt.Sprintf("ghost%d", i))
		ghost.stop()
	}
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 199)
	m := c.record(w.ID())
	require.LessOrEqual(t, len(m.Fragments), 2, "nothing was confirmed before the ensemble worked: %s", describeRecord(m))
	for _, b := range m.Last().Bookies {
		require.NotContains(t, string(b), "ghost")
	}
	// The next ledger avoids them from the start.
	w2, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w2, 0, 9)
	require.LessOrEqual(t, len(c.record(w2.ID()).Fragments), 2)
	sealAndCheck(t, c, w, 199)
}

// TestC59BookieMoves: the same bookie id at a new address is found; an address that answers for another bookie is refused.
func TestC59BookieMoves(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 9)
	b, old := c.bookies[0], c.bookies[0].addr
	b.stop()
	// Somebody else takes the old address.
	impostor := newFakeBookie("impostor")
	impostor.addr = old
	impostor.start(t)
	defer impostor.stop()
	appendMany(t, w, 10, 19)
	b.addr = ""
	b.start(t)
	require.NotEqual(t, old, b.addr)
	c.register(b, false)
	next := EntryID(20)
	require.Eventually(t, func() bool {
		appendMany(t, w, next, next)
		next++
		_, back := b.holds(w.ID(), next-1)
		return back
	}, 30*time.Second, 20*time.Millisecond)
	require.Zero(t, impostor.adds.Load(), "nothing was sent to the wrong bookie")
	sealAndCheck(t, c, w, next-1)
}

func TestFencedBySecondClient(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 99)
	other, _ := c.client()
	r, err := other.Open(ctx, w.ID(), OpenOptions{Recover: true})
	require.NoError(t, err)
	require.Equal(t, EntryID(99), r.LastAddConfirmed())
	readAll(t, r, 0, 99)
	_, err = w.Append(ctx, payload(100))
	require.ErrorIs(t, err, ErrFenced)
	m := c.record(w.ID())
	require.Equal(t, EntryID(99), m.LastEntry)
	require.Equal(t, w.Length(), m.Length)
	// It ended where this writer would have ended it, unless a late answer told the writer while the end was being agreed.
	if err := w.Close(ctx); err != nil {
		require.ErrorIs(t, err, ErrFenced)
	}
}

// TestFencedWhileWriting: recovery strikes in the middle of a stream. Whatever was reported as done is in the ledger.
func TestFencedWhileWriting(t *testing.T) {
	for _, q := range []Quorum{quorum(3, 3, 2), quorum(4, 2, 2), quorum(3, 3, 3)} {
		t.Run(fmt.Sprintf("E%dQw%dQa%d", q.Ensemble, q.Write, q.Ack), func(t *testing.T) {
			ctx := testContext(t)
			c := newCluster(t, 5)
			client, _ := c.client()
			w, err := client.Create(ctx, CreateOptions{Quorum: q})
			require.NoError(t, err)
			var acked atomic.Int64
			acked.Store(-1)
			stopped := make(chan error, 1)
			go func() {
				var failed atomic.Bool
				var wg sync.WaitGroup
				var first error
				room := make(chan struct{}, 64)
				for e := EntryID(0); !failed.Load(); e++ {
					room <- struct{}{}
					if e%50 == 0 {
						time.Sleep(time.Millisecond)
					}
					wg.Add(1)
					w.AppendAsync(payload(e), func(id EntryID, err error) {
						defer wg.Done()
						<-room
						if err == nil {
							acked.Store(int64(id))
						} else if !failed.Swap(true) {
							first = err
						}
					})
				}
				wg.Wait()
				stopped <- first
			}()
			time.Sleep(50 * time.Millisecond)
			recoverers := make(chan *Reader, 3)
			for range 3 { // several at once
				other, _ := c.client()
				go func() {
					r, err := other.Open(ctx, w.ID(), OpenOptions{Recover: true})
					if err != nil {
						t.Error(err)
					}
					recoverers <- r
				}()
			}
			require.ErrorIs(t, <-stopped, ErrFenced)
			for range 3 {
				r := <-recoverers
				require.NotNil(t, r)
				require.True(t, r.Sealed())
				require.GreaterOrEqual(t, int64(r.LastAddConfirmed()), acked.Load(), "an acknowledged entry was cut off")
				require.Equal(t, c.record(w.ID()).LastEntry, r.LastAddConfirmed())
				readAll(t, r, 0, r.LastAddConfirmed())
			}
			c.checkStored(w.ID(), c.record(w.ID()).LastEntry)
			if err := w.Close(ctx); err != nil {
				require.True(t, errors.Is(err, ErrVersionConflict) || errors.Is(err, ErrFenced), "%v", err)
			}
		})
	}
}

// TestRecoveryAfterWriterDeath: the writer's client is gone with adds under way, one bookie holds entries that the others
// lack, one is dead, and recovery has to replace it.
func TestRecoveryAfterWriterDeath(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 5)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 49)
	ensemble := c.record(w.ID()).Last().Bookies
	// From here on only the first bookie takes adds.
	for _, b := range ensemble[1:] {
		c.bookie(b).setFault(func(r *wire.Request) fault { return fault{drop: r.Op == wire.OpAdd && r.Flags&wire.RecoveryAdd == 0} })
	}
	for e := EntryID(50); e < 80; e++ {
		w.AppendAsync(payload(e), func(EntryID, error) {})
	}
	require.Eventually(t, func() bool { _, has := c.bookie(ensemble[0]).holds(w.ID(), 79); return has }, 30*time.Second, time.Millisecond)
	require.NoError(t, client.Close())
	// The second one answers fences and reads but refuses what recovery writes back.
	c.bookie(ensemble[1]).setFault(func(r *wire.Request) fault { return fault{act: r.Op == wire.OpAdd, code: wire.IO} })
	other, _ := c.client()
	r, err := other.Open(ctx, w.ID(), OpenOptions{Recover: true})
	require.NoError(t, err)
	require.GreaterOrEqual(t, r.LastAddConfirmed(), EntryID(49))
	readAll(t, r, 0, r.LastAddConfirmed())
	m := c.record(w.ID())
	require.Equal(t, StateClosed, m.State)
	c.checkStored(w.ID(), m.LastEntry)
	var length int64
	for e := range m.LastEntry + 1 {
		length += int64(len(payload(e)))
	}
	require.Equal(t, length, m.Length)
}

// TestRecoveryReplacesABookie makes sure that the replacement during recovery is stored with the close.
func TestRecoveryReplacesABookie(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 4)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 9)
	ensemble := c.record(w.ID()).Last().Bookies
	for _, b := range ensemble[1:] {
		c.bookie(b).setFault(func(r *wire.Request) fault { return fault{drop: r.Op == wire.OpAdd} })
	}
	w.AppendAsync(payload(10), func(EntryID, error) {})
	require.Eventually(t, func() bool { _, has := c.bookie(ensemble[0]).holds(w.ID(), 10); return has }, 30*time.Second, time.Millisecond)
	require.NoError(t, client.Close())
	// One member is dead, one refuses what is written back: the only other bookie has to take the place of one of them.
	c.bookie(ensemble[1]).stop()
	c.bookie(ensemble[2]).setFault(func(r *wire.Request) fault { return fault{act: r.Op == wire.OpAdd, code: wire.IO} })
	other, _ := c.client()
	r, err := other.Open(ctx, w.ID(), OpenOptions{Recover: true})
	require.NoError(t, err)
	require.Equal(t, EntryID(10), r.LastAddConfirmed())
	m := c.record(w.ID())
	spare := c.bookies[slices.IndexFunc(c.bookies, func(b *fakeBookie) bool { return !slices.Contains(ensemble, b.id) })]
	require.Contains(t, m.Last().Bookies, spare.id, describeRecord(m))
	c.checkStored(w.ID(), 10)
}

// TestRecoveryOfEntriesAtTheFrameLimit: an entry that fills a V2 frame can be read and written back, though a V3 frame of it
// would be too long.
func TestRecoveryOfEntriesAtTheFrameLimit(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client(func(o *Options) { o.MaxFrameBytes = 1<<20 + v3Overhead })
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	// 4 length, 4 header, 20 key, 32 ids, 4 digest: the V2 frame has exactly 1 MiB.
	big := bytes.Repeat([]byte("limit..."), (1<<20-64)/8)
	_, err = w.Append(ctx, big)
	require.NoError(t, err)
	require.NoError(t, client.Close())
	var forms sync.Map
	for _, b := range c.bookies {
		b.setFault(func(r *wire.Request) fault {
			if r.Op == wire.OpAdd {
				forms.Store(r.Proto, true)
			}
			return fault{}
		})
	}
	other, _ := c.client(func(o *Options) { o.MaxFrameBytes = 1 << 20 })
	r, err := other.Open(ctx, w.ID(), OpenOptions{Recover: true})
	require.NoError(t, err)
	require.Equal(t, EntryID(0), r.LastAddConfirmed())
	_, v2 := forms.Load(wire.V2)
	require.True(t, v2, "written back as V2")
	for e, err := range r.Entries(ctx, 0, 0) {
		require.NoError(t, err)
		require.True(t, bytes.Equal(big, e.Data))
	}
}

func TestRecoveryWithTooFewBookies(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 9)
	require.NoError(t, client.Close())
	c.bookies[0].stop()
	c.bookies[1].stop()
	other, _ := c.client()
	_, err = other.Open(ctx, w.ID(), OpenOptions{Recover: true})
	require.ErrorIs(t, err, ErrNotEnoughBookies)
	var be *BookieError
	require.ErrorAs(t, err, &be)
	require.Equal(t, StateInRecovery, c.record(w.ID()).State, "left for the next client")
	c.bookies[0].start(t)
	r, err := other.Open(ctx, w.ID(), OpenOptions{Recover: true})
	require.NoError(t, err)
	require.Equal(t, EntryID(9), r.LastAddConfirmed())
}

// TestRecoveryAcceptingLoss: two of three bookies are gone for good and there is no other. An ordinary recovery leaves the
// ledger; one that may lose entries ends it, says what it gave up, and leaves a note in the record.
func TestRecoveryAcceptingLoss(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{Password: []byte("pw")})
	require.NoError(t, err)
	appendMany(t, w, 0, 9)
	m := c.record(w.ID())
	gone, kept := []BookieID{m.Fragments[0].Bookies[0], m.Fragments[0].Bookies[2]}, m.Fragments[0].Bookies[1]
	require.Eventually(t, func() bool { n, _ := c.bookie(kept).holds(w.ID(), 9); return n == 10 }, 30*time.Second, time.Millisecond)
	require.NoError(t, client.Close())
	for _, b := range gone {
		c.bookie(b).stop()
	}
	c.bookie(kept).forget(w.ID(), 9) // what it holds ends below its LAC's successor
	other, _ := c.client()
	_, _, err = other.RecoverAcceptingLoss(ctx, w.ID(), OpenOptions{Password: []byte("no")}, "")
	require.ErrorIs(t, err, ErrUnauthorized)
	_, _, err = other.RecoverAcceptingLoss(ctx, 77, OpenOptions{}, "")
	require.ErrorIs(t, err, ErrNoSuchLedger)
	sealed, loss, err := other.RecoverAcceptingLoss(ctx, w.ID(), OpenOptions{Password: []byte("pw")}, "by the test")
	require.NoError(t, err)
	require.NotNil(t, loss)
	require.Equal(t, EntryID(9), loss.Cut)
	require.Less(t, loss.LAC, EntryID(9))
	require.Equal(t, loss.LAC+1, loss.Thin, "the one bookie left keeps what it has beyond the LAC")
	require.ElementsMatch(t, gone, loss.Unfenced)
	require.ElementsMatch(t, gone, loss.Silent)
	require.NotEmpty(t, loss.Causes)
	require.Contains(t, loss.Text, "cut in front of entry 9")
	require.Contains(t, loss.Text, "(by the test)")
	stored := c.record(w.ID())
	require.Equal(t, StateClosed, stored.State)
	require.Equal(t, EntryID(8), stored.LastEntry)
	require.Equal(t, stored.LastEntry, sealed.LastEntry)
	require.Equal(t, loss.Text, string(stored.Custom[LossKey]))
	require.Equal(t, "release", string(stored.Custom["bindery.tier"]), "other custom metadata stays")
	r, err := other.Open(ctx, w.ID(), OpenOptions{Password: []byte("pw")})
	require.NoError(t, err)
	readAll(t, r, 0, 8)

	// A closed ledger is left as it is, and one that needs no loss loses nothing.
	sealed, loss, err = other.RecoverAcceptingLoss(ctx, w.ID(), OpenOptions{Password: []byte("pw")}, "again")
	require.NoError(t, err)
	require.Nil(t, loss)
	require.Equal(t, EntryID(8), sealed.LastEntry)
	for _, b := range gone {
		c.bookie(b).start(t)
	}
	w2, err := other.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w2, 0, 4)
	sealed, loss, err = other.RecoverAcceptingLoss(ctx, w2.ID(), OpenOptions{}, "for nothing")
	require.NoError(t, err)
	require.Nil(t, loss)
	require.Equal(t, EntryID(4), sealed.LastEntry)
	require.NotContains(t, c.record(w2.ID()).Custom, LossKey)
}

// TestC37MetadataStalls: bookies fail one after the other while metadata writes hang. Nothing is acknowledged that the
// stored record does not know; when the store is back, everything is.
func TestC37MetadataStalls(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 6)
	client, store := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 9)
	var stalled atomic.Bool
	stalled.Store(true)
	store.SetFaults(func(op memmeta.Op) memmeta.Fault {
		if stalled.Load() && (op.Name == "txn" || op.Name == "get") {
			return memmeta.Fault{Delay: 50 * time.Millisecond, Err: errors.New("the store hangs")}
		}
		return memmeta.Fault{}
	})
	var acked atomic.Int64
	var wg sync.WaitGroup
	for n := range EntryID(3) {
		c.bookie(c.record(w.ID()).Last().Bookies[n]).stop()
		for e := 10 + 10*n; e < 20+10*n; e++ {
			wg.Add(1)
			w.AppendAsync(payload(e), func(_ EntryID, err error) {
				defer wg.Done()
				if err != nil {
					t.Error(err)
				}
				if stalled.Load() {
					acked.Add(1)
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
	}
	require.LessOrEqual(t, acked.Load(), int64(10), "only what was complete before the first failure was noticed")
	stalled.Store(false)
	wg.Wait()
	for _, b := range c.bookies {
		if b.ln == nil {
			b.start(t)
		}
	}
	sealAndCheck(t, c, w, 39)
}

// TestMetadataUnknownOutcomes: the store applies, drops, or applies late what it can not confirm, again and again.
func TestMetadataUnknownOutcomes(t *testing.T) {
	for _, outcome := range []memmeta.Outcome{memmeta.Applied, memmeta.Dropped, memmeta.Late} {
		t.Run(fmt.Sprint(outcome), func(t *testing.T) {
			ctx := testContext(t)
			c := newCluster(t, 6)
			client, store := c.client()
			w, err := client.Create(ctx, CreateOptions{})
			require.NoError(t, err)
			appendMany(t, w, 0, 9)
			var left atomic.Int64
			store.SetFaults(func(op memmeta.Op) memmeta.Fault {
				if op.Name == "txn" && left.Add(-1) >= 0 {
					return memmeta.Fault{Outcome: outcome}
				}
				return memmeta.Fault{}
			})
			for n := range EntryID(3) {
				left.Store(2)
				c.bookie(c.record(w.ID()).Last().Bookies[n]).stop()
				done := make(chan struct{})
				go func() {
					appendMany(t, w, 10+10*n, 19+10*n)
					close(done)
				}()
				for waiting := true; waiting; {
					select {
					case <-done:
						waiting = false
					case <-time.After(30 * time.Millisecond):
						c.tree.LandLate()
					}
				}
			}
			left.Store(2)
			for _, b := range c.bookies {
				if b.ln == nil {
					b.start(t)
				}
			}
			sealAndCheck(t, c, w, 39)
		})
	}
}

// TestMetadataGone: the store stays away for longer than the time-out. The handle closes and never writes again.
func TestMetadataGone(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 4)
	client, store := c.client(func(o *Options) { o.MetadataTimeout = 2 * time.Second })
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 9)
	store.SetFaults(func(op memmeta.Op) memmeta.Fault { return memmeta.Fault{Err: metadata.ErrUnavailable} })
	c.bookie(c.record(w.ID()).Last().Bookies[0]).stop()
	require.Eventually(t, func() bool { // adds that the other two complete before the failure is noticed are acknowledged
		_, err = w.Append(ctx, nil)
		return err != nil
	}, 30*time.Second, time.Millisecond)
	require.ErrorIs(t, err, ErrMetadata)
	require.ErrorIs(t, w.Close(ctx), ErrMetadata)
	store.SetFaults(nil)
	_, err = w.Append(ctx, payload(10))
	require.ErrorIs(t, err, ErrClosed)
	other, _ := c.client()
	r, err := other.Open(ctx, w.ID(), OpenOptions{Recover: true})
	require.NoError(t, err)
	require.GreaterOrEqual(t, r.LastAddConfirmed(), EntryID(9))
}

// TestLedgerDeletedUnderWriter: the record is deleted by somebody else.
func TestLedgerDeletedUnderWriter(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 4)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 9)
	ensemble := c.record(w.ID()).Last().Bookies
	other, _ := c.client()
	require.NoError(t, other.Delete(ctx, w.ID()))
	c.bookie(ensemble[0]).stop()
	require.Eventually(t, func() bool {
		_, err = w.Append(ctx, payload(10))
		return err != nil
	}, 30*time.Second, time.Millisecond)
	require.ErrorIs(t, err, ErrNoSuchLedger)
	require.ErrorIs(t, w.Close(ctx), ErrNoSuchLedger)
}

func TestDeferredSync(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 4)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{DeferredSync: true})
	require.NoError(t, err)
	appendMany(t, w, 0, 9)
	require.Equal(t, EntryID(-1), w.LastAddConfirmed(), "only a force confirms")
	require.NoError(t, w.Force(ctx))
	require.Equal(t, EntryID(9), w.LastAddConfirmed())
	appendMany(t, w, 10, 19)
	// Close forces what was acknowledged.
	require.NoError(t, w.Close(ctx))
	m := c.record(w.ID())
	require.Equal(t, EntryID(19), m.LastEntry)
	require.Equal(t, w.Length(), m.Length)
	r, err := client.Open(ctx, w.ID(), OpenOptions{})
	require.NoError(t, err)
	readAll(t, r, 0, 19)

	// A bookie whose connection broke since it acknowledged can not be counted: the ledger ends at its LAC.
	w, err = client.Create(ctx, CreateOptions{DeferredSync: true})
	require.NoError(t, err)
	appendMany(t, w, 0, 9)
	require.NoError(t, w.Force(ctx))
	appendMany(t, w, 10, 19)
	b := c.bookie(c.record(w.ID()).Last().Bookies[0])
	require.Eventually(t, func() bool { n, _ := b.holds(w.ID(), 0); return n == 20 }, 30*time.Second, time.Millisecond)
	b.stop()
	b.start(t)
	require.ErrorIs(t, w.Force(ctx), ErrForceFailed)
	require.NoError(t, w.Close(ctx))
	require.Equal(t, EntryID(9), c.record(w.ID()).LastEntry)

	// A bookie that dies with adds under way ends it too: the ensemble can not be changed.
	w, err = client.Create(ctx, CreateOptions{DeferredSync: true})
	require.NoError(t, err)
	for _, b := range c.bookies {
		b.setFault(func(r *wire.Request) fault { return fault{act: r.Op == wire.OpAdd, code: wire.IO} })
	}
	_, err = w.Append(ctx, payload(0))
	require.ErrorIs(t, err, ErrNotEnoughBookies)
}

func TestForceOfOrdinaryLedger(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, w.Force(ctx), "nothing written yet")
	appendMany(t, w, 0, 9)
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if err := w.Force(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	c.bookies[0].setFault(func(r *wire.Request) fault { return fault{act: r.Op == wire.OpForce, code: wire.IO} })
	require.ErrorIs(t, w.Force(ctx), ErrForceFailed)
	appendMany(t, w, 10, 19) // only the call failed
	sealAndCheck(t, c, w, 19)
}

// TestHungBookieDoesNotEatMemory: a bookie takes the connection and never reads. Adds are bounded by the budget until it is
// replaced, then go on.
func TestHungBookieDoesNotEatMemory(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 4)
	client, _ := c.client(func(o *Options) {
		o.AddTimeout = 4 * time.Second
		o.MaxPendingBytes = 8 << 20
	})
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 9)
	victim := c.record(w.ID()).Last().Bookies[2]
	var hung atomic.Bool
	hung.Store(true)
	c.bookie(victim).setFault(func(r *wire.Request) fault {
		for hung.Load() && r.Op == wire.OpAdd {
			time.Sleep(10 * time.Millisecond)
		}
		return fault{}
	})
	defer hung.Store(false)
	big := make([]byte, 256<<10)
	var wg sync.WaitGroup
	for range 200 { // 50 MiB, several times the budget and what the sockets hold
		wg.Add(1)
		w.AppendAsync(big, func(_ EntryID, err error) {
			defer wg.Done()
			if err != nil {
				t.Error(err)
			}
		})
		if used := client.o.MaxPendingBytes - client.budget.free.Load(); used > client.o.MaxPendingBytes+(1<<20) {
			t.Fatalf("%d bytes under way", used)
		}
	}
	wg.Wait()
	require.NotContains(t, c.record(w.ID()).Last().Bookies, victim)
	hung.Store(false)
	require.NoError(t, w.Close(ctx))
	require.Eventually(t, func() bool { return client.budget.free.Load() == client.o.MaxPendingBytes }, 30*time.Second, 10*time.Millisecond, "everything is given back")
}

func TestReadFallsBack(t *testing.T) {
	for _, q := range []Quorum{quorum(3, 3, 2), quorum(4, 3, 2)} {
		t.Run(fmt.Sprintf("E%d", q.Ensemble), func(t *testing.T) {
			ctx := testContext(t)
			c := newCluster(t, q.Ensemble)
			client, _ := c.client()
			w, err := client.Create(ctx, CreateOptions{Quorum: q})
			require.NoError(t, err)
			appendMany(t, w, 0, 199)
			c.awaitCopies(w.ID(), 199)
			require.NoError(t, w.Close(ctx))
			r, err := client.Open(ctx, w.ID(), OpenOptions{})
			require.NoError(t, err)
			// Damage here, a hole there, and an error of each kind.
			m := c.record(w.ID())
			c.bookie(m.Last().Bookies[0]).corrupt(w.ID(), 16)
			c.bookie(m.Last().Bookies[1]).forget(w.ID(), 32)
			c.bookie(m.Last().Bookies[2]).corrupt(w.ID(), 33)
			for range 5 {
				readAll(t, r, 0, 199)
			}
			for _, code := range []wire.Code{wire.IO, wire.UnknownState, wire.TooMany, wire.NoEntry, wire.NoLedger, wire.BadReq} {
				c.bookie(m.Last().Bookies[1]).setFault(func(r *wire.Request) fault {
					return fault{act: r.Op == wire.OpRead || r.Op == wire.OpBatchRead, code: code}
				})
				r.prefer.Store(1)
				readAll(t, r, 0, 29)
				c.bookie(m.Last().Bookies[1]).setFault(nil)
			}
			c.bookie(m.Last().Bookies[1]).setFault(func(r *wire.Request) fault { return fault{drop: r.Op == wire.OpRead || r.Op == wire.OpBatchRead} })
			r.prefer.Store(1)
			readAll(t, r, 0, 29)
			c.bookie(m.Last().Bookies[1]).stop()
			readAll(t, r, 0, 29)
		})
	}
}

func TestReadErrorsAreTyped(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 19)
	c.awaitCopies(w.ID(), 19)
	require.NoError(t, w.Close(ctx))
	for _, b := range c.bookies {
		b.forget(w.ID(), 7)
		b.corrupt(w.ID(), 9)
	}
	r, err := client.Open(ctx, w.ID(), OpenOptions{})
	require.NoError(t, err)
	read := func(first EntryID) (n int, err error) {
		for e, rerr := range r.Entries(ctx, first, 19) {
			if rerr != nil {
				return n, rerr
			}
			require.Equal(t, payload(e.ID), append([]byte{}, e.Data...))
			n++
		}
		return n, nil
	}
	n, err := read(0)
	require.Equal(t, 7, n, "everything before the hole is delivered")
	require.ErrorIs(t, err, ErrNoSuchEntry)
	var q *QuorumError
	require.ErrorAs(t, err, &q)
	require.Equal(t, EntryID(7), q.Entry)
	n, err = read(8)
	require.Equal(t, 1, n)
	require.ErrorIs(t, err, ErrDigestMismatch)
	require.NotErrorIs(t, err, ErrNoSuchEntry, "damage is not absence")
	// One denial, one limbo, one dead: not absent.
	c.bookies[0].wipe(int64(w.ID()))
	c.bookies[1].stop()
	_, err = read(7)
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrNoSuchLedger)
	require.ErrorIs(t, err, ErrNotEnoughBookies)
}

func TestOldBookieWithoutBatchReads(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	for _, b := range c.bookies {
		b.oldV2 = true
	}
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 99)
	require.NoError(t, w.Close(ctx))
	other, _ := c.client()
	r, err := other.Open(ctx, w.ID(), OpenOptions{})
	require.NoError(t, err)
	readAll(t, r, 0, 99)
	readAll(t, r, 0, 99)
}

// TestReaderFollowsReplacedBookies: a reader that opened before the ensemble changed finds the new bookies.
func TestReaderFollowsReplacedBookies(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 6)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 9)
	require.NoError(t, w.Close(ctx))
	reader, _ := c.client()
	r, err := reader.Open(ctx, w.ID(), OpenOptions{})
	require.NoError(t, err)
	// A replicator moves the ledger elsewhere, and the old bookies go away.
	m, v, err := c.views.Ledgers.Read(ctx, w.ID())
	require.NoError(t, err)
	old := m.Fragments[0].Bookies
	var moved []BookieID
	for _, b := range c.bookies {
		if !slices.Contains(old, b.id) {
			moved = append(moved, b.id)
			from := c.bookie(old[len(moved)-1])
			b.mu.Lock()
			b.ledgers[int64(w.ID())] = from.ledger(int64(w.ID()))
			b.mu.Unlock()
		}
	}
	m.Fragments[0].Bookies = moved
	_, err = c.views.Ledgers.Write(ctx, w.ID(), m, v)
	require.NoError(t, err)
	for _, b := range old {
		c.bookie(b).stop()
	}
	readAll(t, r, 0, 9)
}

func TestTailSurvivesFailuresAndRecovery(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 6)
	client, _ := c.client(func(o *Options) { o.ExplicitLACInterval = 50 * time.Millisecond })
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	reader, _ := c.client()
	r, err := reader.Open(ctx, w.ID(), OpenOptions{})
	require.NoError(t, err)
	var seen atomic.Int64
	seen.Store(-1)
	done := make(chan error, 1)
	go func() {
		for e, err := range r.Tail(ctx, 0) {
			if err != nil {
				done <- err
				return
			}
			if int64(e.ID) != seen.Load()+1 || string(e.Data) != string(payload(e.ID)) {
				done <- fmt.Errorf("got entry %d after %d", e.ID, seen.Load())
				return
			}
			seen.Store(int64(e.ID))
		}
		done <- nil
	}()
	last := EntryID(-1)
	for n := range 3 {
		appendMany(t, w, last+1, last+20)
		last += 20
		require.Eventually(t, func() bool { return seen.Load() == int64(last) }, 30*time.Second, 5*time.Millisecond)
		c.bookie(c.record(w.ID()).Last().Bookies[n]).stop()
	}
	appendMany(t, w, last+1, last+20)
	last += 20
	require.NoError(t, client.Close()) // the writer dies
	other, _ := c.client()
	sealed, err := other.Open(ctx, w.ID(), OpenOptions{Recover: true})
	require.NoError(t, err)
	require.Equal(t, last, sealed.LastAddConfirmed())
	require.NoError(t, <-done)
	require.Equal(t, int64(last), seen.Load())
}

func TestTailOfDeletedLedger(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 9)
	r, err := client.Open(ctx, w.ID(), OpenOptions{})
	require.NoError(t, err)
	time.AfterFunc(50*time.Millisecond, func() { _ = client.Delete(context.Background(), w.ID()) })
	var last error
	for _, err := range r.Tail(ctx, 0) {
		last = err
	}
	require.ErrorIs(t, last, ErrNoSuchLedger)
	// A cancelled tail ends with its context, a closed reader with its own error.
	w2, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	r2, err := client.Open(ctx, w2.ID(), OpenOptions{})
	require.NoError(t, err)
	short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	for _, err := range r2.Tail(short, 0) {
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	time.AfterFunc(30*time.Millisecond, func() { _ = r2.Close() })
	for _, err := range r2.Tail(ctx, 0) {
		require.ErrorIs(t, err, ErrClosed)
	}
}

// TestWipedBookieIsReplaced: a member comes back empty under its id. It is in limbo, refuses adds, and is replaced.
func TestWipedBookieIsReplaced(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 4)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, w, 0, 9)
	victim := c.record(w.ID()).Last().Bookies[0]
	c.bookie(victim).wipe(int64(w.ID()))
	appendMany(t, w, 10, 19)
	require.Eventually(t, func() bool {
		appendMany(t, w, w.LastAddConfirmed()+1, w.LastAddConfirmed()+1)
		return !slices.Contains(c.record(w.ID()).Last().Bookies, victim)
	}, 30*time.Second, time.Millisecond)
	require.NoError(t, w.Close(ctx))
	r, err := client.Open(ctx, w.ID(), OpenOptions{})
	require.NoError(t, err)
	readAll(t, r, 0, r.LastAddConfirmed())
}

// TestS26DoneFunctionWaitsForALaterEntry: the done function of an entry appends another one and waits for it, while a bookie
// fails and is replaced. Done functions run apart from the loop that sends, so nothing waits for itself.
func TestS26DoneFunctionWaitsForALaterEntry(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 4)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{Quorum: quorum(3, 3, 3)})
	require.NoError(t, err)
	appendMany(t, w, 0, 0)
	c.bookie(c.record(w.ID()).Last().Bookies[1]).stop()
	inner := make(chan error, 1)
	w.AppendAsync([]byte("first"), func(id EntryID, err error) {
		if err == nil && id != 1 {
			err = fmt.Errorf("entry %d", id)
		}
		if err == nil {
			id, err = w.Append(ctx, []byte("second"))
		}
		if err == nil && id != 2 {
			err = fmt.Errorf("inner entry %d", id)
		}
		inner <- err
	})
	require.NoError(t, <-inner)
	require.Equal(t, EntryID(1), c.record(w.ID()).Last().First, "the change was stored in between")
	require.NoError(t, w.Close(ctx))
}

// TestExplicitLAC: a reader asks for the LAC while the writer is idle. What no packet has carried, the writer told the bookies;
// with that switched off, the reader lags by the last entry.
func TestExplicitLAC(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	telling, _ := c.client(func(o *Options) { o.ExplicitLACInterval = 50 * time.Millisecond })
	silent, _ := c.client(func(o *Options) { o.ExplicitLACInterval = -1 })
	for client, lag := range map[*Client]EntryID{telling: 0, silent: 1} {
		w, err := client.Create(ctx, CreateOptions{})
		require.NoError(t, err)
		r, err := client.Open(ctx, w.ID(), OpenOptions{})
		require.NoError(t, err)
		require.Equal(t, InvalidEntry, r.LastAddConfirmed())
		appendMany(t, w, 0, 3)
		_, err = w.Append(ctx, payload(4))
		require.NoError(t, err)
		var lac EntryID
		require.Eventually(t, func() bool {
			lac, err = r.ReadLastAddConfirmed(ctx)
			require.NoError(t, err)
			return lac == 4-lag
		}, 30*time.Second, 10*time.Millisecond)
		require.Equal(t, lac, r.LastAddConfirmed())
		require.NoError(t, w.Close(ctx))
		lac, err = r.ReadLastAddConfirmed(ctx)
		require.NoError(t, err)
		require.Equal(t, EntryID(4), lac, "the end of the closed ledger")
		require.True(t, r.Sealed())
		require.NoError(t, r.Close())
		_, err = r.ReadLastAddConfirmed(ctx)
		require.ErrorIs(t, err, ErrClosed)
	}
}

// TestStaleAddressIsReadAgain: what the client has watched says that a bookie is where nobody listens. After a failed attempt
// it asks the store.
func TestStaleAddressIsReadAgain(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, store := c.client()
	require.NoError(t, client.waitForView(ctx))
	p := client.peer("b1")
	right, err := p.address(ctx)
	require.NoError(t, err)
	client.view.mu.Lock()
	b := client.view.bookies["b1"]
	b.Info.Endpoints = []metadata.Endpoint{{ID: metadata.EndpointBookie, Host: "127.0.0.1", Port: 1, Protocol: metadata.ProtocolBookie}}
	client.view.bookies["b1"] = b
	client.view.mu.Unlock()
	wrong, err := p.address(ctx)
	require.NoError(t, err)
	require.NotEqual(t, right, wrong)
	require.False(t, client.probe(ctx, []BookieID{"b1"}, wire.V2))
	require.Eventually(t, func() bool { // the failure is noted a moment after it is seen
		again, err := p.address(ctx)
		require.NoError(t, err)
		return again == right
	}, 30*time.Second, time.Millisecond)
	// A store that is down must not keep the client from bookies whose address it knows.
	store.SetFaults(func(memmeta.Op) memmeta.Fault { return memmeta.Fault{Err: metadata.ErrUnavailable} })
	known, err := p.address(ctx)
	require.NoError(t, err)
	require.Equal(t, wrong, known)
	store.SetFaults(nil)
	require.Eventually(t, func() bool { return client.probe(ctx, []BookieID{"b1"}, wire.V2) }, 30*time.Second, 10*time.Millisecond)
}
