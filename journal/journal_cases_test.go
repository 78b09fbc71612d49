package journal

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// logBuffer collects log lines.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logBuffer) lines(containing string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, s := range strings.Split(l.b.String(), "\n") {
		if strings.Contains(s, containing) {
			out = append(out, s)
		}
	}
	return out
}

// groupPlaces lists the groups of a directory.
type groupPlace struct {
	file   string
	id     uint64
	off    int64
	header groupHeader
}

func groupPlaces(t testing.TB, fs vfs.FS, dir string) []groupPlace {
	t.Helper()
	d, err := readDirectory(fs, dir)
	require.NoError(t, err)
	var r Replayed
	var out []groupPlace
	w := newWalk(fs, d, 0, &r)
	w.onGroup = func(s *segmentFile, off int64, h groupHeader) error {
		out = append(out, groupPlace{s.name, s.id, off, h})
		return nil
	}
	require.NoError(t, w.run())
	return out
}

// TestC01TornLastRecord cuts or zeroes the last group at every 512 bytes. The tail is cut at the last whole group, one log
// line names segment and offset, and the start succeeds.
func TestC01TornLastRecord(t *testing.T) {
	o := crashOptions(IODSync)
	mem, h := memfs.New(), newHistory()
	j := mustStart(t, mem, "/j", o)
	for range 3 {
		require.NoError(t, h.appendBatch(j, 3, 500))
	}
	require.NoError(t, h.appendBatch(j, 2, 3000)) // the last group will be torn: it has both records, or one if the other went ahead
	left := mem.CrashClone(1, 0)
	require.NoError(t, j.Close())
	groups := groupPlaces(t, left, "/j")
	last := groups[len(groups)-1]
	acked := h.next - int(last.header.records)
	require.GreaterOrEqual(t, acked, 9)
	h.acked = map[int]bool{}
	for i := range acked {
		h.acked[i] = true
	}
	whole := groupHeaderBytes + int64(last.header.payload)
	for at := int64(0); at < whole; at += 512 {
		for _, cut := range []bool{true, false} {
			c := left.Clone()
			f, err := c.Open(last.file, vfs.Mode{Write: true})
			require.NoError(t, err)
			if cut {
				require.NoError(t, f.Truncate(last.off+at))
			} else { // the preallocated tail stays
				_, err = f.WriteAt(make([]byte, last.header.extent()-at), last.off+at)
				require.NoError(t, err)
			}
			require.NoError(t, f.Close())
			log := &logBuffer{}
			o := o
			o.Logger = log.logger()
			k := mustOpen(t, c, "/j", o)
			r, err := k.Replay(0, nil)
			require.NoError(t, err)
			require.EqualValues(t, acked, r.Records)
			require.True(t, r.Whole)
			require.Empty(t, r.Damage)
			if at >= groupHeaderBytes {
				require.NotNil(t, r.Cut)
				require.Equal(t, last.id, r.Cut.Segment)
				require.Equal(t, last.off, r.Cut.Offset)
				require.Len(t, log.lines("torn tail cut"), 1)
				require.Contains(t, log.lines("torn tail cut")[0], "offset=")
			}
			require.NoError(t, k.Start())
			require.NoError(t, k.Close())
			h.check(t, c, o, "after the restart")
		}
	}
}

// TestC03OldBytesInRecycledSegment: what a recycled segment held before does not parse, wherever the new life stops.
func TestC03OldBytesInRecycledSegment(t *testing.T) {
	o := crashOptions(IODSync)
	mem, h := memfs.New(), newHistory()
	j := mustStart(t, mem, "/j", o)
	reused := 0 // groups of an earlier life in a live segment
	for b := 0; reused == 0 || b < 20; b++ {
		require.Less(t, b, 2000, "no recycled segment is ever used: the test shows nothing")
		require.NoError(t, h.appendBatch(j, 3, 3000))
		require.NoError(t, h.trim(j, 3))
		if b%10 == 0 {
			reused = oldGroups(t, mem)
		}
	}
	require.NoError(t, h.appendBatch(j, 1, 10))
	left := mem.CrashClone(1, 0)
	require.NoError(t, j.Close())
	h.check(t, left, o, "restart") // fails on any record of an earlier life
	require.Greater(t, h.mark, Position(0))
}

// oldGroups counts what looks like groups of other segments in the live ones.
func oldGroups(t testing.TB, fs *memfs.FS) (n int) {
	t.Helper()
	fs = fs.Clone() // the journal goes on
	d, err := readDirectory(fs, "/j")
	require.NoError(t, err)
	for _, s := range d.segments {
		content, err := vfs.ReadFile(fs, s.name)
		require.NoError(t, err)
		for off := segmentHeaderBytes; off < len(content); off += vfs.Align {
			if b := content[off:]; le32(b) == groupMagic && !looksLikeGroup(b, s.id) {
				n++
			}
		}
	}
	return n
}

func le32(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

// TestPayloadHoldingJournalBytes: a client may store a copy of a journal segment; it stays payload.
func TestPayloadHoldingJournalBytes(t *testing.T) {
	o := Options{SegmentSize: 1 << 20, IO: IODSync}
	mem := memfs.New()
	j := mustStart(t, mem, "/j", o)
	l := newListener()
	for i := range 5 {
		appendOne(t, j, i, 2000, l)
		j.Commit()
		l.wait(i + 1)
	}
	groups := groupPlaces(t, mem, "/j")
	content, err := vfs.ReadFile(mem, groups[0].file)
	require.NoError(t, err)
	// Shifted so that the copied groups lie at block boundaries again.
	shifted := append(make([]byte, vfs.Align-groupHeaderBytes-RecordOverhead), content[segmentHeaderBytes:][:40*vfs.Align]...)
	_, err = j.Append(9, 9, shifted, l, Token{A: 5})
	require.NoError(t, err)
	j.Commit()
	l.wait(6)
	left := mem.CrashClone(1, 0)
	require.NoError(t, j.Close())
	groups = groupPlaces(t, left, "/j")
	last := groups[len(groups)-1]

	k := mustOpen(t, left, "/j", o)
	var kinds []uint8
	r, err := k.Replay(0, func(r Record) error { kinds = append(kinds, r.Kind); return nil })
	require.NoError(t, err)
	require.Equal(t, []uint8{1, 1, 1, 1, 1, 9}, kinds)
	require.Nil(t, r.Cut)
	require.NoError(t, k.Close())

	overwrite(t, left, last.file, last.off, make([]byte, 64)) // its own header torn: the copies inside must not count
	k = mustOpen(t, left, "/j", o)
	r, err = k.Replay(0, func(r Record) error { require.NotEqual(t, uint8(9), r.Kind); return nil })
	require.NoError(t, err)
	require.EqualValues(t, 5, r.Records)
	require.True(t, r.Whole)
	require.NoError(t, k.Close())
}

// TestC04ZerosAtTheEnd: zeros are the end of the log, however many.
func TestC04ZerosAtTheEnd(t *testing.T) {
	o := crashOptions(IODSync)
	mem, h := memfs.New(), newHistory()
	j := mustStart(t, mem, "/j", o)
	require.NoError(t, h.appendBatch(j, 5, 2000))
	left := mem.CrashClone(1, 0)
	require.NoError(t, j.Close())
	groups := groupPlaces(t, left, "/j")
	last := groups[len(groups)-1]
	end := last.off + last.header.extent()
	overwrite(t, left, last.file, end, make([]byte, o.SegmentSize-end)) // to the end
	overwrite(t, left, last.file, o.SegmentSize, make([]byte, 4<<20))   // and 4 MiB more
	got, r := replayAll(t, left, "/j", o, 0)
	require.Equal(t, numbers(0, 5), got)
	require.Nil(t, r.Cut)
	k := mustStart(t, left, "/j", o)
	require.NoError(t, k.Close())
	h.check(t, left, o, "restart")
}

// TestC06SyncFailsOnce: an error of one sync is final. The next sync would succeed without the data (the kernel has
// dropped the pages), so nothing may be retried on that file.
func TestC06SyncFailsOnce(t *testing.T) {
	o := crashOptions(IOBuffered)
	mem := memfs.New()
	sw := errorfs.NewSwitch(errorfs.Nth(errorfs.Sync, 1, syscall.EIO))
	var file string
	forget := errorfs.Func("the kernel drops the pages", func(op errorfs.Op) errorfs.Fault {
		if op.Kind == errorfs.Sync && file == "" {
			file = op.Path
		}
		return errorfs.Fault{}
	})
	j := mustStart(t, errorfs.Wrap(mem, errorfs.All(sw, forget)), "/j", o)
	h := newHistory()
	waitPrepared(t, j)
	require.NoError(t, h.appendBatch(j, 3, 1000)) // leaves the unzeroed segment
	waitPrepared(t, j)
	sw.Set(true)
	err := h.appendBatch(j, 3, 1000)
	require.ErrorIs(t, err, ErrPoisoned)
	require.ErrorIs(t, err, syscall.EIO)
	d, err := readDirectory(mem, "/j")
	require.NoError(t, err)
	for _, s := range d.segments {
		require.NoError(t, mem.ForgetDirty(s.name))
	}
	require.ErrorIs(t, h.appendBatch(j, 3, 1000), syscall.EIO)
	require.ErrorIs(t, j.Close(), syscall.EIO)
	require.Len(t, h.acked, 3)
	h.check(t, mem.CrashClone(1, 0), o, "power loss")
}

// TestC07SegmentNameIsDurable: a power loss that takes every un-synced name and size leaves each segment that got an
// acknowledged record. (The sweep of TestPowerLossAtEveryStep passes through the same; this one looks at the switch.)
func TestC07SegmentNameIsDurable(t *testing.T) {
	o := crashOptions(IODSync)
	mem, h := memfs.New(), newHistory()
	j := mustStart(t, mem, "/j", o)
	segments := map[uint64]bool{}
	for len(segments) < 5 {
		require.NoError(t, h.appendBatch(j, 1, 7000))
		lost := mem.CrashClone(uint64(h.next), 0)
		h.check(t, lost, o, "power loss after an acknowledgement")
		segments[h.segmentOf(t, lost, h.next-1)] = true
		info, err := lost.Stat(fileName("/j", h.segmentOf(t, lost, h.next-1), liveSuffix))
		require.NoError(t, err)
		require.Equal(t, o.SegmentSize, info.Size)
	}
	require.NoError(t, j.Close())
}

// TestC10ReplayDoesNotStartOverAndOver: after a replay the mark can move to the end of the journal, and the next start
// replays nothing.
func TestC10ReplayDoesNotStartOverAndOver(t *testing.T) {
	o := crashOptions(IODSync)
	mem, h := memfs.New(), newHistory()
	j := mustStart(t, mem, "/j", o)
	require.NoError(t, h.appendBatch(j, 5, 1000))
	left := mem.CrashClone(1, 0)
	require.NoError(t, j.Close())

	k := mustOpen(t, left, "/j", o)
	r, err := k.Replay(0, nil)
	require.NoError(t, err)
	require.EqualValues(t, 5, r.Records)
	require.Equal(t, r.End, k.Mark(), "before the start the mark is the end of what was replayed")
	mark := k.Mark() // the storage flushed everything, without the journal ever being started
	require.NoError(t, k.Close())
	for range 3 {
		k := mustOpen(t, left, "/j", o)
		r, err := k.Replay(mark, nil)
		require.NoError(t, err)
		require.Zero(t, r.Records)
		require.NoError(t, k.Start())
		require.GreaterOrEqual(t, k.Mark(), mark)
		mark = k.Mark()
		require.NoError(t, k.Trim(mark))
		require.Eventually(t, func() bool { return k.Stats().Segments <= 2 }, waitLong, tick)
		require.NoError(t, k.Close())
	}
}

// TestC12EveryRecordIsAnswered: single records with long gaps are answered in every mode, also at segment switches.
func TestC12EveryRecordIsAnswered(t *testing.T) {
	for name, o := range map[string]Options{
		"dsync":    crashOptions(IODSync),
		"buffered": crashOptions(IOBuffered),
		"relaxed":  {SegmentSize: 64 << 10, MaxGroupBytes: 8 << 10, IO: IOBuffered, Relaxed: true},
		"waiting":  {SegmentSize: 64 << 10, MaxGroupBytes: 8 << 10, IO: IODSync, MaxGroupWait: 5 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := mustStart(t, memfs.New(), "/j", o)
				h := newHistory()
				for i := range 24 {
					start := time.Now()
					require.NoError(t, h.appendBatch(j, 1, 7000)) // every eighth switches segments
					require.LessOrEqual(t, time.Since(start), o.MaxGroupWait)
					time.Sleep(time.Duration(i%4) * 30 * time.Millisecond)
					if i%5 == 0 {
						l := newListener()
						_, err := j.Append(0, 0, nil, l, Token{A: 7})
						require.NoError(t, err)
						j.Commit()
						l.wait(1)
						require.NoError(t, l.errs[0])
					}
				}
				require.NoError(t, j.Close())
			})
		})
	}
}

// TestC13TinyQueues: with room for next to nothing, many writers and forces get through; nobody waits for itself.
func TestC13TinyQueues(t *testing.T) {
	for _, bytes := range []int{1, 2, 8} {
		for _, inflight := range []int{1, 2, 4} {
			for _, relaxed := range []bool{false, true} {
				o := smallOptions()
				o.QueueBytes, o.GroupsInFlight = bytes, inflight
				if relaxed {
					o.IO, o.Relaxed = IOBuffered, true
				}
				mem := memfs.New()
				j := mustStart(t, mem, "/j", o)
				var wg sync.WaitGroup
				const writers, each = 8, 20
				for w := range writers {
					wg.Go(func() {
						l := newListener()
						for i := range each {
							b := body(w*each+i, 50)
							if err := j.Reserve(len(b), waitLong); err != nil {
								t.Error(err)
								return
							}
							if _, err := j.Append(1, uint64((w*each+i)%7), b, l, Token{}); err != nil {
								t.Error(err)
								return
							}
							if _, err := j.Append(0, 0, nil, l, Token{}); err != nil {
								t.Error(err)
								return
							}
							j.Commit()
						}
						l.wait(2 * each)
					})
				}
				wg.Wait()
				waitFor(t, func() bool { return j.Stats().QueueBytes == 0 }) // given back after the sinks have heard
				require.NoError(t, j.Close())
				got, _ := replayAll(t, mem, "/j", o, 0)
				require.Len(t, got, writers*each)
			}
		}
	}
}

// TestC24JournalDiskFull: the disk fills up in the middle of everything. Callers hear it, nothing is half acknowledged, a
// restart on the full disk works with the space that is there, and goes on when there is space again.
func TestC24JournalDiskFull(t *testing.T) {
	for _, segments := range []int64{2, 3, 4, 5} {
		o := Options{SegmentSize: 64 << 10, MaxGroupBytes: 8 << 10, IO: IODSync}
		mem := memfs.New()
		mem.SetCapacity(segments*o.SegmentSize + 20<<10)
		h := newHistory()
		j := mustStart(t, mem, "/j", o)
		waitFor(t, func() bool { s := j.Stats(); return s.Spares >= 1 }) // the reserve is there first
		var err error
		for err == nil {
			err = h.appendBatch(j, 4, 3000)
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
		_ = j.Close() // the wait may have ended it
		h.check(t, mem, o, "full")

		for _, c := range []*memfs.FS{mem.Clone(), mem.CrashClone(1, 0), mem.CrashClone(2, 0.5)} {
			k := mustOpen(t, c, "/j", o)
			_, err = k.Replay(h.mark, nil)
			require.NoError(t, err)
			require.NoError(t, k.Start(), "on a full disk the reserve must do")
			h2 := h.clone()
			require.NoError(t, h2.appendBatch(k, 2, 1000))
			h2.mark = k.Mark()
			require.NoError(t, k.Trim(h2.mark)) // what a flush of the replayed records leads to
			waitFor(t, func() bool { s := k.Stats(); return s.SegmentsRecycled > 0 })
			rounds := 12
			if segments < 4 { // one in use, one kept back, and none to go on with while the last one is still wanted
				rounds = 0
			}
			for range rounds { // recycled segments are enough to go on, still without new space
				require.NoError(t, h2.appendBatch(k, 4, 3000))
				require.NoError(t, h2.trim(k, 4))
				waitFor(t, func() bool { return k.Stats().Segments <= 3 })
			}
			require.NoError(t, k.Close())
			h2.check(t, c, o, "later")
		}
	}
}

func waitFor(t testing.TB, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, waitLong, time.Millisecond)
}
