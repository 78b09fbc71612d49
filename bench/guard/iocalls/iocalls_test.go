package iocalls

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMeasureCountsReadsAndWrites(t *testing.T) {
	if _, ok := count(); !ok {
		t.Skip("runs where the kernel counts: Linux with /proc/self/io")
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer f.Close()
	r := testing.Benchmark(func(b *testing.B) {
		Measure(b, func() {
			for range b.N {
				for range 3 {
					if _, err := f.WriteAt([]byte("x"), 0); err != nil {
						b.Error(err)
					}
				}
				if _, err := f.ReadAt(make([]byte, 1), 0); err != nil {
					b.Error(err)
				}
			}
		})
	})
	require.InDelta(t, 4, r.Extra[Unit], 0.1)
}
