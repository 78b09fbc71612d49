package bookie

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/vfs"
)

// forcedName is a file in current/ of each ledger directory that says that an operator has made the bookie read-only. Its
// text is one line for people. One copy is enough: a new disk among old ones does not end the order.
const forcedName = "READONLY"

const forcedMax = 4 << 10

func forcedPath(dir string) string { return filepath.Join(dir, "current", forcedName) }

// readForced reports whether any directory carries the order.
func readForced(fsys vfs.FS, dirs []string) (forced bool, text string, err error) {
	for _, dir := range dirs {
		info, err := fsys.Stat(forcedPath(dir))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, "", fmt.Errorf("read the read-only order: %w", err)
		}
		text = "by an operator"
		if info.Size <= forcedMax {
			if b, err := vfs.ReadFile(fsys, forcedPath(dir)); err == nil {
				text = strings.TrimSpace(string(b))
			}
		}
		return true, text, nil
	}
	return false, "", nil
}

// writeForced gives or takes back the order, durably. An order counts when one directory has it; it is taken back only
// from all.
func writeForced(fsys vfs.FS, dirs []string, forced bool) (text string, err error) {
	text = "by an operator at " + time.Now().UTC().Format(time.RFC3339)
	var errs []error
	written := 0
	for _, dir := range dirs {
		var err error
		if forced {
			err = vfs.WriteFileAtomic(fsys, forcedPath(dir), []byte(text+"\n"))
		} else {
			err = removeForced(fsys, dir)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		written++
		invariant.CrashPoint("bookie.order-written")
	}
	if forced && written > 0 {
		return text, nil
	}
	return text, errors.Join(errs...)
}

func removeForced(fsys vfs.FS, dir string) error {
	if err := fsys.Remove(forcedPath(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fsys.SyncDir(filepath.Join(dir, "current"))
}
