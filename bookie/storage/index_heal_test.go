package storage

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/bookie/index"
	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/corrupt"
)

// brokenIndex is an index whose damage shows when it is asked.
type brokenIndex struct {
	index.Index
	broken *atomic.Bool
}

func (b brokenIndex) damage() error {
	if b.broken.Load() {
		return fmt.Errorf("%w: %w", index.ErrFailed, corrupt.Errorf("index.db", 8192, "page", "negative id"))
	}
	return nil
}

func (b brokenIndex) LocateRun(id, entry int64) (index.RunInfo, error) {
	if err := b.damage(); err != nil {
		return index.RunInfo{}, err
	}
	return b.Index.LocateRun(id, entry)
}

func (b brokenIndex) Logs() ([]entrylog.LogID, error) {
	if err := b.damage(); err != nil {
		return nil, err
	}
	return b.Index.Logs()
}

// TestDamagedIndexHeals: an index that fails because it is damaged takes its directory out of service, and the next start
// rebuilds it; one that fails while it is opened is rebuilt at once.
func TestDamagedIndexHeals(t *testing.T) {
	var broken atomic.Bool
	opened := 0
	var e *env
	e = newEnv(t, 1, 1, func(o *Options) {
		o.OpenIndex = func(path string, io index.Options) (index.Index, error) {
			opened++
			ix, err := index.OpenMem(e.fs, path, io)
			return brokenIndex{ix, &broken}, err
		}
	})
	e.open()
	for entry := range int64(40) {
		e.mustAdd(1, entry, 3000)
	}
	e.roll()
	require.NoError(t, e.fence(1))
	broken.Store(true)
	_, err := e.s.Read(1, 3, nil)
	require.ErrorIs(t, err, ErrUnknown)
	_, err = e.fs.Stat(filepath.Join(dirName(0), "current", rebuildName))
	require.NoError(t, err, "the next start knows")
	_ = e.s.Close()
	broken.Store(false)
	e.open()
	for entry := range int64(40) {
		e.requireEntry(1, entry, 3000)
	}
	require.Error(t, e.add(1, 40, testBody(1, 40, 0, 100, 0), false), "fenced, or in limbo")
	e.close()

	// Damage that opening meets.
	once := opened
	all := e.tune
	e.tune = func(o *Options) {
		all(o)
		open := o.OpenIndex
		o.OpenIndex = func(path string, io index.Options) (index.Index, error) {
			broken.Store(opened == once)
			return open(path, io)
		}
	}
	e.open()
	for entry := range int64(40) {
		e.requireEntry(1, entry, 3000)
	}
	e.close()
}
