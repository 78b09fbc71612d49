package offload

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBufferPoolBoundsWhatItMaps(t *testing.T) {
	p := newBufferPool(2, 1<<20)
	a, err := p.get(t.Context())
	require.NoError(t, err)
	b, ok := p.tryGet()
	require.True(t, ok)
	_, ok = p.tryGet()
	require.False(t, ok, "two are out")
	a = extend(append(a, 1, 2, 3), 1<<20)
	require.Equal(t, 1<<20, cap(a))
	require.Equal(t, []byte{1, 2, 3, 0}, a[:4])
	p.put(a)
	a, err = p.get(t.Context())
	require.NoError(t, err)
	require.Empty(t, a)
	require.Equal(t, []byte{0, 0, 0, 0}, extend(a, 4), "what the last user left is gone")
	p.put(a)
	p.put(b)
	require.Len(t, p.mapped, 2)
	require.NoError(t, p.close())
	require.NoError(t, p.close(), "twice is fine")
}

func TestCellBuffersAreUsedAgain(t *testing.T) {
	c := newCellBuffers(Geometry{2, 1})
	a, err := c.get(1, 4096)
	require.NoError(t, err)
	copy(a, "a cell")
	b, err := c.get(1, 6)
	require.NoError(t, err)
	require.Equal(t, "a cell", string(b))
	b, err = c.get(1, 1<<20)
	require.NoError(t, err)
	require.Len(t, b, 1<<20)
	require.NoError(t, c.close())
	require.NoError(t, c.close(), "twice is fine")

	heap, err := cellBuffers(nil).get(7, 3)
	require.NoError(t, err)
	require.Equal(t, []byte{0, 0, 0}, heap)
}
