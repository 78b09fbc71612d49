package journal

import (
	"errors"
	"fmt"

	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/vfs"
)

// adopt takes over what a walk found, so that it can be trimmed. life is held, here and in what follows down to Trim.
func (j *Journal) adopt(d *directory, w *walk) {
	j.live, j.spares = j.live[:0], d.spares
	for _, f := range d.segments {
		s := &segment{id: f.id, salt: f.header.salt, seal: f.seal, size: f.size, name: f.name, old: true}
		s.zeroed = f.err == nil && f.header.zeroed()
		s.off, s.first = w.used[f.id], w.firsts[f.id]
		if f.err == nil && f.header.fresh() {
			s.first = f.header.first
		}
		s.empty = f.err == nil && s.off == 0 && w.visited[f.id]
		j.live = append(j.live, s)
	}
	if c := w.res.Cut; c != nil {
		j.keepFrom(c.Segment)
	}
	for _, x := range w.res.Damage {
		j.keepFrom(x.Segment)
	}
	// No group of a segment is above the first one of any segment behind it.
	bound := max(uint64(w.res.End), 1) - 1
	for i := len(j.live) - 1; i >= 0; i-- {
		s := j.live[i]
		s.last = bound
		if s.first > 0 && s.first <= bound {
			bound = s.first - 1
		}
	}
}

// keepFrom marks the segment id as one that holds something.
func (j *Journal) keepFrom(id uint64) {
	for _, s := range j.live {
		if s.id == id {
			s.empty = false
		}
	}
}

// Start makes everything that Replay found durable, cuts a torn tail for ever and opens a fresh segment; then Append is
// allowed. Without a Replay it reads the directory itself. After an error nothing runs, Append and Reserve return it, and
// Start may be called again; if it is a NoSpaceError, Trim helps.
func (j *Journal) Start() error {
	j.life.Lock()
	defer j.life.Unlock()
	j.mu.Lock()
	started, closing := j.started, j.closing
	j.mu.Unlock()
	switch {
	case closing:
		return ErrClosed
	case started:
		return errors.New("the journal is started already")
	}
	seg, err := j.begin()
	if err == nil {
		j.run(seg)
		return nil
	}
	if full := (*NoSpaceError)(nil); !errors.As(err, &full) {
		j.found = nil // files may have been renamed: read again
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.startErr = &NotStartedError{Cause: err}
	j.budget.open()
	j.budget.fail(j.startErr)
	return err
}

// begin does what comes before the first append: nothing may be acknowledged before it.
func (j *Journal) begin() (*segment, error) {
	if j.found == nil {
		if _, err := j.replay(j.from, nil); err != nil {
			return nil, err
		}
	}
	if err := vfs.MkdirAllSync(j.fs, j.current()); err != nil {
		return nil, fmt.Errorf("start journal %s: %w", j.dir, err)
	}
	if err := j.syncReplayed(); err != nil {
		return nil, err
	}
	invariant.CrashPoint("journal.replayed-synced")
	if err := j.dropEmpty(); err != nil {
		return nil, err
	}
	return j.fresh()
}

// run lets the journal take records into seg.
func (j *Journal) run(seg *segment) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cur, j.planned, j.unprepared = seg, nil, nil
	j.nextSeq = seg.first
	// The header of the fresh segment says that everything up to lastSeq was durable.
	j.written, j.durable = j.lastSeq, j.lastSeq
	if !seg.zeroed {
		j.st.SegmentsUnprepared++
	}
	j.stopped = make(chan struct{})
	j.keeperWake = make(chan struct{}, 1)
	j.prepWake = make(chan struct{}, 1)
	j.syncerWake = make(chan struct{}, 1)
	j.started = true
	j.budget.open()
	for i := range j.o.GroupsInFlight + 1 {
		j.spawn(fmt.Sprintf("writer-%d", i), j.worker)
	}
	j.spawn("keeper", j.keep)
	j.spawn("preparer", j.prepare)
	if j.o.Relaxed {
		j.spawn("syncer", j.sync)
	}
}

// syncReplayed makes sure that what was read from the page cache or a disk's cache is on the disk before anybody
// is told of it: the process that wrote it may not have lived to sync it.
func (j *Journal) syncReplayed() error {
	for _, s := range j.live {
		f, err := j.fs.Open(s.name, vfs.Mode{Write: true})
		if err != nil {
			return fmt.Errorf("sync replayed segment: %w", err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return fmt.Errorf("sync replayed segment %s: %w", s.name, err)
		}
	}
	if err := j.fs.SyncDir(j.current()); err != nil {
		return fmt.Errorf("start journal %s: %w", j.dir, err)
	}
	return nil
}

// dropEmpty recycles the segments behind the last one with a group: prepared ahead, or begun by a run that wrote nothing.
// The fresh segment's header will say all that theirs do. An empty one before a group stays: if it began a run, its header
// separates that run from the one before.
func (j *Journal) dropEmpty() error {
	for n := len(j.live); n > 0 && j.live[n-1].empty; n = len(j.live) {
		f, _, err := j.recycle(j.live[n-1], true)
		if err != nil {
			return err
		}
		j.live = j.live[:n-1]
		if f != nil {
			j.spares = append(j.spares, f)
		}
	}
	return nil
}

// fresh makes the segment that this run begins with. It prefers a spare, so that a full disk does not matter.
func (j *Journal) fresh() (*segment, error) {
	j.maxID = max(j.maxID, uint64(j.from)>>runShift, j.lastSeq>>runShift)
	j.newest = j.newestLive()
	s := j.newSegmentLocked()
	s.first = max(s.id<<runShift, uint64(j.from), j.lastSeq+1, j.note.gone+1)
	if err := j.dropWrongSizes(); err != nil {
		return nil, err
	}
	if !j.noted {
		if err := j.writeNote(note{newest: j.newestLive(), highest: j.newestLive()}); vfs.IsNoSpace(err) {
			return nil, &NoSpaceError{Dir: j.dir, Need: s.size, Err: err}
		} else if err != nil {
			return nil, fmt.Errorf("start journal %s: %w", j.dir, err)
		}
	}
	file := j.pickSpareLocked(0)
	if file == nil {
		j.maxID++
		f, err := j.newSpare(j.maxID)
		if err != nil {
			if vfs.IsNoSpace(err) {
				return nil, &NoSpaceError{Dir: j.dir, Need: s.size, Err: err}
			}
			return nil, fmt.Errorf("start journal %s: %w", j.dir, err)
		}
		file = f
	}
	j.io = methodOf(j.o.IO, j.o.Relaxed)
	if j.o.IO == IOAuto {
		m, line, err := probe(j.fs, j.dir, file.name)
		if err != nil {
			return nil, err
		}
		j.io = m
		j.o.Logger.Info("journal: sync method probed", "journal", j.dir, "io", string(m.name), "median_4k", line)
	}
	h := segmentHeader{flags: flagFresh, first: s.first, prev: s.prev, prevLast: j.lastSeq}
	f, err := j.stamp(s, file, h)
	if err != nil {
		return nil, fmt.Errorf("start journal %s: %w", j.dir, err)
	}
	s.file, s.zeroed, s.ready = f, file.zeroed, true
	return s, nil
}

// newestLive returns the id of the newest segment that is there, 0 for none.
func (j *Journal) newestLive() uint64 {
	if len(j.live) == 0 {
		return 0
	}
	return j.live[len(j.live)-1].id
}

// dropWrongSizes removes spares of another segment size.
func (j *Journal) dropWrongSizes() error {
	kept := j.spares[:0]
	for _, f := range j.spares {
		info, err := j.fs.Stat(f.name)
		if err == nil && info.Size == j.o.SegmentSize {
			kept = append(kept, f)
			continue
		}
		if err := j.fs.Remove(f.name); err != nil {
			return fmt.Errorf("remove journal spare of another size: %w", err)
		}
	}
	j.spares = kept
	return nil
}

// Trim recycles the segments that hold only groups before p. It persists nothing itself: p must come from a mark that is
// durable. Before Start it works at once; afterwards the files are renamed in the background.
func (j *Journal) Trim(p Position) error {
	if done, err := j.trimStarted(p); done {
		return err
	}
	j.life.Lock()
	defer j.life.Unlock()
	if done, err := j.trimStarted(p); done { // started meanwhile
		return err
	}
	if err := j.dropEmpty(); err != nil { // an empty segment does not stay behind alone
		j.found = nil
		return err
	}
	for s := j.trimmableLocked(); s != nil; s = j.trimmableLocked() {
		f, _, err := j.recycle(s, true)
		if err != nil {
			j.found = nil // Start reads again
			return err
		}
		j.live = j.live[1:]
		if f != nil {
			j.spares = append(j.spares, f)
		}
	}
	return nil
}

// trimStarted notes how far may be trimmed. done says that the rest is the preparer's, or that there is none.
func (j *Journal) trimStarted(p Position) (done bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.err != nil:
		return true, j.err
	case j.closing:
		return true, ErrClosed
	}
	j.trimTo = max(j.trimTo, uint64(p))
	if j.started {
		j.kickPreparer()
	}
	return j.started, nil
}
