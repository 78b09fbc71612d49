package ledgerclient

import (
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
