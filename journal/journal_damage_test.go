package journal

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// region is a stretch of a segment file and what a flipped bit in it may cost.
type region struct {
	name   string
	file   string
	off    int64
	length int64
	costs  int // records
	kind   string
}

// regionsOf maps a directory: segment headers, group headers, record headers, payloads, padding, unused space.
func regionsOf(t testing.TB, fs vfs.FS) []region {
	t.Helper()
	d, err := readDirectory(fs, "/j")
	require.NoError(t, err)
	var regions []region
	for _, s := range d.segments {
		regions = append(regions, region{"segment header", s.name, 0, segmentHeaderUsed, 0, "first copy"},
			region{"segment header", s.name, segmentHeaderCopy, segmentHeaderUsed, 0, "second copy"},
			region{"segment header", s.name, segmentHeaderUsed, segmentHeaderCopy - segmentHeaderUsed, 0, "unused"})
	}
	var r Replayed
	w := newWalk(fs, d, 0, &r)
	w.onGroup = func(s *segmentFile, off int64, h groupHeader) error {
		regions = append(regions, region{"group header", s.name, off, groupHeaderBytes, 0, fmt.Sprint(h.records)})
		used := off + groupHeaderBytes + int64(h.payload)
		if pad := off + h.extent() - used; pad > 0 {
			regions = append(regions, region{"padding", s.name, used, pad, 0, ""})
		}
		return nil
	}
	w.emit = func(rec Record) error {
		name := fileName("/j", rec.Segment, liveSuffix)
		regions = append(regions, region{"record header", name, rec.Offset, RecordOverhead, 0, ""},
			region{"payload", name, rec.Offset + RecordOverhead, int64(len(rec.Payload)), 1, ""})
		return nil
	}
	require.NoError(t, w.run())
	for _, s := range d.segments {
		if end := max(w.used[s.id], segmentHeaderBytes); end < s.size {
			regions = append(regions, region{"unused", s.name, end, s.size - end, 0, ""})
		}
	}
	return regions
}

// flip inverts a bit of a file.
func flip(t testing.TB, fs vfs.FS, name string, bit int64) {
	t.Helper()
	f, err := fs.Open(name, vfs.Mode{Write: true})
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // a test
	b := make([]byte, 1)
	_, err = f.ReadAt(b, bit/8)
	require.NoError(t, err)
	b[0] ^= 1 << (bit % 8)
	_, err = f.WriteAt(b, bit/8)
	require.NoError(t, err)
}

// TestOneFlippedBit flips bits in every region of every file. Headers are put right, a payload costs its own record, whose
// tag is known, and everything else costs nothing.
func TestOneFlippedBit(t *testing.T) {
	o := crashOptions(IODSync)
	batches := 12
	if raceEnabled || testing.Short() {
		batches = 5
	}
	mem, h := filled(t, o, batches)
	regions := regionsOf(t, mem)
	seen := map[string]int{}
	for _, r := range regions {
		step := int64(1)
		switch {
		case r.name == "payload":
			step = max(1, r.length*8/5)
		case r.name == "unused" || r.name == "padding" || r.kind == "unused":
			step = max(1, r.length*8/3)
		case seen[r.name] > 2:
			step = 37
		}
		seen[r.name]++
		if raceEnabled || testing.Short() {
			step = max(step, 61)
		}
		for bit := int64(0); bit < r.length*8; bit += step {
			where := fmt.Sprintf("%s %s: bit %d of %s at %d", r.name, r.kind, bit, r.file, r.off)
			c := mem.Clone()
			flip(t, c, r.file, r.off*8+bit)
			missing, res, err := h.account(t, c, o, where)
			require.NoError(t, err, where)
			require.Len(t, missing, r.costs, where)
			require.True(t, res.Whole, where)
			require.Len(t, res.Damage, r.costs, where)
			if r.costs > 0 {
				d := res.Damage[0]
				require.True(t, d.Known, where)
				require.Equal(t, uint64(missing[0]%7), d.Tag, where)
				require.Equal(t, uint8(1), d.Kind, where)
				require.True(t, corrupt.Is(d.Err), where)
				require.Equal(t, r.off-RecordOverhead, d.Offset, where)
			}
		}
	}
	require.Len(t, seen, 6)
}

// overwrite replaces bytes of a file.
func overwrite(t testing.TB, fs vfs.FS, name string, off int64, b []byte) {
	t.Helper()
	f, err := fs.Open(name, vfs.Mode{Write: true})
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // a test
	_, err = f.WriteAt(b, off)
	require.NoError(t, err)
}

// TestLostBlocks loses sectors, blocks and runs of blocks: zeroed, filled with noise, or with another block of the same
// file. Nothing wrong comes back, and whatever is missing is accounted for.
func TestLostBlocks(t *testing.T) {
	o := crashOptions(IODSync)
	mem, h := filled(t, o, 20)
	d, err := readDirectory(mem, "/j")
	require.NoError(t, err)
	var r Replayed
	w := newWalk(mem, d, 0, &r)
	var last struct {
		name     string
		off, end int64
	}
	w.onGroup = func(s *segmentFile, off int64, h groupHeader) error {
		last.name, last.off, last.end = s.name, off, off+h.extent()
		return nil
	}
	require.NoError(t, w.run())
	for _, s := range d.segments {
		content, err := vfs.ReadFile(mem, s.name)
		require.NoError(t, err)
		for _, size := range []int{512, vfs.Align, 5 * vfs.Align} {
			step := max(size, 2048)
			if raceEnabled || testing.Short() {
				step = 5 * vfs.Align
			}
			for off := 0; off+size <= len(content); off += step {
				for kind, fill := range [][]byte{make([]byte, size), noise(size, off), content[(off+2*vfs.Align)%(len(content)-size):][:size]} {
					c := mem.Clone()
					overwrite(t, c, s.name, int64(off), fill)
					where := fmt.Sprintf("%d bytes of %s at %d lost, kind %d", size, s.name, off, kind)
					if s.name == last.name && int64(off) < last.end && int64(off+size) > last.off {
						// With the last group, which covers the others, goes every trace of a damaged end.
						replayAll(t, c, "/j", o, 0)
						continue
					}
					_, _, err := h.account(t, c, o, where)
					require.NoError(t, err, where)
				}
			}
		}
	}
}

func noise(n, seed int) []byte {
	b := make([]byte, n)
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

// TestSegmentsLost removes, empties and truncates each segment file in turn.
func TestSegmentsLost(t *testing.T) {
	o := crashOptions(IODSync)
	mem, h := filled(t, o, 20)
	d, err := readDirectory(mem, "/j")
	require.NoError(t, err)
	var r Replayed
	w := newWalk(mem, d, 0, &r)
	require.NoError(t, w.run())
	for i, s := range d.segments {
		if w.used[s.id] == 0 {
			continue // holds nothing
		}
		last := i+1 >= len(d.segments) || w.used[d.segments[i+1].id] == 0
		for _, size := range []int64{-1, 0, 100, vfs.Align, 3 * vfs.Align, 3*vfs.Align + 700, s.size - vfs.Align} {
			c := mem.Clone()
			if size < 0 {
				require.NoError(t, c.Remove(s.name))
			} else {
				f, err := c.Open(s.name, vfs.Mode{Write: true})
				require.NoError(t, err)
				require.NoError(t, f.Truncate(size))
				require.NoError(t, f.Close())
			}
			where := fmt.Sprintf("%s cut to %d of %d", s.name, size, s.size)
			if last && size >= 0 || i == 0 && size < 0 {
				// The end of the journal is gone, and with it every trace of how far it went; or the start, which looks
				// trimmed. Nothing wrong may come back, though.
				got, _ := replayAll(t, c, "/j", o, 0)
				require.NotEmpty(t, got, where)
				continue
			}
			_, _, err := h.account(t, c, o, where)
			require.NoError(t, err, where)
		}
	}
}

// TestDamageBehindTheLastS: after a restart the fresh segment's header says how far the journal went, so that damage to
// the last groups of the earlier run, which no S covered, is not taken for a torn tail.
func TestDamageBehindTheLastS(t *testing.T) {
	o := crashOptions(IODSync)
	mem, h := memfs.New(), newHistory()
	j := mustStart(t, mem, "/j", o)
	require.NoError(t, h.appendBatch(j, 1, 300)) // one group
	left := mem.CrashClone(1, 0)                 // at once: nothing covers the group
	require.NoError(t, j.Close())

	name := fileName("/j", h.segmentOf(t, left, 0), liveSuffix)
	at := segmentHeaderBytes + groupHeaderBytes + RecordOverhead + 5

	torn := left.Clone()
	overwrite(t, torn, name, int64(at), []byte{0xff})
	got, r := replayAll(t, torn, "/j", o, 0)
	require.Empty(t, got)
	require.NotNil(t, r.Cut, "before a restart it is a torn tail like any other")

	k := mustOpen(t, left, "/j", o)
	require.NoError(t, k.Start())
	require.NoError(t, k.Close())
	overwrite(t, left, name, int64(at), []byte{0xff})
	missing, r, err := h.account(t, left, o, "after a restart")
	require.NoError(t, err)
	require.Equal(t, []int{0}, missing)
	require.Len(t, r.Damage, 1)
	require.True(t, r.Damage[0].Known)
	require.True(t, r.Whole)
	require.Nil(t, r.Cut)
}

// segmentOf returns the segment that holds payload i.
func (h *history) segmentOf(t testing.TB, fs vfs.FS, i int) (id uint64) {
	t.Helper()
	d, err := readDirectory(fs, "/j")
	require.NoError(t, err)
	var r Replayed
	w := newWalk(fs, d, 0, &r)
	w.emit = func(r Record) error {
		if bodyNumber(r.Payload) == i {
			id = r.Segment
		}
		return nil
	}
	require.NoError(t, w.run())
	require.NotZero(t, id)
	return id
}

// TestIdleJournalCoversItsLastGroup: 100 ms after the last acknowledgement, no earlier, one empty group lets damage to it be
// noticed. No other one follows.
func TestIdleJournalCoversItsLastGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := crashOptions(IODSync)
		mem, h := memfs.New(), newHistory()
		j := mustStart(t, mem, "/j", o)
		for range 3 { // groups that follow each other need none
			require.NoError(t, h.appendBatch(j, 1, 300))
			time.Sleep(coverAfter * 9 / 10)
		}
		require.Zero(t, j.Stats().EmptyGroups)
		time.Sleep(coverAfter / 5)
		synctest.Wait()
		require.EqualValues(t, 1, j.Stats().EmptyGroups)
		left := mem.CrashClone(1, 0)
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, j.Stats().EmptyGroups)
		require.NoError(t, j.Close())
		require.EqualValues(t, 1, j.Stats().EmptyGroups)

		name := fileName("/j", h.segmentOf(t, left, 2), liveSuffix)
		places := groupPlaces(t, left, "/j")
		last := places[len(places)-2]
		require.EqualValues(t, 1, last.header.records)
		overwrite(t, left, name, last.off+groupHeaderBytes+RecordOverhead+5, []byte{0xff})
		missing, r, err := h.account(t, left, o, "covered")
		require.NoError(t, err)
		require.Equal(t, []int{2}, missing)
		require.True(t, r.Whole)
		require.Nil(t, r.Cut)
	})
}

// TestDamageBeforeTheMarkIsNobodysBusiness: what a replay starts behind does not concern it.
func TestDamageBeforeTheMarkIsNobodysBusiness(t *testing.T) {
	o := crashOptions(IODSync)
	mem, h := filled(t, o, 20)
	d, err := readDirectory(mem, "/j")
	require.NoError(t, err)
	overwrite(t, mem, d.segments[0].name, 0, make([]byte, vfs.Align)) // the whole header
	flip(t, mem, d.segments[1].name, 8*(segmentHeaderBytes+groupHeaderBytes+RecordOverhead+3))
	_, r := replayAll(t, mem, "/j", o, 0)
	require.False(t, r.Whole)
	mark := h.appended[h.next-8]
	got, r := replayAll(t, mem, "/j", o, mark)
	require.True(t, r.Whole)
	require.Empty(t, r.Damage)
	require.Contains(t, got, h.next-1)
	require.GreaterOrEqual(t, h.appended[got[0]], mark)
}
