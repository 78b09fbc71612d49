package ledgerclient

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/wire"
)

// asked opens a closed ledger of n entries of the given size, has its bookies swallow every read, and returns the reads that
// one iteration has under way.
func asked(t *testing.T, q Quorum, n, size int) []wire.Request {
	ctx := testContext(t)
	c := newCluster(t, q.Ensemble)
	client, _ := c.client(func(o *Options) { o.HedgeDelay = time.Minute; o.ReadTimeout = time.Minute })
	w, err := client.Create(ctx, CreateOptions{Quorum: q})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range n {
		wg.Add(1)
		w.AppendAsync(make([]byte, size), func(_ EntryID, err error) {
			require.NoError(t, err)
			wg.Done()
		})
	}
	wg.Wait()
	require.NoError(t, w.Close(ctx))
	r, err := client.Open(ctx, w.ID(), OpenOptions{})
	require.NoError(t, err)
	var mu sync.Mutex
	var reads []wire.Request
	for _, b := range c.bookies {
		b.setFault(func(q *wire.Request) fault {
			if q.Op != wire.OpRead && q.Op != wire.OpBatchRead {
				return fault{}
			}
			mu.Lock()
			defer mu.Unlock()
			reads = append(reads, *q)
			return fault{drop: true}
		})
	}
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // until nothing has come for a while
		defer cancel()
		for last, quiet := 0, 0; ctx.Err() == nil && quiet < 4; {
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			if now := len(reads); now == 0 || now > last {
				last, quiet = now, 0
			} else {
				quiet++
			}
			mu.Unlock()
		}
	}()
	for _, err := range r.Entries(short, 0, EntryID(n-1)) {
		require.ErrorIs(t, err, context.Canceled)
	}
	mu.Lock()
	defer mu.Unlock()
	return reads
}

// TestReadAheadWindow: what an iteration has under way is bounded by bytes, in requests that fit the buffers that bookies keep.
func TestReadAheadWindow(t *testing.T) {
	const keptByBookies = 256 << 10
	for _, tc := range []struct {
		name     string
		q        Quorum
		n, size  int
		requests int // at least
	}{
		{"64 KiB entries", quorum(3, 3, 2), 128, 64 << 10, 16},
		{"1 KiB entries", quorum(3, 3, 2), 20000, 1 << 10, 16},
		{"striped", quorum(3, 2, 2), 2000, 1 << 10, 500},
		{"1 MiB entries", quorum(3, 3, 2), 20, 1 << 20, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reads := asked(t, tc.q, tc.n, tc.size)
			require.GreaterOrEqual(t, len(reads), tc.requests)
			total := 0
			for _, r := range reads {
				n := 1
				if r.Op == wire.OpBatchRead {
					n = int(r.MaxCount)
					require.Less(t, r.MaxSize, int64(keptByBookies))
					require.Less(t, n*tc.size, keptByBookies)
				}
				total += n * tc.size
			}
			require.LessOrEqual(t, total, 4<<20+keptByBookies+tc.size, "the default window")
		})
	}
}
