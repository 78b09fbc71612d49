package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestInterruptibleReader(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 100_000)
	got, err := io.ReadAll(newInterruptibleReader(t.Context(), bytes.NewReader(data)))
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))

	broken := errors.New("broken")
	got, err = io.ReadAll(newInterruptibleReader(t.Context(), io.MultiReader(strings.NewReader("ab"), iotestErr{broken})))
	require.ErrorIs(t, err, broken)
	require.Equal(t, "ab", string(got))

	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	defer w.Close() // lets the read that was left behind end
	go func() { _, _ = w.Write([]byte("first\nsec")) }()
	s, err := newSplitter(newInterruptibleReader(ctx, r), "lines")
	require.NoError(t, err)
	first, err := s.next()
	require.NoError(t, err)
	require.Equal(t, "first\n", string(first))
	time.AfterFunc(10*time.Millisecond, cancel)
	_, err = s.next()
	require.ErrorIs(t, err, errInterrupted)
}

type iotestErr struct{ err error }

func (r iotestErr) Read([]byte) (int, error) { return 0, r.err }

func TestOpenInterruptible(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(name, 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := openInterruptible(ctx, name)
	require.ErrorIs(t, err, errInterrupted)
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_NONBLOCK, 0) // lets the open that was left behind end
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))
}
