package bookie

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// TestFormatFileLost: a directory without FORMAT that holds what only this program writes is not taken for BookKeeper's; the
// message says what can be done, and doing it works.
func TestFormatFileLost(t *testing.T) {
	for _, dir := range []string{"/data/j1", "/data/l2", "/data/i1"} {
		for _, cookie := range []bool{true, false} {
			h := newHome(t)
			h.mustPrepare()
			h.run() // leaves bookie.json
			current := filepath.Join(dir, currentName)
			require.NoError(t, h.fs.Remove(filepath.Join(current, formatName)))
			code := ExitFormat
			if !cookie {
				code = ExitLocked
				require.NoError(t, h.fs.Remove(filepath.Join(current, versionName)))
			}
			h.refused(code, dir, "lost current/FORMAT", "bookie.json", "not BookKeeper's", "node init --accept-loss")
			_, err := h.prepare(true)
			requireExit(t, err, code, "lost current/FORMAT")
			infos, err := InspectDirs(h.fs, h.o.JournalDirs, h.o.LedgerDirs, h.o.IndexDirs)
			require.NoError(t, err)
			i := slices.IndexFunc(infos, func(d DirInfo) bool { return d.Path == dir })
			require.Equal(t, "damaged", infos[i].State)
			require.Contains(t, infos[i].Problem, "lost current/FORMAT")

			h.empty(dir)
			_, err = h.prepare(true)
			require.NoError(t, err)
			h.run()
		}
	}
	h := newHome(t)
	h.mustPrepare()
	h.empty("/data/j1")
	require.NoError(t, h.fs.MkdirAll("/data/j1/current"))
	for _, n := range []string{versionName, "18a0b5.txn", "lastMark", dirtyName} {
		require.NoError(t, vfs.WriteFileAtomic(h.fs, "/data/j1/current/"+n, []byte("x")))
	}
	h.refused(ExitFormat, "Apache BookKeeper", "bindery migrate")
}

// tree returns every name below a directory with its content.
func tree(t *testing.T, fs *memfs.FS, dir string) map[string]string {
	out := map[string]string{}
	names, err := fs.List(dir)
	require.NoError(t, err)
	for _, n := range names {
		name := filepath.Join(dir, n)
		info, err := fs.Stat(name)
		require.NoError(t, err)
		if info.Dir {
			out[name] = "a directory"
			maps.Copy(out, tree(t, fs, name))
			continue
		}
		b, err := vfs.ReadFile(fs, name)
		require.NoError(t, err)
		out[name] = string(b)
	}
	return out
}

// TestRefusalLeavesNothing: what a bookie or a preparation refuses is afterwards as it was before, to the last file name.
func TestRefusalLeavesNothing(t *testing.T) {
	ctx := context.Background()
	write := func(h *home, name string) { require.NoError(t, vfs.WriteFileAtomic(h.fs, name, []byte("x"))) }
	removeLocks := func(h *home) {
		for _, d := range h.allDirs() {
			require.NoError(t, h.fs.Remove(filepath.Join(d, currentName, lockName)))
		}
	}
	for name, c := range map[string]struct {
		setUp func(h *home)
		try   func(h *home) error
	}{
		"directories of another bookie, copied without locks": {func(h *home) {
			h.mustPrepare()
			h.run()
			removeLocks(h)
			h.o.ID = "b2:3181"
		}, func(h *home) error { _, err := h.open(); return err }},
		"an old copy": {func(h *home) {
			h.mustPrepare()
			old := h.snapshot("/data/l1")
			h.run()
			removeLocks(h)
			delete(old, lockName)
			h.restore("/data/l1", old)
		}, func(h *home) error { _, err := h.open(); return err }},
		"a journal of BookKeeper's": {func(h *home) {
			require.NoError(t, h.fs.MkdirAll("/data/j1/current"))
			write(h, "/data/j1/current/VERSION")
			write(h, "/data/j1/current/18a0b5.txn")
		}, func(h *home) error { _, err := h.prepare(false); return err }},
		"one directory is in use": {func(h *home) {
			require.NoError(t, h.fs.MkdirAll("/data/i3/current"))
			lock, err := h.fs.Lock("/data/i3/current/LOCK")
			require.NoError(t, err)
			t.Cleanup(func() { _ = lock.Close() })
		}, func(h *home) error { _, err := h.prepare(false); return err }},
		"a journal to be added": {func(h *home) {
			h.mustPrepare()
			h.run()
			require.NoError(t, h.fs.MkdirAll("/data/j2"))
			h.o.JournalDirs, h.o.AllowExpansion = append(h.o.JournalDirs, "/data/j2"), true
		}, func(h *home) error { _, err := h.open(); return err }},
		"a look": {func(h *home) {
			h.mustPrepare()
			removeLocks(h)
		}, func(h *home) error {
			infos, err := InspectDirs(h.fs, h.o.JournalDirs, h.o.LedgerDirs, h.o.IndexDirs)
			require.NoError(t, err)
			require.False(t, infos[0].Running)
			return ctx.Err()
		}},
	} {
		h := newHome(t)
		for _, d := range h.allDirs() {
			require.NoError(t, h.fs.MkdirAll(d))
		}
		c.setUp(h)
		h.o.FS = h.fs
		before := tree(t, h.fs, "/data")
		err := c.try(h)
		require.Equal(t, name != "a look", err != nil, "%s: %v", name, err)
		require.Equal(t, before, tree(t, h.fs, "/data"), name)
	}
}
