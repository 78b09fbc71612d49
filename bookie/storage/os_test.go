package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/binderylog/bindery/bookie/index"
	"github.com/binderylog/bindery/internal/intent"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/stretchr/testify/require"
)

// osEnv is a storage on the operating system's files, with bbolt and the real intent log.
func osEnv(t testing.TB, dirs int) *env {
	root := t.TempDir()
	e := &env{t: t, fs: vfs.OS(), dirs: dirs, j: newTestJournal(1)}
	_, err := vfs.ProbeDirect(e.fs, root)
	buffered := errors.Is(err, vfs.ErrNoDirectIO)
	if !buffered {
		require.NoError(t, err)
	}
	e.tune = func(o *Options) {
		for i := range o.Dirs {
			o.Dirs[i].Ledger = filepath.Join(root, dirName(i))
			require.NoError(t, os.MkdirAll(o.Dirs[i].Ledger, 0o755))
		}
		o.OpenIndex = index.OpenBolt
		o.OpenIntents = intent.Open
		o.Log.BufferedWrites = buffered
		o.Disk = DiskLimits{FullAt: 1, WarnAt: 1, ResumeBelow: 1} // the machine's own disk is not what is tested
	}
	return e
}

func (e *env) dirPath(i int) string {
	o := e.options()
	return filepath.Join(o.Dirs[i].Ledger, "current")
}

func TestOnRealFiles(t *testing.T) {
	e := osEnv(t, 2)
	require.NoError(t, e.tryOpen())
	p := newPromise()
	script(e, p)
	require.Len(t, p.deleted, 1, "the script did not run to its end")
	p.verify(t, e.s, "same process", false)
	e.requireWhole()
	require.NoError(t, e.s.Close())
	require.NoError(t, e.tryOpen())
	require.True(t, e.s.Clean())
	require.Empty(t, e.s.Lost())
	p.verify(t, e.s, "next process", false)
	e.requireWhole()
	require.NoError(t, e.s.Close())
}

// TestC21DamagedBoltIndexIsRebuilt does to bbolt's file what happened to others'.
func TestC21DamagedBoltIndexIsRebuilt(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, path string){
		"first 4 KiB zeroed":  func(t *testing.T, path string) { zero(t, path, 0, 4096) },
		"first 16 KiB zeroed": func(t *testing.T, path string) { zero(t, path, 0, 16<<10) },
		"all zeroed": func(t *testing.T, path string) {
			st, err := os.Stat(path)
			require.NoError(t, err)
			zero(t, path, 0, int(st.Size()))
		},
		"emptied": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 0)) },
		"cut":     func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 5000)) },
		"removed": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			e := osEnv(t, 1)
			e.open()
			for entry := range int64(30) {
				for id := int64(1); id < 5; id++ {
					e.mustAdd(id, entry, 300)
				}
			}
			require.NoError(t, e.fence(2))
			e.deleteLedger(3)
			e.roll()
			e.close()
			damage(t, filepath.Join(e.dirPath(0), "index.db"))
			e.open()
			require.Empty(t, e.s.Lost())
			for entry := range int64(30) {
				for _, id := range []int64{1, 2, 4} {
					e.requireEntry(id, entry, 300)
				}
			}
			e.requireNo(3, 0, ErrNoLedger)
			require.ErrorContains(t, e.add(2, 30, testBody(2, 30, 29, 100, 0), false), "fenced")
			require.ErrorContains(t, e.add(3, 30, testBody(3, 30, 29, 100, 0), false), "needs verification")
			e.close()
		})
	}
}

func zero(t *testing.T, path string, off int64, n int) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(make([]byte, n), off)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// TestSwappedIndexDirectories: an index that belongs to another directory is refused with a line that says so.
func TestSwappedIndexDirectories(t *testing.T) {
	e := osEnv(t, 2)
	root := t.TempDir()
	old, swap := e.tune, false
	e.tune = func(o *Options) {
		old(o)
		for i := range o.Dirs {
			k := i
			if swap {
				k = 1 - i
			}
			o.Dirs[i].Index = filepath.Join(root, fmt.Sprint(k))
		}
	}
	e.open()
	e.ledgersIn()
	e.close()
	swap = true
	err := e.tryOpen()
	require.ErrorContains(t, err, "check the order of the index directories")
	swap = false
	e.open()
	e.close()
}

// requireWhole checks everything, once more while the index is still being written in the background.
func (e *env) requireWhole() {
	e.t.Helper()
	var problems []error
	require.Eventually(e.t, func() bool {
		problems = nil
		err := e.s.Check(e.t.Context(), func(err error) { problems = append(problems, err) })
		return err == nil && len(problems) == 0
	}, 30*time.Second, 20*time.Millisecond, "%v", problems)
}
