package bookie

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
)

func TestCheckDisks(t *testing.T) {
	dir := t.TempDir()
	kind, err := vfs.FSType(dir)
	if err != nil || vfs.UnsuitableFS(kind) != "" {
		t.Skipf("the temporary directory is on %s", kind)
	}
	a, b := filepath.Join(dir, "a", "journal"), filepath.Join(dir, "b")
	warnings, err := CheckDisks([]string{a, b}, DiskPolicy{})
	require.NoError(t, err)
	require.NotEmpty(t, warnings, "both are on one file system")
	warnings, err = CheckDisks([]string{a, b}, DiskPolicy{AllowShared: true})
	require.NoError(t, err)
	for _, w := range warnings {
		require.Contains(t, w, "direct I/O")
	}
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, names, "it leaves nothing behind")

	require.NoError(t, os.WriteFile(b, nil, 0o600))
	_, err = CheckDisks([]string{filepath.Join(b, "x")}, DiskPolicy{})
	requireExit(t, err, ExitConfig, b)

	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		if kind, _ := vfs.FSType("/dev/shm"); kind == "tmpfs" {
			_, err = CheckDisks([]string{"/dev/shm/bindery-check/x"}, DiskPolicy{})
			requireExit(t, err, ExitConfig, "tmpfs", "disk.allow_any_fs")
			warnings, err = CheckDisks([]string{"/dev/shm/bindery-check/x"}, DiskPolicy{AllowAnyFS: true})
			require.NoError(t, err)
			require.NotEmpty(t, warnings)
		}
	}
}

func TestInspectDirs(t *testing.T) {
	h := newHome(t)
	h.mustPrepare()
	h.run()
	i := h.mustOpen()
	h.empty("/data/l3")
	require.NoError(t, h.fs.MkdirAll("/data/x/photos"))
	list, err := InspectDirs(h.fs, []string{"/data/j1"}, []string{"/data/l1", "/data/l3", "/data/none", "/data/x"}, nil)
	require.NoError(t, err)
	require.Len(t, list, 5)
	got := list[0]
	require.Equal(t, DirInfo{
		Path: "/data/j1", Kinds: "journal", State: "ready", Bookie: "b1:3181", Instance: i.Instance(), Directory: got.Directory,
		Number: 1, Incarnation: got.Incarnation, Epoch: i.Epoch(), Running: true, Dirty: true,
	}, got)
	for n, want := range []string{"ready", "ready", "empty", "missing", "not empty"} {
		require.Equal(t, want, list[n].State)
		require.Equal(t, n < 2, list[n].Problem == "", list[n].Problem)
	}
	require.NoError(t, i.Close())
	list, err = InspectDirs(h.fs, []string{"/data/j1"}, []string{"/data/l1"}, nil)
	require.NoError(t, err)
	require.False(t, list[0].Running)
	require.True(t, list[0].Dirty)
}

// TestInspectDirsSaysWhatIsWrong: a newer format, BookKeeper's own directory, another kind and damage are not one another.
func TestInspectDirsSaysWhatIsWrong(t *testing.T) {
	h := newHome(t)
	h.mustPrepare()
	format := h.snapshot("/data/l1")["FORMAT"]
	require.NotEmpty(t, format)
	for want, c := range map[string]struct{ text, says string }{
		"newer version": {"bindery directory format 7\nwhatever\n", "directory format 7 (this version reads 1): written by a newer version of bindery: nothing is damaged; run the version"},
		"damaged":       {string(format[:len(format)-3]), "checksum"},
		"BookKeeper":    {"", "Apache BookKeeper"},
	} {
		require.NoError(t, h.fs.Remove("/data/l1/current/FORMAT"))
		if c.text != "" {
			require.NoError(t, vfs.WriteFileAtomic(h.fs, "/data/l1/current/FORMAT", []byte(c.text)))
		}
		list, err := InspectDirs(h.fs, []string{"/data/j1"}, []string{"/data/l1"}, nil)
		require.NoError(t, err)
		require.Equal(t, want, list[1].State)
		require.Contains(t, list[1].Problem, c.says)
		require.NoError(t, vfs.WriteFileAtomic(h.fs, "/data/l1/current/FORMAT", format))
	}
	list, err := InspectDirs(h.fs, []string{"/data/l1"}, []string{"/data/j1"}, nil)
	require.NoError(t, err)
	require.Equal(t, "ready", list[0].State)
	require.Contains(t, list[0].Problem, "was prepared as ledger directory")
}
