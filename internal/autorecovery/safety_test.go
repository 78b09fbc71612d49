package autorecovery

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/bookie/gc"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
)

// quickGC collects copies too many within seconds.
func quickGC(o *bookie.Options) {
	o.GC.Interval, o.GC.Grace = time.Second, 100*time.Millisecond
	o.GC.OverReplicatedEvery, o.GC.Quiet = 300*time.Millisecond, 300*time.Millisecond
}

// TestR6MarkedAgainWhileCopied: a bookie that is added to the mark while a worker copies is not forgotten.
func TestR6MarkedAgainWhileCopied(t *testing.T) {
	k := newKit(t, 5)
	id := k.closed(quorum(3, 3, 2), 200, "bk1", "bk2")
	k.members[1].stop()
	n := k.node("n1", workerOnly, func(o *Options) { o.Rate = 40 << 10 })
	k.mark(id, "bk1")
	k.eventually("it copies", func() bool { return len(n.Status().Ledgers) == 1 })
	k.members[2].stop()
	k.mark(id, "bk2")
	n.SetRate(1 << 30)
	k.unmarked()
	m := k.record(id)
	require.False(t, m.Names("bk1"))
	require.False(t, m.Names("bk2"))
	k.check(id, 200)
}

// TestMarkOutlastsCopiesThatFail: nothing can be copied while the only other bookie is down. The mark stays, and the ledger is made up
// for once that bookie is back. In the simulator this does not show: whoever forgets a mark is told again by the next audit.
func TestMarkOutlastsCopiesThatFail(t *testing.T) {
	k := newKit(t, 4)
	id := k.closed(quorum(2, 2, 2), 30, "bk0", "bk1")
	k.members[0].stop()
	k.members[1].stop()
	k.mark(id, "bk1")
	n := k.node("n1", workerOnly)
	k.eventually("it fails twice", func() bool {
		require.Contains(t, k.marks(), id)
		return n.outcomes(OutcomeUnreadable) >= 2
	})
	require.Contains(t, k.marks(), id)
	require.NoError(t, k.members[0].start())
	k.unmarked()
	require.False(t, k.record(id).Names("bk1"))
	k.check(id, 30)
}

// TestR7WorkerDiesBetweenCopyAndPublish: the record is unchanged, the lock goes, another worker repairs the ledger, and what
// the first one copied is collected.
func TestR7WorkerDiesBetweenCopyAndPublish(t *testing.T) {
	k := newKit(t, 5, quickGC)
	id := k.closed(quorum(2, 2, 2), 30, "bk0", "bk1")
	k.members[1].stop()
	before := k.record(id)
	first := k.node("n1", workerOnly)
	var tried atomic.Bool
	key := k.views.Ledgers.Key(id)
	first.store.SetFaults(func(op memmeta.Op) memmeta.Fault {
		if op.Name == "txn" && slices.Contains(op.Keys, key) {
			tried.Store(true)
			return memmeta.Fault{Err: errInjected}
		}
		return memmeta.Fault{}
	})
	k.mark(id, "bk1")
	k.eventually("everything is copied", func() bool { return tried.Load() })
	first.store.ExpireSession()
	first.stop()
	require.Equal(t, before, k.record(id), "nothing was published")
	held, err := k.views.Replication.Locked(k.ctx())
	require.NoError(t, err)
	require.Empty(t, held, "the lock went with the session")
	k.node("n2", workerOnly)
	k.unmarked()
	k.check(id, 30)
	m := k.record(id)
	copies, err := k.client.Copies(id, m)
	require.NoError(t, err)
	k.eventually("copies too many are collected", func() bool {
		for _, x := range k.members {
			if x.b == nil || m.Names(x.id) {
				continue
			}
			if _, answer, _ := copies.Read(k.ctx(), x.id, 0); answer == ledger.AnswerOK {
				return false
			}
		}
		return true
	})
	k.check(id, 30)
}

// filling of a test, on a record of its choice.
func (k *kit) filling(n *node, id ledger.ID, m *ledger.Metadata, p place) (*filling, *metadata.Lock) {
	k.t.Helper()
	lock, ok, err := n.o.Views.Replication.Lock(k.ctx(), id, n.o.Name)
	require.NoError(k.t, err)
	require.True(k.t, ok)
	cl, err := n.look(k.ctx())
	require.NoError(k.t, err)
	copies, err := n.o.Client.Copies(id, m)
	require.NoError(k.t, err)
	return &filling{s: n.Service, cl: cl, id: id, m: m, lock: lock, copies: copies, p: p}, lock
}

func neither(o *Options) { o.private.noAuditor, o.private.noWorker = true, true }

// TestR8LedgerClosesWhileItIsLookedAt: a copy up to an end that was not the last one is not published.
func TestR8LedgerClosesWhileItIsLookedAt(t *testing.T) {
	k := newKit(t, 4)
	id := k.closed(quorum(3, 3, 2), 60, "bk1")
	k.members[1].stop()
	n := k.node("n1", neither)
	stale := k.record(id)
	stale.LastEntry = 50
	index := slices.Index(stale.Fragments[0].Bookies, "bk1")
	f, _ := k.filling(n, id, stale, place{index: index, bookie: "bk1", last: 50})
	require.ErrorIs(t, f.run(k.ctx()), errObsolete)
	require.True(t, k.record(id).Names("bk1"))
}

// TestPublishDependsOnTheLock: a worker that lost its lock, and does not know it, publishes nothing.
func TestPublishDependsOnTheLock(t *testing.T) {
	k := newKit(t, 4)
	id := k.closed(quorum(3, 3, 2), 10, "bk1")
	k.members[1].stop()
	n := k.node("n1", neither)
	m := k.record(id)
	f, lock := k.filling(n, id, m, place{index: slices.Index(m.Fragments[0].Bookies, "bk1"), bookie: "bk1", last: 9})
	require.NoError(t, lock.Release(k.ctx()))
	require.ErrorIs(t, f.run(k.ctx()), metadata.ErrLockLost)
	require.Equal(t, m, k.record(id))
}

// TestPublishDependsOnTheIncarnation: S38: the target is emptied between the copy and the publish.
func TestPublishDependsOnTheIncarnation(t *testing.T) {
	k := newKit(t, 4)
	id := k.closed(quorum(3, 3, 2), 10, "bk1")
	m := k.record(id)
	var spare *member
	for _, x := range k.members {
		if !m.Names(x.id) {
			spare = x
		}
	}
	k.members[1].stop()
	n := k.node("n1", neither)
	f, _ := k.filling(n, id, m, place{index: slices.Index(m.Fragments[0].Bookies, "bk1"), bookie: "bk1", last: 9})
	check, err := k.views.Incarnations.Check(k.ctx(), spare.id)
	require.NoError(t, err)
	plan, verdict := ledger.PlanCopy(m, 0, f.p.index, spare.id, int64(check.Version))
	require.Equal(t, ledger.CopyReady, verdict)
	require.NoError(t, f.copyEntries(k.ctx(), &plan))
	spare.stop()
	spare.wipe()
	require.NoError(t, spare.start())
	require.ErrorIs(t, f.publish(k.ctx(), &plan), errObsolete)
	require.Equal(t, m, k.record(id))
}

// TestUnknownOutcomeOfAPublish: a publish whose answer was lost is found in the record, one that did not happen is repeated.
func TestUnknownOutcomeOfAPublish(t *testing.T) {
	for name, outcome := range map[string]memmeta.Outcome{"applied": memmeta.Applied, "dropped": memmeta.Dropped} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t, 4)
			id := k.closed(quorum(3, 3, 2), 10, "bk1")
			k.members[1].stop()
			n := k.node("n1", workerOnly)
			key := k.views.Ledgers.Key(id)
			var times atomic.Int64
			n.store.SetFaults(func(op memmeta.Op) memmeta.Fault {
				if op.Name == "txn" && slices.Contains(op.Keys, key) && times.Add(1) == 1 {
					return memmeta.Fault{Outcome: outcome}
				}
				return memmeta.Fault{}
			})
			k.mark(id, "bk1")
			k.unmarked()
			require.False(t, k.record(id).Names("bk1"))
			k.check(id, 10)
		})
	}
}

// TestR9CollectorAndWorkerExcludeEachOther: while a worker holds a ledger, no bookie deletes its copy of it (P7).
func TestR9CollectorAndWorkerExcludeEachOther(t *testing.T) {
	k := newKit(t, 4, quickGC)
	id := k.closed(quorum(2, 2, 2), 10, "bk0", "bk1")
	m := k.record(id)
	n := k.node("n1", neither)
	lock, ok, err := n.o.Views.Replication.Lock(k.ctx(), id, "n1")
	require.NoError(t, err)
	require.True(t, ok)
	copies, err := k.client.Copies(id, m)
	require.NoError(t, err)
	var to ledger.BookieID = "bk2"
	for e := range ledger.EntryID(10) {
		body, _, err := copies.Read(k.ctx(), "bk0", e)
		require.NoError(t, err)
		require.NoError(t, copies.Write(k.ctx(), to, e, body))
	}
	time.Sleep(2500 * time.Millisecond) // several passes of the collector
	_, answer, err := copies.Read(k.ctx(), to, 3)
	require.Equal(t, ledger.AnswerOK, answer, "%v", err)
	require.NoError(t, lock.Release(k.ctx()))
	k.eventually("the copy is collected", func() bool {
		_, answer, _ := copies.Read(k.ctx(), to, 3)
		return answer == ledger.AnswerNegative
	})
	k.check(id, 10)
}

// listing is a collector's view of the store with a listing of the test's choice.
type listing struct {
	gc.Views
	list func(ctx context.Context, after int64, limit int) ([]int64, error)
}

func (l *listing) List(ctx context.Context, after int64, limit int) ([]int64, error) {
	return l.list(ctx, after, limit)
}

// copiesHere is a bookie's storage as the collector sees it.
type copiesHere struct {
	ids     []int64
	deleted atomic.Int64
}

func (c *copiesHere) Ledgers(after int64, limit int) ([]int64, error) {
	i, _ := slices.BinarySearch(c.ids, after+1)
	return c.ids[i:min(len(c.ids), i+limit)], nil
}
func (c *copiesHere) Generation(int64) (uint32, bool, error) { return 1, true, nil }
func (c *copiesHere) Delete(_ context.Context, ids []int64, _ []uint32) (int, error) {
	c.deleted.Add(int64(len(ids)))
	return len(ids), nil
}

type noLogs struct{ gc.Logs }

func (noLogs) Dirs() int { return 0 }

func collect(t *testing.T, meta gc.Metadata, here gc.Ledgers) error {
	c, err := gc.New(meta, here, noLogs{}, gc.Options{Interval: time.Hour, Grace: time.Millisecond, Logger: logger()})
	require.NoError(t, err)
	c.Start()
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return c.Trigger(ctx, gc.Pass)
}

func TestR10PartialListing(t *testing.T) {
	k := newKit(t, 0)
	begin := func(context.Context) error { return nil }
	here := &copiesHere{ids: []int64{1, 2, 3, 4, 5, 6}}
	meta := &listing{Views: gc.Views{Records: k.views.Ledgers, Bookie: "bk0", Begin: begin}}
	meta.list = func(_ context.Context, after int64, _ int) ([]int64, error) {
		if after < 0 {
			return []int64{1, 2}, nil
		}
		return nil, metadata.ErrUnavailable // half of the tree, then nothing
	}
	require.Error(t, collect(t, meta, here))
	require.Zero(t, here.deleted.Load(), "nothing beyond the failure is deleted, and nothing before it")
}

func TestR11RootOfAnotherCluster(t *testing.T) {
	k := newKit(t, 1)
	id := k.closed(quorum(1, 1, 1), 3)
	m := k.members[0]
	m.stop()
	// The same directories with a root that holds another, empty cluster.
	m.store = memmeta.Open(k.name)
	other := metadata.NewViews(m.store, "/elsewhere")
	_, err := other.Cluster.Init(k.ctx())
	require.NoError(t, err)
	m.change = func(o *bookie.Options) { o.Metadata, o.Prepare = other, true }
	var exit *bookie.ExitError
	require.ErrorAs(t, m.start(), &exit)
	require.Equal(t, bookie.ExitIdentity, exit.Code, "%v", exit)
	m.change = func(*bookie.Options) {}
	require.NoError(t, m.start())
	k.check(id, 3)
}

func TestR12ShortLivedLedger(t *testing.T) {
	k := newKit(t, 0)
	begin := func(context.Context) error { return nil }
	ctx := k.ctx()
	for _, id := range []ledger.ID{1, 3} {
		_, err := k.views.Ledgers.Create(ctx, id, &ledger.Metadata{FormatVersion: 3, Ensemble: 1, WriteQuorum: 1, AckQuorum: 1, State: ledger.StateOpen,
			LastEntry: -1, Fragments: []ledger.Fragment{{Bookies: []ledger.BookieID{"bk0"}}}, Digest: ledger.DigestCRC32C, HasPassword: true})
		require.NoError(t, err)
	}
	here := &copiesHere{ids: []int64{1, 2, 3}} // 2 was deleted between the snapshot and the listing
	meta := &gc.Views{Records: k.views.Ledgers, Bookie: "bk0", Begin: begin}
	require.NoError(t, collect(t, meta, here))
	require.Equal(t, int64(1), here.deleted.Load(), "the deleted one, and it alone")
}

// TestR17DecommissionWithAnOpenIdleLedger: it is fenced and closed after the grace, moved, and the decommission ends; with
// re-replication switched off it says so instead of waiting for ever.
func TestR17DecommissionWithAnOpenIdleLedger(t *testing.T) {
	k := newKit(t, 4)
	w := k.create(quorum(3, 3, 3), 20, "bk1")
	done := k.closed(quorum(2, 2, 2), 10, "bk1")
	k.members[1].stop()
	require.NoError(t, k.views.Replication.SetEnabled(k.ctx(), false))
	o := EmptyOptions{Views: k.views, Bookie: "bk1", Poll: 20 * time.Millisecond}
	require.ErrorIs(t, Empty(k.ctx(), o), ErrDisabled)
	require.NoError(t, k.views.Replication.SetEnabled(k.ctx(), true))
	k.node("n1", patient)
	var reports []Progress
	o.Report = func(p Progress) { reports = append(reports, p) }
	require.NoError(t, Empty(k.ctx(), o))
	require.Equal(t, 2, reports[0].Total)
	require.Zero(t, reports[len(reports)-1].Ledgers)
	require.Positive(t, reports[len(reports)-1].Done)
	require.Equal(t, ledger.StateClosed, k.record(w.ID()).State)
	for id, n := range map[ledger.ID]int{w.ID(): 20, done: 10} {
		require.False(t, k.record(id).Names("bk1"))
		k.check(id, n)
	}
	require.Empty(t, k.marks())
}

func TestDecommissionNamesWhatCanNotMove(t *testing.T) {
	k := newKit(t, 3)
	single := k.closed(quorum(1, 1, 1), 5, "bk1")
	wide := k.closed(quorum(3, 3, 2), 5)
	k.members[1].stop()
	k.node("n1", patient)
	var stuck *StuckError
	require.ErrorAs(t, Empty(k.ctx(), EmptyOptions{Views: k.views, Bookie: "bk1", Poll: 20 * time.Millisecond}), &stuck)
	require.Len(t, stuck.Stuck, 2)
	require.Equal(t, single, stuck.Stuck[0].Ledger)
	require.Equal(t, wide, stuck.Stuck[1].Ledger)
	require.True(t, strings.Contains(stuck.Error(), "its only copy is there") && strings.Contains(stuck.Error(), "it needs 3 bookies"), stuck.Error())
}

// TestDrainOfALiveBookie: a read-only bookie that is being emptied is the source of what only it has.
func TestDrainOfALiveBookie(t *testing.T) {
	k := newKit(t, 4)
	single := k.closed(quorum(1, 1, 1), 5, "bk1")
	pair := k.closed(quorum(2, 2, 2), 15, "bk1")
	require.NoError(t, k.members[1].b.SetReadOnly(k.ctx(), true))
	require.NoError(t, k.views.Replication.SetDraining(k.ctx(), "bk1", true, time.Now()))
	k.node("n1", patient)
	require.NoError(t, Empty(k.ctx(), EmptyOptions{Views: k.views, Bookie: "bk1", Poll: 20 * time.Millisecond}))
	for id, n := range map[ledger.ID]int{single: 5, pair: 15} {
		require.False(t, k.record(id).Names("bk1"))
		k.check(id, n)
	}
}

func TestR18CookieRemovedByMistake(t *testing.T) {
	k := newKit(t, 1)
	id := k.closed(quorum(1, 1, 1), 3)
	m := k.members[0]
	text, v, err := k.views.Cookies.Get(k.ctx(), m.id)
	require.NoError(t, err)
	m.stop()
	require.NoError(t, k.views.Cookies.Delete(k.ctx(), m.id, v))
	var exit *bookie.ExitError
	require.ErrorAs(t, m.start(), &exit)
	require.Equal(t, bookie.ExitIdentity, exit.Code, "%v", exit)
	_, _, err = k.views.Cookies.Get(k.ctx(), m.id)
	require.ErrorIs(t, err, metadata.ErrNotFound, "it never makes one again by itself")
	_, err = k.views.Cookies.Put(k.ctx(), m.id, text, metadata.Absent)
	require.NoError(t, err)
	require.NoError(t, m.start())
	k.check(id, 3)
}
