package corrupt

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestErrorSaysWhereAndWhat(t *testing.T) {
	err := Errorf("/data/current/0.log", 4096, "entry record", "length %d: %w", 7, io.ErrUnexpectedEOF)
	require.EqualError(t, err, "corrupt entry record in /data/current/0.log at offset 4096: length 7: unexpected EOF")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestIsSeesThroughWrapping(t *testing.T) {
	err := New("f", 0, "header", errors.New("bad magic"))
	require.True(t, Is(err))
	require.True(t, Is(fmt.Errorf("read entry: %w", err)))
	require.True(t, Is(errors.Join(io.EOF, err)))
	require.False(t, Is(io.EOF))
	require.False(t, Is(nil))
}
