package index

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/entrylog"
)

// TestBoltOnAFullDisk fills a real file system under a real index: every transaction is there whole or not at all, what was
// there stays readable, and when space returns the same process goes on.
func TestBoltOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("mounts a small file system: runs as root on Linux: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
	ballast := filepath.Join(dir, "ballast")
	require.NoError(t, os.WriteFile(ballast, make([]byte, 512<<10), 0o600))
	x, err := OpenBolt(filepath.Join(dir, FileName), Options{})
	require.NoError(t, err)
	logRun := func(n int, e int64) entrylog.Run { // sizes that do not compress
		r := run(int64(n%7), int64(n)*1000+e, 50, entrylog.LogID(n), 4096, 64)
		r.Sizes = make([]uint32, r.Count)
		for i := range r.Sizes {
			r.Sizes[i] = uint32(1000 + (i*7919+n*104729)%60000)
		}
		return r
	}
	runsOf := func(n int) (runs []entrylog.Run) {
		for e := int64(0); e < 1000; e += 50 {
			runs = append(runs, logRun(n, e))
		}
		return runs
	}
	ingest := func(n int) error {
		return x.Ingest(context.Background(), logInfo(entrylog.LogID(n)), seqOf(runsOf(n)), nil)
	}
	n := 1
	for ; ; n++ {
		if err = ingest(n); err != nil {
			break
		}
		require.Less(t, n, 10000, "the disk is never full")
	}
	require.ErrorIs(t, err, ErrNoSpace)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Greater(t, n, 20)
	there := func(upTo int) {
		t.Helper()
		for k := 1; k <= upTo; k++ {
			ok, err := x.Ingested(entrylog.LogID(k))
			require.NoError(t, err)
			require.True(t, ok, "log %d", k)
			for _, r := range runsOf(k) {
				got, err := x.Locate(r.Ledger, r.First+17)
				require.NoError(t, err)
				require.Equal(t, r.Location(17), got)
			}
		}
	}
	there(n - 1)
	ok, err := x.Ingested(entrylog.LogID(n))
	require.NoError(t, err)
	require.False(t, ok)
	for range 5 {
		require.ErrorIs(t, ingest(n), ErrNoSpace)
	}
	checked(t, x)

	require.NoError(t, os.Remove(ballast))
	require.NoError(t, ingest(n))
	there(n)
	require.NoError(t, x.Close())
	x, err = OpenBolt(filepath.Join(dir, FileName), Options{})
	require.NoError(t, err)
	there(n)
	checked(t, x)
	require.NoError(t, x.Close())
}
