package journal

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// TestAReplayFromTheEndForgetsNothing: a start whose mark lies behind every group still writes down where the journal
// ended, so that a look at the whole directory finds all of it.
func TestAReplayFromTheEndForgetsNothing(t *testing.T) {
	o := crashOptions(IODSync)
	mem, h := filled(t, o, 12)
	for range 3 {
		j := mustOpen(t, mem, "/j", o)
		r, err := j.Replay(0, nil)
		require.NoError(t, err)
		mark := r.End + 5
		_, err = j.Replay(mark, nil)
		require.NoError(t, err)
		require.NoError(t, j.Start())
		require.GreaterOrEqual(t, j.Mark(), mark)
		require.NoError(t, h.appendBatch(j, 2, 100))
		h.mark = 0 // nothing was trimmed
		lost := mem.CrashClone(uint64(h.next), 0)
		require.NoError(t, j.Close())
		h.check(t, lost, o, "from the beginning")
		mem = lost
	}
	for range 3 { // from the second one on, the first segment that is looked at is an empty one
		k := mustOpen(t, mem, "/j", o)
		_, err := k.Replay(1<<40, nil)
		require.NoError(t, err)
		require.NoError(t, k.Start())
		require.NoError(t, k.Close())
		h.check(t, mem, o, "after a start that read nothing")
	}
}

// TestReplayBeginsAtTheMark: for every position of the journal, a replay from there gives exactly the records at or behind it.
func TestReplayBeginsAtTheMark(t *testing.T) {
	o := crashOptions(IODSync)
	mem, h := filled(t, o, 12)
	j := mustStart(t, mem, "/j", o) // a second run
	for b := range 6 {
		require.NoError(t, h.appendBatch(j, 1+b%3, 4000))
	}
	require.NoError(t, j.Close())
	_, r := replayAll(t, mem, "/j", o, 0)
	for from := h.appended[0] - 1; from <= r.End+1; from++ {
		if from > h.appended[0]+100 && from < h.appended[h.next-1]-100 {
			from = h.appended[h.next-1] - 100 // between the runs
		}
		var want []int
		for i := range h.next {
			if h.appended[i] >= from {
				want = append(want, i)
			}
		}
		got, part := replayAll(t, mem, "/j", o, from)
		require.Equal(t, want, got, "from %d", from)
		require.Equal(t, max(r.End, from), part.End)
		require.True(t, part.Whole)
	}
}

// TestRecycledSegmentsGetANewLife: a file that becomes a segment again has a higher id and another salt than any before.
func TestRecycledSegmentsGetANewLife(t *testing.T) {
	o := crashOptions(IODSync)
	mem, h := memfs.New(), newHistory()
	salts, highest := map[uint64]uint64{}, uint64(0)
	look := func(fs vfs.FS) {
		d, err := readDirectory(fs, "/j")
		require.NoError(t, err)
		for _, s := range d.segments {
			require.NoError(t, s.err)
			if salt, ok := salts[s.id]; ok {
				require.Equal(t, salt, s.header.salt, "segment %d has changed", s.id)
				continue
			}
			require.Greater(t, s.id, highest)
			highest = s.id
			for id, salt := range salts {
				require.NotEqual(t, salt, s.header.salt, "segments %d and %d", id, s.id)
			}
			salts[s.id] = s.header.salt
		}
	}
	for range 3 {
		j := mustStart(t, mem, "/j", o)
		before := j.Stats().SegmentsRecycled
		for b := 0; j.Stats().SegmentsRecycled < before+6; b++ {
			require.Less(t, b, 2000, "nothing is recycled")
			require.NoError(t, h.appendBatch(j, 2, 4000))
			require.NoError(t, h.trim(j, 3))
			look(mem.CrashClone(uint64(b), 0))
		}
		require.NoError(t, j.Close())
		mem = mem.CrashClone(1, 0)
		h.check(t, mem, o, "restart")
	}
	require.Greater(t, len(salts), 12)
}

// TestADamagedEndIsFoundAgain: a start in between does not make a damaged end of the journal forgotten: whoever reacts to the
// damage may die before that is durable. Only a mark behind it does.
func TestADamagedEndIsFoundAgain(t *testing.T) {
	o := crashOptions(IODSync)
	for _, where := range []string{"behind the last group", "first block of the next segment"} {
		t.Run(where, func(t *testing.T) {
			mem, h := memfs.New(), newHistory()
			first := mustStart(t, mem, "/j", o)
			for range 3 {
				waitPrepared(t, first)
				require.NoError(t, h.appendBatch(first, 3, 1000))
			}
			waitPrepared(t, first)
			require.NoError(t, first.Close())
			places := groupPlaces(t, mem, "/j")
			last := places[len(places)-1]
			require.Less(t, last.off+last.header.extent(), o.SegmentSize)
			file, bad := last.file, last.off+last.header.extent()
			if where != "behind the last group" {
				d, err := readDirectory(mem, "/j")
				require.NoError(t, err)
				next := d.segments[len(d.segments)-1]
				require.Greater(t, next.id, last.id, "no segment was prepared")
				file, bad = next.name, segmentHeaderBytes
			}
			fs := errorfs.Wrap(mem, errorfs.Func("a bad sector", func(op errorfs.Op) errorfs.Fault {
				if op.Kind == errorfs.Read && op.Path == file && op.Off <= bad && bad < op.Off+int64(op.Len) {
					return errorfs.Fault{Err: syscall.EIO}
				}
				return errorfs.Fault{}
			}))
			var end Position
			for life := range 3 {
				j := mustOpen(t, fs, "/j", o)
				n := int64(0)
				r, err := j.Replay(0, func(Record) error { n++; return nil })
				require.NoError(t, err)
				require.EqualValues(t, h.next, n, "what can be read is")
				require.False(t, r.Whole, "life %d: the damage is forgotten", life)
				require.Len(t, r.Damage, 1)
				require.Equal(t, last.header.sequence+1, uint64(r.Damage[0].Position))
				require.Greater(t, r.End, r.Damage[0].Position)
				require.NoError(t, j.Start())
				end = j.Mark()
				require.NoError(t, h.appendBatch(j, life, 100))
				require.NoError(t, j.Close())
			}
			_, r := replayAll(t, fs, "/j", o, end)
			require.True(t, r.Whole, "the mark lies behind it")
			require.Empty(t, r.Damage)
		})
	}
}

// TestStartsWithoutRecordsTakeNoSpace: a start makes spares of the segments that an idle run left behind.
func TestStartsWithoutRecordsTakeNoSpace(t *testing.T) {
	o := smallOptions()
	mem, h := memfs.New(), newHistory()
	var files []int
	for range 8 {
		j := mustStart(t, mem, "/j", o)
		waitPrepared(t, j)
		require.NoError(t, j.Close())
		names, err := mem.List("/j/current")
		require.NoError(t, err)
		files = append(files, len(names))
	}
	require.Equal(t, files[2], files[7], "%v", files)
	j := mustStart(t, mem, "/j", o)
	require.NoError(t, h.appendBatch(j, 3, 100))
	require.NoError(t, j.Close())
	h.check(t, mem, o, "after starts without records")
}
