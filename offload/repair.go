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
)

// RepairOptions say what to look for.
type RepairOptions struct {
	Level  VerifyLevel // how to find what is wrong; the zero value reads everything
	Drain  string      // a target whose shards and manifests go elsewhere although they are good
	DryRun bool        // look only
}

// Repaired is what a repair found and did.
type Repaired struct {
	Findings  []Finding
	Shards    []int    // written anew, or to be with DryRun
	Manifests []string // targets that got a copy of the manifest, or are to with DryRun
	Found     []int    // shards that an earlier repair wrote and that the record, from before it, did not know
}

// Repair finds what is wrong with a ledger's objects and mends it: shards are rebuilt under new names, on a target whose domain has
// none of the ledger's if there is one, and the record names them only once they are whole; manifests are copied. What was there before is
// removed by Clean after the grace. A repair that was interrupted is called again.
func (w *Worker) Repair(ctx context.Context, id ledger.ID, o RepairOptions) (Repaired, error) {
	var out Repaired
	ctx, unlock, err := w.lock(ctx, id)
	if err != nil {
		return out, err
	}
	defer unlock()
	s, c, stored, err := w.openForRepair(ctx, id, &out, o)
	if err != nil {
		return out, err
	}
	w.health.looked(id, out.Findings)
	away := map[int]bool{} // shards whose target can not be used
	var todo []int
	for i := range c.record.Placement {
		p := &c.record.Placement[i]
		drained := o.Drain != "" && p.Target == o.Drain
		if drained || p.Missing || p.Move != nil || c.manifest.Inline == nil && hasFinding(out.Findings, i) {
			todo = append(todo, i)
			away[i] = drained || unreachable(out.Findings, p.Target)
		}
	}
	if c.manifest.Inline != nil {
		todo = nil
	}
	if o.DryRun {
		out.Shards = todo
		if !stored {
			return out, nil // copies of the manifest are looked at with the record that a repair would write
		}
		out.Manifests, err = w.repairManifests(ctx, id, out.Findings, o)
		return out, err
	}
	if len(todo) == 0 { // what was lost once may be back
		if err := w.note(ctx, id, &s, o.Level, out.Findings); err != nil {
			return out, err
		}
	}
	var stays []error
	for _, shard := range todo {
		err := w.repairShard(ctx, id, shard, away[shard], o.Drain)
		if errors.Is(err, errStays) {
			stays = append(stays, fmt.Errorf("shard %d of ledger %d: %w", shard, id, err))
			continue
		}
		if err != nil {
			return out, fmt.Errorf("repair shard %d of ledger %d: %w", shard, id, err)
		}
		out.Shards = append(out.Shards, shard)
		w.m.repaired.Inc()
		w.health.repaired(id, shard)
	}
	out.Manifests, err = w.repairManifests(ctx, id, out.Findings, o)
	return out, errors.Join(append(stays, err)...)
}

// openForRepair opens a ledger and looks what is wrong with it. Where shards or all copies of the manifest are not there, it may be that the
// record is older than the last repair: what that wrote is looked for first. stored says that the record is as the store has it.
func (w *Worker) openForRepair(ctx context.Context, id ledger.ID, out *Repaired, o RepairOptions) (s seen, c *copyOf, stored bool, err error) {
	if s, err = w.o.Records.look(ctx, id); err != nil {
		return s, nil, false, err
	}
	if !s.inTier() {
		return s, nil, false, ofLedger(id, ErrNotOffloaded)
	}
	stored = true
	for again := false; ; again = true {
		if c, err = w.t.load(ctx, id, s.record, s.version); err == nil {
			out.Findings, err = w.t.verify(ctx, c, o.Level, w.scrub, nil)
		}
		gone := err != nil || slices.ContainsFunc(out.Findings, func(f Finding) bool { return f.Shard >= 0 && f.Kind != FindingUnchecked })
		if again || !gone || ctx.Err() != nil || errors.Is(err, ErrVersion) {
			return s, c, stored, err
		}
		found, ferr := w.refound(ctx, &s, id, o.DryRun)
		if ferr != nil {
			if err == nil && !errors.Is(ferr, errNothingFound) {
				err = ferr
			}
			return s, c, stored, err
		}
		stored = !o.DryRun
		out.Found = found
	}
}

// errStays says that a shard stays on a target that can not be reached, since every other place is worse.
var errStays = errors.New("its target can not be reached, and every other domain holds a shard of the ledger already: it stays where it is; bring the target back, or move all away from it with --drain")

func hasFinding(fs []Finding, shard int) bool {
	return slices.ContainsFunc(fs, func(f Finding) bool { return f.Shard == shard })
}

func unreachable(fs []Finding, target string) bool {
	return slices.ContainsFunc(fs, func(f Finding) bool { return f.Target == target && f.Kind == FindingUnchecked })
}

// newPlace chooses where a shard goes: where it was, unless that can not be, or a target whose domain holds fewest of the others. not
// lists targets that are out of the question. A shard whose target just can not be reached may be as good as ever: it goes to no domain
// that holds more of the others, so that a failure that passes costs no redundancy.
func (w *Worker) newPlace(r *Record, shard int, away bool, not []string) (string, error) {
	if p := r.Placement[shard].Target; !away && !slices.Contains(not, p) {
		if _, err := w.o.Targets.store(p); err == nil {
			return p, nil
		}
	}
	own := r.Placement[shard]
	best, least := "", int(^uint(0)>>1)
	strict := away && !own.Missing && !slices.Contains(not, own.Target)
	if strict {
		least = w.load(r, shard, Place{own.Target, w.o.Targets.domain(own.Target)}) + 1
	}
	for _, p := range w.o.Targets.places {
		if slices.Contains(not, p.Target) || p.Target == own.Target {
			continue
		}
		if load := w.load(r, shard, p); load < least {
			best, least = p.Target, load
		}
	}
	if best == "" && strict {
		return "", errStays
	}
	if best == "" {
		return "", errors.New("no other target can be written to: bring one back, or add one to the offload targets")
	}
	return best, nil
}

// load says how much of a ledger's other shards is where one of them could go.
func (w *Worker) load(r *Record, shard int, at Place) (load int) {
	for i := range r.Placement {
		switch {
		case i == shard:
		case r.Placement[i].Target == at.Target:
			load += shardsMax + 1
		case w.o.Targets.domain(r.Placement[i].Target) == at.Domain:
			load += shardsMax
		}
	}
	return load
}

// unwritableError is a failure of the target that a shard was to go to.
type unwritableError struct {
	target string
	err    error
}

// Error implements error.
func (e *unwritableError) Error() string {
	return fmt.Sprintf("write to target %s: %s", e.target, besides(theTarget(e.target), e.err))
}

// Unwrap returns the cause.
func (e *unwritableError) Unwrap() error { return e.err }

// repairShard writes one shard anew; a target that does not take it is replaced by another.
func (w *Worker) repairShard(ctx context.Context, id ledger.ID, shard int, away bool, drain string) error {
	var not []string
	if drain != "" {
		not = append(not, drain)
	}
	var failed []error
	for {
		err := w.moveShard(ctx, id, shard, away, not)
		var x *unwritableError
		if !errors.As(err, &x) || ctx.Err() != nil {
			if err != nil {
				err = errors.Join(append(failed, err)...)
			}
			return err
		}
		w.o.Logger.Warn("a target does not take a shard; another one is tried", "ledger", int64(id), "shard", shard, "target", x.target, "error", x.err)
		not, failed = append(not, x.target), append(failed, err)
	}
}

// moveShard writes a shard to where it is planned to go, or to a new place if that is none of those that may be. The name is always a new
// one: whoever planned the old one may still be writing, with the lock lost and not knowing it, and the record may be about to name what he
// has written. No two repairs write, or remove, the same object.
func (w *Worker) moveShard(ctx context.Context, id ledger.ID, shard int, away bool, not []string) error {
	s, c, err := w.open(ctx, id)
	if err != nil {
		return err
	}
	r := s.record.Clone()
	p := &r.Placement[shard]
	target, generation := "", p.Generation+1
	if old := p.Move; old != nil {
		r.Stale = append(r.Stale, Stale{Attempt: r.Attempt, Shard: shard, Target: old.Target, Generation: old.Generation, Since: w.o.now().UnixMilli()})
		generation = max(generation, old.Generation+1)
		if _, err := w.o.Targets.store(old.Target); err == nil && !slices.Contains(not, old.Target) {
			target = old.Target
		}
	}
	if target == "" {
		if target, err = w.newPlace(r, shard, away, not); err != nil {
			return err
		}
	}
	move := &Move{Target: target, Generation: generation}
	p.Move = move
	if err := checkStale(r); err != nil {
		return err
	}
	// The name is in the record before the first byte is sent.
	if s.version, err = w.o.Records.Write(ctx, id, r, s.version, LedgerCond{}); err != nil {
		return err
	}
	c.record, c.version = r, s.version
	if err := w.writeShard(ctx, c, shard, move); err != nil {
		return err
	}
	if err := w.ours(ctx, id, r.Attempt); err != nil {
		return err
	}
	done := r.Clone()
	done.Stale = append(done.Stale, Stale{Attempt: r.Attempt, Shard: shard, Target: p.Target, Generation: p.Generation, Since: w.o.now().UnixMilli()})
	if err := checkStale(done); err != nil {
		return err
	}
	done.Placement[shard] = Placement{Target: move.Target, Generation: move.Generation, Unknown: p.Unknown}
	_, err = w.o.Records.Write(ctx, id, done, s.version, LedgerCond{})
	return err
}

// checkStale refuses a record that remembers too much of what is to be removed.
func checkStale(r *Record) error {
	if len(r.Stale) > staleMax {
		return fmt.Errorf("%d replaced objects wait to be removed; let the janitor clean first", len(r.Stale))
	}
	return nil
}

// writeShard streams a shard's cells, each checked or rebuilt from checked ones, to where it moves, and looks at the result. What that
// target fails at is an *unwritableError.
func (w *Worker) writeShard(ctx context.Context, c *copyOf, shard int, to *Move) error {
	store, err := w.o.Targets.store(to.Target)
	if err != nil {
		return &unwritableError{to.Target, err}
	}
	key := ShardName(c.record.Attempt, c.id, shard, to.Generation)
	if err := w.sendShard(ctx, c, shard, store, to.Target, key); err != nil {
		return err
	}
	want := c.manifest.Shards[shard]
	info, err := store.Head(ctx, key)
	if err == nil {
		err = checkInfo(info, shardSum{want.Length, want.CRC32C}, key)
	}
	if err == nil && len(c.manifest.stripes) > 1 { // one stripe is put whole
		_, err = abortUploads(ctx, store, key)
	}
	if err != nil {
		return &unwritableError{to.Target, err}
	}
	return nil
}

func (w *Worker) sendShard(ctx context.Context, c *copyOf, shard int, store objstore.Store, target, key string) (err error) {
	meta := objectMeta(c.record.Attempt, c.id, fmt.Sprint(shard), c.manifest.Geometry, c.manifest.CellBytes)
	upload := ""
	if len(c.manifest.stripes) > 1 {
		if upload, err = store.CreateUpload(ctx, key, objstore.UploadOptions{Meta: meta}); err != nil {
			return &unwritableError{target, err}
		}
	}
	var sent []objstore.Part
	buffers := newCellBuffers(c.manifest.Geometry)
	defer buffers.close() //nolint:errcheck // memory of this function
	for stripe := range c.manifest.stripes {
		if err := w.scrub.Wait(ctx, int(c.manifest.stripes[stripe].length(shard))); err != nil {
			return err
		}
		cell, err := w.t.cell(ctx, c, stripe, shard, buffers)
		if err != nil {
			return err
		}
		body := objstore.Body{Data: cell, CRC32C: c.manifest.stripes[stripe].crcs[shard]}
		switch {
		case upload == "":
			_, err = store.Put(ctx, key, body, objstore.PutOptions{Meta: meta})
		case len(cell) > 0:
			var part objstore.Part
			part, err = store.PutPart(ctx, key, upload, stripe+1, body)
			sent = append(sent, part)
		}
		if err != nil {
			return &unwritableError{target, err}
		}
	}
	if upload != "" {
		if _, err := store.CompleteUpload(ctx, key, upload, sent); err != nil && !objstore.Unclear(err) {
			return &unwritableError{target, err}
		}
	}
	return nil
}

// repairManifests gives every copy back that is missing or bad, and moves those of a drained or unreachable target. A dry run only says
// which targets would get one.
func (w *Worker) repairManifests(ctx context.Context, id ledger.ID, findings []Finding, o RepairOptions) (copied []string, err error) {
	s, _, err := w.open(ctx, id)
	if err != nil {
		return nil, err
	}
	good, err := w.goodManifest(ctx, id, s.record)
	if err != nil {
		return nil, err
	}
	key := ManifestName(s.record.Attempt, id)
	var keep, away, gone []string
	for _, t := range s.record.Manifest.Targets {
		bad := slices.ContainsFunc(findings, func(f Finding) bool { return f.Target == t && f.Object == key })
		switch {
		case t == o.Drain:
			gone = append(gone, t)
			continue
		case bad && unreachable(findings, t):
			away = append(away, t)
			continue
		}
		if bad && t != good.target { // that one is good again
			if !o.DryRun {
				if err := w.copyManifest(ctx, t, good, s.record); err != nil {
					return copied, err
				}
			}
			copied = append(copied, t)
		}
		keep = append(keep, t)
	}
	var causes []error
	for _, p := range w.o.Targets.places {
		if len(keep) > s.record.Geometry.Parity {
			break
		}
		if p.Target == o.Drain || contains(keep, p.Target) || unreachable(findings, p.Target) || w.isCleaning(s.record, p.Target) {
			continue
		}
		if o.DryRun {
			keep, copied = append(keep, p.Target), append(copied, p.Target)
			continue
		}
		if s.record, s.version, err = w.planManifest(ctx, id, s.record, s.version, p.Target); err != nil {
			return copied, err
		}
		if err := w.copyManifest(ctx, p.Target, good, s.record); err != nil {
			causes = append(causes, err)
			continue
		}
		keep, copied = append(keep, p.Target), append(copied, p.Target)
	}
	if len(keep) > s.record.Geometry.Parity {
		causes = nil // others took what these did not
	}
	for _, t := range away { // its copy is given up for another one only: it may be as good as ever
		if len(keep) > s.record.Geometry.Parity {
			gone = append(gone, t)
		} else {
			keep = append(keep, t)
		}
	}
	if o.DryRun || sameTargets(keep, s.record.Manifest.Targets) {
		return copied, errors.Join(causes...)
	}
	if len(keep) == 0 {
		return copied, errors.Join(append(causes, errors.New("no target would have a copy of the manifest"))...)
	}
	r := s.record.Clone()
	r.Manifest.Targets = keep
	r.Stale = slices.DeleteFunc(r.Stale, func(x Stale) bool { return x.isManifest(r.Attempt) && contains(keep, x.Target) })
	for _, t := range gone {
		r.Stale = append(r.Stale, Stale{Attempt: r.Attempt, Shard: staleManifest, Target: t, Since: w.o.now().UnixMilli()})
	}
	if err := checkStale(r); err != nil {
		return copied, err
	}
	_, err = w.o.Records.Write(ctx, id, r, s.version, LedgerCond{})
	return copied, errors.Join(append(causes, err)...)
}

// planManifest names a copy of the manifest before the first byte of it is sent, as one that is to be removed: that is what becomes of it
// unless it is whole in the end.
func (w *Worker) planManifest(ctx context.Context, id ledger.ID, old *Record, v metadata.Version, target string) (*Record, metadata.Version, error) {
	r := old.Clone()
	r.Stale = slices.DeleteFunc(r.Stale, func(x Stale) bool { return x.isManifest(r.Attempt) && x.Target == target })
	r.Stale = append(r.Stale, Stale{Attempt: r.Attempt, Shard: staleManifest, Target: target, Since: w.o.now().UnixMilli()})
	if err := checkStale(r); err != nil {
		return old, v, err
	}
	next, err := w.o.Records.Write(ctx, id, r, v, LedgerCond{})
	if err != nil {
		return old, v, err
	}
	return r, next, nil
}

// isCleaning reports whether the janitor may be removing a copy of the manifest from a target.
func (w *Worker) isCleaning(r *Record, target string) bool {
	return slices.ContainsFunc(r.Stale, func(x Stale) bool {
		return x.isManifest(r.Attempt) && x.Target == target && w.o.now().Sub(time.UnixMilli(x.Since)) >= w.o.Grace/2
	})
}

// sameTargets compares two lists in any order.
func sameTargets(a, b []string) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(t string) bool { return !contains(b, t) })
}

func (w *Worker) copyManifest(ctx context.Context, target string, good *goodManifest, r *Record) error {
	store, err := w.o.Targets.store(target)
	if err != nil {
		return err
	}
	n, ok := ParseName(good.key)
	if !ok {
		return fmt.Errorf("%s is not a name of ours", good.key)
	}
	return good.copyTo(ctx, store, objectMeta(n.Attempt, n.Ledger, manifestName, r.Geometry, r.CellBytes))
}
