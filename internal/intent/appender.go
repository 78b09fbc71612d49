package intent

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/tidwall/wal"

	"github.com/binderylog/bindery/internal/vfs"
)

// errWrite marks the failure of an append itself, as opposed to one of a sync.
var errWrite = errors.New("append")

// appender adds encoded records to the file of one generation. One goroutine uses it, and after an error only to close.
type appender interface {
	append(records [][]byte) error // its errors wrap errWrite
	sync() error
	close() error
}

// opener opens the appender of a generation's directory whose file holds records up to index last and ends at size.
type opener func(dir string, last uint64, size int64) (appender, error)

// walAppender appends with tidwall/wal.
type walAppender struct {
	log   *wal.Log
	last  uint64
	batch wal.Batch
}

func openWAL(dir string, last uint64, _ int64) (appender, error) {
	log, err := wal.Open(dir, &wal.Options{
		NoSync:           true, // sync is called by itself, so that a failure says what failed
		SegmentSize:      math.MaxInt,
		LogFormat:        wal.Binary,
		SegmentCacheSize: 1,
		FilePerms:        0o644,
		DirPerms:         0o755,
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	got, err := log.LastIndex()
	if err == nil && got != last {
		err = fmt.Errorf("the library finds %d records, the check found %d", got, last)
	}
	if err != nil {
		_ = log.Close()
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	return &walAppender{log: log, last: last}, nil
}

func (a *walAppender) append(records [][]byte) error {
	a.batch.Clear()
	for _, r := range records {
		a.last++
		a.batch.Write(a.last, r)
	}
	if err := a.log.WriteBatch(&a.batch); err != nil {
		return fmt.Errorf("%w: %w", errWrite, err)
	}
	return nil
}

func (a *walAppender) sync() error  { return a.log.Sync() }
func (a *walAppender) close() error { return a.log.Close() }

// fileAppender appends with vfs.
type fileAppender struct {
	f   vfs.File
	end int64
	buf []byte
}

func openFile(fsys vfs.FS) opener {
	return func(dir string, _ uint64, size int64) (appender, error) {
		f, err := fsys.Open(filepath.Join(dir, fileName), vfs.Mode{Write: true})
		if err != nil {
			return nil, err
		}
		return &fileAppender{f: f, end: size}, nil
	}
}

func (a *fileAppender) append(records [][]byte) error {
	a.buf = a.buf[:0]
	for _, r := range records {
		a.buf = appendLength(a.buf, len(r))
		a.buf = append(a.buf, r...)
	}
	n, err := a.f.WriteAt(a.buf, a.end)
	a.end += int64(n)
	if err != nil {
		return fmt.Errorf("%w: %w", errWrite, err)
	}
	return nil
}

func (a *fileAppender) sync() error  { return a.f.Sync() }
func (a *fileAppender) close() error { return a.f.Close() }
