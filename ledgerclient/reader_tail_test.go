package ledgerclient

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/wire"
)

// TestTailRests: bookies do not hold back what they say of a ledger that is fenced, or that they have not seen yet. A reader that
// follows such a ledger does not ask them again and again, and still gets what comes.
func TestTailRests(t *testing.T) {
	for name, code := range map[string]wire.Code{"fenced": wire.OK, "not seen yet": wire.NoLedger} {
		t.Run(name, func(t *testing.T) {
			ctx := testContext(t)
			c := newCluster(t, 3)
			client, _ := c.client(func(o *Options) { o.ExplicitLACInterval = 50 * time.Millisecond })
			w, err := client.Create(ctx, CreateOptions{})
			require.NoError(t, err)
			var polls atomic.Int64
			for _, b := range c.bookies {
				b.setFault(func(r *wire.Request) fault {
					if !r.HasPreviousLAC {
						return fault{}
					}
					polls.Add(1)
					return fault{act: true, code: code}
				})
			}
			reader, _ := c.client(func(o *Options) { o.LongPollTimeout = time.Hour })
			r, err := reader.Open(ctx, w.ID(), OpenOptions{})
			require.NoError(t, err)
			begin := time.Now()
			got := make(chan EntryID, 1)
			done := make(chan error, 1)
			go func() {
				for e, err := range r.Tail(ctx, 0) {
					if err != nil {
						done <- err
						return
					}
					got <- e.ID
				}
				done <- nil
			}()
			time.Sleep(time.Second)
			n, most := polls.Load(), 2*(int64(time.Since(begin)/restMax)+10) // two bookies in each round, the first rounds are closer
			require.LessOrEqual(t, n, most)
			require.Eventually(t, func() bool { return polls.Load() > n }, time.Minute, time.Millisecond, "it does not give up")
			for _, b := range c.bookies {
				b.setFault(nil)
			}
			appendMany(t, w, 0, 0)
			require.Equal(t, EntryID(0), <-got)
			require.NoError(t, w.Close(ctx))
			require.NoError(t, <-done)
		})
	}
}

// TestTailOfBookiesThatDoNotWake: a bookie of Apache may hold an answer back until its time is over though there is news
// (bookie-wire.md 3.4). A reader that has just had news does not leave it much time; one that waits for long asks less often.
func TestTailOfBookiesThatDoNotWake(t *testing.T) {
	ctx := testContext(t)
	c := newCluster(t, 3)
	var polls atomic.Int64
	for _, b := range c.bookies {
		b.deaf.Store(true)
		b.setFault(func(r *wire.Request) fault {
			if r.HasPreviousLAC {
				polls.Add(1)
			}
			return fault{}
		})
	}
	client, _ := c.client()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	reader, _ := c.client(func(o *Options) { o.LongPollTimeout = time.Hour })
	r, err := reader.Open(ctx, w.ID(), OpenOptions{})
	require.NoError(t, err)
	got, done := make(chan EntryID), make(chan error, 1)
	go func() {
		defer close(got)
		for e, err := range r.Tail(ctx, 0) {
			if err != nil {
				done <- err
				return
			}
			got <- e.ID
		}
		done <- nil
	}()
	for i := range EntryID(20) {
		appendMany(t, w, i, i)
		if i > 0 { // each entry tells bookies of the one before
			require.Equal(t, i-1, <-got)
		}
	}
	require.NoError(t, w.Close(ctx))
	require.Equal(t, EntryID(19), <-got)
	require.NoError(t, <-done)

	idle, err := client.Create(ctx, CreateOptions{})
	require.NoError(t, err)
	appendMany(t, idle, 0, 0)
	r, err = reader.Open(ctx, idle.ID(), OpenOptions{})
	require.NoError(t, err)
	waiting, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	for _, err := range r.Tail(waiting, 0) {
		if err == nil { // entry 0
			polls.Store(0)
			continue
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	require.LessOrEqual(t, polls.Load(), int64(2*7), "polls of 25, 50, ... 1,600 ms, each at two bookies")
	require.NoError(t, idle.Close(ctx))
}
