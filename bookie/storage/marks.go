package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/vfs"
)

// settleMarks makes one picture of what the directories' mark files say, after all of them are open: who is missing, whose
// mark went back, where replay begins; and writes it down with a new run number.
func (s *Storage) settleMarks() error {
	s.markMu.Lock()
	defer s.markMu.Unlock()
	own := map[uint64]*dir{}
	for _, d := range s.dirs {
		if other := own[d.id]; other != nil {
			return fmt.Errorf("ledger directories %s and %s are copies of each other (id %016x): remove one", other.path, d.path, d.id)
		}
		own[d.id] = d
	}
	s.clean = true
	for _, d := range s.dirs {
		t := d.loaded
		if t == nil {
			continue
		}
		s.run, s.lastUnclean = max(s.run, t.run), max(s.lastUnclean, t.lastUnclean)
	}
	for _, d := range s.dirs {
		if d.loaded == nil {
			continue
		}
		s.clean = s.clean && d.loaded.clean && d.loaded.run == s.run
		for i := range d.loaded.rows[1:] {
			s.compareRow(d, &d.loaded.rows[1+i], own)
		}
	}
	for _, d := range s.dirs {
		if d.loaded == nil || !d.lost && d.loaded.run == s.run {
			continue
		}
		// What began elsewhere while it had failed, or was not here, has a seq above this.
		if err := d.compareTombstones(uint64(d.loaded.run)<<seqRunBits | 1<<seqFailureBits); err != nil {
			return err
		}
	}
	if !s.clean {
		s.lastUnclean = s.run
		s.missingJournals()
	}
	s.run++
	s.seqBase.Store(uint64(s.run) << seqRunBits)
	s.placeNewMarks()
	for _, d := range s.dirs {
		if d.lost {
			s.losses = append(s.losses, fmt.Errorf("ledger directory %s lost data: %w", d.path, d.lossErr))
		}
		s.degraded.Store(s.degraded.Load() || d.lost)
		d.wasLost = d.lost
	}
	s.degraded.Store(s.degraded.Load() || len(s.missing) > 0)
	return s.writeMarks(nil)
}

// missingJournals notes journals that an unclean stop left behind and that are not here: they may hold what no directory
// holds.
func (s *Storage) missingJournals() {
	var gone []string
	for _, d := range s.dirs {
		if d.loaded == nil {
			continue
		}
		for _, id := range d.loaded.journals {
			if !slices.Contains(s.o.Journals, id) && !slices.Contains(gone, id) {
				gone = append(gone, id)
				d.noteLost(fmt.Errorf("journal %q, which may hold entries of it, is missing", id))
			}
		}
	}
}

// compareRow looks at what the mark file of d says about another directory.
func (s *Storage) compareRow(d *dir, r *dirMark, own map[uint64]*dir) {
	other := own[r.id]
	if other == nil {
		if !slices.ContainsFunc(s.missing, func(m dirMark) bool { return m.id == r.id }) {
			row := dirMark{id: r.id, failed: r.failed, durable: r.durable, pos: s.translate(d.loaded, r)}
			s.missing = append(s.missing, row)
			s.losses = append(s.losses, fmt.Errorf("ledger directory with id %016x is missing (%s knows it)", r.id, d.path))
		}
		return
	}
	if r.failed {
		other.noteLost(errors.New("it had failed, and the journals went on without it"))
	}
	back := r.durable.Log > other.written.durable.Log || r.durable.Log == other.written.durable.Log && r.durable.Offset > other.written.durable.Offset
	for i, p := range s.translate(d.loaded, r) {
		back = back || p > other.mark[i]
	}
	if back {
		other.noteLost(fmt.Errorf("its mark is behind what %s recorded: it was restored from an old copy", d.path))
	}
}

// noteLost notes that the directory lost something. markMu is held, or the storage is not open yet.
func (d *dir) noteLost(err error) {
	d.lost = true
	d.lossErr = errors.Join(d.lossErr, err)
	d.s.log.Error("a ledger directory lost data", "dir", d.path, "err", err)
}

// translate returns a row's positions in the order of Options.Journals, 0 for journals it does not know.
func (s *Storage) translate(t *markTable, r *dirMark) []uint64 {
	pos := make([]uint64, len(s.o.Journals))
	for i, id := range s.o.Journals {
		pos[i] = t.posFor(r, id)
	}
	return pos
}

// placeNewMarks gives directories without a mark one, and computes the usable mark. A directory that never held anything
// has nothing to replay; one whose mark was lost has everything.
func (s *Storage) placeNewMarks() {
	for _, d := range s.dirs {
		if d.loaded == nil && !d.lost {
			d.mark = nil
		}
	}
	s.usable = s.minMark()
	for _, d := range s.dirs {
		if d.mark == nil {
			d.mark = slices.Clone(s.usable)
			d.written.pos = slices.Clone(s.usable)
		}
	}
}

// minMark returns the minimum over the directories that work and have a mark.
func (s *Storage) minMark() []uint64 {
	var lowest []uint64
	for _, d := range s.dirs {
		switch {
		case d.mark == nil || d.failed.Load():
		case lowest == nil:
			lowest = slices.Clone(d.mark)
		default:
			for i, p := range d.mark {
				lowest[i] = min(lowest[i], p)
			}
		}
	}
	if lowest == nil {
		if s.usable != nil {
			return s.usable // nothing works: the journals keep what they have
		}
		lowest = make([]uint64, len(s.o.Journals))
	}
	return lowest
}

// Marks returns the usable mark: one position per journal, from which Replay has to be fed.
func (s *Storage) Marks() []uint64 {
	s.markMu.Lock()
	defer s.markMu.Unlock()
	return slices.Clone(s.usable)
}

// advance notes that everything before mark is durable in d, and at the end of its logs; directories with nothing
// unflushed count as being at the end of the journals. A nil mark changes only what is said about the logs.
func (s *Storage) advance(d *dir, mark []uint64) error {
	s.markMu.Lock()
	defer s.markMu.Unlock()
	d.raiseMark(mark)
	if mark != nil {
		d.caughtUp = true
		for _, other := range s.dirs {
			// The mark is taken before the test, so what comes after the test lies behind the mark.
			if now := s.takeMark(); other != d && !other.failed.Load() && other.idle() {
				other.raiseMark(now)
			}
		}
	}
	return s.writeMarks(d)
}

func (d *dir) raiseMark(mark []uint64) {
	for i := range mark {
		d.mark[i] = max(d.mark[i], mark[i])
	}
}

// writeMarks writes every mark file whose content changed, that of first before the others: a file says about another
// directory only what that one's own file says already. Then it tells the journals. The caller holds markMu.
func (s *Storage) writeMarks(first *dir) error {
	order := slices.Clone(s.dirs)
	if first != nil {
		i := slices.Index(order, first)
		order[0], order[i] = order[i], order[0]
	}
	caughtUp := s.caughtUp()
	var firstErr error
	for _, d := range order {
		if d.failed.Load() {
			continue
		}
		own := dirMark{id: d.id, durable: d.log.Durable(), pos: d.written.pos}
		if caughtUp {
			own.pos = slices.Clone(d.mark)
		}
		if err := s.writeMark(d, own); err != nil {
			err = fmt.Errorf("write mark: %w", err)
			if isPassing(err) { // a file system that copies on write needs space for it
				d.markFull()
			} else {
				d.fail(err)
			}
			if d == first {
				firstErr = err
			}
			continue
		}
		d.written = own
		invariant.CrashPoint("storage.mark.written")
	}
	if firstErr != nil {
		return firstErr
	}
	usable := s.minWritten()
	if slices.Equal(usable, s.usable) {
		return nil
	}
	s.usable = usable
	if s.o.OnCheckpoint != nil {
		s.o.OnCheckpoint(slices.Clone(usable))
		invariant.CrashPoint("storage.mark.reported")
	}
	return nil
}

// caughtUp reports whether every directory has flushed what replay brought. Until then no mark moves on disk: what one
// directory had not flushed when the process before died may have been replayed into another one, whose own mark lies
// further on.
func (s *Storage) caughtUp() bool {
	for _, d := range s.dirs {
		if !d.caughtUp && !d.failed.Load() {
			return false
		}
	}
	return true
}

// minWritten is minMark over what is on disk.
func (s *Storage) minWritten() []uint64 {
	lowest := slices.Clone(s.usable)
	firstDir := true
	for _, d := range s.dirs {
		if d.failed.Load() {
			continue
		}
		for i, p := range d.written.pos {
			if firstDir {
				lowest[i] = p
			} else {
				lowest[i] = min(lowest[i], p)
			}
		}
		firstDir = false
	}
	for i, p := range s.usable { // it never goes back while the process lives
		lowest[i] = max(lowest[i], p)
	}
	return lowest
}

func (s *Storage) writeMark(d *dir, own dirMark) error {
	t := markTable{
		seq: d.markSeq + 1, run: s.run, lastUnclean: s.lastUnclean, births: s.births.now(), clean: s.closing, lost: d.lost,
		journals: s.o.Journals, rows: []dirMark{own},
	}
	for _, other := range s.dirs {
		if other != d {
			row := other.written
			row.failed = other.failed.Load() || other.lost
			t.rows = append(t.rows, row)
		}
	}
	t.rows = append(t.rows, s.missing...)
	if d.sameMark(&t) {
		return nil
	}
	err := writeMark(d.markFile, &t)
	if vfs.IsNoSpace(err) && d.useReserve("the mark") {
		err = writeMark(d.markFile, &t)
	}
	if err != nil {
		return err
	}
	d.markSeq, d.last = t.seq, &t
	return nil
}

// sameMark reports whether the file says t already.
func (d *dir) sameMark(t *markTable) bool {
	if d.last == nil {
		return false
	}
	a, b := *d.last, *t
	a.seq, b.seq = 0, 0
	return string(encodeMark(&a)) == string(encodeMark(&b))
}

// noteFailure writes down that d failed, in the files of the others, and lets go of the journals that waited for it.
func (s *Storage) noteFailure(d *dir) {
	s.markMu.Lock()
	defer s.markMu.Unlock()
	s.losses = append(s.losses, d.failure())
	if err := s.writeMarks(nil); err != nil {
		s.log.Error("the failure of a ledger directory could not be noted", "dir", d.path, "err", err)
	}
}

// noteClean notes a clean stop.
func (s *Storage) noteClean() error {
	s.markMu.Lock()
	defer s.markMu.Unlock()
	for _, d := range s.dirs {
		if d.failed.Load() || !d.idle() {
			return nil
		}
	}
	s.closing = true
	return s.writeMarks(nil)
}

// Lost says what this storage knows to be missing: directories, marks that went back, logs with damage, indexes that
// could not be rebuilt whole. If it is not empty, the bookie has to treat itself as one that lost something: see
// MarkLimbo and AcceptLoss. Until AcceptLoss every ledger unknown here is in limbo.
func (s *Storage) Lost() []error {
	s.markMu.Lock()
	defer s.markMu.Unlock()
	return slices.Clone(s.losses)
}

// AcceptLoss forgets what Lost reported, durably, after MarkLimbo has been called for every ledger that may be
// concerned. Directories that have failed in this process stay failed.
func (s *Storage) AcceptLoss(ctx context.Context) error {
	if err := s.Checkpoint(ctx); err != nil {
		return fmt.Errorf("accept loss: %w", err)
	}
	s.markMu.Lock()
	defer s.markMu.Unlock()
	failed := false
	for _, d := range s.dirs {
		if d.failed.Load() {
			failed = true
			continue
		}
		if err := d.log.AcceptMissing(); err != nil {
			return fmt.Errorf("accept loss: %w", err)
		}
		d.lost, d.lossErr = false, nil
		if d.suspect {
			if err := d.clearSuspect(); err != nil {
				return fmt.Errorf("accept loss: %w", err)
			}
		}
	}
	s.missing, s.losses = nil, nil
	for _, d := range s.dirs {
		if d.failed.Load() {
			s.losses = append(s.losses, d.failure())
		}
	}
	if err := s.writeMarks(nil); err != nil {
		return fmt.Errorf("accept loss: %w", err)
	}
	s.degraded.Store(failed)
	if !failed {
		s.forgetUnknown()
	}
	return nil
}

// forgetUnknown ends the limbo of handles that are in it only because nothing was known of their ledgers while this
// storage could not tell.
func (s *Storage) forgetUnknown() {
	s.ledgers.each(func(l *Ledger) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.unproven && l.seq == 0 {
			l.Replica, l.unproven = ledger.Replica{}, false
		}
	})
}
