package bookie

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
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
