package bookie

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// TestSuspendedCompactionSurvivesARestart: until it is resumed, kind by kind, after a kill too.
func TestSuspendedCompactionSurvivesARestart(t *testing.T) {
	s := newSite(t)
	b := s.start()
	require.NoError(t, b.Views().GC.Suspend(true, false))
	expect := func(major, minor bool) {
		t.Helper()
		gotMajor, gotMinor := b.Views().GC.Suspended()
		require.Equal(t, []bool{major, minor}, []bool{gotMajor, gotMinor})
	}
	expect(true, false)
	s.stop(b)
	b = s.start()
	expect(true, false)
	require.Contains(t, s.logs.String(), "compaction is suspended until")
	require.NoError(t, b.Views().GC.Suspend(false, true))

	killed := s.fs.(*memfs.FS).CrashClone(1, 0)
	s.fs.(*memfs.FS).CrashNow()
	s.stopAnyhow(b)
	s.fs = killed
	b = s.start()
	expect(true, true)
	require.NoError(t, b.Views().GC.Resume(true, false))
	s.stop(b)
	b = s.start()
	expect(false, true)
	require.NoError(t, b.Views().GC.Resume(true, true))
	s.stop(b)
	b = s.start()
	expect(false, false)
	s.stop(b)
	require.ErrorIs(t, b.Views().GC.Suspend(true, true), ErrStopped)
}

func TestSuspensionFile(t *testing.T) {
	fs := memfs.New("/a/current", "/b/current")
	dirs := []string{"/a", "/b"}
	for _, want := range []suspension{{}, {minor: true}, {major: true}, {minor: true, major: true}, {major: true}, {}} {
		require.NoError(t, writeSuspension(fs, dirs, want, true))
		got, err := readSuspension(fs, dirs)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for text, want := range map[string]suspension{
		"minor\n": {minor: true}, "major": {major: true}, "major minor\nx": {minor: true, major: true}, "": {minor: true, major: true},
		"\nminor": {minor: true, major: true}, "minor medium\n": {minor: true, major: true},
	} {
		require.NoError(t, vfs.WriteFileAtomic(fs, "/b/current/GCSUSPENDED", []byte(text)))
		got, err := readSuspension(fs, dirs)
		require.NoError(t, err)
		require.Equal(t, want, got, "%q", text)
	}
	fs.SetCapacity(1)
	require.NoError(t, fs.Remove("/b/current/GCSUSPENDED"))
	require.Error(t, writeSuspension(fs, dirs, suspension{minor: true}, false), "no directory takes it")
	fs.SetCapacity(0)
	require.NoError(t, vfs.WriteFileAtomic(fs, "/a/current/GCSUSPENDED", []byte(suspension{true, true}.text(time.Unix(0, 0)))))
	require.NoError(t, fs.Remove("/b/current"))
	require.NoError(t, writeSuspension(fs, dirs, suspension{minor: true}, false), "one directory is enough for an order")
	require.Error(t, writeSuspension(fs, dirs, suspension{}, true), "and not for taking it back")
	require.Equal(t, "minor major\nsuspended by an operator at 1970-01-01T00:00:00Z\n", suspension{true, true}.text(time.Unix(0, 0)))
}
