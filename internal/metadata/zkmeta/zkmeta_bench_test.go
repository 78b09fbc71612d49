package zkmeta

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/metadatatest"
)

// BenchmarkLedgers makes ledgers (an id and a record each), writes and reads records, with 1 and with 256 callers.
func BenchmarkLedgers(b *testing.B) {
	z := startServer(b, 2000)
	s := z.open(Options{SessionTTL: 30 * time.Second})
	defer s.Close()
	ctx := context.Background()
	l := metadata.NewLedgers(s, "/ledgers")
	var own atomic.Int64
	own.Store(1 << 40)
	for _, callers := range []int{1, 256} {
		run := func(b *testing.B, fn func(i int) error) {
			var next atomic.Int64
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						if err := fn(int(i)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		}
		b.Run(fmt.Sprintf("create/callers=%d", callers), func(b *testing.B) {
			run(b, func(int) error {
				id, err := l.NewID(ctx)
				if err == nil {
					_, err = l.Create(ctx, id, metadatatest.Record())
				}
				return err
			})
		})
		b.Run(fmt.Sprintf("write/callers=%d", callers), func(b *testing.B) {
			run(b, func(int) error {
				_, err := l.Create(ctx, ledger.ID(own.Add(1)), metadatatest.Record())
				return err
			})
		})
		b.Run(fmt.Sprintf("read/callers=%d", callers), func(b *testing.B) {
			run(b, func(int) error {
				_, _, err := l.Read(ctx, ledger.ID(0))
				return err
			})
		})
	}
}
