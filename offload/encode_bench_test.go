package offload

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkEncode packs, sums and codes on one core (P2).
func BenchmarkEncode(b *testing.B) {
	for _, g := range []Geometry{{1, 0}, {2, 1}, {4, 2}, {10, 4}} {
		b.Run(g.String(), func(b *testing.B) {
			l := makeLedger(b, ledgerSpec{sizes: even(32<<10, 1024)})
			p := testPlan(l, g)
			p.cellBytes, p.blockBytes = CellBytesDefault, BlockBytesDefault
			pool := testPool(b, g.Shards()+4, p.cellBytes)
			b.SetBytes(l.meta.Length)
			for b.Loop() {
				e, err := newEncoder(p, progress{}, pool, func(_ context.Context, s *codedStripe) error {
					for _, c := range s.cells {
						pool.put(c)
					}
					return nil
				})
				require.NoError(b, err)
				for i := range l.bodies {
					entry := l.entry(b, i)
					if err := e.add(b.Context(), &entry); err != nil {
						b.Fatal(err)
					}
				}
				_, err = e.finish(b.Context())
				require.NoError(b, err)
			}
		})
	}
}
