package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/binderylog/bindery/bookie/index"
	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
)

// Names in a ledger directory's `current` that this package owns beside the marks and the tombstones.
const (
	intentsName = "intents"
	rebuildName = "index.rebuild" // present: the index is rebuilt at the next start
	metaDir     = "storage.dir"   // in the index: id of the directory it belongs to
)

// openIndex opens the directory's index. One that is missing, damaged or marked for it is rebuilt, after the entry logs
// are open: fresh is true.
func (d *dir) openIndex() (fresh bool, err error) {
	if err := vfs.MkdirAllSync(d.s.fs, filepath.Dir(d.indexPath)); err != nil {
		return false, err
	}
	_, err = d.s.fs.Stat(filepath.Join(d.cur, rebuildName))
	if err == nil {
		d.s.log.Warn("the index is rebuilt from the entry logs: it was found damaged", "dir", d.path)
		if err := d.setIndexAside(); err != nil {
			return false, err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	// A directory that was used before had an index: a missing one is not a new one.
	o := index.Options{Logger: d.s.log, MustExist: d.loaded != nil && err != nil}
	d.ix, err = d.s.o.OpenIndex(d.indexPath, o)
	o.MustExist = false
	if corrupt.Is(err) || errors.Is(err, index.ErrFailed) {
		d.s.log.Error("the index can not be opened; it is set aside and rebuilt from the entry logs", "dir", d.path, "err", err)
		if err := d.setIndexAside(); err != nil {
			return false, err
		}
		d.ix, err = d.s.o.OpenIndex(d.indexPath, o)
	}
	if err != nil {
		return false, fmt.Errorf("open index: %w", err)
	}
	id, ok, err := d.ix.Meta(metaDir)
	if err != nil {
		return false, fmt.Errorf("open index: %w", err)
	}
	if !ok {
		logs, err := d.ix.Logs()
		if err != nil {
			return false, fmt.Errorf("open index: %w", err)
		}
		if len(logs) > 0 { // a rebuild that a crash cut short
			if err := d.ix.Close(); err != nil {
				return false, err
			}
			if err := d.setIndexAside(); err != nil {
				return false, err
			}
			if d.ix, err = d.s.o.OpenIndex(d.indexPath, o); err != nil {
				return false, fmt.Errorf("open index: %w", err)
			}
		}
		return true, nil
	}
	switch owner := string(id); {
	case d.id == 0:
		if _, err := fmt.Sscanf(owner, "%016x", &d.id); err != nil || d.id == 0 {
			return false, corrupt.Errorf(d.indexPath, 0, "directory id", "%q is none", owner)
		}
	case owner != formatDirID(d.id):
		return false, fmt.Errorf("index %s belongs to the ledger directory with id %s, not to %s: check the order of the index directories", d.indexPath, owner, formatDirID(d.id))
	}
	suspect, ok, err := d.ix.Meta(index.MetaSuspect)
	if err != nil {
		return false, fmt.Errorf("open index: %w", err)
	}
	d.suspect = ok && len(suspect) > 0
	return false, nil
}

func formatDirID(id uint64) string { return fmt.Sprintf("%016x", id) }

// setIndexAside renames the files of the index, so that an operator can look at them.
func (d *dir) setIndexAside() error {
	dir := filepath.Dir(d.indexPath)
	names, err := d.s.fs.List(dir)
	if err != nil {
		return err
	}
	base := filepath.Base(d.indexPath)
	const mark = ".damaged"
	for _, name := range names {
		if !strings.HasPrefix(name, base) || strings.HasSuffix(name, mark) {
			continue
		}
		if err := d.s.fs.Rename(filepath.Join(dir, name), filepath.Join(dir, name+mark)); err != nil {
			return fmt.Errorf("set the index aside: %w", err)
		}
	}
	return d.s.fs.SyncDir(dir)
}

// rebuildIndex fills a fresh index from the entry logs (decisions 10 to 12), leaving out deleted ledgers.
func (d *dir) rebuildIndex() error {
	if len(d.log.Logs()) > 0 {
		start := time.Now()
		report, err := index.Rebuild(context.Background(), d.log, d.ix, nil)
		if err != nil {
			return fmt.Errorf("rebuild index: %w", err)
		}
		d.s.log.Info("index rebuilt", "dir", d.path, "logs", report.Logs, "ledgers", report.Ledgers, "entries", report.Entries, "took", time.Since(start))
		if len(report.Damage) > 0 {
			d.suspect = true
			for i := range report.Damage {
				d.noteLost(fmt.Errorf("index rebuild: log %s: %w", report.Damage[i].Log, report.Damage[i].Err))
			}
		}
		if err := d.dropDead(); err != nil {
			return err
		}
	}
	if err := d.ix.PutMeta(index.MetaValue{Key: metaDir, Value: []byte(formatDirID(d.id))}); err != nil {
		return fmt.Errorf("rebuild index: %w", err)
	}
	err := d.s.fs.Remove(filepath.Join(d.cur, rebuildName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// dropDead removes from a rebuilt index what the logs still hold of deleted ledgers.
func (d *dir) dropDead() error {
	t := d.tombs.Load()
	for after := int64(-1); ; {
		ids, err := d.ix.Ledgers(after, 4096)
		if err != nil {
			return fmt.Errorf("rebuild index: %w", err)
		}
		if len(ids) == 0 {
			return nil
		}
		after = ids[len(ids)-1]
		var dead []int64
		for _, id := range ids {
			if !t.set.contains(id) {
				continue
			}
			st, _, err := d.lookupState(id)
			if err != nil {
				return fmt.Errorf("rebuild index: %w", err)
			}
			if st.replica.Tombstone {
				dead = append(dead, id)
			}
		}
		if len(dead) > 0 {
			if err := d.ix.DeleteLedgers(dead); err != nil {
				return fmt.Errorf("rebuild index: %w", err)
			}
		}
	}
}

// wantRebuild notes durably that the index is damaged: it is rebuilt at the next start.
func (d *dir) wantRebuild(err error) {
	if d.rebuildNoted.Swap(true) {
		return
	}
	d.s.log.Error("the index is damaged; reads of what it can not find fail until it is rebuilt, at the next start", "dir", d.path, "err", err)
	// At once, since the process may end because of it.
	if err := vfs.WriteFileAtomic(d.s.fs, filepath.Join(d.cur, rebuildName), []byte(err.Error()+"\n")); err != nil {
		d.s.log.Warn("the wish to rebuild the index could not be noted", "dir", d.path, "err", err)
	}
}

// clearSuspect forgets that a rebuilt index does not prove everything. markMu is held.
func (d *dir) clearSuspect() error {
	if err := d.ix.PutMeta(index.MetaValue{Key: index.MetaSuspect}); err != nil {
		return err
	}
	d.suspect = false
	return nil
}
