package journal

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

func TestMayStart(t *testing.T) {
	const sync = 1000
	for _, c := range []struct {
		name                   string
		inflight, limit, bytes int
		since                  int64
		want                   bool
	}{
		{"idle", 0, 2, 1, 0, true},
		{"small and soon", 1, 2, 1, 499, false},
		{"half a sync later", 1, 2, 1, 500, true},
		{"large", 1, 2, earlyBytes, 0, true},
		{"nearly large", 1, 2, earlyBytes - 1, 0, false},
		{"full pipeline", 2, 2, earlyBytes, 5000, false},
		{"one at a time", 1, 1, earlyBytes, 5000, false},
		{"four", 3, 4, earlyBytes, 0, true},
	} {
		require.Equal(t, c.want, mayStart(c.inflight, c.limit, c.bytes, c.since, sync), c.name)
	}
}

// TestAcknowledgedInOrder: a later group that is written first waits for the earlier one.
func TestAcknowledgedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{SegmentSize: 1 << 20, IO: IODSync, GroupsInFlight: 3}
		g := newGate()
		j := mustStart(t, errorfs.Wrap(memfs.New(), g), "/j", o)
		waitPrepared(t, j)
		l := newListener()
		g.hold()
		for i := range 3 {
			appendOne(t, j, i, earlyBytes, l) // each worth a group of its own
			j.Commit()
			g.await(i + 1)
		}
		require.Equal(t, 3, j.Stats().InFlight)
		appendOne(t, j, 3, earlyBytes, l)
		j.Commit()
		g.release(2)
		g.release(1)
		g.awaitDone(2)
		require.Zero(t, l.count(), "acknowledged before an earlier group")
		require.Equal(t, 2, func() int { j.mu.Lock(); defer j.mu.Unlock(); return j.inflight }(), "the fourth group fills the slot of one that is written")
		g.release(0)
		l.wait(3)
		require.Len(t, l.done, 3)
		g.open()
		l.wait(4)
		for i, tok := range l.done {
			require.Equal(t, int64(i), tok.A)
		}
		require.NoError(t, j.Close())
	})
}

// slowSink blocks in JournalDone until it is let go.
type slowSink struct {
	entered chan struct{}
	leave   chan struct{}
}

func (s *slowSink) JournalDone(Token, error) { s.entered <- struct{}{}; <-s.leave }
func (s *slowSink) JournalFlush()            {}

// TestWritesGoOnDuringAcknowledgements: while the sinks of one group are running, the next groups are written.
func TestWritesGoOnDuringAcknowledgements(t *testing.T) {
	for _, inflight := range []int{1, 2} {
		o := Options{SegmentSize: 1 << 20, IO: IODSync, GroupsInFlight: inflight}
		j := mustStart(t, memfs.New(), "/j", o)
		slow := &slowSink{make(chan struct{}), make(chan struct{})}
		appendOne(t, j, 0, 10, slow)
		j.Commit()
		<-slow.entered
		for i := range 5 {
			before := j.Stats().Groups
			appendOne(t, j, 1+i, 10, nil)
			j.Commit()
			waitFor(t, func() bool { return j.Stats().Groups > before })
		}
		close(slow.leave)
		require.NoError(t, j.Close())
	}
}

// orderSink checks the calling convention: one goroutine at a time, tokens in order, one flush after a group's last call.
type orderSink struct {
	t       *testing.T
	busy    *atomic.Int32 // shared by all sinks of a journal
	next    int64
	unflush int
	flushes int
	done    chan struct{}
	want    int64
	relaxed bool // forces may be answered later than records that came after them
}

func (s *orderSink) enter() {
	if s.busy.Add(1) != 1 {
		s.t.Error("two calls at once")
	}
}

func (s *orderSink) JournalDone(tok Token, err error) {
	s.enter()
	defer s.busy.Add(-1)
	if err != nil || tok.A != s.next && !s.relaxed {
		s.t.Errorf("token %d, error %v; want %d", tok.A, err, s.next)
	}
	s.next++
	s.unflush++
}

func (s *orderSink) JournalFlush() {
	s.enter()
	defer s.busy.Add(-1)
	if s.unflush == 0 {
		s.t.Error("a flush without a record")
	}
	s.unflush = 0
	s.flushes++
	if s.next == s.want {
		close(s.done)
	}
}

// TestManyAppenders is for the race detector: appenders, forces, trims and marks at once, over several segments.
func TestManyAppenders(t *testing.T) {
	for _, o := range []Options{
		{SegmentSize: 256 << 10, MaxGroupBytes: 32 << 10, IO: IODSync, GroupsInFlight: 4, QueueBytes: 64 << 10},
		{SegmentSize: 256 << 10, MaxGroupBytes: 32 << 10, IO: IOBuffered, Relaxed: true, QueueBytes: 64 << 10},
		{SegmentSize: 256 << 10, MaxGroupBytes: 32 << 10, IO: IODSync, MaxGroupWait: time.Millisecond},
	} {
		mem := memfs.New()
		j := mustStart(t, mem, "/j", o)
		const appenders, each = 12, 300
		var busy atomic.Int32
		var wg sync.WaitGroup
		stop := make(chan struct{})
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				if err := j.Trim(j.Mark()); err != nil {
					t.Error(err)
				}
				j.Stats()
				j.WritePrometheus(&strings.Builder{})
			}
		})
		var appending sync.WaitGroup
		for a := range appenders {
			appending.Go(func() {
				s := &orderSink{t: t, busy: &busy, done: make(chan struct{}), want: each, relaxed: o.Relaxed}
				for i := range each {
					b := body(a*each+i, i%500)
					if err := j.Reserve(len(b), waitLong); err != nil {
						t.Error(err)
						return
					}
					kind := uint8(1)
					if i%50 == 49 {
						j.Release(len(b))
						kind, b = 0, nil
					}
					if _, err := j.Append(kind, uint64(a), b, s, Token{A: int64(i)}); err != nil {
						t.Error(err)
						return
					}
					if i%3 == 0 || i == each-1 {
						j.Commit()
					}
				}
				j.Commit()
				<-s.done
			})
		}
		appending.Wait()
		close(stop)
		wg.Wait()
		waitFor(t, func() bool { return j.Stats().QueueBytes == 0 }) // given back after the sinks have heard
		require.NoError(t, j.Close())
	}
}

// TestLargeRecords: records above the group size, up to the limit, among small ones.
func TestLargeRecords(t *testing.T) {
	o := Options{SegmentSize: 8 << 20, IO: IODSync}
	mem := memfs.New()
	j := mustStart(t, mem, "/j", o)
	require.Equal(t, DefaultRecordBytesMax, j.o.MaxRecordBytes)
	l := newListener()
	sizes := []int{10, DefaultGroupBytesMax, 600 << 10, 10, DefaultRecordBytesMax - 8, 10, DefaultRecordBytesMax - 8, 5 << 20, 0}
	for i, n := range sizes {
		appendOne(t, j, i, n, l)
	}
	j.Commit()
	_, err := j.Append(1, 0, make([]byte, DefaultRecordBytesMax+1), l, Token{})
	require.ErrorIs(t, err, ErrRecordTooLarge)
	l.wait(len(sizes))
	require.NoError(t, j.Close())
	got, r := replayAll(t, mem, "/j", o, 0)
	require.Equal(t, numbers(0, len(sizes)), got)
	require.True(t, r.Whole)
}

// TestRecordThatFillsASegment: the largest record takes a segment to its last byte; one byte more is refused.
func TestRecordThatFillsASegment(t *testing.T) {
	o := smallOptions()
	mem := memfs.New()
	j := mustStart(t, mem, "/j", o)
	most := int(segmentCapacity(o.SegmentSize))
	l := newListener()
	for i := range 4 {
		appendOne(t, j, i, most-8, l)
		j.Commit()
	}
	_, err := j.Append(1, 0, make([]byte, most+1), l, Token{})
	require.ErrorIs(t, err, ErrRecordTooLarge)
	l.wait(4)
	require.NoError(t, j.Close())
	places := groupPlaces(t, mem, "/j")
	for _, p := range places[:4] {
		require.EqualValues(t, segmentHeaderBytes, p.off)
		require.Equal(t, o.SegmentSize, p.off+p.header.extent())
	}
	got, r := replayAll(t, mem, "/j", o, 0)
	require.Equal(t, numbers(0, 4), got)
	require.True(t, r.Whole)
}

// TestSegmentSwitchDoesNotWait: with a prepared segment at hand, the switch costs no write of its own.
func TestSegmentSwitchDoesNotWait(t *testing.T) {
	o := smallOptions()
	j := mustStart(t, memfs.New(), "/j", o)
	h := newHistory()
	for range 40 {
		require.NoError(t, h.appendBatch(j, 1, 7000))
		waitPrepared(t, j)
	}
	s := j.Stats()
	require.Greater(t, s.SegmentsZeroed, uint64(3))
	require.Zero(t, s.SegmentWaits)
	require.EqualValues(t, 1, s.SegmentsUnprepared, "only the first segment is an unzeroed one")
	require.NoError(t, j.Close())
}

// TestUnpreparedSegments: when the preparer is held up, groups wait for the segment and then go out in order.
func TestUnpreparedSegments(t *testing.T) {
	o := smallOptions()
	hold := make(chan struct{})
	var on atomic.Bool
	slow := errorfs.Func("slow rename", func(op errorfs.Op) errorfs.Fault {
		if op.Kind == errorfs.Rename && on.Load() {
			<-hold
		}
		return errorfs.Fault{}
	})
	mem := memfs.New()
	j := mustStart(t, errorfs.Wrap(mem, slow), "/j", o)
	on.Store(true)
	l := newListener()
	const n = 60
	for i := range n { // five segments
		appendOne(t, j, i, 5000, l)
		j.Commit()
	}
	waitFor(t, func() bool { return j.Stats().SegmentWaits > 0 })
	require.Less(t, l.count(), n)
	close(hold)
	l.wait(n)
	require.NoError(t, j.Close())
	got, r := replayAll(t, mem, "/j", o, 0)
	require.Equal(t, numbers(0, n), got)
	require.True(t, r.Whole)
}

// TestRelaxedAcknowledgesFromTheCache: records are answered without a sync, a force waits for one, and syncs come by
// themselves within a second.
func TestRelaxedAcknowledgesFromTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := smallOptions()
		o.IO, o.Relaxed = IOBuffered, true
		mem := memfs.New()
		fs := errorfs.Wrap(mem, errorfs.None())
		j := mustStart(t, fs, "/j", o)
		waitPrepared(t, j)
		h := newHistory()
		before := fs.Count(errorfs.Sync)
		require.NoError(t, h.appendBatch(j, 5, 100))
		got, _ := replayAll(t, mem.CrashClone(1, 0), "/j", o, 0)
		require.LessOrEqual(t, len(got), 5)
		l := newListener()
		_, err := j.Append(0, 0, nil, l, Token{A: 3})
		require.NoError(t, err)
		j.Commit()
		l.wait(1)
		require.NoError(t, l.errs[0])
		require.Greater(t, fs.Count(errorfs.Sync), before)
		h.check(t, mem.CrashClone(1, 0), o, "after a force")

		require.NoError(t, h.appendBatch(j, 5, 100))
		last := j.Mark() - 1
		waitFor(t, func() bool { return j.Stats().Durable >= last })
		h.check(t, mem.CrashClone(1, 0), o, "a second later")
		require.NoError(t, h.appendBatch(j, 40, 3000)) // over segment switches
		require.NoError(t, j.Close())
		h.check(t, mem.CrashClone(1, 0), o, "after close")
	})
}

// TestRelaxedSyncFails: a force is not answered well after a failed sync.
func TestRelaxedSyncFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := smallOptions()
		o.IO, o.Relaxed = IOBuffered, true
		sw := errorfs.NewSwitch(errorfs.From(errorfs.Sync, 1, syscall.EIO))
		j := mustStart(t, errorfs.Wrap(memfs.New(), sw), "/j", o)
		waitPrepared(t, j)
		h := newHistory()
		require.NoError(t, h.appendBatch(j, 2, 100)) // leaves the unzeroed segment
		waitPrepared(t, j)
		sw.Set(true)
		require.NoError(t, h.appendBatch(j, 2, 100))
		l := newListener()
		_, err := j.Append(0, 0, nil, l, Token{})
		require.NoError(t, err)
		j.Commit()
		l.wait(1)
		require.ErrorIs(t, l.errs[0], syscall.EIO)
		require.ErrorIs(t, h.appendBatch(j, 2, 100), ErrPoisoned)
		require.ErrorIs(t, j.Close(), ErrPoisoned)
	})
}

// TestForceWithoutRecords is answered at once and writes nothing.
func TestForceWithoutRecords(t *testing.T) {
	j := mustStart(t, memfs.New(), "/j", smallOptions())
	l := newListener()
	for i := range 3 {
		_, err := j.Append(0, 0, nil, l, Token{A: int64(i)})
		require.NoError(t, err)
		j.Commit()
		l.wait(i + 1)
	}
	require.Zero(t, j.Stats().Groups)
	require.NoError(t, j.Close())
}

func TestMaxGroupWaitGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{SegmentSize: 1 << 20, IO: IODSync, MaxGroupWait: 20 * time.Millisecond}
		j := mustStart(t, memfs.New(), "/j", o)
		l := newListener()
		start := time.Now()
		for i := range 10 {
			appendOne(t, j, i, 100, l)
			j.Commit()
			time.Sleep(time.Millisecond)
		}
		l.wait(10)
		require.Equal(t, 20*time.Millisecond, time.Since(start))
		require.EqualValues(t, 1, j.Stats().Groups)

		start = time.Now() // a full group does not wait, and neither does a force
		appendOne(t, j, 10, DefaultGroupBytesMax-8-RecordOverhead, l)
		j.Commit()
		l.wait(11)
		appendOne(t, j, 11, 100, l)
		_, err := j.Append(0, 0, nil, l, Token{})
		require.NoError(t, err)
		j.Commit()
		l.wait(13)
		require.Zero(t, time.Since(start))
		require.NoError(t, j.Close())
	})
}

// TestNoWaitByDefault: a record that finds nothing in flight is written at once.
func TestNoWaitByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := mustStart(t, memfs.New(), "/j", smallOptions())
		h := newHistory()
		start := time.Now()
		for range 20 {
			require.NoError(t, h.appendBatch(j, 1, 100))
		}
		require.Zero(t, time.Since(start))
		require.EqualValues(t, 20, j.Stats().Groups)
		require.NoError(t, j.Close())
	})
}

// TestTheNextGroupFillsMeanwhile: while a group is in flight the next one fills, however often Commit is called; small
// records start one more group after half a sync time, not one each.
func TestTheNextGroupFillsMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sync = 10 * time.Millisecond
		o := Options{SegmentSize: 1 << 20, IO: IODSync, GroupsInFlight: 2}
		g := newGate()
		slow := errorfs.NewSwitch(errorfs.Latency(errorfs.Write, func(errorfs.Op) time.Duration { return sync }))
		j := mustStart(t, errorfs.Wrap(memfs.New(), errorfs.All(g, slow)), "/j", o)
		h, l := newHistory(), newListener()
		slow.Set(true)
		for range 60 { // until the measured sync time is the disk's
			require.NoError(t, h.appendBatch(j, 1, 100))
		}
		slow.Set(false)
		require.InEpsilon(t, int64(sync), j.syncTime, 0.01)
		groups := j.Stats().Groups
		g.hold()
		commit := func(from, to int) {
			for i := from; i < to; i++ {
				appendOne(t, j, i, 100, l)
				j.Commit()
			}
			synctest.Wait()
		}
		commit(0, 1)
		require.Equal(t, 1, j.Stats().InFlight)
		commit(1, 100)
		time.Sleep(sync/2 - time.Millisecond)
		synctest.Wait()
		require.Equal(t, 1, j.Stats().InFlight, "before half a sync time")
		time.Sleep(2 * time.Millisecond) // nobody calls Commit: the journal looks by itself
		synctest.Wait()
		require.Equal(t, 2, j.Stats().InFlight, "after half a sync time")
		commit(100, 200)
		time.Sleep(10 * sync)
		synctest.Wait()
		require.Equal(t, 2, j.Stats().InFlight, "the pipeline is full")
		require.Zero(t, l.count())
		g.open()
		l.wait(200)
		require.EqualValues(t, groups+3, j.Stats().Groups)
		require.Equal(t, 3, l.flushes, "one flush per sink and group")
		require.NoError(t, j.Close())
	})
}

func TestSetGroupWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := mustStart(t, memfs.New(), "/j", Options{SegmentSize: 1 << 20, IO: IODSync})
		require.Error(t, j.SetGroupWait(100*time.Microsecond))
		require.NoError(t, j.SetGroupWait(20*time.Millisecond))
		l := newListener()
		start := time.Now()
		for i := range 10 {
			appendOne(t, j, i, 100, l)
			j.Commit()
		}
		l.wait(10)
		require.GreaterOrEqual(t, time.Since(start), 15*time.Millisecond)
		require.EqualValues(t, 1, j.Stats().Groups)
		require.NoError(t, j.SetGroupWait(0))
		start = time.Now()
		appendOne(t, j, 10, 100, l)
		j.Commit()
		l.wait(11)
		require.Less(t, time.Since(start), 15*time.Millisecond)
		require.NoError(t, j.Close())
	})
}

func TestAppendStates(t *testing.T) {
	j := mustOpen(t, memfs.New(), "/j", smallOptions())
	_, err := j.Append(1, 0, []byte("x"), nil, Token{})
	require.ErrorIs(t, err, ErrNotStarted)
	require.ErrorIs(t, j.Reserve(1, time.Second), ErrNotStarted)
	require.NoError(t, j.Start())
	require.Error(t, j.Start())
	_, err = j.Replay(0, nil)
	require.Error(t, err)
	require.NoError(t, j.Reserve(1, time.Second))
	j.Release(1)
	require.NoError(t, j.Close())
	require.NoError(t, j.Close())
	_, err = j.Append(1, 0, []byte("x"), nil, Token{})
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, j.Reserve(1, time.Second), ErrClosed)
	require.ErrorIs(t, j.Trim(1), ErrClosed)

	j = mustOpen(t, memfs.New(), "/j", smallOptions())
	require.NoError(t, j.Close())
	require.ErrorIs(t, j.Start(), ErrClosed)
}

func TestReplayCallbackError(t *testing.T) {
	mem, _ := filled(t, crashOptions(IODSync), 3)
	j := mustOpen(t, mem, "/j", crashOptions(IODSync))
	boom := errors.New("the storage is full")
	_, err := j.Replay(0, func(Record) error { return boom })
	require.ErrorIs(t, err, boom)
	n := 0
	_, err = j.Replay(0, func(Record) error { n++; return nil })
	require.NoError(t, err)
	require.Positive(t, n)
	require.NoError(t, j.Close())
}

// TestFiguresDuringReplay: a replay may take a minute; metrics and marks do not wait for it.
func TestFiguresDuringReplay(t *testing.T) {
	mem, h := filled(t, crashOptions(IODSync), 10)
	j := mustOpen(t, mem, "/j", crashOptions(IODSync))
	require.Positive(t, j.Stats().Segments)
	calls := 0
	r, err := j.Replay(0, func(Record) error {
		calls++
		j.WritePrometheus(&strings.Builder{})
		require.Zero(t, j.Stats().Groups)
		require.Zero(t, j.Mark())
		require.NoError(t, j.Err())
		_, err := j.Append(1, 0, nil, nil, Token{})
		require.ErrorIs(t, err, ErrNotStarted)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, h.next, calls)
	require.Equal(t, r.End, j.Mark())
	require.NoError(t, j.Close())
}

func TestOptions(t *testing.T) {
	var o Options
	o.EnsureDefaults()
	require.NoError(t, o.Validate())
	require.Equal(t, 2, o.GroupsInFlight)
	require.EqualValues(t, 256<<20, o.SegmentSize)
	for name, change := range map[string]func(*Options){
		"segment_size = 5000":  func(o *Options) { o.SegmentSize = 5000 },
		"max_group_wait = 500": func(o *Options) { o.MaxGroupWait = 500 * time.Microsecond },
		"max_group_wait = 21":  func(o *Options) { o.MaxGroupWait = 21 * time.Millisecond },
		"max_group_wait = -1":  func(o *Options) { o.MaxGroupWait = -time.Millisecond },
		"segment_size = 42949": func(o *Options) { o.SegmentSize = 4 << 30 },
		"in flight = -1":       func(o *Options) { o.GroupsInFlight = -1 },
		"max_group_bytes":      func(o *Options) { o.MaxGroupBytes = 100 },
		"does not fit":         func(o *Options) { o.MaxRecordBytes = 1 << 30 },
		"in flight = 5":        func(o *Options) { o.GroupsInFlight = 5 },
		"must be positive":     func(o *Options) { o.QueueBytes = -1 },
		`needs journal.io`:     func(o *Options) { o.Relaxed = true },
		`"uring" is not`:       func(o *Options) { o.IO = IOUring },
		`journal.io = "turbo"`: func(o *Options) { o.IO = "turbo" },
	} {
		o := o
		change(&o)
		require.ErrorContains(t, o.Validate(), name)
		_, err := Open(memfs.New(), "/j", o)
		require.Error(t, err)
	}
	for _, wait := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond} {
		o.MaxGroupWait = wait
		require.NoError(t, o.Validate())
	}
	o.IO = IOUring
	require.ErrorIs(t, o.Validate(), errors.ErrUnsupported)
}

// TestAppendDoesNotAllocate counts the allocations of the whole process while records pass from Reserve to their sinks.
func TestAppendDoesNotAllocate(t *testing.T) {
	if invariant.Enabled {
		t.Skip("checking invariants allocates: runs in builds without -tags invariants")
	}
	o := Options{SegmentSize: 64 << 20, IO: IODSync}
	j := mustStart(t, nullFS{memfs.New()}, "/j", o)
	b, s := body(1, 1000), &tokenSink{heard: make(chan struct{}, 1)}
	group := func() {
		for range 50 {
			if err := j.Reserve(len(b), time.Second); err != nil {
				t.Fatal(err)
			}
			if _, err := j.Append(1, 7, b, s, Token{}); err != nil {
				t.Fatal(err)
			}
		}
		j.Commit()
		<-s.heard
	}
	for range 20 {
		group()
	}
	require.Less(t, testing.AllocsPerRun(200, group), 1.0, "allocations per group of 50")
	require.NoError(t, j.Close())
}

// tokenSink tells once per group that records were answered.
type tokenSink struct{ heard chan struct{} }

func (s *tokenSink) JournalDone(Token, error) {}

func (s *tokenSink) JournalFlush() {
	select {
	case s.heard <- struct{}{}:
	default:
	}
}

func TestSinkSet(t *testing.T) {
	var s sinkSet
	sinks := make([]*listener, 40)
	for i := range sinks {
		sinks[i] = newListener()
	}
	for round := range 3 {
		for i := range 500 {
			s.add(sinks[(i*7)%len(sinks)])
		}
		s.flush()
		for i, k := range sinks {
			require.Equal(t, round+1, k.flushes, "sink %d", i)
		}
	}
}

func TestQueueKeepsOrder(t *testing.T) {
	var q queue
	next, want := uint64(0), uint64(0)
	for i := range 1000 {
		for range i % 5 {
			q.push(&group{seq: next})
			next++
		}
		for range i % 4 {
			if q.len() > 0 {
				require.Equal(t, want, q.first().seq)
				require.Equal(t, want, q.pop().seq)
				want++
			}
		}
	}
	require.EqualValues(t, next-want, q.len())
}

func TestBudget(t *testing.T) {
	b := &budget{limit: 100}
	require.NoError(t, b.take(60, 0))
	require.ErrorIs(t, b.take(60, 0), ErrBusy)
	start := time.Now()
	require.ErrorIs(t, b.take(60, 20*time.Millisecond), ErrBusy)
	require.GreaterOrEqual(t, time.Since(start), 20*time.Millisecond)

	got := make(chan int, 10)
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			if err := b.take(50, waitLong); err != nil {
				t.Error(err)
			}
			got <- i
		})
		waitFor(t, func() bool { return int(b.waiting.Load()) == i+1 })
	}
	require.ErrorIs(t, b.take(1, time.Millisecond), ErrBusy, "nobody overtakes those who wait")
	b.give(60)
	require.ElementsMatch(t, []int{0, 1}, []int{<-got, <-got})
	b.give(50)
	require.Equal(t, 2, <-got)
	wg.Wait()
	b.give(100)
	require.NoError(t, b.take(1000, 0), "what is larger than everything goes alone")
	require.ErrorIs(t, b.take(1, 0), ErrBusy)
	done := make(chan error)
	go func() { done <- b.take(1, waitLong) }()
	waitFor(t, func() bool { return b.waiting.Load() == 1 })
	b.fail(syscall.EIO)
	require.ErrorIs(t, <-done, syscall.EIO)
	require.ErrorIs(t, b.take(1, waitLong), syscall.EIO)
}

// TestRoomIsGivenBackOnce: what was reserved and appended comes back when the sinks have heard, what was not appended by
// Release, and what was taken by force is paid back by the records it was taken for.
func TestRoomIsGivenBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := smallOptions()
		o.QueueBytes = 1000
		g := newGate()
		j := mustStart(t, errorfs.Wrap(memfs.New(), g), "/j", o)
		l := newListener()
		g.hold()
		used := func() int64 { synctest.Wait(); return j.Stats().QueueBytes }
		require.NoError(t, j.Reserve(900, 0))
		require.EqualValues(t, 900, used())
		j.Release(-300) // by force: over the bound
		require.EqualValues(t, 1200, used())
		for i, n := range []int{600, 300} {
			_, err := j.Append(1, 0, make([]byte, n), l, Token{A: int64(i)})
			require.NoError(t, err)
			j.Commit()
		}
		_, err := j.Append(1, 0, make([]byte, DefaultRecordBytesMax), l, Token{})
		require.ErrorIs(t, err, ErrRecordTooLarge, "and it consumes nothing")
		require.EqualValues(t, 1200, used())
		require.ErrorIs(t, j.Reserve(1, time.Second), ErrBusy)
		g.open()
		l.wait(2)
		require.EqualValues(t, 300, used())
		j.Release(300)
		require.Zero(t, used())
		require.NoError(t, j.Reserve(5000, 0), "more than the bound goes alone")
		j.Release(5000)
		require.NoError(t, j.Close())
	})
}

// TestBudgetStress: takers and givers by the dozen, and what is out never passes the limit.
func TestBudgetStress(t *testing.T) {
	b := &budget{limit: 64}
	var out atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for k := range 500 {
				n := int64(1 + (i*k)%30)
				if err := b.take(n, waitLong); err != nil {
					t.Error(err)
					return
				}
				if out.Add(n) > 64 {
					t.Error("more out than there is")
				}
				out.Add(-n)
				b.give(n)
			}
		})
	}
	wg.Wait()
	require.Zero(t, b.used.Load())
	require.Zero(t, b.waiting.Load())
}

func TestLatencies(t *testing.T) {
	var l latencies
	for _, n := range []int64{0, 1, 7, 8, 9, 100, 1000, 123456, 1e6, 1e9, 1e12} {
		b := bucketOf(n)
		require.LessOrEqual(t, n, upperOf(b), "%d", n)
		if b > 0 {
			require.Greater(t, n, upperOf(b-1), "%d", n)
		}
	}
	for i := range int64(1000) {
		l.add(i*1000, 1)
	}
	require.InEpsilon(t, 500e3, l.quantile(0.5), 0.13)
	require.InEpsilon(t, 990e3, l.quantile(0.99), 0.13)
	require.InEpsilon(t, 1e6, l.quantile(1), 0.13)
	require.Zero(t, (&latencies{}).quantile(0.5))
}

func TestMetrics(t *testing.T) {
	o := smallOptions()
	o.Label = "3"
	j := mustStart(t, memfs.New(), "/j", o)
	h := newHistory()
	require.NoError(t, h.appendBatch(j, 5, 1000))
	waitFor(t, func() bool { return j.m.add.count.Load() == 5 })
	var b strings.Builder
	j.WritePrometheus(&b)
	require.NoError(t, j.Close())
	for _, line := range []string{
		`bindery_journal_records_total{journal="3"} 5`,
		fmt.Sprintf(`bindery_journal_payload_bytes_total{journal="3"} %d`, 5*1008+10),
		`bindery_journal_failed{journal="3"} 0`,
		`bindery_journal_sync_seconds_bucket{journal="3",le="+Inf"}`,
		`bookie_journal_JOURNAL_ADD_ENTRY_count{journalIndex="3",success="true"} 5`,
		`bookie_journal_JOURNAL_SYNC{journalIndex="3",success="true",quantile="0.99"}`,
		`bookie_journal_JOURNAL_QUEUE_SIZE{journalIndex="3"} 0`,
	} {
		require.Contains(t, b.String(), line)
	}
}

// TestBudgetThatFailsAndOpensAgain: who is turned away gets the reason, not a nil for room that was never taken. The race detector found it.
func TestBudgetThatFailsAndOpensAgain(t *testing.T) {
	b := &budget{limit: 64}
	reason := errors.New("the disk is gone")
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				b.fail(reason)
				b.open()
			}
		}
	})
	for range 4 {
		wg.Go(func() {
			for range 20_000 {
				if err := b.take(1, time.Minute); err == nil {
					b.give(1)
				} else {
					assert.ErrorIs(t, err, reason)
				}
			}
		})
	}
	time.AfterFunc(100*time.Millisecond, func() { close(stop) })
	wg.Wait()
	require.Zero(t, b.used.Load(), "nobody gave back what he did not have")
}
