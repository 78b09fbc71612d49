package intent

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/vfs"
)

// Names within a log's directory.
const (
	lockName      = "LOCK"
	tmpSuffix     = ".tmp"
	damagedPrefix = "damaged-"
	damagedMax    = 8 // directories set aside that are kept; the oldest goes first
	// fileName is what tidwall/wal calls a segment that starts at index 1.
	fileName = "00000000000000000001"
)

func generationName(g uint64) string { return fmt.Sprintf("%08d", g) }

// layout is what a log's directory holds.
type layout struct {
	fs          vfs.FS
	dir         string
	generations []uint64 // ascending
	leftovers   []string // half-built generations
	damaged     []string // set aside, oldest first
}

func readLayout(fsys vfs.FS, dir string) (*layout, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	l := &layout{fs: fsys, dir: dir}
	for _, name := range names {
		switch g, err := strconv.ParseUint(name, 10, 64); {
		case strings.HasSuffix(name, tmpSuffix):
			l.leftovers = append(l.leftovers, name)
		case strings.HasPrefix(name, damagedPrefix):
			l.damaged = append(l.damaged, name)
		case err == nil && g > 0 && name == generationName(g):
			l.generations = append(l.generations, g)
		}
	}
	return l, nil
}

// current returns the newest generation, 0 if there is none.
func (l *layout) current() uint64 {
	if len(l.generations) == 0 {
		return 0
	}
	return l.generations[len(l.generations)-1]
}

func (l *layout) path(g uint64) string { return filepath.Join(l.dir, generationName(g)) }

// clean removes what an interrupted change of generation left behind. The names are made durable first: an old
// generation must not go before its successor's name is sure.
func (l *layout) clean() error {
	if len(l.leftovers) == 0 && len(l.generations) <= 1 && len(l.damaged) <= damagedMax {
		return nil
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return err
	}
	var err error
	for _, name := range l.leftovers {
		err = errors.Join(err, removeDir(l.fs, filepath.Join(l.dir, name)))
	}
	for len(l.generations) > 1 {
		err = errors.Join(err, removeDir(l.fs, l.path(l.generations[0])))
		l.generations = l.generations[1:]
	}
	for len(l.damaged) > damagedMax {
		err = errors.Join(err, removeDir(l.fs, filepath.Join(l.dir, l.damaged[0])))
		l.damaged = l.damaged[1:]
	}
	return err
}

// build makes generation g with the given records, the head first, and makes it the current one. built says whether it
// may have become that: with built false and an error, the previous generation is untouched and still current.
func (l *layout) build(g uint64, records []record) (size int64, built bool, err error) {
	tmp := l.path(g) + tmpSuffix
	if err := removeDir(l.fs, tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, false, err
	}
	var data []byte
	for i := range records {
		data = appendFrame(data, &records[i])
	}
	err = func() error {
		if err := l.fs.MkdirAll(tmp); err != nil {
			return err
		}
		if err := writeSynced(l.fs, filepath.Join(tmp, fileName), data); err != nil {
			return err
		}
		return l.fs.SyncDir(tmp)
	}()
	if err != nil {
		_ = removeDir(l.fs, tmp) // best effort: Open removes it too
		return 0, false, err
	}
	invariant.CrashPoint("intent.generation-built")
	if err := l.fs.Rename(tmp, l.path(g)); err != nil {
		return 0, true, err
	}
	invariant.CrashPoint("intent.generation-renamed")
	if err := l.fs.SyncDir(l.dir); err != nil {
		return 0, true, err
	}
	invariant.CrashPoint("intent.generation-durable")
	l.generations = append(l.generations, g)
	return int64(len(data)), true, nil
}

// setAside renames the directory of a damaged generation.
func (l *layout) setAside(g uint64) (string, error) {
	to := filepath.Join(l.dir, damagedPrefix+generationName(g))
	if err := l.fs.Rename(l.path(g), to); err != nil {
		return "", err
	}
	l.generations = l.generations[1:]
	return to, l.fs.SyncDir(l.dir)
}

// load reads and checks the file of generation g.
func (l *layout) load(g uint64) (file string, data []byte, err error) {
	file = filepath.Join(l.path(g), fileName)
	data, err = vfs.ReadFile(l.fs, file)
	if errors.Is(err, fs.ErrNotExist) {
		// Its directory got its name only after the file in it was synced.
		err = corrupt.New(file, 0, "intent log", err)
	}
	return file, data, err
}

// cut shortens a file and makes what is left durable: it may so far be in the page cache of a process that was killed.
func cut(fsys vfs.FS, name string, size int64, shorten bool) error {
	f, err := fsys.Open(name, vfs.Mode{Write: true})
	if err != nil {
		return err
	}
	if shorten {
		err = f.Truncate(size)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func writeSynced(fsys vfs.FS, name string, data []byte) error {
	f, err := fsys.Open(name, vfs.Mode{Write: true, Create: true, Exclusive: true})
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// removeDir removes a directory and the files in it.
func removeDir(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := fsys.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fsys.Remove(dir)
}
