package vfstest

import (
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
)

// testModel makes a long seeded run of writes, truncations and preallocations and compares the file with a byte slice
// after each.
func testModel(t *testing.T, e env) {
	const seed, sizeMax = 20, 40_000
	rng := rand.New(rand.NewPCG(seed, 1))
	f := e.open(t, "a", rw)
	var want []byte
	grow := func(size int) {
		if size > len(want) {
			want = append(want, make([]byte, size-len(want))...)
		}
	}
	for step := range 400 {
		switch rng.IntN(8) {
		case 0:
			size := rng.IntN(sizeMax)
			require.NoError(t, f.Truncate(int64(size)))
			grow(size)
			want = want[:size]
		case 1:
			size := rng.IntN(sizeMax)
			require.NoError(t, f.Preallocate(int64(size)))
			grow(size)
		case 2:
			require.NoError(t, f.Sync())
		default:
			p := make([]byte, rng.IntN(9000))
			if rng.IntN(4) != 0 { // now and then zeros
				for i := range p {
					p[i] = byte(rng.IntN(256))
				}
			}
			off := rng.IntN(sizeMax)
			if rng.IntN(2) == 0 {
				off = off / vfs.Align * vfs.Align
			}
			n, err := f.WriteAt(p, int64(off))
			require.NoError(t, err)
			require.Equal(t, len(p), n)
			if len(p) > 0 {
				grow(off + len(p))
			}
			copy(want[min(off, len(want)):], p)
		}
		size, err := f.Size()
		require.NoError(t, err)
		require.EqualValues(t, len(want), size, "step %d", step)
		got := make([]byte, len(want)+1)
		n, err := f.ReadAt(got, 0)
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, string(want), string(got[:n]), "step %d", step)
	}
}
