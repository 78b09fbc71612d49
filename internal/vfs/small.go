package vfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/binderylog/bindery/internal/pace"
)

const (
	smallWait  = 10 * time.Second // for what comes out of a pipe
	smallRetry = 20 * time.Millisecond
)

// ErrSilent is returned by ReadSmall for a pipe or device out of which nothing comes.
var ErrSilent = errors.New("a pipe or device out of which nothing comes; give a regular file")

// ReadSmall returns the content of a file of the operating system that somebody named: settings, keys, a password. A pipe is read to its
// end, as shells make them of `<(command)`, but nobody is held up: one that nobody writes to is ErrSilent after ten seconds, a socket or a
// folder an error, and what has no end, such as a device, is an error like every file of more than limit bytes.
func ReadSmall(name string, limit int) ([]byte, error) { return readSmall(name, limit, smallWait) }

func readSmall(name string, limit int, wait time.Duration) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		if in, serr := os.Stat(name); serr == nil && in.Mode().Type() == fs.ModeSocket {
			err = &fs.PathError{Op: "read", Path: name, Err: errors.New("a socket; give a regular file")}
		}
		return nil, err
	}
	defer f.Close()
	in, err := f.Stat()
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(wait)
	if !in.Mode().IsRegular() {
		_ = f.SetReadDeadline(until) // what does not know deadlines does not wait either
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	for in.Mode().Type() == fs.ModeNamedPipe && err == nil && len(data) == 0 { // its writer may be about to open it
		if time.Now().After(until) {
			err = ErrSilent
		} else if err = pace.Sleep(context.Background(), smallRetry); err == nil {
			data, err = io.ReadAll(io.LimitReader(f, int64(limit)+1))
		}
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = ErrSilent
	case err == nil && len(data) > limit:
		err = fmt.Errorf("it has more than %d bytes", limit)
	case err == nil:
		return data, nil
	}
	var path *fs.PathError
	if !errors.As(err, &path) {
		err = &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return nil, err
}
