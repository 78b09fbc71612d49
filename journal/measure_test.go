package journal

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// TestDurableFile: each method writes what it is given, and says whether a sync has to follow.
func TestDurableFile(t *testing.T) {
	for _, tc := range []struct {
		io    IOMethod
		syncs bool
	}{{IODSync, false}, {IOFdatasync, true}, {IORWFDSync, false}, {IOBuffered, true}} {
		t.Run(string(tc.io), func(t *testing.T) {
			fs := memfs.New("/d")
			f, err := fs.Open("/d/f", vfs.Mode{Write: true, Create: true})
			require.NoError(t, err)
			require.NoError(t, f.Truncate(4*vfs.Align))
			require.NoError(t, f.Sync())
			require.NoError(t, f.Close())
			require.NoError(t, fs.SyncDir("/d"))
			d, err := OpenDurable(fs, "/d", "/d/f", tc.io)
			require.NoError(t, err)
			require.Equal(t, tc.syncs, d.Syncs())
			p := vfs.AlignedBytes(vfs.Align)
			p[7] = 1
			require.NoError(t, d.Write(p, vfs.Align))
			if d.Syncs() {
				require.NoError(t, d.Sync())
			}
			require.NoError(t, d.Close())
			got, err := vfs.ReadFile(fs.CrashClone(1, 0), "/d/f")
			require.NoError(t, err)
			require.Equal(t, p, got[vfs.Align:2*vfs.Align])
		})
	}
	_, err := OpenDurable(memfs.New(), "/d", "/d/f", IOAuto)
	var unsupported *UnsupportedIOError
	require.ErrorAs(t, err, &unsupported)
}

func TestGroupBytesIsWhatTheFormatTakes(t *testing.T) {
	require.Equal(t, vfs.Align, GroupBytes(1, 100))
	require.Equal(t, 2*vfs.Align, GroupBytes(1, vfs.Align))
	require.Equal(t, extent(groupHeaderBytes+64*(RecordOverhead+1024)), GroupBytes(64, 64*1024))
}
