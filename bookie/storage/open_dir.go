package storage

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/intent"
	"github.com/binderylog/bindery/internal/vfs"
)

// openDir opens the i-th ledger directory. On failure the returned directory, if any, has to be closed.
func (s *Storage) openDir(i int) (*dir, error) {
	o := &s.o.Dirs[i]
	d := &dir{
		s: s, index: i, path: o.Ledger, cur: filepath.Join(o.Ledger, "current"),
		roomCh: make(chan struct{}), wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1), keeperWake: make(chan struct{}, 1),
		compactions: map[entrylog.LogID]*compaction{}, obsolete: map[entrylog.LogID]bool{},
	}
	d.indexPath = filepath.Join(d.cur, "index.db")
	if o.Index != "" {
		d.indexPath = filepath.Join(o.Index, "current", "index.db")
	}
	if _, err := s.fs.Stat(o.Ledger); err != nil {
		return d, err
	}
	if err := vfs.MkdirAllSync(s.fs, d.cur); err != nil {
		return d, err
	}
	if err := d.loadMark(); err != nil {
		return d, err
	}
	if err := d.loadTombstones(); err != nil {
		return d, err
	}
	fresh, err := d.openIndex()
	if err != nil {
		return d, err
	}
	if err := d.openLogs(); err != nil {
		return d, err
	}
	if err := d.settleID(); err != nil {
		return d, err
	}
	if fresh {
		if err := d.rebuildIndex(); err != nil {
			return d, err
		}
	}
	if err := d.loadOverlay(); err != nil {
		return d, err
	}
	d.intents, err = s.o.OpenIntents(filepath.Join(d.cur, intentsName), intent.Options{Salvage: true, Logger: s.log})
	if err != nil {
		return d, fmt.Errorf("open intents: %w", err)
	}
	return d, d.openCaches()
}

// loadMark reads the mark file.
func (d *dir) loadMark() error {
	t, err := readMark(d.s.fs, d.cur)
	switch {
	case err == nil:
		d.loaded, d.markSeq, d.lost = t, t.seq, t.lost
		if d.lost {
			d.lossErr = errors.New("found at an earlier start")
		}
		d.id = t.rows[0].id
		d.mark = d.s.translate(t, &t.rows[0])
		d.written = dirMark{id: d.id, durable: t.rows[0].durable, pos: slices.Clone(d.mark)}
	case errors.Is(err, errNoMark):
	case corrupt.Is(err):
		d.noteLost(err)
	default:
		return err
	}
	return nil
}

func (d *dir) loadTombstones() error {
	set, births, err := readTombstones(d.s.fs, d.cur)
	if corrupt.Is(err) {
		d.noteLost(fmt.Errorf("which ledgers were deleted is lost: %w", err))
		set, err = &idSet{}, nil
	}
	if err != nil {
		return err
	}
	d.tombs.Store(&tombs{set: set, births: births})
	return nil
}

// openLogs opens the entry logs.
func (d *dir) openLogs() error {
	ingested, err := d.ix.Logs()
	if err != nil {
		return fmt.Errorf("open index: %w", err)
	}
	o := d.s.o.Log
	o.Logger = d.s.log
	o.OnSealed = d.sealed
	o.Durable = d.written.durable
	for _, id := range ingested {
		o.MinLog = max(o.MinLog, id)
	}
	log, recovered, err := entrylog.Open(d.s.fs, d.cur, o)
	if err != nil {
		return err
	}
	d.log, d.recovered = log, recovered
	raise(&d.maxLog, uint32(max(o.MinLog, o.Durable.Log)))
	for _, info := range log.Logs() {
		raise(&d.maxLog, uint32(info.ID))
	}
	return nil
}

// settleID gives a directory that has none an id, and its mark file. A directory that holds logs but no mark has lost it.
func (d *dir) settleID() error {
	if d.loaded == nil {
		if len(d.log.Logs()) > 0 && !d.lost {
			d.noteLost(errors.New("it holds entry logs but no mark file"))
		}
		if err := createMark(d.s.fs, d.cur); err != nil {
			return err
		}
	}
	var err error
	if d.markFile, err = openMark(d.s.fs, d.cur); err != nil {
		return err
	}
	if d.id == 0 {
		var b [8]byte
		if _, err := rand.Read(b[:]); err != nil {
			return err
		}
		d.id = binary.LittleEndian.Uint64(b[:]) | 1
	}
	if d.lost && d.mark == nil {
		d.mark = make([]uint64, len(d.s.o.Journals))
	}
	d.written.id = d.id
	if d.written.pos == nil {
		d.written.pos = make([]uint64, len(d.s.o.Journals))
	}
	return nil
}

// loadOverlay shows the runs and states of logs that the index does not hold, and queues those logs for it.
func (d *dir) loadOverlay() error {
	unsealed := map[entrylog.LogID]*entrylog.RecoveredLog{}
	for i := range d.recovered.Unsealed {
		r := &d.recovered.Unsealed[i]
		unsealed[r.Info.ID] = r
	}
	logs := d.log.Logs()
	present := map[entrylog.LogID]bool{}
	slices.SortFunc(logs, func(a, b entrylog.LogInfo) int { return cmp.Compare(a.ID, b.ID) })
	newest := entrylog.LogID(0) // of the logs in the index
	for _, info := range logs {
		ingested, err := d.ix.Ingested(info.ID)
		if err != nil {
			return err
		}
		if ingested && !info.Compaction {
			newest = max(newest, info.ID)
		}
	}
	for _, info := range logs {
		present[info.ID] = true
		ingested, err := d.ix.Ingested(info.ID)
		if err != nil {
			return err
		}
		if ingested {
			continue
		}
		d.addFinal(info)
		if info.Compaction {
			continue // its sources still serve what it holds
		}
		if info.ID < newest {
			// What the overlay serves counts as newer than the index, which this log is not.
			if err := d.ingest(d.s.ctx, info); err != nil {
				return fmt.Errorf("ingest entry log %s: %w", info.ID, err)
			}
			d.doneFinal(info.ID)
			continue
		}
		if r := unsealed[info.ID]; r != nil {
			d.ov.add(pagesOf(info.ID, r.Runs, r.States))
			continue
		}
		if err := d.loadFooter(info); err != nil {
			return err
		}
	}
	for _, dm := range d.recovered.Damage {
		if ingested, err := d.ix.Ingested(dm.Log); err != nil {
			return err
		} else if !ingested {
			d.noteLost(fmt.Errorf("entry log %s: %w", dm.Log, dm.Err))
		}
	}
	d.recovered = nil
	// Logs that were removed while the index still named them.
	ingested, err := d.ix.Logs()
	if err != nil {
		return err
	}
	for _, id := range ingested {
		if !present[id] {
			if err := d.dropped(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropped handles a log that the index knows and that is not there: its removal was interrupted, or somebody deleted it.
// The index keeps its runs, so that reading what it held fails instead of denying it, and in the second case it keeps the log,
// too: as long as it is there, nothing is lost that it does not know of.
func (d *dir) dropped(id entrylog.LogID) error {
	for _, p := range d.log.Pending() {
		if p.ID == id {
			return nil
		}
	}
	for _, m := range d.log.Missing() {
		if m.Log == id {
			d.s.log.Error("an entry log was deleted: reading what it held fails until that has been repaired", "dir", d.path, "log", id)
			return nil
		}
	}
	return d.ix.Drop(id)
}

// loadFooter shows a sealed log that was not ingested.
func (d *dir) loadFooter(info entrylog.LogInfo) error {
	footer, err := d.log.Footer(info.ID)
	if corrupt.Is(err) {
		d.noteLost(err)
		return nil
	}
	if err != nil {
		return err
	}
	for _, dm := range footer.Damage {
		d.noteLost(fmt.Errorf("entry log %s: %w", info.ID, dm.Err))
	}
	var runs []entrylog.Run
	for r, err := range footer.Runs() {
		if corrupt.Is(err) {
			d.noteLost(err)
			break
		}
		if err != nil {
			return err
		}
		runs = append(runs, r)
	}
	// In the order in which they were written, so that later copies win.
	slices.SortFunc(runs, func(a, b entrylog.Run) int { return cmp.Compare(a.Offset, b.Offset) })
	d.ov.add(pagesOf(info.ID, runs, footer.States))
	return nil
}

func (d *dir) openCaches() error {
	size := d.s.o.WriteCacheBytes / int64(2*len(d.s.o.Dirs))
	for i := range d.caches {
		c, err := newWriteCache(i, size)
		if err != nil {
			return fmt.Errorf("write cache: %w", err)
		}
		d.caches[i] = c
	}
	d.current.Store(d.caches[0])
	if room := d.caches[0].capacity() - cacheHeader; room < MaxEntry && d.index == 0 {
		d.s.log.Warn("entries that do not fit into one write cache are refused; give storage.memory or cache.write more", "bytes_max", room)
	}
	return nil
}

// close closes what is open.
func (d *dir) close() (err error) {
	if d.log != nil {
		err = errors.Join(err, d.log.Close())
	}
	if d.ix != nil {
		err = errors.Join(err, d.ix.Close())
	}
	if d.intents != nil {
		err = errors.Join(err, d.intents.Close())
	}
	if d.markFile != nil {
		err = errors.Join(err, d.markFile.Close())
	}
	for _, c := range d.caches {
		if c != nil {
			err = errors.Join(err, c.free())
		}
	}
	return err
}
