package journal

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// TestZeroesArePaced: zeroes for segments that will be wanted keep 1.2 times the pace of the groups, and no more.
func TestZeroesArePaced(t *testing.T) {
	const second = int64(time.Second)
	for _, c := range []struct {
		name     string
		need     zeroNeed
		consumed uint64 // in ten milliseconds
		want     float64
	}{
		{"soon, busy: 1.2 bytes per byte", zeroSoon, 1 << 20, 1.2 * (1 << 20)},
		{"soon, idle: slowly", zeroSoon, 0, zeroIdle / 100},
		{"later, busy: nothing", zeroLater, 1 << 20, 0},
		{"later, idle: slowly", zeroLater, 0, zeroIdle / 100},
		{"urgent, busy: also by itself", zeroUrgent, 1 << 20, zeroUrgentBusy/100 + 1.2*(1<<20)},
		{"urgent, idle: fast", zeroUrgent, 0, zeroUrgentIdle / 100},
		{"no more than the disk may be held up for", zeroSoon, 1 << 30, zeroCredit},
	} {
		z := &zeroer{at: second, consumed: 77}
		z.earn(second+second/100, 77+c.consumed, c.need)
		require.InDelta(t, c.want, z.credit, 1, c.name)
		before := z.credit
		z.earn(second+second/100, 77+c.consumed, c.need) // no time, no bytes
		require.InDelta(t, before, z.credit, 1, c.name)
	}
}

// TestWritingDoesNotWaitForZeroes: while not one byte can be zeroed, start and switches go on with segments that are merely
// allocated, which are counted.
func TestWritingDoesNotWaitForZeroes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{SegmentSize: 2 * zeroChunk, MaxGroupBytes: 64 << 10, IO: IODSync}
		mem, log := memfs.New(), &logBuffer{}
		o.Logger = log.logger()
		fs := errorfs.Wrap(mem, errorfs.Func("no zeroes", func(op errorfs.Op) errorfs.Fault {
			if op.Kind == errorfs.Write && op.Len == zeroChunk {
				return errorfs.Fault{Err: syscall.EIO}
			}
			return errorfs.Fault{}
		}))
		j := mustStart(t, fs, "/j", o)
		defer j.Close() //nolint:errcheck // again, if a check failed
		h := newHistory()
		for n := range 90 {
			require.NoError(t, h.appendBatch(j, 1, 30000))
			if n%5 == 0 {
				time.Sleep(retryPause) // the preparer tries again, in vain
			}
		}
		s := j.Stats()
		require.Zero(t, s.SegmentsZeroed)
		require.Greater(t, s.SegmentsUnprepared, uint64(4))
		require.NotEmpty(t, log.lines("can not zero ahead"))
		require.NoError(t, j.Close())
		h.check(t, mem, o, "restart")
	})
}

// TestZeroesUseUpTheirCredit: with credit for two chunks two are written, and then the preparer pauses.
func TestZeroesUseUpTheirCredit(t *testing.T) {
	o := Options{SegmentSize: 8 * zeroChunk, IO: IODSync}
	mem := memfs.New("/j/current")
	j := mustOpen(t, mem, "/j", o)
	s, err := j.newSpare(1)
	require.NoError(t, err)
	j.spares, j.cur = []*spareFile{s, {zeroed: true}, {zeroed: true}}, &segment{zeroed: true} // enough for now: time gives no credit
	z := &zeroer{fs: mem, dir: "/j", size: o.SegmentSize, credit: 2*zeroChunk + 1}
	j.mu.Lock()
	step := func() time.Duration {
		j.st.WrittenBytes++ // busy
		return j.zeroLocked(z)
	}
	require.Zero(t, step())
	require.Zero(t, step())
	require.Equal(t, zeroPause, step())
	require.EqualValues(t, 2*zeroChunk, j.st.ZeroedBytes)
	require.EqualValues(t, 2*zeroChunk, s.done)
	j.mu.Unlock()
	z.close()
	require.NoError(t, j.Close())
}
