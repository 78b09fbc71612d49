package ledgerclient

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/bench/guard/iocalls"
)

// BenchmarkGuard adds to a ledger on three bookies that store nothing, in batches that are confirmed before the next one.
// What it allocates and how often it calls the system, those bookies together with the client, are held against a recorded
// run (bench/guard).
func BenchmarkGuard(b *testing.B) {
	for _, batch := range []int{1, 16} {
		b.Run(fmt.Sprintf("entry=1k/batch=%d", batch), func(b *testing.B) {
			c := newCluster(b, 3)
			for _, x := range c.bookies {
				x.discard = true
			}
			client, _ := c.client()
			w, err := client.Create(context.Background(), CreateOptions{Quorum: quorum(3, 3, 3)})
			require.NoError(b, err)
			data := make([]byte, 1<<10)
			confirmed := make(chan error, batch)
			done := func(_ EntryID, err error) { confirmed <- err }
			add := func(n int) {
				for ; n > 0; n -= batch {
					for range batch {
						w.AppendAsync(data, done)
					}
					for range batch {
						if err := <-confirmed; err != nil {
							b.Fatal(err)
						}
					}
				}
			}
			add(8 * batch)
			iocalls.Measure(b, func() { add(b.N) })
			require.NoError(b, w.Close(context.Background()))
		})
	}
}
