package storage

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFigures: hits and misses add up, and the estimate of entries is close, before a log is sealed, beside sealed ones, and
// after a restart.
func TestFigures(t *testing.T) {
	e := newEnv(t, 1, 1, nil).open()
	e.checkpoint() // the one that Start begins would take what is added at once apart
	f := NewFigures(e.s)
	require.Equal(t, []int64{0}, f.Entries())
	const entries = 3000
	for entry := range int64(10) {
		e.mustAdd(1, entry, 500)
	}
	require.Equal(t, []int64{10}, f.Entries(), "in the write cache")
	e.requireEntry(1, 3, 500)
	d := f.Dirs()[0]
	require.EqualValues(t, 1, d.WriteCacheHits)
	require.EqualValues(t, 10, d.CacheEntries)
	for entry := int64(10); entry < entries; entry++ {
		e.mustAdd(1, entry, 500)
	}
	e.checkpoint()
	for range 5 { // footers are read a few at a time
		require.InEpsilon(t, entries, f.Entries()[0], 0.1)
	}
	for entry := range int64(200) {
		e.requireEntry(1, entry, 500)
	}
	d = f.Dirs()[0]
	require.Greater(t, d.Logs, 1)
	require.Greater(t, d.LogBytes, int64(entries*500))
	require.NotZero(t, d.ReadCacheMisses)
	require.NotZero(t, d.ReadCacheHits)
	require.Equal(t, d.WriteCacheMisses, d.ReadCacheHits+d.ReadCacheMisses)
	require.NotZero(t, d.Flushes)
	require.EqualValues(t, entries, d.FlushedEntries)
	require.NotZero(t, f.ReadCacheBytes())
	e.close()
	e.open()
	f = NewFigures(e.s)
	for range 5 {
		require.InEpsilon(t, entries, f.Entries()[0], 0.1)
	}
	e.close()
}
