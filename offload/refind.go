package offload

import (
	"context"
	"errors"
	"slices"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload/objstore"
)

// errNothingFound says that a search for what repairs moved found nothing that the record does not know.
var errNothingFound = errors.New("offload: nothing was found beside what the record names")

// refind is for a record from before a repair, as a metadata store has it that was restored from an older backup: what the record names is
// gone, and what the repair wrote is there under younger generations, which no record knows. The names of all objects of an attempt begin
// alike, so a short listing per target finds them; copies of the manifest have the same name everywhere. It returns the record as it should
// be, and which shards were found; what the record names and is whole stays as it is.
func (w *Worker) refind(ctx context.Context, id ledger.ID, old *Record) (r *Record, found []int, err error) {
	r = old.Clone()
	holders, err := w.holders(ctx, ManifestName(r.Attempt, id), r)
	if err != nil {
		return nil, nil, err
	}
	holders = slices.DeleteFunc(holders, func(target string) bool { // the janitor is to remove these
		return slices.ContainsFunc(r.Stale, func(x Stale) bool { return x.isManifest(r.Attempt) && x.Target == target })
	})
	changed := false
	for _, target := range holders {
		if !contains(r.Manifest.Targets, target) {
			changed = true
		}
	}
	if changed {
		for _, target := range r.Manifest.Targets {
			if !contains(holders, target) && len(holders) < shardsMax && !w.answersNotFound(ctx, target, ManifestName(r.Attempt, id)) {
				holders = append(holders, target) // it may be there
			}
		}
		r.Manifest.Targets = holders
	}
	m, err := w.t.manifest(ctx, id, r)
	if err != nil {
		return nil, nil, err
	}
	if !r.Inline && len(m.Shards) == len(r.Placement) {
		places, whole, err := w.whereabouts(ctx, m)
		if err != nil {
			return nil, nil, err
		}
		for i := range r.Placement {
			p, to := &r.Placement[i], places[i]
			name := Name{Attempt: r.Attempt, Ledger: id, Shard: i, Generation: to.Generation}
			if !whole[i] || to.Generation <= p.Generation || r.names(name, to.Target) || w.wholeAt(ctx, m, r, i) {
				continue
			}
			if !p.Missing {
				r.Stale = append(r.Stale, Stale{Attempt: r.Attempt, Shard: i, Target: p.Target, Generation: p.Generation, Since: w.o.now().UnixMilli()})
			}
			if p.Move != nil {
				r.Stale = append(r.Stale, Stale{Attempt: r.Attempt, Shard: i, Target: p.Move.Target, Generation: p.Move.Generation, Since: w.o.now().UnixMilli()})
			}
			*p, changed = Placement{Target: to.Target, Generation: to.Generation, Unknown: p.Unknown}, true
			found = append(found, i)
		}
	}
	if !changed {
		return nil, nil, errNothingFound
	}
	return r, found, checkStale(r)
}

// answersNotFound reports whether a target says that it does not have an object; one that can not be asked does not say so.
func (w *Worker) answersNotFound(ctx context.Context, target, key string) bool {
	store, err := w.o.Targets.store(target)
	if err == nil {
		_, err = store.Head(ctx, key)
	}
	return objstore.IsNotFound(err)
}

// wholeAt reports whether a shard is where the record has it, as far as its target knows.
func (w *Worker) wholeAt(ctx context.Context, m *Manifest, r *Record, shard int) bool {
	p := &r.Placement[shard]
	if p.Missing || p.Lost {
		return false
	}
	store, err := w.o.Targets.store(p.Target)
	if err != nil {
		return false
	}
	key := ShardName(r.Attempt, m.Ledger, shard, p.Generation)
	info, err := store.Head(ctx, key)
	return err == nil && checkInfo(info, shardSum{m.Shards[shard].Length, m.Shards[shard].CRC32C}, key) == nil
}

// refound writes what refind found into the record; with dryRun it only looks.
func (w *Worker) refound(ctx context.Context, s *seen, id ledger.ID, dryRun bool) (found []int, err error) {
	r, found, err := w.refind(ctx, id, s.record)
	if err != nil {
		return nil, err
	}
	if !dryRun {
		if s.version, err = w.o.Records.Write(ctx, id, r, s.version, LedgerCond{}); err != nil {
			return nil, err
		}
		w.o.Logger.Info("a record that was older than the ledger's last repair names again what is there", "ledger", int64(id), "shards", found, "manifests", r.Manifest.Targets)
	}
	s.record = r
	return found, nil
}
