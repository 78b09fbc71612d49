//go:build unix

package driver

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFilesWithoutAnEnd: a device where the list of targets, or keys, should be.
func TestFilesWithoutAnEnd(t *testing.T) {
	_, err := Load("/dev/zero")
	require.ErrorContains(t, err, "/dev/zero: it has more than")
	keys, err := OpenKeys("file:/dev/zero", "", true)
	require.NoError(t, err)
	_, err = keys.Load(t.Context())
	require.ErrorContains(t, err, "/dev/zero: it has more than")
	_, err = Load(t.TempDir())
	require.ErrorContains(t, err, "is a directory")
}
