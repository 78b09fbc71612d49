package bookie

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/vfs"
)

// DirInfo describes one directory of a bookie for people.
type DirInfo struct {
	Path        string
	Kinds       string
	State       string // "missing", "empty", "not empty", "ready", "joining", "loss", "newer version", "BookKeeper", "damaged", or "unreadable"
	Bookie      ledger.BookieID
	Instance    string
	Directory   string
	Number      uint64
	Incarnation string
	Epoch       uint64
	Running     bool   // a process holds its lock
	Dirty       bool   // the last process did not stop cleanly, or still runs
	Disk        DiskID // under the directory
	Problem     string // what keeps a bookie from starting on it, as far as the directory alone tells
}

// InspectDirs reads what identifies each directory. It changes nothing but takes each lock for a moment to see whether it
// is free.
func InspectDirs(fsys vfs.FS, journal, ledgers, index []string) ([]DirInfo, error) {
	dirs, err := dirPaths{journal: journal, ledger: ledgers, index: index}.collect(fsys)
	if err != nil {
		return nil, err
	}
	var out []DirInfo
	found := make([]error, len(dirs))
	for n, d := range dirs {
		found[n] = d.inspect()
	}
	for n, d := range dirs {
		info := DirInfo{Path: d.path, Kinds: d.kindText()}
		err := found[n]
		if fsys == vfs.OS() && d.exists {
			info.Disk = DiskOf(d.path)
		}
		switch {
		case errors.Is(err, metadata.ErrFormatTooNew):
			info.State, info.Problem = "newer version", err.Error()
		case d.ours != "":
			info.State, info.Problem = "damaged", "it "+d.lostStamp()
		case exitCodeOf(err) == ExitFormat:
			info.State, info.Problem = "BookKeeper", err.Error()
		case err != nil && d.stamp != nil:
			info.State, info.Problem = string(d.stamp.State), err.Error()
		case err != nil && exitCodeOf(err) == ExitIdentity:
			info.State, info.Problem = "damaged", err.Error()
		case err != nil:
			info.State, info.Problem = "unreadable", err.Error()
		case !d.exists:
			info.State, info.Problem = "missing", "the directory does not exist"
		case d.stamp == nil && len(d.foreign) > 0:
			info.State, info.Problem = "not empty", "it is not prepared and holds "+d.foreign[0]
		case d.stamp == nil:
			info.State, info.Problem = "empty", "it is not prepared"
		default:
			info.State = string(d.stamp.State)
		}
		if d.stamp == nil {
			info.Problem += lastDiskHint(dirs, d.path)
		}
		if s := d.stamp; s != nil {
			info.Bookie, info.Instance, info.Directory = s.Bookie, s.Instance, s.Directory
			info.Number, info.Incarnation, info.Epoch = s.Number, s.Incarnation, s.Epoch
			info.Dirty = d.dirty != nil
			if info.Running, err = d.held(); err != nil && info.Problem == "" {
				info.Problem = err.Error()
			}
			if _, err := metadata.DecodeCookie(d.file(versionName), d.cookie); err != nil && info.Problem == "" {
				info.Problem = err.Error()
			}
		}
		out = append(out, info)
	}
	return out, nil
}

// DirKinds returns what a directory was prepared for ("journal", "ledger", "index") and whose it is; no kinds if it is not
// prepared. A stamp that can not be read is an error.
func DirKinds(fsys vfs.FS, dir string) (kinds []string, id ledger.BookieID, err error) {
	name := filepath.Join(dir, currentName, formatName)
	raw, err := readOptional(fsys, name)
	if raw == nil || err != nil {
		return nil, "", err
	}
	s, err := decodeStamp(name, raw)
	if err != nil {
		return nil, "", err
	}
	return strings.Split(s.Kinds, ","), s.Bookie, nil
}

// held reports whether another process holds the directory's lock.
func (d *directory) held() (bool, error) {
	lock, err := vfs.LockTemporarily(d.fs, d.file(lockName))
	if errors.Is(err, vfs.ErrLocked) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, lock.Close()
}
