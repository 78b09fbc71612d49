package entrylog

import (
	"fmt"
	"iter"
	"slices"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
)

// Source says where a Footer was read from.
type Source uint8

// Sources, in the order in which they are tried.
const (
	FromFooter      Source = iota + 1 // the footer
	FromCheckpoints                   // the tables of the checkpoints, or where they are damaged the records themselves
)

// String returns the name that the command line prints.
func (s Source) String() string {
	switch s {
	case FromFooter:
		return "footer"
	case FromCheckpoints:
		return "checkpoints"
	}
	return fmt.Sprintf("source %d", uint8(s))
}

// Footer is the content of a log that is no longer written.
type Footer struct {
	Info    LogInfo
	Source  Source
	Entries int64           // an entry that was appended twice counts twice
	Ledgers map[int64]int64 // bytes of entries with their record headers, by ledger
	States  []LedgerState   // the newest of each ledger in this log, by ledger
	// Damage says what stays unknown; empty, the content is known whole. A log with damage must not be deleted because it
	// seems to hold nothing.
	Damage []Damage

	store *Store
	runs  []Run    // of a log read from its checkpoints
	table *trailer // of a log read from its footer
}

// Footer returns what a log holds. It reads the footer; if that is missing or damaged, the run tables of the checkpoints;
// where they are damaged, the records themselves. It never believes an empty ledger map that it can not check.
// The log being written has no footer: ErrNotFinal.
func (s *Store) Footer(id LogID) (*Footer, error) {
	v, err := s.pin(id)
	if err != nil {
		return nil, s.countDamage(err)
	}
	defer s.release(v)
	s.mu.Lock()
	info, t, clip, synced := v.l.info, v.l.trailer, v.l.clip, v.l.synced
	s.mu.Unlock()
	if info.Writing {
		return nil, fmt.Errorf("footer of entry log %s: %w", id, ErrNotFinal)
	}
	f := &Footer{Info: info, store: s}
	if t != nil {
		err := f.readFooter(v, t)
		if err == nil {
			return f, nil
		}
		if !corrupt.Is(err) {
			return nil, fmt.Errorf("footer of entry log %s: %w", id, err)
		}
		s.o.Logger.Warn("a footer is damaged; the checkpoints are read instead", "file", v.l.path, "err", s.countDamage(err))
		// All that was there when the footer was written had been synced.
		clip, synced = t.dataEnd, t.dataEnd
	}
	if err := f.readCheckpoints(v, clip, synced); err != nil {
		return nil, fmt.Errorf("footer of entry log %s: %w", id, err)
	}
	return f, nil
}

// readFooter takes ledger map and states from the footer and proves that the run table is whole.
func (f *Footer) readFooter(v view, t *trailer) error {
	w := &walker{path: v.l.path, f: v.f, m: v.meta, limit: t.off, step: walkWindow}
	f.Source, f.table = FromFooter, t
	f.Entries = int64(t.entries)
	f.Ledgers = make(map[int64]int64, min(t.ledgers.rows, 1<<16))
	var rows, total uint64
	for at := t.ledgers.off; at < t.ledgers.end; {
		body, next, err := w.expect(at, kindMap)
		if err != nil {
			return err
		}
		if err := decodeMap(body, func(ledger, n int64) {
			f.Ledgers[ledger] += n
			rows++
			total += uint64(n)
		}); err != nil {
			return corrupt.New(v.l.path, at, "ledger map", err)
		}
		at = next
	}
	if rows != t.ledgers.rows || total != t.bytes || uint64(len(f.Ledgers)) != rows {
		return corrupt.Errorf(v.l.path, t.ledgers.off, "ledger map", "%d ledgers with %d bytes, want %d with %d", rows, total, t.ledgers.rows, t.bytes)
	}
	states, err := chunkStates(w, t.states.off, t.states.end, t.states.rows)
	if err != nil {
		return err
	}
	f.States = states
	var entries uint64
	for r, err := range chunkRuns(w, t.runs.off, t.runs.end, t.runs.rows) {
		if err != nil {
			return err
		}
		entries += uint64(r.Count)
	}
	if entries != t.entries {
		return corrupt.Errorf(v.l.path, t.runs.off, "run table", "%d entries, want %d", entries, t.entries)
	}
	return nil
}

// readCheckpoints takes everything from the checkpoints of a log whose content ends at clip, if that is not 0.
func (f *Footer) readCheckpoints(v view, clip, synced int64) error {
	d, err := discover(v.f, v.l.path, v.meta.id)
	if err != nil {
		return err
	}
	if d.failed != nil {
		return d.failed
	}
	if clip != 0 || d.trailer != nil {
		if clip == 0 {
			clip = d.trailer.dataEnd
		}
		d.size, d.trailer, d.last = min(d.size, clip), nil, nil
		if err := d.findEnd(v.f, nil, d.size); err != nil {
			return err
		}
	}
	if !d.known {
		d.meta, d.known = v.meta, true // from a footer that has gone bad since
	}
	c, err := readContent(v.f, d, synced, f.store.exact())
	if err != nil {
		return err
	}
	f.Source, f.table = FromCheckpoints, nil
	f.runs, f.States, f.Damage = c.runs, c.states, c.damage
	f.Entries, f.Ledgers = 0, map[int64]int64{}
	for i := range f.runs {
		f.Ledgers[f.runs[i].Ledger] += f.runs[i].Bytes()
		f.Entries += int64(f.runs[i].Count)
	}
	slices.SortFunc(f.runs, func(a, b Run) int { return compareRuns(&a, &b) })
	return nil
}

// Runs returns the log's runs in order of ledger and first entry. Where an entry was appended twice, two runs overlap, and
// the one with the higher offset is the newer. An error ends the sequence: ErrNoLog if the log was removed meanwhile, a
// *corrupt.Error if the footer was damaged since; ask for the Footer again then. The log is pinned only while the sequence
// runs.
func (f *Footer) Runs() iter.Seq2[Run, error] {
	if f.table == nil {
		return func(yield func(Run, error) bool) {
			for _, r := range f.runs {
				if !yield(r, nil) {
					return
				}
			}
		}
	}
	return func(yield func(Run, error) bool) {
		v, err := f.store.pin(f.Info.ID)
		if err != nil {
			yield(Run{}, err)
			return
		}
		defer f.store.release(v)
		t := f.table
		w := &walker{path: v.l.path, f: v.f, m: v.meta, limit: t.runs.end, step: tableWindow}
		chunkRuns(w, t.runs.off, t.runs.end, t.runs.rows)(yield)
	}
}

// openForReading is a second handle for long scans, so that they do not share the cache's.
func (s *Store) openForReading(l *logFile) (vfs.File, error) {
	f, err := s.fs.Open(l.path, s.readMode())
	if err != nil {
		return nil, fmt.Errorf("open entry log %s: %w", l.meta.id, err)
	}
	return f, nil
}
