package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/internal/vfs"
)

// requireKind makes a directory of the wrong kind an error, instead of one that seems to hold nothing. What is not stamped,
// a copy of some files for instance, must hold a file with the suffix.
func requireKind(fsys vfs.FS, dir, kind, suffix string) error {
	current := filepath.Join(dir, "current")
	if _, err := fsys.Stat(current); err != nil {
		return fmt.Errorf("%s is not a %s directory (it has no current/): %w", dir, kind, err)
	}
	kinds, id, err := bookie.DirKinds(fsys, dir)
	if err != nil {
		return err
	}
	switch {
	case slices.Contains(kinds, kind):
		return nil
	case len(kinds) > 0:
		return fmt.Errorf("%s is the %s directory of bookie %s and holds no %s: name its %s directory", dir, strings.Join(kinds, " and "), id, whatOf[kind], kind)
	}
	names, err := fsys.List(current)
	if err != nil {
		return err
	}
	for _, n := range names {
		if strings.HasSuffix(n, suffix) {
			return nil
		}
	}
	return errors.New(dir + " is not a " + kind + " directory: it is not prepared (no current/FORMAT) and holds no " + whatOf[kind] + " (" + suffix + ")")
}

var whatOf = map[string]string{"journal": "journal segments", "ledger": "entry logs"}
