package entrylog

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
)

// found is a log that Open met.
type found struct {
	l *logFile
	d *discovery
}

// recover fills the table from the directory.
func (s *Store) recover() (*Recovered, error) {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return nil, err
	}
	r := &Recovered{}
	if err := s.readRemoved(); err != nil {
		return nil, err
	}
	s.nextID = max(s.removed.highest, s.o.MinLog, s.o.Durable.Log) + 1
	list, listErr := s.readList()
	if listErr != nil && !corrupt.Is(listErr) {
		return nil, listErr
	}
	if list != nil {
		s.listed = *list
		if n := len(list.ids); n > 0 {
			s.nextID = max(s.nextID, list.ids[n-1]+1)
		}
	}
	var logs []*found
	for _, name := range names {
		for _, suffix := range []string{compactingSuffix, removingSuffix} {
			if id, ok := parseName(name, suffix); ok {
				s.nextID = max(s.nextID, id+1)
				if err := s.removeLeftover(0, s.path(id, suffix), r); err != nil {
					return nil, err
				}
			}
		}
		if id, ok := parseName(name, logSuffix); ok {
			s.nextID = max(s.nextID, id+1)
			f, err := s.meet(id)
			if err != nil {
				return nil, err
			}
			logs = append(logs, f)
		}
	}
	slices.SortFunc(logs, func(a, b *found) int { return int(int64(a.l.meta.id) - int64(b.l.meta.id)) })
	synced := s.syncedEnds(logs)
	for _, f := range logs {
		if err := s.take(f, synced[f.l.meta.id], r); err != nil {
			return nil, err
		}
	}
	s.durable = s.o.Durable
	if err := s.compareList(logs, listErr, r); err != nil {
		return nil, err
	}
	s.checkDurable(r)
	if len(r.Removed) > 0 {
		if err := s.fs.SyncDir(s.dir); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// removeLeftover deletes a file of which nothing was promised: log id, or, with 0, one that never became a log.
func (s *Store) removeLeftover(id LogID, path string, r *Recovered) error {
	if s.o.ReadOnly {
		return nil
	}
	if err := s.unlist(id); err != nil {
		return err
	}
	if err := s.fs.Remove(path); err != nil {
		return err
	}
	r.Removed = append(r.Removed, path)
	return nil
}

// meet opens a log and reads its header and its end.
func (s *Store) meet(id LogID) (*found, error) {
	l := &logFile{path: s.path(id, logSuffix), meta: meta{id: id, precedence: id}}
	l.info = LogInfo{ID: id, Precedence: id}
	f, err := s.fs.Open(l.path, s.readMode())
	if err != nil {
		if errors.Is(err, vfs.ErrNoDirectIO) {
			return nil, err
		}
		return &found{l, &discovery{path: l.path, id: id, failed: err, header: err}}, nil
	}
	defer f.Close() //nolint:errcheck // read only
	d, err := discover(f, l.path, id)
	if err != nil {
		return nil, err
	}
	if d.known {
		l.meta = d.meta
		l.info.Precedence, l.info.Created, l.info.Compaction = d.meta.precedence, d.meta.createdTime(), d.meta.flags&flagCompaction != 0
	}
	l.info.Size = d.size
	return &found{l, d}, nil
}

// syncedEnds says for each log how far it is known to have been synced: its successor's header tells, and the caller.
func (s *Store) syncedEnds(logs []*found) map[LogID]int64 {
	ends := map[LogID]int64{s.o.Durable.Log: s.o.Durable.Offset}
	for _, f := range logs {
		if f.d.known && f.l.meta.prevLog != 0 {
			ends[f.l.meta.prevLog] = max(ends[f.l.meta.prevLog], f.l.meta.prevEnd)
		}
	}
	return ends
}

// take puts a log into the table, after recovering it if it has no footer.
func (s *Store) take(f *found, synced int64, r *Recovered) error {
	l, d := f.l, f.d
	l.synced = synced
	switch {
	case d.trailer != nil:
		return s.takeSealed(l, d)
	case d.failed != nil:
		// What is there can not be told from what is not; a later start may be able to.
		l.info.Unreadable, l.cause = !d.known, d.failed
		l.end = d.size
		r.Damage = append(r.Damage, Damage{Log: d.id, Runs: true, States: true, Err: corrupt.New(d.path, 0, "entry log", d.failed)})
		s.logs[d.id] = l
		return nil
	case !d.known && d.zero && synced <= headerSize && !s.onList(d.id):
		// Created, but its header never reached the disk: it is synced before anything else is written.
		return s.removeLeftover(d.id, l.path, r)
	case !d.known:
		var cause *corrupt.Error
		errors.As(d.header, &cause)
		l.info.Unreadable, l.cause = true, cause.Err
		r.Damage = append(r.Damage, Damage{Log: d.id, Runs: true, States: true, Err: cause})
		s.logs[d.id] = l
		return nil
	}
	return s.takeUnsealed(l, d, r)
}

// takeSealed takes a log with a footer. A crash between writing it and cutting the file leaves it before the end.
func (s *Store) takeSealed(l *logFile, d *discovery) error {
	if d.size > d.trailer.end() && !s.o.ReadOnly {
		f, err := s.fs.Open(l.path, s.writerOptions().mode())
		if err != nil {
			return err
		}
		err = f.Truncate(d.trailer.end())
		if err == nil {
			err = f.Sync()
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	l.setSealed(d.trailer)
	s.logs[d.id] = l
	s.noteOrdinary(l)
	return nil
}

// noteOrdinary remembers the newest log that is not a compaction's, for the header of the next one.
func (s *Store) noteOrdinary(l *logFile) {
	if l.info.Compaction || l.meta.id < s.prevLog {
		return
	}
	s.prevLog, s.prevEnd = l.meta.id, max(l.synced, headerSize)
	if l.trailer != nil {
		s.prevEnd = l.trailer.dataEnd
	}
}

// takeUnsealed reads back a log that was being written, and seals it.
func (s *Store) takeUnsealed(l *logFile, d *discovery, r *Recovered) error {
	f, err := s.fs.Open(l.path, s.readMode())
	if err != nil {
		return err
	}
	c, err := readContent(f, d, l.synced, s.exact())
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("recover entry log %s: %w", d.id, err)
	}
	l.end = c.end
	l.info.Size = c.end
	r.Damage = append(r.Damage, c.damage...)
	if len(c.commits) == 0 && len(c.runs) == 0 && len(c.states) == 0 && len(c.damage) == 0 && !s.o.ReadOnly {
		return s.removeLeftover(d.id, l.path, r) // nothing in it was ever promised
	}
	s.logs[d.id] = l
	rec := RecoveredLog{Runs: c.runs, States: c.states, End: Position{d.id, c.end}, Tail: c.end - headerSize}
	if n := len(c.commits); n > 0 {
		rec.Tail = c.end - c.commits[n-1].end()
	}
	if len(c.damage) == 0 && !c.irregular && !s.o.ReadOnly {
		if err := s.sealFound(l, d, c); err != nil {
			// It stays readable as it is. A full disk is the likely cause, and no reason not to start.
			s.o.Logger.Warn("an unsealed entry log has got no footer", "file", l.path, "err", err)
		}
	}
	s.noteOrdinary(l)
	rec.Info = l.info
	r.Unsealed = append(r.Unsealed, rec)
	s.o.Logger.Info("recovered an entry log", "file", l.path, "checkpoints", len(c.commits), "bytes", c.end, "tail", rec.Tail, "damage", len(c.damage), "sealed", l.info.Sealed)
	return nil
}

// exact says whether what the caller knows to have been synced is all that was promised.
func (s *Store) exact() bool { return s.o.Durable != Position{} }

// sealFound gives a log found without a footer one: first the tail becomes a checkpoint of its own.
func (s *Store) sealFound(l *logFile, d *discovery, c *content) (err error) {
	o := s.writerOptions()
	f, err := s.fs.Open(l.path, o.mode())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if d.header != nil { // a commit has told what stood there
		head := vfs.AlignedBytes(headerSize)
		encodeHeader(head, &l.meta)
		if _, err := f.WriteAt(head, 0); err != nil {
			return err
		}
	}
	w := &logWriter{meta: l.meta, path: l.path, f: f, commits: c.commits, durable: headerSize, count: &s.count}
	if n := len(w.commits); n > 0 {
		w.durable = w.commits[n-1].end()
	}
	if err := s.adoptTail(w, c); err != nil {
		return err
	}
	// Everything that the footer will list is durable before the footer is: a process that was killed may have left
	// its last writes to the system.
	if err := f.Sync(); err != nil {
		return err
	}
	l.synced, l.end, l.info.Size = w.durable, w.durable, w.durable
	t, err := s.seal(w)
	if err != nil {
		return err
	}
	l.setSealed(t)
	return nil
}

// adoptTail makes the entries behind the last commit a checkpoint.
func (s *Store) adoptTail(w *logWriter, c *content) error {
	if err := w.f.Truncate(max(alignUp(c.tailEnd), w.durable)); err != nil {
		return err
	}
	if len(c.tailRuns) == 0 && len(c.tailStates) == 0 {
		return nil
	}
	buffers, err := s.takeBuffers()
	if err != nil {
		return err
	}
	defer s.giveBuffers(buffers)
	// The last block of the tail is written again, with what follows it.
	start := alignDown(c.tailEnd)
	_, head, err := readAligned(w.f, nil, start, int(c.tailEnd-start))
	if err != nil {
		return err
	}
	w.out = newOutput(w.f, start, head, buffers, reservation{}, &s.count.written)
	defer w.stop()
	for i := range c.tailRuns {
		w.entries += uint64(c.tailRuns[i].Count)
	}
	return w.checkpoint(c.tailRuns, newestStates(c.tailStates))
}

// newestStates keeps the last state of each ledger.
func newestStates(states []LedgerState) []LedgerState {
	at := map[int64]int{}
	var out []LedgerState
	for _, st := range states {
		if i, ok := at[st.Ledger]; ok {
			out[i] = st
			continue
		}
		at[st.Ledger] = len(out)
		out = append(out, st)
	}
	return out
}

// checkDurable reports a log that must be there and is not.
func (s *Store) checkDurable(r *Recovered) {
	d := s.o.Durable
	noted := slices.ContainsFunc(s.missing, func(m Damage) bool { return m.Log == d.Log })
	if d.Log == 0 || d.Offset <= headerSize || s.logs[d.Log] != nil || s.removed.durable >= d.Log || noted {
		return
	}
	path := s.path(d.Log, logSuffix)
	r.Damage = append(r.Damage, Damage{Log: d.Log, Length: d.Offset, Runs: true, States: true, Err: corrupt.New(path, 0, "entry log", fs.ErrNotExist)})
}
