package entrylog

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// TestLargeLogIsRemovedInSteps: no step frees more than removeStep, readers see the log gone from the first on, and a crash in
// between any two is no damage: the next start deletes the rest.
func TestLargeLogIsRemovedInSteps(t *testing.T) {
	disk := memfs.New(testDir)
	aside := filepath.Join(testDir, "1"+removingSuffix)
	var crashed []*memfs.FS
	var sizes []int64
	watch := errorfs.OnPath(aside, errorfs.Func("watch", func(op errorfs.Op) errorfs.Fault {
		if op.Kind == errorfs.Truncate || op.Kind == errorfs.Remove {
			info, err := disk.Stat(aside)
			require.NoError(t, err)
			sizes = append(sizes, info.Size)
			crashed = append(crashed, disk.CrashClone(uint64(len(sizes)), 0.5))
		}
		return errorfs.Fault{}
	}))
	o := smallOptions()
	o.LogSize, o.BufferSize, o.PreallocateSize = 1<<30, 1<<20, 8<<20
	s, _ := mustOpen(t, errorfs.Wrap(disk, watch), o)
	m := newModel()
	var b batch
	const entries = 22
	for i := range int64(entries) {
		b.add(1, i, 1<<20, 0)
	}
	require.NoError(t, m.write(s, &b))
	require.NoError(t, s.Roll())
	s.wg.Wait()
	require.NoError(t, s.Remove(1))
	require.Empty(t, s.Pending())
	require.Len(t, sizes, 6, "five steps, then what is left")
	for i, size := range append(sizes, 0)[1:] {
		require.LessOrEqual(t, sizes[i]-size, int64(removeStep))
	}
	_, err := s.Read(m.at[entryID{1, 0}], nil)
	require.ErrorIs(t, err, ErrNoLog)
	require.NoError(t, s.Close())
	for _, left := range append(crashed, disk) {
		s, r := openStore(t, left, o)
		require.Empty(t, r.Damage)
		require.Empty(t, s.Logs())
		require.NoError(t, s.Close())
		require.NotContains(t, left.Files(), aside)
	}
}

// TestNearlyFullDiskGetsSpaceAtOnce: where space is short nobody waits for steps.
func TestNearlyFullDiskGetsSpaceAtOnce(t *testing.T) {
	disk := memfs.New(testDir)
	disk.SetCapacity(80 << 20)
	o := smallOptions()
	o.LogSize, o.BufferSize, o.PreallocateSize = 1<<30, 1<<20, 8<<20
	s, _ := mustOpen(t, disk, o)
	var b batch
	for i := range int64(22) {
		b.add(1, i, 1<<20, 0)
	}
	require.NoError(t, newModel().write(s, &b))
	require.NoError(t, s.Roll())
	s.wg.Wait()
	counted := errorfs.Wrap(disk, errorfs.None())
	s.fs = counted
	require.NoError(t, s.Remove(1))
	require.Zero(t, counted.Count(errorfs.Truncate|errorfs.Rename))
	require.NoError(t, s.Close())
}

// TestReservation: a log that is sealed soon after it has reached its size has no more than a small step to give back.
func TestReservation(t *testing.T) {
	r := reservation{step: 64 << 20, logSize: 200 << 20}
	for _, x := range []struct{ end, to int64 }{
		{1, 64 << 20}, {64 << 20, 64 << 20}, {64<<20 + 1, 128 << 20}, {192<<20 + 1, 200 << 20}, {200 << 20, 200 << 20},
		{200<<20 + 1, 204 << 20}, {204<<20 + 1, 208 << 20},
	} {
		require.Equal(t, x.to, r.upTo(x.end), "a write that ends at %d", x.end)
	}
	require.Equal(t, int64(36<<10), reservation{4 << 10, 16 << 10}.upTo(33<<10), "a small step stays small")
	require.Equal(t, int64(100<<20), reservation{64 << 20, 100 << 20}.upTo(70<<20))
}
