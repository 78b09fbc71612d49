package entrylog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/binderylog/bindery/internal/vfs"
)

// Reserve makes sure that dir holds a ballast file of at least the given size: space set aside so that flush, garbage
// collection and replay work on a full disk. It fails with ErrNoSpace if the disk does not have it; a smaller ballast that
// is there stays.
func Reserve(fsys vfs.FS, dir string, size int64) (err error) {
	if size <= 0 {
		return nil
	}
	f, err := fsys.Open(filepath.Join(dir, reserveName), vfs.Mode{Write: true, Create: true})
	if err != nil {
		return fmt.Errorf("reserve %d bytes: %w", size, noSpace(err))
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	have, err := f.Size()
	if err != nil {
		return err
	}
	if have >= size {
		return nil
	}
	if err := f.Preallocate(size); err != nil {
		return fmt.Errorf("reserve %d bytes: %w", size, noSpace(err))
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

// ReleaseReserve gives the space back to the file system and returns its size, 0 if there was no reserve.
func ReleaseReserve(fsys vfs.FS, dir string) (int64, error) {
	size, err := ReserveSize(fsys, dir)
	if err != nil || size == 0 {
		return 0, err
	}
	if err := fsys.Remove(filepath.Join(dir, reserveName)); err != nil {
		return 0, err
	}
	return size, fsys.SyncDir(dir)
}

// ReserveSize returns the size of the ballast file in dir, 0 if there is none.
func ReserveSize(fsys vfs.FS, dir string) (int64, error) {
	st, err := fsys.Stat(filepath.Join(dir, reserveName))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return st.Size, err
}

func noSpace(err error) error {
	if vfs.IsNoSpace(err) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}
