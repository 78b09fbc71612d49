package ledgerclient

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/wire"
	"github.com/binderylog/bindery/offload"
	"github.com/binderylog/bindery/offload/objstore/mem"
)

// tierOf makes six targets in memory and a worker that takes entries from a client.
func (c *cluster) tierOf(client func() *Client) (*offload.Targets, *offload.Worker) {
	c.t.Helper()
	var list []offload.Target
	for i := range 6 {
		list = append(list, offload.Target{ID: fmt.Sprintf("t%d", i+1), Store: mem.New()})
	}
	targets, err := offload.NewTargets(list)
	require.NoError(c.t, err)
	records := offload.NewRecords(c.views)
	w, err := offload.NewWorker(offload.Options{
		Records: records, Targets: targets, Dir: c.t.TempDir(), Name: "w", InlineBytes: -1, TakeOver: time.Millisecond,
		Entries: func(ctx context.Context, id ledger.ID, m *ledger.Metadata, first, last ledger.EntryID) iter.Seq2[offload.Entry, error] {
			return func(yield func(offload.Entry, error) bool) {
				lr, err := client().Open(ctx, id, OpenOptions{Admin: true})
				if err != nil {
					yield(offload.Entry{}, err)
					return
				}
				defer lr.Close()
				for body, err := range lr.Bodies(ctx, first, last) {
					var e offload.Entry
					if err == nil {
						e, err = offload.ParseEntry(body, m.Digest)
					}
					if !yield(e, err) || err != nil {
						return
					}
				}
			}
		},
	})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { require.NoError(c.t, w.Close()) })
	return targets, w
}

// requirePayloads reads a range and compares it.
func requirePayloads(t *testing.T, entries iter.Seq2[Entry, error], first, last EntryID) {
	t.Helper()
	next := first
	for e, err := range entries {
		require.NoError(t, err)
		require.Equal(t, next, e.ID)
		require.Equal(t, fmt.Sprintf("entry %d", e.ID), string(e.Data))
		e.Data[0] = '!' // it is the caller's
		next++
	}
	require.Equal(t, last+1, next)
}

// TestLedgerThatMovesToTheTier reads a ledger before it is offloaded, between commit and release, and after the bookies have
// dropped it, with readers that were opened before and after; then it is deleted.
func TestLedgerThatMovesToTheTier(t *testing.T) {
	ctx := t.Context()
	c := newCluster(t, 3)
	var client *Client
	targets, worker := c.tierOf(func() *Client { return client })
	client, _ = c.client(func(o *Options) { o.Offload = targets })
	plain, _ := c.client()

	const last = 199
	w, err := client.Create(ctx, CreateOptions{Password: []byte("secret")})
	require.NoError(t, err)
	early, err := client.Open(ctx, w.ID(), OpenOptions{Password: []byte("secret")}) // while it is open
	require.NoError(t, err)
	for i := range last + 1 {
		_, err := w.Append(ctx, fmt.Appendf(nil, "entry %d", i))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close(ctx))
	id := w.ID()
	closed, err := client.Open(ctx, id, OpenOptions{Password: []byte("secret")})
	require.NoError(t, err)
	requirePayloads(t, closed.Entries(ctx, 0, last), 0, last)

	require.NoError(t, worker.Offload(ctx, id))
	requirePayloads(t, closed.Entries(ctx, 0, last), 0, last)
	require.Equal(t, "release", string(c.record(id).Custom["bindery.tier"]))
	require.NoError(t, worker.Release(ctx, id, true))
	for _, b := range c.bookies {
		b.wipe()
	}

	requirePayloads(t, closed.Entries(ctx, 7, 160), 7, 160)
	requirePayloads(t, closed.Entries(ctx, 0, last+50), 0, last)
	requirePayloads(t, early.Tail(ctx, 0), 0, last)
	lac, err := closed.ReadLastAddConfirmed(ctx)
	require.NoError(t, err)
	require.EqualValues(t, last, lac)

	late, err := client.Open(ctx, id, OpenOptions{Password: []byte("secret"), Recover: true})
	require.NoError(t, err)
	require.True(t, late.Sealed())
	require.EqualValues(t, last, late.LastAddConfirmed())
	requirePayloads(t, late.Entries(ctx, 150, last), 150, last)
	requirePayloads(t, late.Tail(ctx, 190), 190, last)
	for _, err := range late.Bodies(ctx, 0, 0) {
		require.ErrorContains(t, err, "bookies do not have it any more")
	}
	_, err = client.Open(ctx, id, OpenOptions{Password: []byte("wrong")})
	require.ErrorIs(t, err, ErrUnauthorized)
	m, err := client.Metadata(ctx, id)
	require.NoError(t, err)
	require.Equal(t, StateClosed, m.State)
	_, err = plain.Open(ctx, id, OpenOptions{Admin: true})
	require.ErrorIs(t, err, ErrNoSuchLedger, "for who does not know the tier it does not exist")
	require.ErrorIs(t, err, ErrOffloaded, "and why is said")
	require.EqualError(t, err, fmt.Sprintf("open ledger %d: %s", id, ErrOffloaded))

	_, err = client.Create(ctx, CreateOptions{ID: &id})
	require.ErrorIs(t, err, ErrLedgerExists, "its record is gone, its entries are not")

	require.NoError(t, client.Delete(ctx, id))
	require.ErrorIs(t, client.Delete(ctx, id), ErrNoSuchLedger)
	_, err = client.Open(ctx, id, OpenOptions{Admin: true})
	require.ErrorIs(t, err, ErrNoSuchLedger)
	_, err = client.Metadata(ctx, id)
	require.ErrorIs(t, err, ErrNoSuchLedger)
}

// TestIDsThatTheTierKnowsAreNotGivenOut, also where the store has forgotten that they were drawn and the client knows no targets.
func TestIDsThatTheTierKnowsAreNotGivenOut(t *testing.T) {
	ctx := t.Context()
	c := newCluster(t, 3)
	client, _ := c.client()
	records := offload.NewRecords(c.views)
	record := func(id LedgerID) {
		_, err := records.Write(ctx, id, &offload.Record{State: offload.StateReleased, Geometry: offload.Geometry{Data: 1}, Placement: []offload.Placement{{Target: "t1"}},
			Attempt: offload.AttemptID{1}, Number: 1}, metadata.Absent, offload.LedgerCond{})
		require.NoError(t, err)
	}
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, w.Close(ctx))
	record(w.ID() + 1)
	_, err = c.views.Store.Put(ctx, records.Key(w.ID()+2), []byte("damaged"), metadata.Absent)
	require.NoError(t, err)
	next, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, w.ID()+3, next.ID())
	require.NoError(t, next.Close(ctx))
	for _, id := range []LedgerID{w.ID() + 1, w.ID() + 2} {
		_, err = client.Create(ctx, CreateOptions{ID: &id})
		require.ErrorIs(t, err, ErrLedgerExists)
	}
}

// TestTierOfLedgersThatNeverMoved: with a tier in the options everything else stays as it was.
func TestTierOfLedgersThatNeverMoved(t *testing.T) {
	ctx := t.Context()
	c := newCluster(t, 3)
	targets, _ := c.tierOf(nil)
	client, _ := c.client(func(o *Options) { o.Offload = targets })
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	_, err = w.Append(ctx, []byte("entry 0"))
	require.NoError(t, err)
	c.awaitCopies(w.ID(), 0)
	require.NoError(t, w.Close(ctx))
	r, err := client.Open(ctx, w.ID(), OpenOptions{})
	require.NoError(t, err)
	for _, b := range c.bookies {
		b.forget(w.ID(), 0)
	}
	for _, err := range r.Entries(ctx, 0, 0) {
		require.ErrorIs(t, err, ErrNoSuchEntry)
	}
	_, err = client.Open(ctx, 4711, OpenOptions{})
	require.ErrorIs(t, err, ErrNoSuchLedger)
	require.NoError(t, client.Delete(ctx, w.ID()))
	_, _, err = c.views.Ledgers.Read(ctx, w.ID())
	require.ErrorIs(t, err, metadata.ErrNoLedger)
}

// onMessage calls a function once, at the first record with a message.
type onMessage struct {
	slog.Handler
	message string
	do      func()
}

func (h *onMessage) Handle(ctx context.Context, r slog.Record) error {
	if do := h.do; do != nil && r.Message == h.message {
		h.do = nil
		do()
	}
	return h.Handler.Handle(ctx, r)
}

// TestLedgerThatMovesWhileItIsRecovered: another client closes the ledger and it is released between two attempts at its recovery. The
// simulator found it.
func TestLedgerThatMovesWhileItIsRecovered(t *testing.T) {
	ctx := t.Context()
	c := newCluster(t, 3)
	var client *Client
	targets, worker := c.tierOf(func() *Client { return client })
	client, _ = c.client(func(o *Options) { o.Offload = targets })
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	_, err = w.Append(ctx, []byte("entry 0"))
	require.NoError(t, err)
	moved := &onMessage{Handler: quietLogger().Handler(), message: "ledger recovery found too few bookies; trying again", do: func() {
		for _, b := range c.bookies {
			b.setFault(nil)
		}
		other, err := client.Open(ctx, w.ID(), OpenOptions{Recover: true})
		require.NoError(t, err)
		require.NoError(t, other.Close())
		require.NoError(t, worker.Offload(ctx, w.ID()))
		require.NoError(t, worker.Release(ctx, w.ID(), true))
		for _, b := range c.bookies {
			b.wipe()
		}
	}}
	slow, _ := c.client(func(o *Options) { o.Offload, o.Logger = targets, slog.New(moved) })
	for _, b := range c.bookies {
		b.setFault(func(*wire.Request) fault { return fault{close: true} })
	}
	r, err := slow.Open(ctx, w.ID(), OpenOptions{Recover: true})
	require.NoError(t, err)
	defer r.Close()
	require.Nil(t, moved.do, "it was tried again")
	requirePayloads(t, r.Entries(ctx, 0, 0), 0, 0)
}
