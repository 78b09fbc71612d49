package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
)

// configBytesMax is what the configuration reads at most.
const configBytesMax = 1 << 20

func readConfig(path string) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > configBytesMax {
		return nil, nil, fmt.Errorf("%s is no configuration file: it is not a regular file of at most 1 MiB", path)
	}
	text, err := os.ReadFile(path)
	return text, info, err
}

// replaceConfig keeps the file as it was under another name, then puts the new text in its place at once: whatever
// happens, there is a whole file under the name. Mode and owner stay as they are.
func replaceConfig(path string, was, is []byte, info fs.FileInfo, now time.Time) (backup string, err error) {
	if still, err := os.ReadFile(path); err != nil || !bytes.Equal(still, was) {
		return "", errors.Join(fmt.Errorf("%s was changed meanwhile; run apply again", path), err)
	}
	dir := filepath.Dir(path)
	backup = path + ".bak-" + now.UTC().Format("20060102T150405.000Z")
	if err := writeNew(backup, was, info); err != nil {
		return "", fmt.Errorf("keep the old file: %w", err)
	}
	tmp := filepath.Join(dir, fmt.Sprintf(".%s.%08x", filepath.Base(path), rand.Uint32()))
	if err := writeNew(tmp, is, info); err != nil {
		return "", errors.Join(err, os.Remove(backup))
	}
	if err := os.Rename(tmp, path); err != nil {
		return "", errors.Join(err, os.Remove(tmp), os.Remove(backup))
	}
	return backup, vfs.OS().SyncDir(dir)
}

// writeNew makes a file that is not there yet, durable, with the mode and owner of another.
func writeNew(name string, data []byte, like fs.FileInfo) (err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			err = errors.Join(err, os.Remove(name))
		}
	}()
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = keepOwner(f, like); err != nil {
		return fmt.Errorf("keep the owner of the file: %w; run as that user, or as root", err)
	}
	if err = f.Chmod(like.Mode().Perm()); err != nil {
		return err
	}
	return f.Sync()
}
