package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"
)

var errInterrupted = errors.New("interrupted")

// interruptibleReader reads until its context ends. A read of a terminal or a pipe can not be taken back: after an
// interruption it is left behind, with a buffer of its own, until the process ends or data comes.
type interruptibleReader struct {
	ctx    context.Context //nolint:containedctx // of one command, as the reader itself
	r      io.Reader
	chunks chan chunk
	rest   []byte
	err    error
}

type chunk struct {
	data []byte
	err  error
}

const interruptibleChunk = 256 << 10

func newInterruptibleReader(ctx context.Context, r io.Reader) *interruptibleReader {
	return &interruptibleReader{ctx: ctx, r: r, chunks: make(chan chunk, 1)}
}

// Read implements io.Reader. It must not be called again after errInterrupted.
func (i *interruptibleReader) Read(p []byte) (int, error) {
	if i.ctx.Err() != nil {
		return 0, errInterrupted
	}
	if len(i.rest) == 0 && i.err == nil {
		go func() {
			b := make([]byte, interruptibleChunk)
			n, err := i.r.Read(b)
			i.chunks <- chunk{b[:n], err}
		}()
		select {
		case c := <-i.chunks:
			i.rest, i.err = c.data, c.err
		case <-i.ctx.Done():
			return 0, errInterrupted
		}
	}
	n := copy(p, i.rest)
	i.rest = i.rest[n:]
	if len(i.rest) > 0 {
		return n, nil
	}
	return n, i.err
}

// openInterruptible opens a file for reading. Opening a named pipe waits for its writer.
func openInterruptible(ctx context.Context, name string) (*os.File, error) {
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened, 1)
	go func() {
		f, err := os.Open(name)
		done <- opened{f, err}
	}()
	select {
	case o := <-done:
		return o.f, o.err
	case <-ctx.Done():
		return nil, errInterrupted
	}
}

// answers reads what a person types, line by line.
func answers(c *cobra.Command) *bufio.Reader {
	return bufio.NewReader(newInterruptibleReader(c.Context(), c.InOrStdin()))
}
