package entrylog

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/vfs"
)

// sealLoop gives retired logs their footers. It ends when there are none left.
func (s *Store) sealLoop() {
	for {
		s.mu.Lock()
		if len(s.sealQueue) == 0 {
			s.sealing = false
			s.mu.Unlock()
			return
		}
		w := s.sealQueue[0]
		s.sealQueue = slices.Delete(s.sealQueue, 0, 1)
		l := s.logs[w.id]
		s.mu.Unlock()
		if info, ok := s.sealRetired(w, l); ok && s.o.OnSealed != nil {
			s.o.OnSealed(info)
		}
	}
}

// sealRetired finishes one log that Append will not come back to. It returns false if nothing is left of it.
func (s *Store) sealRetired(w *logWriter, l *logFile) (LogInfo, bool) {
	if len(w.commits) == 0 { // nothing in it was ever promised
		err := errors.Join(w.f.Close(), s.discard(l))
		if err != nil {
			s.o.Logger.Warn("an empty entry log was not deleted; it will be at the next start", "file", w.path, "err", err)
		}
		return LogInfo{}, false
	}
	failed := w.err != nil && !errors.Is(w.err, ErrNoSpace)
	var t *trailer
	var err error
	if !failed {
		// A log whose disk was full is sound up to its last checkpoint. One that failed is not written to again.
		t, err = s.seal(w)
	}
	if cerr := w.f.Close(); err == nil {
		err = cerr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.sealing = false
	switch {
	case failed:
		l.info.Failed = true
		s.o.Logger.Error("an entry log was given up after a failed write; what was checkpointed in it stays readable", "file", w.path, "err", w.err)
	case err != nil:
		s.o.Logger.Warn("an entry log has no footer; the next start tries again", "file", w.path, "err", err)
	default:
		l.setSealed(t)
	}
	return l.info, true
}

// setSealed notes a footer. The store's mu is held, or the log is not in the table yet.
func (l *logFile) setSealed(t *trailer) {
	l.trailer = t
	l.end, l.clip = t.dataEnd, 0
	l.info.Sealed, l.info.Size = true, t.end()
}

// seal writes the footer of a log whose content ends at its last checkpoint, cuts the file behind it and syncs.
func (s *Store) seal(w *logWriter) (*trailer, error) {
	buffers, err := s.takeBuffers()
	if err != nil {
		return nil, err
	}
	defer s.giveBuffers(buffers)
	// Direct writes and a second handle of the same file see each other's bytes: everything up to w.durable is written.
	r, err := s.fs.Open(w.path, s.readMode())
	if err != nil {
		return nil, fmt.Errorf("seal entry log %s: %w", w.id, err)
	}
	defer r.Close() //nolint:errcheck // read only
	if err := w.f.Truncate(w.durable); err != nil {
		return nil, fmt.Errorf("seal entry log %s: %w", w.id, err)
	}
	w.err = nil
	w.out = newOutput(w.f, w.durable, nil, buffers, reservation{}, &s.count.written)
	defer w.stop()
	t, err := w.footer(r)
	if err != nil {
		return nil, fmt.Errorf("seal entry log %s: %w", w.id, err)
	}
	invariant.CrashPoint("entrylog.footer-written")
	if err := w.f.Truncate(t.end()); err != nil { // the file system may have rounded up what it allocated
		return nil, fmt.Errorf("seal entry log %s: %w", w.id, err)
	}
	if err := w.f.Sync(); err != nil {
		return nil, fmt.Errorf("seal entry log %s: %w", w.id, err)
	}
	s.count.syncs.Add(1)
	invariant.CrashPoint("entrylog.sealed")
	return t, nil
}

// footer writes run table, states, ledger map and trailer, reading what they hold back from the checkpoints.
func (w *logWriter) footer(r vfs.File) (*trailer, error) {
	t := &trailer{meta: w.meta, sealed: time.Now().UnixMilli(), dataEnd: w.durable, checkpoints: uint32(len(w.commits))}
	if n := len(w.commits); n > 0 {
		t.lastCommit = w.commits[n-1].off
	}
	var damage []Damage
	runs := commitRuns(r, w.path, w.meta, w.commits, func(d Damage) { damage = append(damage, d) })
	ledgers, err := w.footerRuns(t, runs)
	if err != nil {
		return nil, err
	}
	if len(damage) > 0 { // a footer would make the loss look like absence
		return nil, damage[0].Err
	}
	states, err := commitStates(r, w.path, w.meta, w.commits)
	if err != nil {
		return nil, err
	}
	t.states.off = w.out.tell()
	sw := tableWriter{kind: kindStates, emit: w.record}
	for i := range states {
		if err := sw.state(&states[i]); err != nil {
			return nil, err
		}
	}
	if err := sw.close(); err != nil {
		return nil, err
	}
	t.states.end, t.states.chunks, t.states.rows = w.out.tell(), sw.n, sw.rows
	t.ledgers.off = w.out.tell()
	for _, chunk := range ledgers.chunks {
		if err := w.record(kindMap, chunk); err != nil {
			return nil, err
		}
	}
	t.ledgers.end, t.ledgers.chunks, t.ledgers.rows = w.out.tell(), ledgers.n, ledgers.rows
	if err := w.pad(trailerSize); err != nil {
		return nil, err
	}
	t.off = w.out.tell()
	var body [trailerBody]byte
	encodeTrailer(body[:], t)
	if err := w.record(kindTrailer, body[:]); err != nil {
		return nil, err
	}
	return t, w.fail("write", w.out.flush())
}

// ledgerMap is an encoded ledger map that waits for its place in the footer.
type ledgerMap struct {
	tableWriter
	chunks [][]byte
}

// footerRuns writes the run table and collects the ledger map on the way.
func (w *logWriter) footerRuns(t *trailer, runs iter.Seq2[Run, error]) (*ledgerMap, error) {
	m := &ledgerMap{}
	m.tableWriter = tableWriter{kind: kindMap, emit: func(_ byte, b []byte) error {
		m.chunks = append(m.chunks, slices.Clone(b))
		return nil
	}}
	t.runs.off = w.out.tell()
	rw := tableWriter{kind: kindRuns, emit: w.record}
	ledger, size := int64(-1), int64(0)
	flush := func() error {
		if ledger < 0 {
			return nil
		}
		return m.ledgerBytes(ledger, size)
	}
	for r, err := range runs {
		if err != nil {
			return nil, err
		}
		if r.Ledger != ledger {
			if err := flush(); err != nil {
				return nil, err
			}
			ledger, size = r.Ledger, 0
		}
		size += r.Bytes()
		t.entries += uint64(r.Count)
		t.bytes += uint64(r.Bytes())
		if err := rw.run(&r); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(flush(), m.close()); err != nil {
		return nil, err
	}
	if err := rw.close(); err != nil {
		return nil, err
	}
	t.runs.end, t.runs.chunks, t.runs.rows = w.out.tell(), rw.n, rw.rows
	return m, nil
}

// commitRuns merges the run tables of checkpoints into one, in order of ledger, entry and offset.
func commitRuns(f vfs.File, path string, m meta, commits []*commit, damaged func(Damage)) iter.Seq2[Run, error] {
	seqs := make([]iter.Seq2[Run, error], 0, len(commits))
	for _, c := range commits {
		if c.runs == 0 {
			continue
		}
		w := &walker{path: path, f: f, m: m}
		seqs = append(seqs, checkpointRuns(w, c, damaged))
	}
	return mergeRuns(seqs)
}

// commitStates returns the newest state of each ledger that the checkpoints carry, in order of ledger.
func commitStates(f vfs.File, path string, m meta, commits []*commit) ([]LedgerState, error) {
	newest := map[int64][]byte{}
	w := &walker{path: path, f: f, m: m, step: tableWindow}
	for _, c := range commits {
		w.limit = c.off
		states, err := chunkStates(w, c.statesAt, c.off, uint64(c.states))
		if err != nil {
			return nil, err
		}
		for _, s := range states {
			newest[s.Ledger] = s.Data
		}
	}
	states := make([]LedgerState, 0, len(newest))
	for ledger, data := range newest {
		states = append(states, LedgerState{Ledger: ledger, Data: data})
	}
	sortStates(states)
	return states, nil
}
