//go:build unix

package s3

import (
	"net/http"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFilesThatAreNoneHoldNobodyUp: a pipe without a writer, and a device without an end, where a credential or certificates should be.
func TestFilesThatAreNoneHoldNobodyUp(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for _, name := range []string{pipe, "/dev/zero", t.TempDir()} {
		get, err := Credentials{Source: "file", File: name}.fromFile(http.DefaultClient)
		require.NoError(t, err)
		_, err = get(t.Context())
		require.ErrorContains(t, err, name+" is no regular file")
	}
	_, err := newBase("/dev/zero")
	require.ErrorContains(t, err, "/dev/zero: it has more than")
}
