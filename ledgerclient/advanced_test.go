package ledgerclient

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAdvancedWriter: ids in random order from many goroutines are confirmed in order, each with its own payload.
func TestAdvancedWriter(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 4)
	client, _ := c.client()
	w, err := client.CreateAdvanced(ctx, CreateOptions{Quorum: quorum(3, 2, 2)})
	require.NoError(t, err)
	const n = 500
	order := rand.New(rand.NewPCG(1, 2)).Perm(n)
	var mu sync.Mutex
	var done []EntryID
	var wg sync.WaitGroup
	for g := range 5 {
		wg.Go(func() {
			for i := g; i < n; i += 5 {
				id := EntryID(order[i])
				wg.Add(1)
				w.AppendAsync(id, payload(id), func(got EntryID, err error) {
					defer wg.Done()
					mu.Lock()
					defer mu.Unlock()
					require.NoError(t, err)
					done = append(done, got)
				})
			}
		})
	}
	wg.Wait()
	require.Len(t, done, n)
	for i, id := range done {
		require.Equal(t, EntryID(i), id, "confirmed in the order of ids")
	}
	require.ErrorIs(t, w.Append(ctx, 7, []byte("again")), ErrDuplicateEntry)
	require.NoError(t, w.Append(ctx, n, payload(n)))
	require.NoError(t, w.Close(ctx))
	r, err := client.Open(ctx, w.ID(), OpenOptions{})
	require.NoError(t, err)
	require.Equal(t, EntryID(n), r.LastAddConfirmed())
	readAll(t, r, 0, n)
	require.ErrorIs(t, w.Append(ctx, n+1, nil), ErrClosed)
}

// TestAdvancedWriterGap: what comes after a gap waits, is not given twice, and fails with the close, which ends the ledger in
// front of the gap.
func TestAdvancedWriterGap(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client()
	w, err := client.CreateAdvanced(ctx, CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, w.Append(ctx, 0, payload(0)))
	var mu sync.Mutex
	var lost []string
	for _, id := range []EntryID{5, 3, 4} {
		w.AppendAsync(id, payload(id), func(got EntryID, err error) {
			mu.Lock()
			defer mu.Unlock()
			require.ErrorIs(t, err, ErrClosed)
			lost = append(lost, fmt.Sprint(got, " ", err))
		})
	}
	require.ErrorIs(t, w.Append(ctx, 4, nil), ErrDuplicateEntry)
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, w.Append(short, 6, nil), context.DeadlineExceeded)
	require.NoError(t, w.Append(ctx, 1, payload(1)))
	require.Equal(t, EntryID(1), w.LastAddConfirmed())
	require.NoError(t, w.Close(ctx))
	require.Equal(t, []string{
		"3 ledger 0 entry 3: entry 2 was never added: closed", "4 ledger 0 entry 4: entry 2 was never added: closed", "5 ledger 0 entry 5: entry 2 was never added: closed",
	}, lost)
	require.Equal(t, EntryID(1), c.record(w.ID()).LastEntry)
	require.Eventually(t, func() bool { return client.budget.free.Load() == client.o.MaxPendingBytes }, 30*time.Second, time.Millisecond, "all memory is given back")
}

// TestAdvancedWriterMemory: adds behind a gap use up the memory; the one that fills the gap does not wait for it.
func TestAdvancedWriterMemory(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client(func(o *Options) { o.MaxPendingBytes = 6 << 20 })
	w, err := client.CreateAdvanced(ctx, CreateOptions{})
	require.NoError(t, err)
	const n = 16 // of half a mebibyte: more than the bound
	var wg sync.WaitGroup
	for id := EntryID(2); id <= n; id++ {
		wg.Go(func() { require.NoError(t, w.Append(ctx, id, make([]byte, 500<<10))) })
	}
	require.Eventually(t, func() bool { return client.budget.waiting.Load() > 0 }, 30*time.Second, time.Millisecond)
	wg.Go(func() { require.NoError(t, w.Append(ctx, 1, make([]byte, 500<<10))) }) // waits for memory, too, until its turn
	time.Sleep(10 * time.Millisecond)
	require.NoError(t, w.Append(ctx, 0, make([]byte, 500<<10)))
	wg.Wait()
	require.Equal(t, EntryID(n), w.LastAddConfirmed())
	require.NoError(t, w.Close(ctx))
	require.Eventually(t, func() bool { return client.budget.free.Load() == client.o.MaxPendingBytes }, 30*time.Second, time.Millisecond)
}

// TestAdvancedWriterFenced: another client ends the ledger; adds that wait for a gap are told.
func TestAdvancedWriterFenced(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client()
	w, err := client.CreateAdvanced(ctx, CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, w.Append(ctx, 0, payload(0)))
	held := make(chan error, 1)
	w.AppendAsync(2, payload(2), func(_ EntryID, err error) { held <- err })
	other, _ := c.client()
	_, err = other.Open(ctx, w.ID(), OpenOptions{Recover: true})
	require.NoError(t, err)
	require.Error(t, w.Append(ctx, 1, payload(1)))
	require.Error(t, <-held)
}

func TestExplicitLedgerID(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client()
	id, bad := LedgerID(1<<40+5), LedgerID(-3)
	w, err := client.Create(ctx, CreateOptions{ID: &id})
	require.NoError(t, err)
	require.Equal(t, id, w.ID())
	appendMany(t, w, 0, 3)
	require.NoError(t, w.Close(ctx))
	_, err = client.Create(ctx, CreateOptions{ID: &id})
	require.ErrorIs(t, err, ErrLedgerExists)
	require.EqualError(t, err, "create ledger 1099511627781: ledger exists")
	_, err = client.Create(ctx, CreateOptions{ID: &bad})
	require.ErrorContains(t, err, "ids start at 0")
}

func TestOpportunisticStriping(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 4)
	client, _ := c.client()
	_, err := client.Create(ctx, CreateOptions{Quorum: quorum(6, 3, 2)})
	require.ErrorIs(t, err, ErrNotEnoughBookies)
	w, err := client.Create(ctx, CreateOptions{Quorum: quorum(6, 3, 2), OpportunisticStriping: true})
	require.NoError(t, err)
	require.Equal(t, 4, c.record(w.ID()).Ensemble, "the smaller ensemble is what is stored")
	appendMany(t, w, 0, 19)
	sealAndCheck(t, c, w, 19)
	_, err = client.Create(ctx, CreateOptions{Quorum: quorum(6, 5, 2), OpportunisticStriping: true})
	require.ErrorIs(t, err, ErrNotEnoughBookies, "never below the write quorum")
}

// TestDelayedEnsembleChange: a bookie goes away and comes back under a writer that can do without it: the record stays as it
// is, and the bookie takes part again. A second failure brings the change.
func TestDelayedEnsembleChange(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 5)
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{Quorum: quorum(3, 3, 2), DelayEnsembleChange: true})
	require.NoError(t, err)
	appendMany(t, w, 0, 9)
	ensemble := c.record(w.ID()).Last().Bookies
	gone := c.bookie(ensemble[1])
	gone.stop()
	appendMany(t, w, 10, 19)
	require.Len(t, c.record(w.ID()).Fragments, 1)
	gone.start(t)
	next := EntryID(20)
	require.Eventually(t, func() bool {
		appendMany(t, w, next, next)
		next++
		_, has := gone.holds(w.ID(), next-1)
		return has
	}, 30*time.Second, 50*time.Millisecond, "it is sent entries again")
	require.Len(t, c.record(w.ID()).Fragments, 1)
	gone.stop()
	appendMany(t, w, next, next)
	c.bookie(ensemble[2]).stop()
	appendMany(t, w, next+1, next+10)
	require.NotEqual(t, ensemble, c.record(w.ID()).Last().Bookies)
	require.NoError(t, w.Close(ctx))
	c.checkStored(w.ID(), next+10)

	// A bookie that turns read-only is replaced at once.
	c = newCluster(t, 4)
	client, _ = c.client()
	w, err = client.Create(ctx, CreateOptions{Quorum: quorum(3, 3, 2), DelayEnsembleChange: true})
	require.NoError(t, err)
	appendMany(t, w, 0, 0)
	full := c.bookie(c.record(w.ID()).Last().Bookies[0])
	full.readOnly.Store(true)
	next = 1
	require.Eventually(t, func() bool {
		appendMany(t, w, next, next)
		next++
		return c.record(w.ID()).Last().Bookies[0] != full.id
	}, 30*time.Second, 10*time.Millisecond)
}

// TestAdvancedWriterEndsInBetween: the writer ends between two entries of which the first one was held up for the second. Each
// is told before Close returns, in order: the one without a gap before it why the writer ended.
func TestAdvancedWriterEndsInBetween(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	client, _ := c.client()
	w, err := client.CreateAdvanced(ctx, CreateOptions{})
	require.NoError(t, err)
	var lost []string
	note := func(id EntryID, err error) { lost = append(lost, fmt.Sprint(id, " ", err)) }
	w.AppendAsync(1, payload(1), note)
	w.AppendAsync(3, payload(3), note)
	w.w.mu.Lock()
	w.w.ended = ErrFenced
	w.w.mu.Unlock()
	w.mu.Lock()
	w.next = 1 // 0 was sent just before
	w.mu.Unlock()
	w.AppendAsync(4, payload(4), note)
	require.ErrorIs(t, w.Append(ctx, 2, payload(2)), ErrFenced)
	require.NoError(t, w.Close(ctx))
	require.Equal(t, []string{
		"1 ledger is fenced by another client", "3 ledger 0 entry 3: entry 1 was never added: closed", "4 ledger 0 entry 4: entry 1 was never added: closed",
	}, lost)
	require.Eventually(t, func() bool { return client.budget.free.Load() == client.o.MaxPendingBytes }, 30*time.Second, time.Millisecond, "all memory is given back")
}
