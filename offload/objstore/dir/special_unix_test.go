//go:build unix

package dir

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/offload/objstore"
)

// TestAPipeInTheFolderHoldsNobodyUp: opening it would wait for a writer, and a device has no end.
func TestAPipeInTheFolderHoldsNobodyUp(t *testing.T) {
	root := t.TempDir()
	s, err := Open(vfs.OS(), root, Options{Create: true})
	require.NoError(t, err)
	require.NoError(t, syscall.Mkfifo(filepath.Join(root, "pipe"), 0o600))
	require.NoError(t, os.Symlink("/dev/zero", filepath.Join(root, "zero")))
	for _, key := range []string{"pipe", "zero"} {
		_, err = s.Head(t.Context(), key)
		require.Equal(t, objstore.KindForeign, objstore.KindOf(err), "%v", err)
		_, err = s.GetRange(t.Context(), key, 0, make([]byte, 1))
		require.Equal(t, objstore.KindForeign, objstore.KindOf(err), "%v", err)
	}
	list, err := s.List(t.Context(), "", "", 0)
	require.NoError(t, err)
	require.Len(t, list, 2, "an operator sees them")
	for _, key := range []string{"pipe", "zero"} {
		require.NoError(t, s.Delete(t.Context(), key))
	}
}
