package vfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

func TestAlignedBytes(t *testing.T) {
	require.Nil(t, vfs.AlignedBytes(0))
	for _, n := range []int{1, 100, vfs.Align, vfs.Align + 1, 1 << 20} {
		for range 20 {
			b := vfs.AlignedBytes(n)
			require.Len(t, b, n)
			require.Equal(t, n, cap(b))
			require.Zero(t, uintptr(unsafe.Pointer(&b[0]))%vfs.Align)
		}
	}
}

func TestAllocOffHeap(t *testing.T) {
	for _, alloc := range []func(int) ([]byte, error){vfs.AllocOffHeap, vfs.AllocHugePages} {
		b, err := alloc(0)
		require.NoError(t, err)
		require.NoError(t, vfs.FreeOffHeap(b))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b, err = alloc(64 << 20)
		require.NoError(t, err)
		require.Len(t, b, 64<<20)
		require.Zero(t, uintptr(unsafe.Pointer(&b[0]))%vfs.Align)
		b[0], b[len(b)-1] = 1, 2
		require.Zero(t, b[len(b)/2])
		runtime.ReadMemStats(&after)
		if runtime.GOOS == "linux" {
			require.Less(t, after.HeapAlloc-min(after.HeapAlloc, before.HeapAlloc), uint64(32<<20))
		}
		require.NoError(t, vfs.FreeOffHeap(b[:10]))
	}
}

func TestReadFileIsBounded(t *testing.T) {
	fsys := memfs.New("/d")
	f, err := fsys.Open("/d/a", vfs.Mode{Write: true, Create: true})
	require.NoError(t, err)
	require.NoError(t, f.Truncate(vfs.MaxReadFile+1))
	_, err = vfs.ReadFile(fsys, "/d/a")
	require.ErrorIs(t, err, syscall.EFBIG)
	require.NoError(t, f.Truncate(3))
	b, err := vfs.ReadFile(fsys, "/d/a")
	require.NoError(t, err)
	require.Equal(t, []byte{0, 0, 0}, b)
	require.NoError(t, f.Close())
}

func TestFSTypeAndBootID(t *testing.T) {
	fsType, err := vfs.FSType(t.TempDir())
	id, idErr := vfs.BootID()
	if runtime.GOOS != "linux" {
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorIs(t, idErr, errors.ErrUnsupported)
		return
	}
	require.NoError(t, err)
	require.NotEmpty(t, fsType)
	_, err = vfs.FSType(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, idErr)
	require.Len(t, strings.Split(id, "-"), 5)
	proc, err := vfs.FSType("/proc")
	require.NoError(t, err)
	require.Equal(t, "proc", proc)
	require.NotEmpty(t, vfs.UnsuitableFS(proc))
}

func TestUnsuitableFS(t *testing.T) {
	for _, good := range []string{"ext4", "xfs", "btrfs", "zfs", "f2fs", "0x1234"} {
		require.Empty(t, vfs.UnsuitableFS(good), good)
	}
	for _, bad := range []string{"tmpfs", "overlay", "nfs", "cifs", "9p", "fuse"} {
		require.NotEmpty(t, vfs.UnsuitableFS(bad), bad)
	}
}

func TestOSRenameNamesBothFiles(t *testing.T) {
	dir := t.TempDir()
	err := vfs.OS().Rename(filepath.Join(dir, "none"), filepath.Join(dir, "target"))
	require.ErrorContains(t, err, "none")
	require.ErrorContains(t, err, "target")
}

func TestWritesWithoutAllocation(t *testing.T) {
	f, err := vfs.OS().Open(filepath.Join(t.TempDir(), "a"), vfs.Mode{Write: true, Create: true})
	require.NoError(t, err)
	defer f.Close()
	b := vfs.AlignedBytes(vfs.Align)
	require.Zero(t, testing.AllocsPerRun(20, func() {
		if _, err := f.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}))
	d, ok := f.(vfs.DSyncWriter)
	if !ok {
		return
	}
	if _, err := d.WriteAtDSync(b, 0); errors.Is(err, errors.ErrUnsupported) {
		return
	}
	require.Zero(t, testing.AllocsPerRun(20, func() {
		if _, err := d.WriteAtDSync(b, 0); err != nil {
			t.Fatal(err)
		}
	}))
}
