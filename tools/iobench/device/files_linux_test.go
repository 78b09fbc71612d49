package device

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/tools/iobench/engine"
)

// TestFilesOfTheSystem: write-back that is started, single sectors where the disk has them, and files without a name.
func TestFilesOfTheSystem(t *testing.T) {
	dir := t.TempDir()
	files := OS()
	f, again, remove, err := openTemp(files, dir)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("hello"), 0)
	require.NoError(t, err)
	require.NoError(t, f.(engine.Flusher).FlushRange(0, 5))
	second, err := files.Open(again, vfs.Mode{Write: true})
	require.NoError(t, err)
	got := make([]byte, 5)
	_, err = second.ReadAt(got, 0)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
	sectors, err := files.OpenSectors(again)
	if err == nil {
		_, err = sectors.WriteAt(vfs.AlignedBytes(vfs.Align), 0)
		require.NoError(t, err)
		require.NoError(t, sectors.Close())
	} else {
		require.ErrorIs(t, err, vfs.ErrNoDirectIO)
	}
	require.NoError(t, remove())
	require.NoError(t, second.Close())
	require.NoError(t, f.Close())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}
