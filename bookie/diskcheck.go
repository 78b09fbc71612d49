package bookie

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/binderylog/bindery/internal/vfs"
)

// DiskPolicy says what CheckDisks lets pass.
type DiskPolicy struct {
	AllowAnyFS  bool // tmpfs, overlay and network file systems
	AllowShared bool // no warning about directories that share a file system
	AllowFull   bool // a full file system is a warning: a bookie starts on it, read-only
}

// inodesFreeMin is how many files a directory's file system must have room for.
const inodesFreeMin = 1000

// CheckDisks looks at the file systems under the directories of a bookie, which need not exist yet: are they of a kind that
// keeps what it syncs, are they mount points of their own, do they take a block, give it back, and do direct I/O? What
// speaks against using them is an *ExitError with ExitConfig or ExitIO; what an operator should know is a warning. It works
// on the operating system's files and leaves nothing behind.
func CheckDisks(dirs []string, p DiskPolicy) (warnings []string, err error) {
	fsys := vfs.OS()
	devices := map[uint64]string{}
	for _, dir := range dirs {
		at, err := existing(fsys, dir)
		if err != nil {
			return warnings, exitErrorf(ExitConfig, "%s: %w", dir, err)
		}
		kind, err := vfs.FSType(at)
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return warnings, exitErrorf(ExitIO, "%s: %w", dir, err)
		}
		if why := vfs.UnsuitableFS(kind); why != "" {
			if !p.AllowAnyFS {
				return warnings, exitErrorf(ExitConfig, "%s is on %s: %s (disk.allow_any_fs accepts it)", dir, kind, why)
			}
			warnings = append(warnings, fmt.Sprintf("%s is on %s: %s", dir, kind, why))
		}
		if dev, root, ok := deviceOf(at); ok && !p.AllowShared {
			switch other, taken := devices[dev]; {
			case root:
				warnings = append(warnings, dir+" is on the system's root file system: is its disk mounted?")
			case taken:
				warnings = append(warnings, fmt.Sprintf("%s shares its file system with %s", dir, other))
			}
			devices[dev] = dir
		}
		if err := tryDisk(fsys, at); vfs.IsNoSpace(err) && p.AllowFull {
			warnings = append(warnings, fmt.Sprintf("%s: its file system is full: %v", dir, err))
			continue
		} else if err != nil {
			return warnings, exitErrorf(ExitIO, "%s: %w", dir, err)
		}
		if _, err := vfs.ProbeDirect(fsys, at); err != nil {
			warnings = append(warnings, fmt.Sprintf("%s: no direct I/O, so the journal needs journal.io = \"buffered\": %v", dir, err))
		}
	}
	return warnings, nil
}

// existing returns the nearest directory above or at dir that exists.
func existing(fsys vfs.FS, dir string) (string, error) {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		info, err := fsys.Stat(at)
		switch {
		case err == nil && info.Dir:
			return at, nil
		case err == nil:
			return "", fmt.Errorf("%s is a file", at)
		case !errors.Is(err, fs.ErrNotExist):
			return "", err
		case at == filepath.Dir(at):
			return "", err
		}
	}
}

// tryDisk writes a block, syncs it, reads it back and removes it.
func tryDisk(fsys vfs.FS, dir string) (err error) {
	usage, err := fsys.Usage(dir)
	if err != nil {
		return err
	}
	if usage.Inodes > 0 && usage.InodesFree < inodesFreeMin {
		return fmt.Errorf("only %d inodes are free: %w", usage.InodesFree, syscall.ENOSPC)
	}
	name := filepath.Join(dir, ".bindery-disk-check")
	f, err := fsys.Open(name, vfs.Mode{Write: true, Create: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), fsys.Remove(name)) }()
	out := bytes.Repeat([]byte("bindery!"), vfs.Align/8)
	if _, err := f.WriteAt(out, 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	in := make([]byte, len(out))
	if _, err := f.ReadAt(in, 0); err != nil {
		return err
	}
	if !bytes.Equal(in, out) {
		return errors.New("a block read back other bytes than were written")
	}
	return nil
}
