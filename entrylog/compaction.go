package entrylog

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/binderylog/bindery/internal/invariant"
)

// CompactionWriter writes one log of entries copied from others. It belongs to one goroutine.
//
// Until Seal the file has a name that Open deletes, so a crash leaves nothing of it, or a whole log.
type CompactionWriter struct {
	s      *Store
	w      *logWriter
	sealed bool
	ended  bool
	// unlisted says that the log could not be put on the list, or so it seemed.
	unlisted bool
}

// NewCompactionWriter begins a log of its own for entries copied from the given sealed logs. It becomes visible, whole,
// with Seal.
func (s *Store) NewCompactionWriter(sources ...LogID) (*CompactionWriter, error) {
	if s.o.ReadOnly {
		return nil, ErrReadOnly
	}
	if len(sources) == 0 {
		return nil, errors.New("compaction without sources")
	}
	if err := s.makeList(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	m := meta{flags: flagCompaction | flagListed}
	for _, id := range sources {
		l := s.logs[id]
		if l == nil || l.info.Writing {
			s.mu.Unlock()
			if l == nil {
				return nil, fmt.Errorf("compact entry log %s: %w", id, ErrNoLog)
			}
			return nil, fmt.Errorf("compact entry log %s: %w", id, ErrNotFinal)
		}
		m.precedence = max(m.precedence, l.info.Precedence)
	}
	if s.closed {
		s.mu.Unlock()
		return nil, ErrClosed
	}
	m.id = s.nextID
	s.nextID++
	s.mu.Unlock()
	buffers, err := s.takeBuffers()
	if err != nil {
		return nil, err
	}
	w, err := createLog(s.fs, s.path(m.id, compactingSuffix), m, buffers, s.writerOptions())
	if err != nil {
		s.giveBuffers(buffers)
		return nil, err
	}
	return &CompactionWriter{s: s, w: w}, nil
}

// ID returns the id that the log will have.
func (w *CompactionWriter) ID() LogID { return w.w.id }

// Append copies a body into the log.
func (w *CompactionWriter) Append(body []byte) (Location, error) {
	if w.ended {
		return Location{}, ErrClosed
	}
	return w.w.append(body)
}

// Checkpoint makes what was appended durable. Runs and states are as in Store.Checkpoint. After an error only Abort is
// left.
func (w *CompactionWriter) Checkpoint(runs []Run, states []LedgerState) error {
	if w.ended {
		return ErrClosed
	}
	return w.w.checkpoint(runs, states)
}

// Size returns the bytes appended so far.
func (w *CompactionWriter) Size() int64 {
	if w.ended {
		return w.w.durable
	}
	return w.w.out.tell()
}

// Seal writes the footer, syncs and makes the log visible. Afterwards the locations may be read, and the index changed.
// Everything appended must be covered by a checkpoint. After an error only Abort is left.
func (w *CompactionWriter) Seal() (LogInfo, error) {
	if w.ended {
		return LogInfo{}, ErrClosed
	}
	lw, s := w.w, w.s
	switch {
	case lw.err != nil:
		return LogInfo{}, lw.err
	case lw.entries > 0:
		return LogInfo{}, fmt.Errorf("seal entry log %s: %d entries were appended since the last checkpoint", lw.id, lw.entries)
	case len(lw.commits) == 0:
		return LogInfo{}, fmt.Errorf("seal entry log %s: it is empty", lw.id)
	}
	w.stop()
	t, err := s.seal(lw)
	if err != nil {
		return LogInfo{}, classify(err)
	}
	path := s.path(lw.id, logSuffix)
	invariant.CrashPoint("entrylog.compaction-sealed")
	if err := s.fs.Rename(lw.path, path); err != nil {
		return LogInfo{}, classify(fmt.Errorf("seal entry log %s: %w", lw.id, err))
	}
	lw.path = path // what Abort deletes if the next step fails
	invariant.CrashPoint("entrylog.compaction-renamed")
	if err := s.fs.SyncDir(s.dir); err != nil {
		return LogInfo{}, classify(fmt.Errorf("seal entry log %s: %w", lw.id, err))
	}
	invariant.CrashPoint("entrylog.compaction-visible")
	if err := s.list(lw.id); err != nil {
		w.unlisted = true
		return LogInfo{}, classify(fmt.Errorf("seal entry log %s: %w", lw.id, err))
	}
	w.sealed, w.ended = true, true
	if err := lw.f.Close(); err != nil {
		s.o.Logger.Warn("closing a sealed entry log failed", "file", path, "err", err)
	}
	l := &logFile{path: path, meta: lw.meta, info: LogInfo{ID: lw.id, Precedence: lw.precedence, Created: lw.createdTime(), Compaction: true}}
	l.setSealed(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logs[lw.id] = l
	return l.info, nil
}

// stop ends the output and gives its buffers back.
func (w *CompactionWriter) stop() {
	if w.w.buffers == nil {
		return
	}
	w.w.stop()
	w.s.giveBuffers(w.w.buffers)
	w.w.buffers = nil
}

// Abort deletes the file. After Seal it does nothing.
func (w *CompactionWriter) Abort() error {
	if w.ended {
		return nil
	}
	w.ended = true
	w.stop()
	err := w.w.f.Close()
	remove := w.s.fs.Remove
	if w.unlisted {
		remove = w.s.removeUnlisted
	}
	if rerr := remove(w.w.path); !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return errors.Join(err, w.s.fs.SyncDir(w.s.dir))
}
