package offload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/protocol"
)

// Swept is what one round of the janitor found and did.
type Swept struct {
	Records  int
	States   map[State]int
	Missing  int // shards
	Garbage  int // abandoned attempts that are left
	Removed  int // objects and uploads
	Gone     int // records removed
	Problems []error
}

// Clean walks over all records once: it removes what abandoned attempts, repairs and deleted ledgers left, and finishes what others began.
// What it could not do, a target being down for one, is among the problems and is tried again the next time. Several workers may clean at
// once; one is enough. The error is the metadata store's, or the context's.
func (w *Worker) Clean(ctx context.Context) (Swept, error) {
	s := Swept{States: map[State]int{}}
	seen := newSurvey(w.o.now())
	for l, err := range w.o.Records.All(ctx) {
		if err != nil {
			return s, err
		}
		if l.Err != nil {
			s.Problems = append(s.Problems, l.Err)
			continue
		}
		if err := w.CleanLedger(ctx, l.Ledger, &s); err != nil {
			if ctx.Err() != nil {
				return s, context.Cause(ctx)
			}
			s.Problems = append(s.Problems, ofLedger(l.Ledger, err))
		}
		seen.add(l.Ledger, l.Record, w.wanting(l.Ledger, l.Record))
		s.Records++
		s.States[l.Record.State]++
		s.Missing += l.Record.Missing()
		s.Garbage += len(l.Record.Garbage)
	}
	w.publish(seen)
	return s, nil
}

// CleanLedger does for one ledger what Clean does for all; s may be nil.
func (w *Worker) CleanLedger(ctx context.Context, id ledger.ID, s *Swept) error {
	if s == nil {
		s = &Swept{}
	}
	l, err := w.o.Records.look(ctx, id)
	if err != nil || l.record == nil {
		return err
	}
	now := w.o.now()
	r := l.record
	holder, err := w.o.Records.Holder(ctx, id)
	if err != nil {
		return err
	}
	left := protocol.Left{
		Locked:      holder != "",
		Abandoned:   r.State == StateUploading && now.Sub(time.UnixMilli(r.StartedAt)) >= w.o.Abandon,
		AbsentTwice: w.absent.look(id, l.meta == nil, now) >= w.o.Grace,
		Cleaned:     r.State == StateDeleting && r.Passes >= 2 && len(r.Garbage) == 0 && len(r.Stale) == 0,
		NewID:       newAttemptID(),
	}
	a := protocol.Janitor(l.view(), left)
	switch a.Do {
	case protocol.Clean:
		return errors.Join(w.pass(ctx, id, &l, s), w.abortLate(ctx, id, r, now, s))
	case protocol.Send:
		return w.janitorWrite(ctx, id, &l, a.Write, s)
	}
	return w.abortLate(ctx, id, r, now, s)
}

func (w *Worker) janitorWrite(ctx context.Context, id ledger.ID, l *seen, x protocol.Write, s *Swept) error {
	if x.Remove {
		if err := w.o.Records.Remove(ctx, id, l.version); err != nil && !errors.Is(err, metadata.ErrVersion) {
			return err
		}
		if l.record.State == StateDeleting {
			w.m.deleted.Inc()
		}
		s.Gone++
		return nil
	}
	r := deletingRecord(l.record)
	if x.State == StateUploading {
		r = idleRecord(l, x, w.o.now().UnixMilli())
		w.m.abandoned.Inc()
	}
	var cause error
	if o := w.o.Records.send(ctx, id, r, x, &cause); o == protocol.Failed {
		return cause
	}
	return nil
}

// pass is one pass over everything of a record that is not wanted any more. The first that finds nothing at least the grace after
// another one ends an entry: what a displaced worker was still sending at the first has arrived by then, or never will.
func (w *Worker) pass(ctx context.Context, id ledger.ID, l *seen, s *Swept) error {
	now := w.o.now()
	if done, err := w.fenceRepairs(ctx, id, l, now); done || err != nil {
		return err
	}
	r := l.record.Clone()
	var problems []error
	changed := false
	var garbage []Garbage
	for _, g := range r.Garbage {
		found, err := w.removeAttempt(ctx, id, g.Attempt, g.Targets, s)
		if err != nil {
			problems = append(problems, err)
			garbage = append(garbage, g)
			continue
		}
		passes, at, moved := w.passed(g.Passes, g.PassAt, found, now)
		g.Passes, g.PassAt, changed = passes, at, changed || moved
		if passes >= 2 {
			w.m.garbageCleaned.Inc()
			continue
		}
		garbage = append(garbage, g)
	}
	r.Garbage = garbage
	stale, err := w.removeStale(ctx, id, r, now, s)
	problems = append(problems, err)
	changed = changed || len(stale) != len(r.Stale)
	r.Stale = stale
	if r.State == StateDeleting {
		found, err := w.removeLedger(ctx, id, r, s)
		if problems = append(problems, err); err == nil {
			passes, at, moved := w.passed(r.Passes, r.PassAt, found, now)
			r.Passes, r.PassAt, changed = passes, at, changed || moved
		}
	}
	if changed {
		if _, err := w.o.Records.Write(ctx, id, r, l.version, LedgerCond{}); err != nil && !errors.Is(err, metadata.ErrVersion) && !errors.Is(err, metadata.ErrUnknownOutcome) {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// fenceRepairs writes the record once more before copies of its manifest are removed that it names as replaced. A repair names a copy so
// before it sends it, and takes that back when it is whole: one that took longer than the grace, a process that stood still, must find
// another version then, not a copy that is gone. Who reads the record from now on sees that the copy is about to go. done says that the
// record has changed meanwhile, and that nothing may be removed by the one at hand.
func (w *Worker) fenceRepairs(ctx context.Context, id ledger.ID, l *seen, now time.Time) (done bool, err error) {
	r := l.record
	due := func(x Stale) bool { return x.isManifest(r.Attempt) && now.Sub(time.UnixMilli(x.Since)) >= w.o.Grace }
	if r.State == StateDeleting || !slices.ContainsFunc(r.Stale, due) {
		return false, nil
	}
	l.version, err = w.o.Records.Write(ctx, id, r, l.version, LedgerCond{})
	if errors.Is(err, metadata.ErrVersion) {
		return true, nil
	}
	return false, err
}

// passed counts a pass.
func (w *Worker) passed(passes uint32, at int64, found bool, now time.Time) (uint32, int64, bool) {
	switch {
	case ledger.Planted() == ledger.MutantOffloadOnePass:
		return 2, now.UnixMilli(), true
	case passes == 0 || found:
		return 1, now.UnixMilli(), true
	case passes == 1 && now.Sub(time.UnixMilli(at)) >= w.o.Grace:
		return 2, now.UnixMilli(), true
	}
	return passes, at, false
}

// removeAttempt removes every object and upload that an attempt can have: its shards as they were first written, and its manifest on each
// of its targets.
func (w *Worker) removeAttempt(ctx context.Context, id ledger.ID, attempt AttemptID, targets []string, s *Swept) (found bool, err error) {
	var problems []error
	seen := map[string]bool{}
	for i, t := range targets {
		names := []string{ShardName(attempt, id, i, 0)}
		if !seen[t] {
			seen[t] = true
			names = append(names, ManifestName(attempt, id))
		}
		for _, name := range names {
			f, err := w.remove(ctx, t, name, s)
			found = found || f
			problems = append(problems, err)
		}
	}
	return found, errors.Join(problems...)
}

// removeLedger removes every object of a DELETING record, manifests first.
func (w *Worker) removeLedger(ctx context.Context, id ledger.ID, r *Record, s *Swept) (found bool, err error) {
	var problems []error
	one := func(target, name string) {
		f, err := w.remove(ctx, target, name, s)
		found = found || f
		problems = append(problems, err)
	}
	for _, t := range append(distinctTargets(r), r.Manifest.Targets...) {
		one(t, ManifestName(r.Attempt, id))
	}
	for i := range r.Placement {
		p := &r.Placement[i]
		one(p.Target, ShardName(r.Attempt, id, i, p.Generation))
		if p.Move != nil {
			one(p.Move.Target, ShardName(r.Attempt, id, i, p.Move.Generation))
		}
	}
	return found, errors.Join(problems...)
}

// removeStale removes what repairs replaced once the grace is over: readers that still hold the old record finish first.
func (w *Worker) removeStale(ctx context.Context, id ledger.ID, r *Record, now time.Time, s *Swept) ([]Stale, error) {
	var keep []Stale
	var problems []error
	for _, x := range r.Stale {
		if now.Sub(time.UnixMilli(x.Since)) < w.o.Grace && r.State != StateDeleting {
			keep = append(keep, x)
			continue
		}
		name := ShardName(x.Attempt, id, x.Shard, x.Generation)
		if x.Shard == staleManifest {
			name = ManifestName(x.Attempt, id)
		}
		found, err := w.remove(ctx, x.Target, name, s)
		if err == nil && x.Shard < len(r.Placement) && x.Attempt == r.Attempt { // what took its place may have been begun twice, too
			p := &r.Placement[x.Shard]
			err = w.abortKey(ctx, p.Target, ShardName(r.Attempt, id, x.Shard, p.Generation), s)
		}
		if err != nil || found {
			keep = append(keep, x) // until a later pass finds nothing
			problems = append(problems, err)
		}
	}
	return keep, errors.Join(problems...)
}

// staleManifest as the shard of a Stale means a copy of the manifest.
const staleManifest = 255

func (s *Stale) isManifest(of AttemptID) bool { return s.Shard == staleManifest && s.Attempt == of }

// remove aborts the uploads of exactly this key, deletes the object, and sees that it is gone. found says that there was something.
func (w *Worker) remove(ctx context.Context, target, key string, s *Swept) (found bool, err error) {
	store, err := w.o.Targets.store(target)
	if err != nil {
		return false, err
	}
	aborted, err := abortUploads(ctx, store, key)
	s.Removed += aborted
	found = aborted > 0
	if err != nil {
		return found, err
	}
	_, err = store.Head(ctx, key)
	if objstore.IsNotFound(err) {
		return found, nil
	}
	if err != nil {
		return found, err
	}
	if err := store.Delete(ctx, key); err != nil {
		return true, err
	}
	s.Removed++
	w.m.objectsDeleted.Inc()
	switch _, err := store.Head(ctx, key); {
	case objstore.IsNotFound(err):
		return true, nil
	case err == nil:
		return true, fmt.Errorf("target %s: %s is still there after its deletion; an object lock may hold it, and it is tried again", target, key)
	default:
		return true, err
	}
}

// abortUploads aborts the open uploads of exactly this key and counts them, the one that could not be aborted too.
func abortUploads(ctx context.Context, store objstore.Store, key string) (n int, err error) {
	uploads, err := store.ListUploads(ctx, key)
	if err != nil {
		return 0, err
	}
	for _, u := range uploads {
		n++
		if err := store.AbortUpload(ctx, key, u.ID); err != nil {
			return n, err
		}
	}
	return n, nil
}
