package bookie

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/vfs"
)

// Names in and below a directory of a bookie.
const (
	currentName = "current" // everything is in here, as with Apache BookKeeper
	formatName  = "FORMAT"  // ours alone: identity and epoch
	versionName = "VERSION" // the cookie, Java's file
	lockName    = "LOCK"
	dirtyName   = "DIRTY"
	gcName      = "GC"
)

// Kinds of directory.
const (
	kindJournal = "journal"
	kindLedger  = "ledger"
	kindIndex   = "index"
)

// directory is one directory of a bookie. One path may serve several kinds.
type directory struct {
	fs    vfs.FS
	path  string // as configured
	kinds []string

	exists  bool
	stamp   *stamp // nil: no FORMAT
	cookie  []byte // content of VERSION; nil: none
	dirty   []byte // content of DIRTY; nil: none
	lock    *vfs.TemporaryLock
	made    []string // directories that had to be made for it, the deepest last
	foreign []string // what an unstamped directory holds
	ours    string   // a file of an unstamped directory that only this program makes
}

func (d *directory) file(name string) string { return filepath.Join(d.path, currentName, name) }

func (d *directory) kindText() string { return strings.Join(d.kinds, ",") }

// String names the directory in messages.
func (d *directory) String() string { return d.kindText() + " directory " + d.path }

// dirPaths are the configured directories of a bookie.
type dirPaths struct {
	journal, ledger, index []string
}

// collect returns the directories, one per path, in the order journal, ledger, index.
func (p dirPaths) collect(fsys vfs.FS) ([]*directory, error) {
	if len(p.journal) == 0 || len(p.ledger) == 0 {
		return nil, &ExitError{Code: ExitConfig, Err: errors.New("at least one journal and one ledger directory are needed (storage.journal_dirs, storage.ledger_dirs)")}
	}
	var out []*directory
	for _, k := range []struct {
		kind  string
		paths []string
	}{{kindJournal, p.journal}, {kindLedger, p.ledger}, {kindIndex, p.index}} {
		for _, path := range k.paths {
			if path == "" || strings.ContainsAny(path, "\t\n,") {
				return nil, exitErrorf(ExitConfig, "%s directory %q: a path may not be empty or contain a comma, tab or line break", k.kind, path)
			}
			i := slices.IndexFunc(out, func(d *directory) bool { return filepath.Clean(d.path) == filepath.Clean(path) })
			if i < 0 {
				out = append(out, &directory{fs: fsys, path: path, kinds: []string{k.kind}})
				continue
			}
			if slices.Contains(out[i].kinds, k.kind) {
				return nil, exitErrorf(ExitConfig, "%s directory %s is named twice", k.kind, path)
			}
			out[i].kinds = append(out[i].kinds, k.kind)
			slices.Sort(out[i].kinds)
		}
	}
	return out, nil
}

// cookie returns the cookie that these directories should carry.
func (p dirPaths) cookie(id ledger.BookieID, instance string) metadata.Cookie {
	return metadata.Cookie{
		Version: 5, BookieHost: string(id), JournalDirs: p.journal, LedgerDirs: p.ledger, IndexDirs: p.index, InstanceID: instance,
	}
}

// inspect reads what identifies the directory. It changes nothing.
func (d *directory) inspect() error {
	d.stamp, d.cookie, d.dirty, d.foreign, d.ours = nil, nil, nil, nil, ""
	info, err := d.fs.Stat(d.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.exists = false
		return nil
	case err != nil:
		return exitErrorf(ExitIO, "%s: %w", d, err)
	case !info.Dir:
		return exitErrorf(ExitConfig, "%s is a file", d)
	}
	d.exists = true
	if d.cookie, err = readOptional(d.fs, d.file(versionName)); err != nil {
		return exitErrorf(ExitIO, "%s: %w", d, err)
	}
	raw, err := readOptional(d.fs, d.file(formatName))
	if err != nil {
		return exitErrorf(ExitIO, "%s: %w", d, err)
	}
	if raw == nil {
		if d.ours, err = d.ownFile(); err != nil {
			return exitErrorf(ExitIO, "%s: %w", d, err)
		}
		switch {
		case d.cookie != nil && d.ours != "":
			return exitErrorf(ExitFormat, "%s %s", d, d.lostStamp())
		case d.cookie != nil:
			return exitErrorf(ExitFormat, "%s was written by Apache BookKeeper (current/VERSION without current/FORMAT): import it with `bindery migrate`", d)
		}
		d.foreign, err = d.contents()
		if err != nil {
			return exitErrorf(ExitIO, "%s: %w", d, err)
		}
		return nil
	}
	d.stamp, err = decodeStamp(d.file(formatName), raw)
	switch {
	case errors.Is(err, metadata.ErrFormatTooNew):
		return exitErrorf(ExitFormat, "%s: %w: nothing is damaged; run the version that wrote it, or a later one", d, err)
	case err != nil:
		return exitErrorf(ExitIdentity, "%s cannot prove whose it is: %w; "+
			"if its disk is damaged, replace it and run `bindery node init --accept-loss`", d, err)
	case d.stamp.Kinds != d.kindText():
		return exitErrorf(ExitIdentity, "%s was prepared as %s directory: check the directory lists of the configuration", d, d.stamp.Kinds)
	}
	if d.dirty, err = readOptional(d.fs, d.file(dirtyName)); err != nil {
		return exitErrorf(ExitIO, "%s: %w", d, err)
	}
	return nil
}

// ownFile returns a file in `current` that only this program makes, or "".
func (d *directory) ownFile() (string, error) {
	names, err := d.fs.List(filepath.Join(d.path, currentName))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for _, n := range names {
		if ownName.MatchString(n) {
			return n, nil
		}
	}
	return "", nil
}

// ownName are names that Apache BookKeeper does not use: of segments and spares, entry logs' lists and reserve, mark, index, and
// of the identity's files.
var ownName = regexp.MustCompile(`^([0-9a-f]{16}\.(jnl|zero|alloc)|journal\.note|entrylog\.(list|removed|reserve)|mark|index\.db|bookie\.json|GC)$`)

// lostStamp says what is wrong with a directory whose FORMAT is gone.
func (d *directory) lostStamp() string {
	return fmt.Sprintf("has lost current/%s, which says whose it is: what it holds (current/%s) is bindery's, not BookKeeper's. Put %s back from a "+
		"copy of this directory; if there is none, nothing proves what it holds: empty it and run `bindery node init --accept-loss`", formatName, d.ours, formatName)
}

// contents lists what an unstamped directory holds beyond what a fresh file system has and what an interrupted preparation
// may leave.
func (d *directory) contents() ([]string, error) {
	names, err := d.fs.List(d.path)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, n := range names {
		if n == "lost+found" {
			continue
		}
		if n != currentName {
			out = append(out, n)
			continue
		}
		inside, err := d.fs.List(filepath.Join(d.path, currentName))
		if err != nil {
			out = append(out, n) // a file of that name, most likely
			continue
		}
		for _, f := range inside {
			if f != lockName && f != formatName+".tmp" {
				out = append(out, currentName+"/"+f)
			}
		}
	}
	return out, nil
}

// acquire takes the directory's lock, making `current` if need be. The lock ends with the process.
func (d *directory) acquire() error {
	if d.lock != nil {
		return nil
	}
	current := filepath.Join(d.path, currentName)
	if _, err := d.fs.Stat(current); errors.Is(err, fs.ErrNotExist) {
		d.made = append(d.made, current)
	}
	if err := vfs.MkdirAllSync(d.fs, current); err != nil {
		return exitErrorf(ExitIO, "%s: %w", d, err)
	}
	lock, err := vfs.LockTemporarily(d.fs, d.file(lockName))
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return exitErrorf(ExitLocked, "%s is in use by another process (%s)", d, d.file(lockName))
	case err != nil:
		return exitErrorf(ExitIO, "%s: %w", d, err)
	}
	d.lock = lock
	return nil
}

// retreat releases a directory that was refused and takes away what was made for it, unless something else was put there.
func (d *directory) retreat() {
	_ = d.release()
	if d.stamp != nil {
		return
	}
	for _, name := range slices.Backward(d.made) {
		if d.fs.Remove(name) != nil { // it is not empty
			return
		}
	}
}

func retreatAll(dirs []*directory) {
	for _, d := range dirs {
		d.retreat()
	}
}

// keepAll makes the files of the locks stay.
func keepAll(dirs []*directory) {
	for _, d := range dirs {
		if d.lock != nil {
			d.lock.Keep()
		}
	}
}

func (d *directory) release() error {
	if d.lock == nil {
		return nil
	}
	err := d.lock.Close()
	d.lock = nil
	return err
}

// writeStamp replaces FORMAT durably and remembers it.
func (d *directory) writeStamp(s stamp) error {
	if err := d.replace(formatName, s.encode()); err != nil {
		return exitErrorf(ExitIO, "%s: %w", d, err)
	}
	d.stamp = &s
	return nil
}

// writeCookie replaces VERSION durably and remembers it.
func (d *directory) writeCookie(text []byte) error {
	if err := d.replace(versionName, text); err != nil {
		return exitErrorf(ExitIO, "%s: %w", d, err)
	}
	d.cookie = text
	return nil
}

// removeDurably removes a file that may not exist.
func (d *directory) removeDurably(name string) error {
	err := d.fs.Remove(d.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.fs.SyncDir(filepath.Join(d.path, currentName))
}

// readOptional reads a file, or returns nil if there is none.
func readOptional(fsys vfs.FS, name string) ([]byte, error) {
	b, err := vfs.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if b == nil {
		b = []byte{}
	}
	return b, nil
}

// splitStamped returns the stamped and the unstamped directories.
func splitStamped(dirs []*directory) (stamped, unstamped []*directory) {
	for _, d := range dirs {
		if d.stamp != nil {
			stamped = append(stamped, d)
		} else {
			unstamped = append(unstamped, d)
		}
	}
	return stamped, unstamped
}

func dirNames(dirs []*directory) string {
	var out []string
	for _, d := range dirs {
		out = append(out, d.path)
	}
	return strings.Join(out, ", ")
}

func releaseAll(dirs []*directory) error {
	var errs []error
	for _, d := range dirs {
		errs = append(errs, d.release())
	}
	return errors.Join(errs...)
}

// inspectAll inspects every directory.
func inspectAll(dirs []*directory) error {
	for _, d := range dirs {
		if err := d.inspect(); err != nil {
			return err
		}
	}
	return nil
}

// acquireAll locks every directory and inspects it again: what was read before belongs to whoever held the lock.
func acquireAll(dirs []*directory) error {
	for _, d := range dirs {
		if err := d.acquire(); err != nil {
			return err
		}
		if err := d.inspect(); err != nil {
			return err
		}
	}
	return nil
}

// checkStamps compares the stamped directories with the bookie they should belong to and with each other.
func checkStamps(dirs []*directory, id ledger.BookieID, instance string) error {
	ids := map[string]*directory{}
	var first *directory
	for _, d := range dirs {
		s := d.stamp
		if s.Bookie != id {
			return exitErrorf(ExitIdentity, "%s belongs to bookie %s, not to %s: check bookie.id and the directory lists", d, s.Bookie, id)
		}
		if s.Instance != instance {
			return exitErrorf(ExitIdentity, "%s belongs to the cluster with instance id %s, but metadata.uri leads to %s: check metadata.uri", d, s.Instance, instance)
		}
		if other := ids[s.Directory]; other != nil {
			return exitErrorf(ExitIdentity, "%s is a copy of %s: every directory needs its own content", d, other)
		}
		ids[s.Directory] = d
		if first == nil {
			first = d
		}
		if s.Incarnation != first.stamp.Incarnation {
			return exitErrorf(ExitIdentity, "%s was prepared together with other directories than %s: do not mix the directories of two bookies", d, first)
		}
	}
	return nil
}

// describeUnstamped says what is found where a stamp should be.
func describeUnstamped(d *directory) string {
	if d.ours != "" {
		return fmt.Sprintf("%s %s", d, d.lostStamp())
	}
	if len(d.foreign) > 0 {
		return fmt.Sprintf("%s is not prepared and not empty (it holds %s)", d, d.foreign[0])
	}
	return fmt.Sprintf("%s is not prepared", d)
}
