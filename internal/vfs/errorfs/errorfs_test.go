package errorfs_test

import (
	"bytes"
	"errors"
	"io/fs"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

var rw = vfs.Mode{Write: true, Create: true}

func open(t *testing.T, fsys vfs.FS, name string, m vfs.Mode) vfs.File {
	t.Helper()
	f, err := fsys.Open(name, m)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func content(t *testing.T, fsys vfs.FS, name string) string {
	t.Helper()
	b, err := vfs.ReadFile(fsys, name)
	require.NoError(t, err)
	return string(b)
}

func TestNthFailsOnceAndDoesNothing(t *testing.T) {
	mem := memfs.New("/d")
	fsys := errorfs.Wrap(mem, errorfs.Nth(errorfs.Write, 2, syscall.EIO))
	f := open(t, fsys, "/d/a", rw)
	_, err := f.WriteAt([]byte("1"), 0)
	require.NoError(t, err)
	n, err := f.WriteAt([]byte("2"), 0)
	require.Zero(t, n)
	require.ErrorIs(t, err, syscall.EIO)
	var path *fs.PathError
	require.ErrorAs(t, err, &path)
	require.Equal(t, "/d/a", path.Path)
	require.Equal(t, "1", content(t, mem, "/d/a"))
	_, err = f.WriteAt([]byte("3"), 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, fsys.Injected())
	require.Equal(t, errorfs.Op{Kind: errorfs.Write, Path: "/d/a", Len: 1}, fsys.Last())
	require.EqualValues(t, 3, fsys.Count(errorfs.Write))
	require.Equal(t, "write 2 fails: input/output error", fsys.String())
}

func TestFromIsSticky(t *testing.T) {
	fsys := errorfs.Wrap(memfs.New("/d"), errorfs.From(errorfs.Sync|errorfs.SyncDir, 2, syscall.EIO))
	f := open(t, fsys, "/d/a", rw)
	require.NoError(t, f.Sync())
	require.ErrorIs(t, fsys.SyncDir("/d"), syscall.EIO)
	require.ErrorIs(t, f.Sync(), syscall.EIO)
	require.EqualValues(t, 2, fsys.Injected())
}

func TestEachKindCanFail(t *testing.T) {
	calls := map[errorfs.Kind]func(fsys vfs.FS) error{
		errorfs.Open:        func(fsys vfs.FS) error { _, err := fsys.Open("/d/a", vfs.Mode{}); return err },
		errorfs.Create:      func(fsys vfs.FS) error { _, err := fsys.Open("/d/b", rw); return err },
		errorfs.Remove:      func(fsys vfs.FS) error { return fsys.Remove("/d/a") },
		errorfs.Rename:      func(fsys vfs.FS) error { return fsys.Rename("/d/a", "/d/c") },
		errorfs.Mkdir:       func(fsys vfs.FS) error { return fsys.MkdirAll("/d/e") },
		errorfs.List:        func(fsys vfs.FS) error { _, err := fsys.List("/d"); return err },
		errorfs.Stat:        func(fsys vfs.FS) error { _, err := fsys.Stat("/d/a"); return err },
		errorfs.SyncDir:     func(fsys vfs.FS) error { return fsys.SyncDir("/d") },
		errorfs.Lock:        func(fsys vfs.FS) error { _, err := fsys.Lock("/d/l"); return err },
		errorfs.Usage:       func(fsys vfs.FS) error { _, err := fsys.Usage("/d"); return err },
		errorfs.Read:        onFile(func(f vfs.File) error { _, err := f.ReadAt(make([]byte, 1), 0); return err }),
		errorfs.Write:       onFile(func(f vfs.File) error { _, err := f.WriteAt([]byte("x"), 0); return err }),
		errorfs.Sync:        onFile(func(f vfs.File) error { return f.Sync() }),
		errorfs.Truncate:    onFile(func(f vfs.File) error { return f.Truncate(0) }),
		errorfs.Preallocate: onFile(func(f vfs.File) error { return f.Preallocate(10) }),
		errorfs.Size:        onFile(func(f vfs.File) error { _, err := f.Size(); return err }),
		errorfs.Close:       onFile(func(f vfs.File) error { return f.Close() }),
	}
	for kind := errorfs.Open; kind <= errorfs.Usage; kind <<= 1 {
		call, ok := calls[kind]
		require.True(t, ok, "%s has no case", kind)
		mem := memfs.New("/d")
		require.NoError(t, vfs.WriteFileAtomic(mem, "/d/a", []byte("data")))
		fsys := errorfs.Wrap(mem, errorfs.Nth(kind, 1, syscall.EDQUOT))
		require.ErrorIs(t, call(fsys), syscall.EDQUOT, "%s", kind)
		require.Equal(t, kind, fsys.Last().Kind)
		require.Equal(t, "data", content(t, mem, "/d/a"), "%s was not done", kind)
	}
}

func onFile(call func(f vfs.File) error) func(fsys vfs.FS) error {
	return func(fsys vfs.FS) error {
		f, err := fsys.Open("/d/a", vfs.Mode{Write: true})
		if err != nil {
			return err
		}
		return call(f)
	}
}

func TestShortWrite(t *testing.T) {
	mem := memfs.New("/d")
	fsys := errorfs.Wrap(mem, errorfs.ShortWrite(2, 3, syscall.ENOSPC))
	f := open(t, fsys, "/d/a", rw)
	_, err := f.WriteAt([]byte("aaaaaa"), 0)
	require.NoError(t, err)
	n, err := f.WriteAt([]byte("bbbbbb"), 0)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, 3, n)
	require.Equal(t, "bbbaaa", content(t, mem, "/d/a"))
}

func TestShortWriteOfADirectFile(t *testing.T) {
	mem := memfs.New("/d")
	fsys := errorfs.Wrap(mem, errorfs.ShortWrite(2, vfs.Align+512, syscall.EIO))
	m := rw
	m.Direct = true
	f := open(t, fsys, "/d/a", m)
	block := vfs.AlignedBytes(2 * vfs.Align)
	copy(block, bytes.Repeat([]byte("a"), len(block)))
	_, err := f.WriteAt(block, 0)
	require.NoError(t, err)
	copy(block, bytes.Repeat([]byte("b"), len(block)))
	n, err := f.WriteAt(block, 0)
	require.ErrorIs(t, err, syscall.EIO)
	require.Equal(t, vfs.Align+512, n)
	got := content(t, mem, "/d/a")
	require.Equal(t, vfs.Align+512, bytes.Count([]byte(got), []byte("b")))
	require.Equal(t, 2*vfs.Align, len(got))
}

func TestFlipBit(t *testing.T) {
	mem := memfs.New("/d")
	require.NoError(t, vfs.WriteFileAtomic(mem, "/d/a", []byte{0, 0}))
	fsys := errorfs.Wrap(mem, errorfs.FlipBit(2, 9))
	f := open(t, fsys, "/d/a", vfs.Mode{})
	read := func() []byte {
		b := make([]byte, 2)
		_, err := f.ReadAt(b, 0)
		require.NoError(t, err)
		return b
	}
	require.Equal(t, []byte{0, 0}, read())
	require.Equal(t, []byte{0, 2}, read())
	require.Equal(t, []byte{0, 0}, read())
	require.EqualValues(t, 1, fsys.Injected())
}

func TestOnPath(t *testing.T) {
	fails := errorfs.From(errorfs.Stat, 1, syscall.EIO)
	for pattern, paths := range map[string]map[string]bool{
		"*.log":         {"/d/a.log": true, "/d/a.idx": false, "/a.log/b": false},
		"current/*.log": {"/x/current/a.log": true, "/x/a.log": false, "current/a.log": true},
		"a":             {"/d/a": true, "/d/aa": false},
	} {
		for path, want := range paths {
			got := errorfs.OnPath(pattern, fails).Inject(errorfs.Op{Kind: errorfs.Stat, Path: path}).Err != nil
			require.Equal(t, want, got, "%s on %s", pattern, path)
		}
	}
	rename := errorfs.OnPath("b", errorfs.From(errorfs.Rename, 1, syscall.EIO))
	require.Error(t, rename.Inject(errorfs.Op{Kind: errorfs.Rename, Path: "/d/a", NewPath: "/d/b"}).Err)
	require.Equal(t, "on b: rename 1 and later fail: input/output error", rename.String())

	// Operations on other names are not counted.
	second := errorfs.OnPath("a", errorfs.Nth(errorfs.Stat, 2, syscall.EIO))
	a, b := errorfs.Op{Kind: errorfs.Stat, Path: "a"}, errorfs.Op{Kind: errorfs.Stat, Path: "b"}
	require.NoError(t, second.Inject(a).Err)
	require.NoError(t, second.Inject(b).Err)
	require.Error(t, second.Inject(a).Err)
}

func TestNoSpaceAfter(t *testing.T) {
	mem := memfs.New("/d")
	fsys := errorfs.Wrap(mem, errorfs.NoSpaceAfter(10))
	f := open(t, fsys, "/d/a", rw)
	_, err := f.WriteAt([]byte("12345678"), 0)
	require.NoError(t, err)
	n, err := f.WriteAt([]byte("90x"), 8)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, 2, n)
	require.Equal(t, "1234567890", content(t, mem, "/d/a"))
	_, err = f.WriteAt([]byte("x"), 0)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.ErrorIs(t, f.Preallocate(1), syscall.ENOSPC)
	_, err = fsys.Open("/d/b", rw)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, f.Sync())
}

func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := errorfs.Wrap(memfs.New("/d"), errorfs.All(
			errorfs.Latency(errorfs.Sync, func(errorfs.Op) time.Duration { return 3 * time.Second }),
			errorfs.Latency(errorfs.Changes, func(errorfs.Op) time.Duration { return time.Second }),
		))
		f, err := fsys.Open("/d/a", rw)
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, f.Sync())
		require.Equal(t, 4*time.Second, time.Since(start))
		require.Zero(t, fsys.Injected(), "slow is not wrong")
		require.NoError(t, f.Close())
	})
}

func TestSwitchAndAll(t *testing.T) {
	eio := errorfs.NewSwitch(errorfs.Nth(errorfs.Stat, 1, syscall.EIO))
	fsys := errorfs.Wrap(memfs.New("/d"), errorfs.All(eio, errorfs.Nth(errorfs.Stat, 4, syscall.ENOSPC)))
	stat := func() error { _, err := fsys.Stat("/d"); return err }
	require.NoError(t, stat())
	eio.Set(true)
	require.ErrorIs(t, stat(), syscall.EIO)
	require.NoError(t, stat())
	require.ErrorIs(t, stat(), syscall.ENOSPC)
	require.Equal(t, "while on: stat 1 fails: input/output error; stat 4 fails: no space left on device", fsys.String())
}

func TestUnsupportedDSyncStaysUnsupported(t *testing.T) {
	fsys := errorfs.Wrap(plain{memfs.New("/d")}, errorfs.None())
	f := open(t, fsys, "/d/a", rw)
	_, err := f.(vfs.DSyncWriter).WriteAtDSync([]byte("x"), 0)
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// plain hides the optional methods of files.
type plain struct{ vfs.FS }

func (p plain) Open(name string, m vfs.Mode) (vfs.File, error) {
	f, err := p.FS.Open(name, m)
	return struct{ vfs.File }{f}, err
}

// TestWriteFileAtomicSurvivesEveryFault is the smallest sweep: whatever fails, the file holds the old or the new text.
func TestWriteFileAtomicSurvivesEveryFault(t *testing.T) {
	var mem *memfs.FS
	fresh := func() vfs.FS {
		mem = memfs.New("/d")
		require.NoError(t, vfs.WriteFileAtomic(mem, "/d/a", []byte("old text")))
		return mem
	}
	for name, fault := range map[string]func(n int64) errorfs.Injector{
		"once":   func(n int64) errorfs.Injector { return errorfs.Nth(errorfs.Any, n, syscall.EIO) },
		"sticky": func(n int64) errorfs.Injector { return errorfs.From(errorfs.Any, n, syscall.EIO) },
		"short":  func(n int64) errorfs.Injector { return errorfs.ShortWrite(n, 3, syscall.ENOSPC) },
	} {
		met := errorfs.Sweep(t, fresh, fault, func(fsys *errorfs.FS, n int64) {
			err := vfs.WriteFileAtomic(fsys, "/d/a", []byte("new"))
			for seed, keep := range []float64{0, 0.5, 1} {
				got := content(t, mem.CrashClone(uint64(seed), keep), "/d/a")
				if err == nil {
					require.Equal(t, "new", got)
				} else {
					require.Contains(t, []string{"old text", "new"}, got)
				}
			}
		})
		require.Positive(t, met, name)
	}
}
