package offload

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/protocol"
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
	Manifests []string // targets that got a copy of the manifest
}

// Repair finds what is wrong with a ledger's objects and mends it: shards are rebuilt under new names, on a target whose domain has
// none of the ledger's if there is one, and the record names them only once they are whole; manifests are copied. What was there before is
// removed by Clean after the grace. A repair that was interrupted is called again.
func (w *Worker) Repair(ctx context.Context, id ledger.ID, o RepairOptions) (Repaired, error) {
	var out Repaired
	lock, ok, err := w.o.Records.Lock(ctx, id, w.o.Name)
	switch {
	case err != nil:
		return out, err
	case !ok:
		return out, &StoppedError{Ledger: id, Reason: protocol.Busy}
	}
	defer lock.Release(ctx)
	_, c, err := w.open(ctx, id)
	if err != nil {
		return out, err
	}
	if out.Findings, err = w.t.verify(ctx, c, o.Level, w.scrub); err != nil {
		return out, err
	}
	away := map[int]bool{} // shards whose target can not be used
	for i := range c.record.Placement {
		p := &c.record.Placement[i]
		drained := o.Drain != "" && p.Target == o.Drain
		if drained || p.Missing || p.Move != nil || c.manifest.Inline == nil && hasFinding(out.Findings, i) {
			out.Shards = append(out.Shards, i)
			away[i] = drained || unreachable(out.Findings, p.Target)
		}
	}
	if c.manifest.Inline != nil {
		out.Shards = nil
	}
	if o.DryRun {
		return out, nil
	}
	for _, shard := range out.Shards {
		if err := w.repairShard(ctx, id, shard, away[shard], o.Drain); err != nil {
			return out, fmt.Errorf("repair shard %d of ledger %d: %w", shard, id, err)
		}
		w.m.repaired.Inc()
	}
	out.Manifests, err = w.repairManifests(ctx, id, out.Findings, o.Drain)
	return out, err
}

func hasFinding(fs []Finding, shard int) bool {
	return slices.ContainsFunc(fs, func(f Finding) bool { return f.Shard == shard })
}

func unreachable(fs []Finding, target string) bool {
	return slices.ContainsFunc(fs, func(f Finding) bool { return f.Target == target && f.Kind == FindingUnchecked })
}

// newPlace chooses where a shard goes: where it was, unless that can not be, or a target whose domain holds fewest of the others.
func (w *Worker) newPlace(r *Record, shard int, away bool, drain string) (string, error) {
	if p := r.Placement[shard].Target; !away {
		if _, err := w.o.Targets.store(p); err == nil {
			return p, nil
		}
	}
	best, least := "", int(^uint(0)>>1)
	for _, p := range w.o.Targets.places {
		if p.Target == drain || p.Target == r.Placement[shard].Target {
			continue
		}
		load := 0
		for i := range r.Placement {
			switch {
			case i == shard:
			case r.Placement[i].Target == p.Target:
				load += shardsMax + 1
			case w.o.Targets.domain(r.Placement[i].Target) == p.Domain:
				load += shardsMax
			}
		}
		if load < least {
			best, least = p.Target, load
		}
	}
	if best == "" {
		return "", fmt.Errorf("no other target to write to; add one")
	}
	return best, nil
}

// repairShard writes one shard anew.
func (w *Worker) repairShard(ctx context.Context, id ledger.ID, shard int, away bool, drain string) error {
	s, c, err := w.open(ctx, id)
	if err != nil {
		return err
	}
	r := s.record.Clone()
	p := &r.Placement[shard]
	move := p.Move
	if move == nil || move.Target == drain {
		if p.Move != nil {
			r.Stale = append(r.Stale, Stale{Attempt: r.Attempt, Shard: shard, Target: move.Target, Generation: move.Generation, Since: w.o.now().UnixMilli()})
		}
		target, err := w.newPlace(r, shard, away, drain)
		if err != nil {
			return err
		}
		generation := p.Generation + 1
		if move != nil {
			generation = max(generation, move.Generation+1)
		}
		move = &Move{Target: target, Generation: generation}
		p.Move = move
		// The name is in the record before the first byte is sent.
		if s.version, err = w.o.Records.Write(ctx, id, r, s.version, LedgerCond{}); err != nil {
			return err
		}
		c.record, c.version = r, s.version
	}
	if err := w.writeShard(ctx, c, shard, move); err != nil {
		return err
	}
	if err := w.ours(ctx, id, r.Attempt); err != nil {
		return err
	}
	done := r.Clone()
	done.Stale = append(done.Stale, Stale{Attempt: r.Attempt, Shard: shard, Target: p.Target, Generation: p.Generation, Since: w.o.now().UnixMilli()})
	if len(done.Stale) > staleMax {
		return fmt.Errorf("%d replaced objects wait to be removed; let the janitor clean first", len(done.Stale))
	}
	done.Placement[shard] = Placement{Target: move.Target, Generation: move.Generation, Unknown: p.Unknown}
	_, err = w.o.Records.Write(ctx, id, done, s.version, LedgerCond{})
	return err
}

// writeShard streams a shard's cells, each checked or rebuilt from checked ones, to where it moves, and looks at the result.
func (w *Worker) writeShard(ctx context.Context, c *copyOf, shard int, to *Move) (err error) {
	store, err := w.o.Targets.store(to.Target)
	if err != nil {
		return err
	}
	key := ShardName(c.record.Attempt, c.id, shard, to.Generation)
	if _, err := w.remove(ctx, to.Target, key, &Swept{}); err != nil { // what an interrupted repair left
		return err
	}
	want := c.manifest.Shards[shard]
	meta := objectMeta(c.record.Attempt, c.id, fmt.Sprint(shard), c.manifest.Geometry, c.manifest.CellBytes)
	upload := ""
	if len(c.manifest.stripes) > 1 {
		if upload, err = store.CreateUpload(ctx, key, objstore.UploadOptions{Meta: meta}); err != nil {
			return err
		}
	}
	var parts []objstore.Part
	for stripe := range c.manifest.stripes {
		if err := w.scrub.wait(ctx, int(c.manifest.stripes[stripe].length(shard))); err != nil {
			return err
		}
		cell, err := w.t.cell(ctx, c, stripe, shard)
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
			parts = append(parts, part)
		}
		if err != nil {
			return err
		}
	}
	if upload != "" {
		if _, err := store.CompleteUpload(ctx, key, upload, parts); err != nil && !objstore.Unclear(err) {
			return err
		}
	}
	info, err := store.Head(ctx, key)
	if err != nil {
		return err
	}
	return checkInfo(info, shardSum{want.Length, want.CRC32C}, key)
}

// repairManifests gives every copy back that is missing or bad, and moves those of a drained or unreachable target.
func (w *Worker) repairManifests(ctx context.Context, id ledger.ID, findings []Finding, drain string) (copied []string, err error) {
	s, c, err := w.open(ctx, id)
	if err != nil {
		return nil, err
	}
	encoded, err := c.manifest.Encode()
	if err != nil {
		return nil, err
	}
	if crcUpdate(0, encoded) != s.record.Manifest.CRC32C { // written by a later minor version: copy the bytes
		if encoded, err = w.anyManifest(ctx, id, s.record); err != nil {
			return nil, err
		}
	}
	r := s.record.Clone()
	now := w.o.now().UnixMilli()
	key := ManifestName(r.Attempt, id)
	var keep []string
	for _, t := range r.Manifest.Targets {
		bad := slices.ContainsFunc(findings, func(f Finding) bool { return f.Target == t && f.Object == key })
		if t == drain || bad && unreachable(findings, t) {
			r.Stale = append(r.Stale, Stale{Attempt: r.Attempt, Shard: staleManifest, Target: t, Since: now})
			continue
		}
		if bad {
			if err := w.copyManifest(ctx, t, key, encoded, r); err != nil {
				return copied, err
			}
			copied = append(copied, t)
		}
		keep = append(keep, t)
	}
	var causes []error
	for _, p := range w.o.Targets.places {
		if len(keep) >= r.Geometry.Parity+1 {
			break
		}
		if p.Target == drain || contains(keep, p.Target) || unreachable(findings, p.Target) {
			continue
		}
		r.Stale = slices.DeleteFunc(r.Stale, func(x Stale) bool {
			return x.Shard == staleManifest && x.Target == p.Target && x.Attempt == r.Attempt
		})
		if err := w.copyManifest(ctx, p.Target, key, encoded, r); err != nil {
			causes = append(causes, err)
			continue
		}
		keep, copied = append(keep, p.Target), append(copied, p.Target)
	}
	if slices.Equal(keep, s.record.Manifest.Targets) {
		return copied, errors.Join(causes...)
	}
	if len(keep) == 0 {
		return copied, errors.Join(append(causes, errors.New("no target would have a copy of the manifest"))...)
	}
	r.Manifest.Targets = keep
	_, err = w.o.Records.Write(ctx, id, r, s.version, LedgerCond{})
	return copied, errors.Join(append(causes, err)...)
}

func (w *Worker) anyManifest(ctx context.Context, id ledger.ID, r *Record) (b []byte, err error) {
	for _, t := range r.Manifest.Targets {
		if b, err = w.t.manifestCopy(ctx, t, ManifestName(r.Attempt, id), r); err == nil {
			return b, nil
		}
	}
	return nil, err
}

// copyManifest puts a copy where none is, or where a bad one was: that is removed first, since another good copy was just read.
func (w *Worker) copyManifest(ctx context.Context, target, key string, encoded []byte, r *Record) error {
	store, err := w.o.Targets.store(target)
	if err != nil {
		return err
	}
	if err := store.Delete(ctx, key); err != nil {
		return err
	}
	n, ok := ParseName(key)
	if !ok {
		return fmt.Errorf("%s is not a name of ours", key)
	}
	return putManifest(ctx, store, key, objstore.NewBody(encoded), objectMeta(n.Attempt, n.Ledger, manifestName, r.Geometry, r.CellBytes))
}
