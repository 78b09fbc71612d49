//go:build unix

package vfs

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReadSmallHoldsNobodyUp: whatever stands where a small file should be.
func TestReadSmallHoldsNobodyUp(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("file"), []byte("12345"), 0o600))
	b, err := ReadSmall(at("file"), 5)
	require.NoError(t, err)
	require.Equal(t, "12345", string(b))
	_, err = ReadSmall(at("file"), 4)
	require.ErrorContains(t, err, at("file")+": it has more than 4 bytes")
	_, err = ReadSmall(at("absent"), 4)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = ReadSmall(dir, 4)
	require.ErrorIs(t, err, syscall.EISDIR)
	b, err = ReadSmall(os.DevNull, 4)
	require.NoError(t, err)
	require.Empty(t, b)
	_, err = ReadSmall("/dev/zero", 1<<20)
	require.ErrorContains(t, err, "more than 1048576 bytes")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", at("s"))
	if err == nil { // the path may be too long for a socket
		defer l.Close()
		_, err = ReadSmall(at("s"), 4)
		require.ErrorContains(t, err, "a socket")
	}
}

func TestReadSmallOfPipes(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	_, err := readSmall(pipe, 100, 50*time.Millisecond)
	require.ErrorIs(t, err, ErrSilent, "nobody has it open")
	require.ErrorContains(t, err, pipe)

	w, err := os.OpenFile(pipe, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = readSmall(pipe, 100, 50*time.Millisecond)
	require.ErrorIs(t, err, ErrSilent, "who has it open writes nothing")
	require.NoError(t, w.Close())

	wrote := make(chan error, 1)
	go func() {
		w, err := os.OpenFile(pipe, os.O_WRONLY, 0) // waits for the reader
		if err == nil {
			_, err = w.WriteString(strings.Repeat("x", 100))
			_ = w.Close()
		}
		wrote <- err
	}()
	b, err := readSmall(pipe, 100, time.Minute)
	require.NoError(t, err)
	require.NoError(t, <-wrote)
	require.Len(t, b, 100)

	r, anonymous, err := os.Pipe() // as a shell makes one of <(command)
	require.NoError(t, err)
	defer r.Close()
	_, err = anonymous.WriteString("secret")
	require.NoError(t, err)
	require.NoError(t, anonymous.Close())
	b, err = ReadSmall(fmt.Sprintf("/dev/fd/%d", r.Fd()), 100)
	require.NoError(t, err)
	require.Equal(t, "secret", string(b))
}
