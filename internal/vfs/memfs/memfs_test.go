package memfs

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// put writes a file without syncing anything and returns it open.
func put(t *testing.T, f *FS, name, data string) vfs.File {
	t.Helper()
	h, err := f.Open(name, vfs.Mode{Write: true, Create: true})
	require.NoError(t, err)
	_, err = h.WriteAt([]byte(data), 0)
	require.NoError(t, err)
	return h
}

func content(t *testing.T, f *FS, name string) string {
	t.Helper()
	b, err := vfs.ReadFile(f, name)
	require.NoError(t, err)
	return string(b)
}

func TestCrashKeepsExactlyWhatWasSynced(t *testing.T) {
	f := New("/d")
	h := put(t, f, "/d/a", "one")
	require.NoError(t, h.Sync())
	names, err := f.CrashClone(1, 0).List("/d")
	require.NoError(t, err)
	require.Empty(t, names, "a name without SyncDir of its directory is lost, whatever was synced of the file")

	require.NoError(t, f.SyncDir("/d"))
	_, err = h.WriteAt([]byte("twothree"), 0)
	require.NoError(t, err)
	require.Equal(t, "one", content(t, f.CrashClone(1, 0), "/d/a"))
	require.Equal(t, "twothree", content(t, f.CrashClone(1, 1), "/d/a"))
	require.NoError(t, h.Sync())
	require.Equal(t, "twothree", content(t, f.CrashClone(1, 0), "/d/a"))
}
