package vfstest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
)

// env is one file system under test and an empty directory in it.
type env struct {
	vfs.FS
	dir string
}

func (e env) path(parts ...string) string {
	return filepath.Join(append([]string{e.dir}, parts...)...)
}

// open opens a file and closes it when the test ends, if the test did not.
func (e env) open(t *testing.T, name string, m vfs.Mode) vfs.File {
	t.Helper()
	f, err := e.Open(e.path(name), m)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func (e env) write(t *testing.T, name, data string) {
	t.Helper()
	require.NoError(t, vfs.WriteFileAtomic(e.FS, e.path(name), []byte(data)))
}

func (e env) read(t *testing.T, name string) string {
	t.Helper()
	b, err := vfs.ReadFile(e.FS, e.path(name))
	require.NoError(t, err)
	return string(b)
}

var rw = vfs.Mode{Write: true, Create: true}

// Run runs the suite. fresh returns a file system and an existing, empty, writable directory in it for each test.
func Run(t *testing.T, fresh func(t *testing.T) (vfs.FS, string)) {
	for name, test := range map[string]func(t *testing.T, e env){
		"OpenModes":          testOpenModes,
		"ReadWrite":          testReadWrite,
		"ReadAtEnd":          testReadAtEnd,
		"Truncate":           testTruncate,
		"TruncateThenGrow":   testTruncateThenGrow,
		"Preallocate":        testPreallocate,
		"Rename":             testRename,
		"RenameMissing":      testRenameMissing,
		"Remove":             testRemove,
		"RemovedWhileOpen":   testRemovedWhileOpen,
		"ListSorted":         testListSorted,
		"Stat":               testStat,
		"MkdirAll":           testMkdirAll,
		"SyncDir":            testSyncDir,
		"Lock":               testLock,
		"Usage":              testUsage,
		"Closed":             testClosed,
		"ReadOnlyHandle":     testReadOnlyHandle,
		"Direct":             testDirect,
		"DirectUnaligned":    testDirectUnaligned,
		"DirectShortTail":    testDirectShortTail,
		"DSync":              testDSync,
		"DSyncWriter":        testDSyncWriter,
		"WriteFileAtomic":    testWriteFileAtomic,
		"MkdirAllSync":       testMkdirAllSync,
		"DropCache":          testDropCache,
		"Concurrent":         testConcurrent,
		"ErrorsNameTheFile":  testErrorsNameTheFile,
		"LongRandomSequence": testModel,
	} {
		t.Run(name, func(t *testing.T) {
			fsys, dir := fresh(t)
			test(t, env{fsys, dir})
		})
	}
}

func testOpenModes(t *testing.T, e env) {
	_, err := e.Open(e.path("a"), vfs.Mode{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = e.Open(e.path("a"), vfs.Mode{Write: true})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = e.Open(e.path("none", "a"), rw)
	require.ErrorIs(t, err, fs.ErrNotExist, "a missing parent is not created")

	f := e.open(t, "a", rw)
	require.Equal(t, e.path("a"), f.Name())
	_, err = f.WriteAt([]byte("x"), 0)
	require.NoError(t, err)

	again := e.open(t, "a", rw)
	size, err := again.Size()
	require.NoError(t, err)
	require.EqualValues(t, 1, size, "Create does not empty a file that exists")

	_, err = e.Open(e.path("a"), vfs.Mode{Write: true, Create: true, Exclusive: true})
	require.ErrorIs(t, err, fs.ErrExist)
	e.open(t, "b", vfs.Mode{Write: true, Create: true, Exclusive: true})
}

func testReadWrite(t *testing.T, e env) {
	f := e.open(t, "a", rw)
	n, err := f.WriteAt([]byte("hello"), 10)
	require.NoError(t, err)
	require.Equal(t, 5, n)
	buf := make([]byte, 15)
	n, err = f.ReadAt(buf, 0)
	require.NoError(t, err)
	require.Equal(t, 15, n)
	require.Equal(t, append(make([]byte, 10), "hello"...), buf, "a hole reads as zeros")

	big := bytes.Repeat([]byte("0123456789abcdef!"), 3000) // crosses many blocks, off any boundary
	_, err = f.WriteAt(big, 4090)
	require.NoError(t, err)
	got := make([]byte, len(big))
	_, err = f.ReadAt(got, 4090)
	require.NoError(t, err)
	require.Equal(t, big, got)
	require.NoError(t, f.Sync())

	n, err = f.WriteAt(nil, 3)
	require.NoError(t, err)
	require.Zero(t, n)
}

func testReadAtEnd(t *testing.T, e env) {
	e.write(t, "a", "hello")
	f := e.open(t, "a", vfs.Mode{})
	buf := make([]byte, 10)
	n, err := f.ReadAt(buf, 3)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, "lo", string(buf[:n]))
	n, err = f.ReadAt(buf, 5)
	require.ErrorIs(t, err, io.EOF)
	require.Zero(t, n)
	n, err = f.ReadAt(buf, 500)
	require.ErrorIs(t, err, io.EOF)
	require.Zero(t, n)
	n, err = f.ReadAt(buf[:5], 0)
	if err != nil {
		require.ErrorIs(t, err, io.EOF) // io.ReaderAt allows either at the exact end
	}
	require.Equal(t, 5, n)
}

func testTruncate(t *testing.T, e env) {
	f := e.open(t, "a", rw)
	_, err := f.WriteAt(bytes.Repeat([]byte{1}, 10000), 0)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(5000))
	size, err := f.Size()
	require.NoError(t, err)
	require.EqualValues(t, 5000, size)
	require.NoError(t, f.Truncate(0))
	size, err = f.Size()
	require.NoError(t, err)
	require.Zero(t, size)
	require.Error(t, f.Truncate(-1))
}

func testTruncateThenGrow(t *testing.T, e env) {
	f := e.open(t, "a", rw)
	_, err := f.WriteAt(bytes.Repeat([]byte{1}, 10000), 0)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(100))
	require.NoError(t, f.Truncate(9000))
	want := make([]byte, 9000)
	copy(want, bytes.Repeat([]byte{1}, 100))
	require.Equal(t, string(want), e.read(t, "a"), "what was cut off reads as zeros")
}

func testPreallocate(t *testing.T, e env) {
	f := e.open(t, "a", rw)
	_, err := f.WriteAt([]byte("abc"), 0)
	require.NoError(t, err)
	require.NoError(t, f.Preallocate(100_000))
	size, err := f.Size()
	require.NoError(t, err)
	require.EqualValues(t, 100_000, size)
	require.NoError(t, f.Preallocate(10))
	size, err = f.Size()
	require.NoError(t, err)
	require.EqualValues(t, 100_000, size, "never smaller")
	want := make([]byte, 100_000)
	copy(want, "abc")
	require.Equal(t, string(want), e.read(t, "a"))
}

func testRename(t *testing.T, e env) {
	e.write(t, "a", "new")
	e.write(t, "b", "old")
	held := e.open(t, "b", vfs.Mode{})
	require.NoError(t, e.Rename(e.path("a"), e.path("b")))
	require.Equal(t, "new", e.read(t, "b"))
	_, err := e.Stat(e.path("a"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	buf := make([]byte, 3)
	_, err = held.ReadAt(buf, 0)
	require.NoError(t, err)
	require.Equal(t, "old", string(buf), "an open handle keeps the file it was opened on")

	require.NoError(t, e.MkdirAll(e.path("d1", "sub")))
	e.write(t, "d1/sub/f", "deep")
	require.NoError(t, e.Rename(e.path("d1"), e.path("d2")))
	require.Equal(t, "deep", e.read(t, "d2/sub/f"))
	require.NoError(t, e.Rename(e.path("d2/sub/f"), e.path("f")))
	require.Equal(t, "deep", e.read(t, "f"))
	require.NoError(t, e.Rename(e.path("f"), e.path("f")))
	require.Equal(t, "deep", e.read(t, "f"))
}

func testRenameMissing(t *testing.T, e env) {
	require.ErrorIs(t, e.Rename(e.path("a"), e.path("b")), fs.ErrNotExist)
	e.write(t, "a", "x")
	require.ErrorIs(t, e.Rename(e.path("a"), e.path("none", "b")), fs.ErrNotExist)
	require.NoError(t, e.MkdirAll(e.path("d", "e")))
	require.Error(t, e.Rename(e.path("a"), e.path("d")), "a file does not replace a directory")
	require.Error(t, e.Rename(e.path("d"), e.path("d", "e", "f")), "a directory does not move into itself")
}

func testRemove(t *testing.T, e env) {
	require.ErrorIs(t, e.Remove(e.path("a")), fs.ErrNotExist)
	e.write(t, "a", "x")
	require.NoError(t, e.Remove(e.path("a")))
	_, err := e.Stat(e.path("a"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, e.MkdirAll(e.path("d", "e")))
	require.Error(t, e.Remove(e.path("d")), "only empty directories")
	require.NoError(t, e.Remove(e.path("d", "e")))
	require.NoError(t, e.Remove(e.path("d")))
}

func testRemovedWhileOpen(t *testing.T, e env) {
	f := e.open(t, "a", rw)
	require.NoError(t, e.Remove(e.path("a")))
	_, err := f.WriteAt([]byte("still here"), 0)
	require.NoError(t, err)
	buf := make([]byte, 10)
	_, err = f.ReadAt(buf, 0)
	require.NoError(t, err)
	require.Equal(t, "still here", string(buf))
	e.write(t, "a", "another")
	require.Equal(t, "another", e.read(t, "a"))
}

func testListSorted(t *testing.T, e env) {
	for _, name := range []string{"c", "a", "B", "10", "9"} {
		e.write(t, name, "")
	}
	require.NoError(t, e.MkdirAll(e.path("b", "inner")))
	names, err := e.List(e.dir)
	require.NoError(t, err)
	require.Equal(t, []string{"10", "9", "B", "a", "b", "c"}, names)
	names, err = e.List(e.path("b", "inner"))
	require.NoError(t, err)
	require.Empty(t, names)
	_, err = e.List(e.path("none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = e.List(e.path("a"))
	require.Error(t, err)
}

func testStat(t *testing.T, e env) {
	e.write(t, "a", "12345")
	info, err := e.Stat(e.path("a"))
	require.NoError(t, err)
	require.Equal(t, vfs.Info{Size: 5}, info)
	info, err = e.Stat(e.dir)
	require.NoError(t, err)
	require.True(t, info.Dir)
	_, err = e.Stat(e.path("none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func testMkdirAll(t *testing.T, e env) {
	require.NoError(t, e.MkdirAll(e.path("x", "y", "z")))
	require.NoError(t, e.MkdirAll(e.path("x", "y", "z")), "what exists is fine")
	e.write(t, "x/y/z/f", "")
	require.Error(t, e.MkdirAll(e.path("x", "y", "z", "f", "g")), "a file in the way")
}

func testSyncDir(t *testing.T, e env) {
	require.NoError(t, e.SyncDir(e.dir))
	require.ErrorIs(t, e.SyncDir(e.path("none")), fs.ErrNotExist)
}

func testLock(t *testing.T, e env) {
	l, err := e.Lock(e.path("lock"))
	require.NoError(t, err)
	_, err = e.Lock(e.path("lock"))
	require.ErrorIs(t, err, vfs.ErrLocked)
	other, err := e.Lock(e.path("other"))
	require.NoError(t, err)
	require.NoError(t, other.Close())
	require.NoError(t, l.Close())
	l, err = e.Lock(e.path("lock"))
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, err = e.Lock(e.path("none", "lock"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func testUsage(t *testing.T, e env) {
	u, err := e.Usage(e.dir)
	require.NoError(t, err)
	require.Positive(t, u.Total)
	require.GreaterOrEqual(t, u.Total, u.Available)
	_, err = e.Usage(e.path("none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func testClosed(t *testing.T, e env) {
	f := e.open(t, "a", rw)
	require.NoError(t, f.Close())
	require.ErrorIs(t, f.Close(), fs.ErrClosed)
	_, err := f.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, fs.ErrClosed)
	_, err = f.WriteAt([]byte("x"), 0)
	require.ErrorIs(t, err, fs.ErrClosed)
	require.ErrorIs(t, f.Sync(), fs.ErrClosed)
	require.ErrorIs(t, f.Truncate(0), fs.ErrClosed)
	require.ErrorIs(t, f.Preallocate(1), fs.ErrClosed)
	_, err = f.Size()
	require.ErrorIs(t, err, fs.ErrClosed)
	f.DropCache(0, 1)
}

func testReadOnlyHandle(t *testing.T, e env) {
	e.write(t, "a", "x")
	f := e.open(t, "a", vfs.Mode{})
	_, err := f.WriteAt([]byte("y"), 0)
	require.Error(t, err)
	require.Error(t, f.Truncate(0))
	require.Error(t, f.Preallocate(10))
	require.Equal(t, "x", e.read(t, "a"))
}

// direct opens a file for direct I/O, or skips where the file system has none.
func (e env) direct(t *testing.T, name string, m vfs.Mode) vfs.File {
	t.Helper()
	m.Direct = true
	f, err := e.Open(e.path(name), m)
	if errors.Is(err, vfs.ErrNoDirectIO) {
		_, err := e.Stat(e.path(name))
		require.ErrorIs(t, err, fs.ErrNotExist, "a refused open leaves no file behind")
		t.Skip("no direct I/O here")
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func testDirect(t *testing.T, e env) {
	f := e.direct(t, "a", rw)
	out := vfs.AlignedBytes(4 * vfs.Align)
	for i := range out {
		out[i] = byte(i / 100)
	}
	_, err := f.WriteAt(out, vfs.Align)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	in := vfs.AlignedBytes(4 * vfs.Align)
	_, err = f.ReadAt(in, vfs.Align)
	require.NoError(t, err)
	require.Equal(t, out, in)
	require.NoError(t, f.Preallocate(100*vfs.Align))
	_, err = f.WriteAt(out[:vfs.Align], 50*vfs.Align)
	require.NoError(t, err)

	d, err := vfs.ProbeDirect(e.FS, e.dir)
	require.NoError(t, err)
	require.Zero(t, vfs.Align%d.MemoryAlign)
	require.Zero(t, vfs.Align%d.OffsetAlign)
	names, err := e.List(e.dir)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, names, "the probe cleans up")
}

func testDirectUnaligned(t *testing.T, e env) {
	f := e.direct(t, "a", rw)
	b := vfs.AlignedBytes(2 * vfs.Align)
	for _, bad := range []struct {
		p   []byte
		off int64
	}{
		{b[:vfs.Align], 512},
		{b[:100], 0},
		{b[1 : vfs.Align+1], 0},
		{b[:vfs.Align], 1},
	} {
		_, err := f.WriteAt(bad.p, bad.off)
		require.ErrorIs(t, err, syscall.EINVAL)
		_, err = f.ReadAt(bad.p, bad.off)
		require.ErrorIs(t, err, syscall.EINVAL)
	}
	size, err := f.Size()
	require.NoError(t, err)
	require.Zero(t, size)
}

func testDirectShortTail(t *testing.T, e env) {
	tail := bytes.Repeat([]byte{7}, vfs.Align+100)
	e.write(t, "a", string(tail))
	f := e.direct(t, "a", vfs.Mode{})
	b := vfs.AlignedBytes(4 * vfs.Align)
	n, err := f.ReadAt(b, 0)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, tail, b[:n])
	n, err = f.ReadAt(b, vfs.Align)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, tail[vfs.Align:], b[:n])
	n, err = f.ReadAt(b, 2*vfs.Align)
	require.ErrorIs(t, err, io.EOF)
	require.Zero(t, n)
}

func testDSync(t *testing.T, e env) {
	f := e.open(t, "a", vfs.Mode{Write: true, Create: true, DSync: true})
	_, err := f.WriteAt([]byte("durable"), 0)
	require.NoError(t, err)
	require.Equal(t, "durable", e.read(t, "a"))
}

func testDSyncWriter(t *testing.T, e env) {
	f := e.open(t, "a", rw)
	d, ok := f.(vfs.DSyncWriter)
	if !ok {
		t.Skip("not offered")
	}
	n, err := d.WriteAtDSync([]byte("durable"), 3)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("not supported here")
	}
	require.NoError(t, err)
	require.Equal(t, 7, n)
	require.Equal(t, "\x00\x00\x00durable", e.read(t, "a"))
	require.NoError(t, f.Close())
	_, err = d.WriteAtDSync([]byte("x"), 0)
	require.ErrorIs(t, err, fs.ErrClosed)
}

func testWriteFileAtomic(t *testing.T, e env) {
	e.write(t, "a", "first, and rather long")
	e.write(t, "a", "second")
	require.Equal(t, "second", e.read(t, "a"))
	e.write(t, "a", "")
	require.Equal(t, "", e.read(t, "a"))
	e.write(t, "b.tmp", "a leftover longer than what follows")
	e.write(t, "b", "b")
	require.Equal(t, "b", e.read(t, "b"))
	require.ErrorIs(t, vfs.WriteFileAtomic(e.FS, e.path("none", "a"), nil), fs.ErrNotExist)
	require.NoError(t, e.MkdirAll(e.path("d")))
	require.Error(t, vfs.WriteFileAtomic(e.FS, e.path("d"), []byte("x")))
	names, err := e.List(e.dir)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "d"}, names, "no temporary file stays, not even of the failure")
}

func testMkdirAllSync(t *testing.T, e env) {
	require.NoError(t, vfs.MkdirAllSync(e.FS, e.path("p", "q", "r")))
	require.NoError(t, vfs.MkdirAllSync(e.FS, e.path("p", "q", "r")))
	info, err := e.Stat(e.path("p", "q", "r"))
	require.NoError(t, err)
	require.True(t, info.Dir)
}

func testDropCache(t *testing.T, e env) {
	e.write(t, "a", "content")
	require.NoError(t, vfs.DropCache(e.FS, e.path("a")))
	require.Equal(t, "content", e.read(t, "a"))
	require.ErrorIs(t, vfs.DropCache(e.FS, e.path("none")), fs.ErrNotExist)
}

func testConcurrent(t *testing.T, e env) {
	f := e.open(t, "shared", rw)
	var wg sync.WaitGroup
	errs := make(chan error, 64)
	for g := range 8 {
		wg.Go(func() {
			mine := bytes.Repeat([]byte{byte(g + 1)}, 5000)
			for i := range 20 {
				off := int64(i*8+g) * 5000
				if _, err := f.WriteAt(mine, off); err != nil {
					errs <- err
					return
				}
				got := make([]byte, len(mine))
				if _, err := f.ReadAt(got, off); err != nil && !errors.Is(err, io.EOF) || !bytes.Equal(got, mine) {
					errs <- fmt.Errorf("goroutine %d read back other bytes: %w", g, err)
					return
				}
			}
			name := e.path(fmt.Sprintf("own-%d", g))
			for range 5 {
				if err := vfs.WriteFileAtomic(e.FS, name, mine); err != nil {
					errs <- err
					return
				}
				if _, err := e.List(e.dir); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	names, err := e.List(e.dir)
	require.NoError(t, err)
	require.Len(t, slices.DeleteFunc(names, func(s string) bool { return s == "shared" }), 8)
}

func testErrorsNameTheFile(t *testing.T, e env) {
	_, openErr := e.Open(e.path("none"), vfs.Mode{})
	_, statErr := e.Stat(e.path("none"))
	_, listErr := e.List(e.path("none"))
	for _, err := range []error{openErr, statErr, listErr, e.Remove(e.path("none")), e.Rename(e.path("none"), e.path("x")), e.SyncDir(e.path("none"))} {
		var p *fs.PathError
		require.ErrorAs(t, err, &p)
		require.Equal(t, e.path("none"), p.Path)
	}
}
