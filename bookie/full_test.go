package bookie

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
	"github.com/binderylog/bindery/internal/wire"
)

// fullSite is a bookie with entries and a fence that was killed, and its disk.
func fullSite(t *testing.T, ballast bool) (*site, *promises) {
	t.Helper()
	fs := memfs.New("/")
	s := sweepSite(t, fs)
	b := s.start()
	p := newPromises()
	p.script(b)
	require.NotEmpty(t, p.added)
	require.NotEmpty(t, p.fenced)
	c := s.dial(b)
	for e := range int64(50) { // not flushed: what a start has to replay
		c.add(9, e, strings.Repeat("x", 400))
		p.added[9] = append(p.added[9], e)
	}
	s2 := sweepSite(t, fs.CrashClone(1, 1))
	s2.store, s2.views = s.store, s.views
	fs.CrashNow()
	s.stopAnyhow(b)
	if !ballast {
		_ = s2.fs.Remove("/ledgers/current/reserve")
	}
	return s2, p
}

// used returns the bytes that files take, found by halving: memfs.Usage counts whole pages.
func usedBytes(t *testing.T, fs *memfs.FS) int64 {
	t.Helper()
	fs.SetCapacity(1 << 40)
	u, err := fs.Usage("/")
	require.NoError(t, err)
	return u.Total - u.Available
}

// TestC25StartOnFullDisk: after a kill a bookie finds no byte free on its disk, whatever it gives up itself, or n pages. It
// starts all the same, answers every read, fences what its journal has room for, and is writable when there is room.
func TestC25StartOnFullDisk(t *testing.T) {
	last := int64(1 << 20 >> 12)
	step := int64(7)
	if testing.Short() {
		step = 41
	}
	for _, ballast := range []bool{true, false} {
		for pages := -last; pages < last; pages += step {
			startOnFullDisk(t, pages<<12, ballast, fmt.Sprintf("%d pages free, ballast %v", pages, ballast))
		}
		startOnFullDisk(t, -1<<40, ballast, fmt.Sprintf("nothing free, ballast %v", ballast))
	}
}

func startOnFullDisk(t *testing.T, free int64, ballast bool, where string) {
	s, p := fullSite(t, ballast)
	fs := s.fs.(*memfs.FS)
	fs.SetCapacity(max(1<<12, usedBytes(t, fs)+free))
	b, err := s.tryStart()
	require.NoError(t, err, "%s\n%s", where, s.logs)
	full := b.ReadOnlyState().ReadOnly
	if free < -1<<30 {
		require.True(t, full, "%s\n%s", where, s.logs)
	}
	if full {
		require.Equal(t, ReasonDisk, b.ReadOnlyState().Reasons, "%s: %s", where, b.ReadOnlyState().Text)
	}
	require.Equal(t, full, s.registered().ReadOnly, where)
	c := s.dial(b)
	for l, entries := range p.added {
		for _, e := range entries {
			require.Equal(t, body(l, e, e-1, strings.Repeat("x", 400)), c.read(wire.V2, l, e).Body, "entry %d of ledger %d, %s", e, l, where)
		}
	}
	for l := range p.fenced {
		require.Contains(t, []wire.Code{wire.ReadOnly, wire.Fenced}, c.do(addReq(wire.V2, l, 999, 0, "late")).Code, where)
	}
	if full {
		code := c.do(addReq(wire.V2, 9, 50, 49, "x")).Code
		if !b.ReadOnlyState().ReadOnly { // what it gave up made room, and its watch over the disk has seen that meanwhile
			full = false
		}
		require.True(t, code == wire.ReadOnly || code == wire.OK && !full, "%s: %v, read-only %v", where, code, full)
	}
	fenced := c.fence(wire.V2, 9, keyK).Code
	require.Contains(t, []wire.Code{wire.OK, wire.IO}, fenced, where)

	fs.SetCapacity(0)
	s.eventuallyRegistered(false)
	require.Equal(t, wire.OK, c.fence(wire.V2, 9, keyK).Code, where)
	c.add(10, 0, "room again")
	require.NoError(t, b.Flush(context.Background()), where)

	again := sweepSite(t, fs.CrashClone(1, 0))
	again.store, again.views = s.store, s.views
	fs.CrashNow()
	s.stopAnyhow(b)
	b = again.start()
	p.check(t, again, b, where)
	require.Equal(t, wire.Fenced, again.dial(b).do(addReq(wire.V2, 9, 50, 49, "late")).Code, where)
	require.NotEmpty(t, again.dial(b).read(wire.V2, 10, 0).Body, where)
	again.stop(b)
}

// TestC24JournalFillsUpWhileRunning: a journal directory has no room for another segment. The bookie turns read-only while
// there is room in the segment at hand, which recovery adds and fences use up; then they are refused at once, reads go on,
// and the one add that met the end waits. Nothing has failed: with room again it is answered, and the bookie is writable.
func TestC24JournalFillsUpWhileRunning(t *testing.T) {
	sw := errorfs.NewSwitch(errorfs.OnPath("*.alloc", errorfs.From(errorfs.Create|errorfs.Preallocate, 3, syscall.ENOSPC))) // one segment
	sw.Set(true)
	fs := errorfs.Wrap(newMemFS(), sw)
	b := startBookie(t, bookieConfig{fs: fs, mod: func(o *Options) {
		o.DiskCheckInterval = 10 * time.Millisecond
		onVFS(o, fs)
	}})
	ctx, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { b.eng.watchDisks(ctx) })
	defer watch.Wait()
	defer cancel()
	payload := strings.Repeat("x", 64<<10)
	c := b.dial()
	next := int64(0)
	add := func(flags wire.Flags) wire.Code {
		r := addReq(wire.V3, 7, next, next-1, payload)
		r.Flags = flags
		c.txn++
		r.TxnID = c.txn
		c.write(encode(t, r))
		f, err := c.answerOrBlocked(b)
		if err != nil {
			return -1 // it waits
		}
		var resp wire.Response
		require.NoError(t, wire.DecodeResponse(wire.V3, f[4:], &resp))
		if resp.Code == wire.OK {
			next++
		}
		return resp.Code
	}
	var code wire.Code
	for code == wire.OK {
		require.Less(t, next, int64(250), "the segment is full and nobody has noticed")
		code = add(0)
		require.Eventually(t, func() bool { // what the journal says has reached the bookie
			_, err := b.eng.journals[0].Waiting()
			return err == nil || !b.state.writable()
		}, 30*time.Second, time.Millisecond)
	}
	require.Equal(t, wire.ReadOnly, code)
	s := b.state.get()
	require.Equal(t, ReasonDisk, s.Reasons)
	require.Equal(t, "disk: journal directory full: /journal", s.Text)
	require.True(t, s.HighPriority)
	require.Equal(t, wire.NoEntry, b.dial().fence(wire.V2, 8, keyK).Code, "fenced, and empty")

	for code = wire.OK; code == wire.OK; code = add(wire.HighPriority | wire.RecoveryAdd) {
		require.Less(t, next, int64(300))
	}
	require.EqualValues(t, -1, code, "the one that met the end of the segment")
	require.True(t, b.eng.journals[0].Blocked())
	other := b.dial()
	r := addReq(wire.V2, 9, 0, -1, "x")
	r.Flags = wire.HighPriority | wire.RecoveryAdd
	require.Equal(t, wire.ReadOnly, other.do(r).Code)
	require.Equal(t, wire.ReadOnly, other.do(addReq(wire.V2, 9, 0, -1, "x")).Code)
	require.Equal(t, wire.IO, other.fence(wire.V2, 10, keyK).Code)
	require.Equal(t, wire.OK, other.read(wire.V2, 7, 0).Code)
	require.Equal(t, ReasonDisk, b.state.get().Reasons)

	sw.Set(false)
	require.Equal(t, wire.OK, c.recv(wire.V3).Code)
	require.Eventually(t, b.state.writable, 30*time.Second, time.Millisecond, "%s", b.logs)
	next++
	for range 40 {
		require.Equal(t, wire.OK, add(0))
	}
	require.Equal(t, wire.NoEntry, other.fence(wire.V2, 10, keyK).Code)
	cancel()
	watch.Wait()

	b = b.restart(bookieConfig{})
	c = b.dial()
	for e := range next {
		require.Equal(t, wire.OK, c.read(wire.V2, 7, e).Code, "entry %d of %d", e, next)
	}
	for _, l := range []int64{8, 10} {
		require.Equal(t, wire.Fenced, c.do(addReq(wire.V2, l, 0, -1, "late")).Code)
	}
}

// answerOrBlocked returns the answer to the one request under way, or an error once the journal has no room for it.
func (c *client) answerOrBlocked(b *testBookie) ([]byte, error) {
	c.t.Helper()
	for end := time.Now().Add(patience); ; {
		blocked := b.eng.journals[0].Blocked() // before the look: what it had room for is answered
		f, err := c.tryFrame(500 * time.Millisecond)
		if err == nil || blocked {
			return f, err
		}
		require.True(c.t, time.Now().Before(end), "neither an answer nor a full journal: %v", err)
	}
}

// TestStopWithoutRoomInTheJournal: a bookie whose journal waits for a segment can be stopped, and nothing that it has answered
// is missing afterwards.
func TestStopWithoutRoomInTheJournal(t *testing.T) {
	sw := errorfs.NewSwitch(errorfs.OnPath("*.alloc", errorfs.From(errorfs.Create|errorfs.Preallocate, 3, syscall.ENOSPC)))
	sw.Set(true)
	fs := errorfs.Wrap(newMemFS(), sw)
	b := startBookie(t, bookieConfig{fs: fs, mod: func(o *Options) { onVFS(o, fs) }})
	c := b.dial()
	n := int64(0)
	for ; !b.eng.journals[0].Blocked(); n++ {
		require.Less(t, n, int64(300))
		c.write(encode(t, addReq(wire.V2, 7, n, n-1, strings.Repeat("x", 64<<10))))
		if _, err := c.answerOrBlocked(b); err != nil {
			break
		}
	}
	require.True(t, b.eng.journals[0].Blocked())
	b.stop()
	sw.Set(false)
	b = startBookie(t, bookieConfig{fs: fs})
	c = b.dial()
	for e := range n {
		require.Equal(t, wire.OK, c.read(wire.V2, 7, e).Code, "entry %d of %d", e, n)
	}
}

// TestReplaceFile: on a full disk a small file of the same length is overwritten, and nothing else is touched.
func TestReplaceFile(t *testing.T) {
	fs := memfs.New("/d")
	require.NoError(t, replaceFile(fs, "/d/f", []byte("one\n")))
	fs.SetCapacity(1)
	require.NoError(t, replaceFile(fs, "/d/f", []byte("two\n")))
	require.ErrorIs(t, replaceFile(fs, "/d/f", []byte("three\n")), syscall.ENOSPC)
	require.ErrorIs(t, replaceFile(fs, "/d/g", []byte("new\n")), syscall.ENOSPC)
	long := []byte(strings.Repeat("x", inPlaceMax+1))
	fs.SetCapacity(0)
	require.NoError(t, replaceFile(fs, "/d/long", long))
	fs.SetCapacity(1)
	require.ErrorIs(t, replaceFile(fs, "/d/long", []byte(strings.Repeat("y", inPlaceMax+1))), syscall.ENOSPC)
	after := fs.CrashClone(1, 0)
	got, err := vfs.ReadFile(after, "/d/f")
	require.NoError(t, err)
	require.Equal(t, "two\n", string(got), "synced")
	got, err = vfs.ReadFile(after, "/d/long")
	require.NoError(t, err)
	require.Equal(t, long, got)
	names, err := after.List("/d")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"f", "long"}, names)
}

// TestGCPassOnFullDisk: what a collection has to write before it may make room fits the full disk that it is to help.
func TestGCPassOnFullDisk(t *testing.T) {
	h := newHome(t)
	h.mustPrepare()
	i := h.mustOpen()
	_, err := i.BeginGCPass(context.Background())
	require.NoError(t, err)
	h.fs.SetCapacity(1)
	for want := range uint64(10) {
		n, err := i.BeginGCPass(context.Background())
		require.NoError(t, err)
		require.Equal(t, want+2, n)
	}
	require.NoError(t, i.CloseClean(context.Background()))
}
