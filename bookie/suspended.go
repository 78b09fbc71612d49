package bookie

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
)

// suspendedName is a file in current/ of each ledger directory that says which compactions an operator has suspended, in
// its first line: "minor", "major" or "minor major". The second line is for people. As with the read-only order one copy
// is enough, and it is taken back only from all.
const suspendedName = "GCSUSPENDED"

const suspendedMax = 4 << 10

// suspension is what an operator has suspended.
type suspension struct{ minor, major bool }

func (s suspension) text(at time.Time) string {
	var kinds []string
	if s.minor {
		kinds = append(kinds, "minor")
	}
	if s.major {
		kinds = append(kinds, "major")
	}
	return strings.Join(kinds, " ") + "\nsuspended by an operator at " + at.UTC().Format(time.RFC3339) + "\n"
}

func suspendedPath(dir string) string { return filepath.Join(dir, currentName, suspendedName) }

// readSuspension returns what any directory says. A file that says something else was an order once: it suspends both.
func readSuspension(fsys vfs.FS, dirs []string) (s suspension, err error) {
	for _, dir := range dirs {
		info, err := fsys.Stat(suspendedPath(dir))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var text []byte
		if err == nil && info.Size <= suspendedMax {
			text, err = vfs.ReadFile(fsys, suspendedPath(dir))
		}
		if err != nil {
			return s, fmt.Errorf("read what compaction is suspended: %w", err)
		}
		first, _, _ := strings.Cut(string(text), "\n")
		kinds := strings.Fields(first)
		known := len(kinds) > 0
		var here suspension
		for _, k := range kinds {
			here.minor = here.minor || k == "minor"
			here.major = here.major || k == "major"
			known = known && (k == "minor" || k == "major")
		}
		if !known {
			here = suspension{minor: true, major: true}
		}
		s.minor, s.major = s.minor || here.minor, s.major || here.major
	}
	return s, nil
}

// writeSuspension makes s durable. A suspension counts when one directory has it; one that is taken back, wholly or for one
// kind, has to be so in all.
func writeSuspension(fsys vfs.FS, dirs []string, s suspension, back bool) error {
	var errs []error
	written := 0
	for _, dir := range dirs {
		var err error
		if s == (suspension{}) {
			if err = fsys.Remove(suspendedPath(dir)); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			if err == nil {
				err = fsys.SyncDir(filepath.Join(dir, currentName))
			}
		} else {
			err = replaceFile(fsys, suspendedPath(dir), []byte(s.text(time.Now())))
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		written++
	}
	if !back && written > 0 {
		return nil
	}
	return errors.Join(errs...)
}
