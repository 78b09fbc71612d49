package journal

import (
	"errors"
	"slices"
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

// history is what a client of a journal knows: what it appended, what was acknowledged, and the mark below which it does
// not need the journal any more.
type history struct {
	mu       sync.Mutex
	appended map[int]Position
	acked    map[int]bool
	mark     Position
	next     int
	settle   bool // workload lets the preparer finish before it appends, so that runs begin with a switch
}

func newHistory() *history { return &history{appended: map[int]Position{}, acked: map[int]bool{}} }

// historySink notes acknowledgements.
type historySink struct {
	h    *history
	done chan error // one value per record
}

func (s *historySink) JournalDone(t Token, err error) {
	if err == nil {
		s.h.mu.Lock()
		s.h.acked[int(t.A)] = true
		s.h.mu.Unlock()
	}
	s.done <- err
}

func (s *historySink) JournalFlush() {}

// appendBatch appends n records of about size bytes, waits for them and returns the first error.
func (h *history) appendBatch(j *Journal, n, size int) error {
	s := &historySink{h: h, done: make(chan error, n+1)}
	sent := 0
	var first error
	for range n {
		i := h.next
		b := body(i, size+i%5)
		if first = j.Reserve(len(b), time.Minute); first != nil {
			break
		}
		p, err := j.Append(1, uint64(i%7), b, s, Token{A: int64(i)})
		if err != nil {
			j.Release(len(b))
			first = err
			break
		}
		h.mu.Lock()
		h.appended[i] = p
		h.mu.Unlock()
		h.next++
		sent++
	}
	j.Commit()
	for range sent {
		if err := s.wait(j); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// wait returns the next answer. A journal that has waited for a segment for a while is closed, so that there is one.
func (s *historySink) wait(j *Journal) error {
	for n := 0; ; n++ {
		select {
		case err := <-s.done:
			return err
		case <-time.After(20 * time.Millisecond):
			if j.Blocked() && n > 5 {
				_ = j.Close() // it tells the sinks
			}
		}
	}
}

// trim moves the mark to before the last keep records and trims.
func (h *history) trim(j *Journal, keep int) error {
	mark := j.Mark()
	for i := max(0, h.next-keep); i < h.next; i++ {
		mark = min(mark, h.appended[i])
	}
	h.mark = max(h.mark, mark)
	return j.Trim(h.mark)
}

// check opens the journal on fs and compares what it replays from the mark with what must be and what may be there.
func (h *history) check(t testing.TB, fs vfs.FS, o Options, where string) {
	t.Helper()
	j, err := Open(fs, "/j", o)
	require.NoError(t, err, where)
	defer j.Close() //nolint:errcheck // never started
	got := map[int]bool{}
	last, lastPos := -1, Position(0)
	r, err := j.Replay(h.mark, func(r Record) error {
		i := checkBody(t, r.Payload)
		p, ok := h.appended[i]
		require.True(t, ok, "%s: record %d was never appended", where, i)
		require.Equal(t, p, r.Position, "%s: record %d", where, i)
		require.GreaterOrEqual(t, r.Position, lastPos, "%s: record %d", where, i)
		require.Greater(t, i, last, "%s: out of order", where)
		require.False(t, got[i], "%s: record %d twice", where, i)
		last, lastPos = i, r.Position
		got[i] = true
		return nil
	})
	require.NoError(t, err, where)
	require.True(t, r.Whole, "%s: %+v", where, r.Damage)
	require.Empty(t, r.Damage, where)
	for i := range h.acked {
		if h.appended[i] >= h.mark {
			require.True(t, got[i], "%s: acknowledged record %d at %d is gone (mark %d, cut %+v)", where, i, h.appended[i], h.mark, r.Cut)
		}
	}
}

// clone copies the history, for a second life on a copy of the disk.
func (h *history) clone() *history {
	c := newHistory()
	for i, p := range h.appended {
		c.appended[i] = p
	}
	for i := range h.acked {
		c.acked[i] = true
	}
	c.mark, c.next, c.settle = h.mark, h.next, h.settle
	return c
}

// workload passes through several segments with trims in between.
func workload(h *history, fs vfs.FS, o Options, batches int) (err error) {
	j, err := Open(fs, "/j", o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	j.pause = time.Millisecond
	if _, err := j.Replay(h.mark, nil); err != nil {
		return err
	}
	if err := j.Start(); err != nil {
		return err
	}
	if h.settle {
		settle(j)
	}
	for b := range batches {
		n := 1 + b%4
		if err := h.appendBatch(j, n, 1000*(1+b%7)); err != nil {
			return err
		}
		if b%5 == 4 {
			if err := h.trim(j, 6); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle waits a moment for the preparer to get ready.
func settle(j *Journal) {
	for range 50 {
		j.mu.Lock()
		done := j.err != nil || j.cur.zeroed || len(j.planned) > 0 && j.planned[0].ready && j.planned[0].zeroed
		j.mu.Unlock()
		if done {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func crashOptions(io IOMethod) Options {
	return Options{SegmentSize: 64 << 10, MaxGroupBytes: 8 << 10, IO: io, GroupsInFlight: 3, Reserve: -1}
}

// TestPowerLossAtEveryStep cuts the power within every change that a run of several segments makes.
func TestPowerLossAtEveryStep(t *testing.T) {
	batches := 40
	if raceEnabled || testing.Short() {
		batches = 14
	}
	for _, io := range []IOMethod{IODSync, IOFdatasync, IORWFDSync, IOBuffered} {
		t.Run(string(io), func(t *testing.T) {
			t.Parallel()
			o := crashOptions(io)
			var h *history
			runs := 0
			memfs.Sweep(t, func() *memfs.FS { return memfs.New() }, func(f *memfs.FS) {
				h = newHistory()
				h.settle = runs%2 == 0
				_ = workload(h, f, o, batches)
				runs++
			}, func(f *memfs.FS, where string) {
				h.check(t, f, o, where)
				if runs%5 != 0 { // a second life on what is left, now and then
					return
				}
				c := h.clone()
				require.NoError(t, workload(c, f, o, 6), where)
				c.check(t, f, o, where+", second life")
			})
			require.Greater(t, runs, batches)
		})
	}
}

// TestPowerLossInSecondLife starts on what a first power loss left and cuts the power again at every step of the start
// and of what follows.
func TestPowerLossInSecondLife(t *testing.T) {
	o := crashOptions(IODSync)
	lives := uint64(6)
	if raceEnabled || testing.Short() {
		lives = 2
	}
	for seed := range lives {
		h := newHistory()
		h.settle = seed%3 == 0
		first := memfs.New()
		first.CrashAt(int64(60 + 23*seed))
		_ = workload(h, first, o, 24)
		first.CrashNow()
		left := first.CrashClone(seed, 0.5)
		var c *history
		memfs.Sweep(t, left.Clone, func(f *memfs.FS) {
			c = h.clone()
			c.settle = seed%2 == 0
			_ = workload(c, f, o, 8)
		}, func(f *memfs.FS, where string) {
			c.check(t, f, o, where)
		})
	}
}

// TestReplayedRecordsAreSyncedByStart is S36: records that were only in the page cache when the process died are replayed
// and may be answered for, so a power loss after Start must not take them.
func TestReplayedRecordsAreSyncedByStart(t *testing.T) {
	o := crashOptions(IOBuffered)
	mem := memfs.New()
	dead := make(chan struct{})
	first := errorfs.Wrap(mem, errorfs.Func("the process is dead", func(errorfs.Op) errorfs.Fault {
		select {
		case <-dead:
			return errorfs.Fault{Err: syscall.EIO}
		default:
			return errorfs.Fault{}
		}
	}))
	relaxed := o
	relaxed.Relaxed = true
	j := mustStart(t, first, "/j", relaxed)
	h := newHistory()
	require.NoError(t, h.appendBatch(j, 5, 1000)) // acknowledged from the page cache
	close(dead)
	require.ErrorIs(t, j.Close(), ErrPoisoned)

	second := mustOpen(t, mem, "/j", o)
	n := 0
	_, err := second.Replay(0, func(Record) error { n++; return nil })
	require.NoError(t, err)
	require.Equal(t, 5, n)
	lost := mem.CrashClone(1, 0)
	got, _ := replayAll(t, lost, "/j", o, 0)
	require.Empty(t, got, "the test shows nothing if the records were durable before Start")

	require.NoError(t, second.Start())
	h.check(t, mem.CrashClone(2, 0), o, "power loss after Start")
	require.NoError(t, second.Close())
}

// TestPositionsNeverComeBack: positions that were handed out before a crash, also for groups that never reached the disk,
// are not used again, so that a mark can not hide a later record.
func TestPositionsNeverComeBack(t *testing.T) {
	o := crashOptions(IODSync)
	mem := memfs.New()
	var highest Position
	for life := range 4 {
		j := mustStart(t, mem, "/j", o)
		require.Greater(t, j.Mark(), highest)
		h := newHistory()
		require.NoError(t, h.appendBatch(j, 3, 100))
		p, err := j.Append(1, 0, body(0, 10), nil, Token{}) // stays in memory
		require.NoError(t, err)
		highest = max(p, j.Mark())
		clone := mem.CrashClone(uint64(life), 0)
		require.NoError(t, j.Close())
		if life%2 == 0 { // and once with the newest segment gone: only the mark knows how far it went
			names, err := clone.List("/j/current")
			require.NoError(t, err)
			for _, n := range slices.Backward(names) {
				if _, suffix, _ := parseName(n); suffix == liveSuffix {
					require.NoError(t, clone.Remove("/j/current/"+n))
					break
				}
			}
			j := mustOpen(t, clone, "/j", o)
			_, err = j.Replay(highest, nil)
			require.NoError(t, err)
			require.NoError(t, j.Start())
			require.GreaterOrEqual(t, j.Mark(), highest)
			require.NoError(t, j.Close())
			continue
		}
		mem = clone
	}
	empty := memfs.New() // everything is gone but the mark
	j := mustOpen(t, empty, "/j", o)
	_, err := j.Replay(highest, nil)
	require.NoError(t, err)
	require.NoError(t, j.Start())
	require.GreaterOrEqual(t, j.Mark(), highest)
	require.NoError(t, j.Close())
	k := mustStart(t, empty, "/j", o)
	require.Greater(t, k.Mark(), highest)
	require.NoError(t, k.Close())
}

// TestOldCutIsKnownForEver: groups behind a cut stay cut, also when the sequence numbers of a later life pass theirs.
func TestOldCutIsKnownForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := crashOptions(IODSync)
		o.Reserve = -1
		mem := memfs.New()
		gate := newGate()
		j := mustStart(t, errorfs.Wrap(mem, gate), "/j", o)
		h := newHistory()
		require.NoError(t, h.appendBatch(j, 1, 100)) // group 1
		gate.hold()
		l := newListener()
		appendOne(t, j, 100, 100, l) // group 2: will not reach the disk
		j.Commit()
		gate.await(1)
		for i := range 20 { // group 3, large enough to start beside it
			appendOne(t, j, 200+i, 5000, l)
		}
		j.Commit()
		gate.await(2)
		gate.release(1) // the second one only
		gate.awaitDone(1)
		clone := mem.CrashClone(1, 0)
		gate.open()
		require.NoError(t, j.Close())

		second := mustOpen(t, clone, "/j", o)
		r, err := second.Replay(0, nil)
		require.NoError(t, err)
		require.NotNil(t, r.Cut)
		require.Equal(t, int64(1), r.Records)
		require.GreaterOrEqual(t, r.Cut.Groups, 1, "the whole group behind the missing one is cut as well")
		require.True(t, r.Whole)
		require.NoError(t, second.Start())
		require.NoError(t, h.appendBatch(second, 3, 100))
		require.NoError(t, second.Close())

		h.check(t, clone, o, "third life")
		third := mustOpen(t, clone, "/j", o)
		r, err = third.Replay(0, nil)
		require.NoError(t, err)
		require.Nil(t, r.Cut, "an old cut is not news")
		require.Equal(t, int64(4), r.Records)
		require.NoError(t, third.Close())
	})
}

// gate is an injector that holds the writes of groups back until it is told to let them through.
type gate struct {
	mu      sync.Mutex
	cond    sync.Cond
	holding bool
	waiting []bool // per write that came while holding: let through
	arrived int
	passed  int
}

func newGate() *gate {
	g := &gate{}
	g.cond.L = &g.mu
	return g
}

func (g *gate) String() string { return "gate" }

func (g *gate) Inject(op errorfs.Op) errorfs.Fault {
	if op.Kind != errorfs.Write || op.Off == 0 || op.Len == zeroChunk || op.Len == noteBytes { // a header, zeroes, or the note
		return errorfs.Fault{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.holding {
		return errorfs.Fault{}
	}
	me := len(g.waiting)
	g.waiting = append(g.waiting, false)
	g.arrived++
	g.cond.Broadcast()
	for g.holding && !g.waiting[me] {
		g.cond.Wait()
	}
	g.passed++
	g.cond.Broadcast()
	return errorfs.Fault{}
}

func (g *gate) hold() { g.mu.Lock(); g.holding = true; g.mu.Unlock() }

func (g *gate) open() {
	g.mu.Lock()
	g.holding = false
	g.cond.Broadcast()
	g.mu.Unlock()
}

// release lets write i (counted from 0 since hold) through.
func (g *gate) release(i int) {
	g.mu.Lock()
	g.waiting[i] = true
	g.cond.Broadcast()
	g.mu.Unlock()
}

// await blocks until n writes are held or were.
func (g *gate) await(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.arrived < n {
		g.cond.Wait()
	}
}

// awaitDone blocks until n writes passed, and what they lead to has happened. It needs a bubble of package synctest.
func (g *gate) awaitDone(n int) {
	g.mu.Lock()
	for g.passed < n {
		g.cond.Wait()
	}
	g.mu.Unlock()
	synctest.Wait()
}

// TestRunThatBeginsWithAnEmptySegment: a run leaves its first segment unused when a zeroed one is ready before the first
// append. Its header is still what separates the run from the one before.
func TestRunThatBeginsWithAnEmptySegment(t *testing.T) {
	o := crashOptions(IODSync)
	mem, h := memfs.New(), newHistory()
	for range 4 {
		j := mustStart(t, mem, "/j", o)
		waitPrepared(t, j)
		require.NoError(t, h.appendBatch(j, 3, 500))
		mem = mem.CrashClone(uint64(h.next), 0)
		require.NoError(t, j.Close())
		h.check(t, mem, o, "after a crash")
	}
	d, err := readDirectory(mem, "/j")
	require.NoError(t, err)
	w := newWalk(mem, d, 0, &Replayed{})
	require.NoError(t, w.run())
	empty := 0
	for _, s := range d.segments {
		if s.header.fresh() && w.used[s.id] == 0 {
			empty++
		}
	}
	require.Positive(t, empty, "the test shows nothing unless a run begins with an empty segment")
}
