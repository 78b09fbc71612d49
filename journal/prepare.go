package journal

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/vfs"
)

const (
	retryPause = time.Second      // after a failed preparation
	peakPeriod = 10 * time.Minute // spares are kept for the busiest of the last two
)

// spawn starts a goroutine of the journal, with a label that names it in profiles and dumps.
func (j *Journal) spawn(name string, run func()) {
	j.wg.Go(func() {
		pprof.Do(context.Background(), pprof.Labels("bindery", "journal-"+name, "journal", j.dir), func(context.Context) { run() })
	})
}

func (j *Journal) kickPreparer() {
	select {
	case j.prepWake <- struct{}{}:
	default:
	}
}

// prepare is the loop of the preparer, the only goroutine that creates, renames and removes files while the journal
// runs. In order of urgency it gives drawn segments a file, recycles trimmed ones, plans the next segment, keeps the
// reserve, and writes zeroes ahead.
func (j *Journal) prepare() {
	z := &zeroer{fs: j.fs, dir: j.dir, size: j.o.SegmentSize, direct: j.io.mode.Direct}
	defer z.close()
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		if pause := j.prepareStep(z); pause > 0 {
			t.Reset(pause)
			select {
			case <-j.stopped:
				return
			case <-j.prepWake:
			case <-t.C:
			}
			continue
		}
		select {
		case <-j.stopped:
			return
		default:
		}
	}
}

// prepareStep does the most urgent thing and returns how long there is nothing else to do.
func (j *Journal) prepareStep(z *zeroer) time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return time.Hour
	}
	j.closeFinishedLocked()
	now := j.now()
	if len(j.unprepared) > 0 {
		if old := j.trimmableLocked(); old != nil && len(j.spares) <= j.o.Reserve && now >= j.trimRetry {
			return j.trimLocked(old) // rather than more space
		}
		if s := j.unprepared[0]; now >= j.prepRetry || j.closing && j.neededLocked(s) {
			return j.prepareSegmentLocked(s, z)
		}
	}
	if s := j.trimmableLocked(); s != nil && now >= j.trimRetry {
		return j.trimLocked(s)
	}
	if len(j.planned) == 0 && (j.zeroedSpareLocked() || j.cur.nearlyFull()) {
		j.planned = append(j.planned, j.identityLocked())
		return 0
	}
	if len(j.spares) < j.o.Reserve+1 && now >= j.spareRetry {
		j.addSpareLocked()
		return 0
	}
	wait := time.Hour
	for _, at := range []int64{j.prepRetry, j.trimRetry, j.spareRetry} {
		if at > now {
			wait = min(wait, time.Duration(at-now))
		}
	}
	return min(wait, j.zeroLocked(z))
}

// neededLocked says whether groups wait for the file of s.
func (j *Journal) neededLocked(s *segment) bool {
	return len(j.planned) == 0 || j.planned[0] != s
}

// zeroedSpareLocked says whether there is a zeroed spare beside the reserve.
func (j *Journal) zeroedSpareLocked() bool {
	if len(j.spares) <= j.o.Reserve {
		return false
	}
	for _, f := range j.spares {
		if f.zeroed {
			return true
		}
	}
	return false
}

// pickSpareLocked takes a spare if more than keep are there, a zeroed one if possible.
func (j *Journal) pickSpareLocked(keep int) *spareFile {
	if len(j.spares) <= keep {
		return nil
	}
	at := 0
	for i, f := range j.spares {
		if f.zeroed {
			at = i
			break
		}
	}
	f := j.spares[at]
	j.spares = append(j.spares[:at], j.spares[at+1:]...)
	return f
}

// prepareSegmentLocked gives s its file. Nothing that was acknowledged depends on a segment without a group, so whatever goes
// wrong here may pass: records wait, Reserve refuses more of them, and it is tried again. Only when the journal is closed
// do they stop waiting. A failed sync of the directory is final: what a later one says is not to be trusted.
func (j *Journal) prepareSegmentLocked(s *segment, z *zeroer) time.Duration {
	if s.spare == nil {
		s.spare = j.pickSpareLocked(j.o.Reserve)
	}
	spare := s.spare
	z.forget(spare)
	j.maxID++
	id := j.maxID
	j.mu.Unlock()
	var err error
	var file vfs.File
	if spare == nil {
		spare, err = j.newSpare(id)
	}
	if err == nil {
		file, err = j.stamp(s, spare, segmentHeader{first: s.first, prev: s.prev})
	}
	if err != nil && spare != nil && !isPassing(err) {
		_ = j.fs.Remove(spare.name) // a file that took a write badly is not used
		spare = nil
	}
	j.mu.Lock()
	if err == nil {
		j.unprepared = append(j.unprepared[:0], j.unprepared[1:]...)
		s.file, s.zeroed, s.ready, s.spare = file, spare.zeroed, true, nil
		if !s.zeroed {
			j.st.SegmentsUnprepared++
		}
		j.waitingLocked(nil)
		j.work.Broadcast()
		return 0
	}
	s.spare = spare
	if names := (*namesError)(nil); errors.As(err, &names) && !isPassing(err) || j.closing && j.neededLocked(s) {
		j.poisonLocked(fmt.Sprintf("prepare segment %016x", s.id), err)
		return time.Hour
	}
	j.prepRetry = j.now() + int64(j.pause)
	j.waitingLocked(err)
	return 0
}

// isPassing reports whether err says nothing bad about the disk: it is full, or the process has no file handles or memory
// left.
func isPassing(err error) bool {
	return vfs.IsNoSpace(err) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// namesError says that it is not known which names the directory has after a power loss.
type namesError struct{ err error }

func (e *namesError) Error() string { return e.err.Error() }
func (e *namesError) Unwrap() error { return e.err }

// stamp turns a spare file into the segment s: its header is durable before it gets its name, its name and the note of it
// before it gets a group. So a file with the name of a segment always has, or had, a whole header.
func (j *Journal) stamp(s *segment, spare *spareFile, h segmentHeader) (f vfs.File, err error) {
	if f, err = j.io.open(j.fs, j.dir, spare.name); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if spare.name != s.name { // otherwise an earlier try got that far
		if err = j.writeHeader(s, spare, f, h); err != nil {
			return f, err
		}
		if err = j.fs.Rename(spare.name, s.name); err != nil {
			return f, fmt.Errorf("name segment: %w", err)
		}
		spare.name = s.name
	}
	invariant.CrashPoint("journal.segment-named")
	if err = j.fs.SyncDir(j.current()); err != nil {
		return f, &namesError{fmt.Errorf("sync the segment's name: %w", err)}
	}
	if err = j.noteNamed(s.id); err != nil {
		return f, err
	}
	invariant.CrashPoint("journal.segment-ready")
	return f, nil
}

// writeHeader makes the header of s durable in the file of a spare.
func (j *Journal) writeHeader(s *segment, spare *spareFile, f vfs.File, h segmentHeader) error {
	h.id, h.salt, h.size, h.created = s.id, s.salt, s.size, time.Now().UnixNano()
	h.flags |= flagNoted
	if spare.zeroed {
		h.flags |= flagZeroed
	}
	block := vfs.AlignedBytes(segmentHeaderBytes)
	h.encode(block)
	if err := j.io.writeDurably(f, block, 0); err != nil {
		return fmt.Errorf("write segment header: %w", err)
	}
	if err := f.Sync(); err != nil { // its size too, and in relaxed mode the header itself
		return fmt.Errorf("sync segment header: %w", err)
	}
	invariant.CrashPoint("journal.segment-header-written")
	return nil
}

// newSpare creates a file of a segment's size whose space is reserved.
func (j *Journal) newSpare(id uint64) (spare *spareFile, err error) {
	name := fileName(j.dir, id, allocSuffix)
	f, err := j.fs.Open(name, vfs.Mode{Write: true, Create: true, Exclusive: true})
	if err != nil {
		return nil, fmt.Errorf("create journal spare: %w", err)
	}
	err = f.Preallocate(j.o.SegmentSize)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		invariant.CrashPoint("journal.spare-created")
		err = j.fs.SyncDir(j.current())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create journal spare %s: %w", name, err), j.fs.Remove(name))
	}
	return &spareFile{id: id, name: name}, nil
}

// addSpareLocked adds a spare to the reserve. Failing is no harm yet.
func (j *Journal) addSpareLocked() {
	j.maxID++
	id := j.maxID
	j.mu.Unlock()
	f, err := j.newSpare(id)
	j.mu.Lock()
	if err != nil {
		if j.spareRetry == 0 {
			j.o.Logger.Warn("journal: can not keep a spare segment", "journal", j.dir, "error", err)
		}
		j.spareRetry = j.now() + int64(j.pause)
		return
	}
	j.spareRetry = 0
	j.spares = append(j.spares, f)
}

// closeFinishedLocked closes the files of segments that no write or sync will touch any more.
func (j *Journal) closeFinishedLocked() {
	for _, s := range j.live {
		if s.file == nil || s.writes > 0 || s.last > j.durable {
			continue
		}
		if err := s.file.Close(); err != nil {
			j.o.Logger.Warn("journal: close segment", "segment", s.name, "error", err)
		}
		s.file = nil
	}
}

// trimmableLocked returns the oldest segment if all its groups are before the trim position.
func (j *Journal) trimmableLocked() *segment {
	if len(j.live) == 0 {
		return nil
	}
	s := j.live[0]
	if s.last >= j.trimTo || s.file != nil || s.writes > 0 || !s.old && (!s.ready || s.last > j.durable) {
		return nil
	}
	return s
}

// trimLocked recycles the oldest segment.
func (j *Journal) trimLocked(s *segment) time.Duration {
	now := j.now()
	if now > j.peakEnd {
		j.peak[0], j.peak[1], j.peakEnd = 0, j.peak[0], now+int64(peakPeriod)
	}
	total := len(j.live) + 1 + len(j.planned)
	j.peak[0] = max(j.peak[0], total)
	keep := total+len(j.spares) <= max(j.peak[0], j.peak[1])+j.o.Reserve+1
	j.mu.Unlock()
	invariant.CrashPoint("journal.trim")
	f, synced, err := j.recycle(s, keep)
	j.mu.Lock()
	switch {
	case err != nil && synced:
		j.o.Logger.Warn("journal: can not recycle a segment yet", "segment", s.name, "error", err)
		j.trimRetry = j.now() + int64(j.pause)
		return 0 // to what else there is to do
	case err != nil: // which files exist after a power loss is not known any more
		j.poisonLocked("recycle a segment", err)
		return time.Hour
	}
	j.prepRetry, j.trimRetry, j.spareRetry = 0, 0, 0
	j.live = append(j.live[:0], j.live[1:]...)
	if f != nil {
		j.spares = append(j.spares, f)
	}
	j.st.SegmentsRecycled++
	return 0
}

// recycle makes a spare of a segment, or removes it, and makes that durable, so that segments go in order. synced with
// an error means that nothing has changed.
func (j *Journal) recycle(s *segment, keep bool) (f *spareFile, synced bool, err error) {
	if err := j.noteGone(s); err != nil {
		return nil, true, err
	}
	if keep && s.size == j.o.SegmentSize {
		suffix := allocSuffix
		if s.zeroed {
			suffix = zeroSuffix
		}
		f = &spareFile{id: s.id, name: fileName(j.dir, s.id, suffix), zeroed: s.zeroed}
		if !s.old {
			f.done = s.off // everything before has been written
		}
		err = j.fs.Rename(s.name, f.name)
	} else {
		err = j.fs.Remove(s.name)
	}
	if err != nil {
		return nil, true, err
	}
	invariant.CrashPoint("journal.segment-trimmed")
	if err := j.fs.SyncDir(j.current()); err != nil {
		return nil, false, err
	}
	invariant.CrashPoint("journal.segment-recycled")
	return f, true, nil
}
