package offload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/offload/objstore"
)

// Orphan is an object under a name of ours that no record names.
type Orphan struct {
	Target   string
	Key      string
	Name     Name
	Size     int64
	Modified time.Time
	// Stray says that the attempt has a good manifest on this target: the metadata store may have been restored from an old backup. It
	// is never deleted by anybody but an operator, and Adopt makes it readable again.
	Stray bool
}

// OrphanAge is how old an object without a manifest has to be before it may be deleted as an orphan.
const OrphanAge = 7 * 24 * time.Hour

// Orphans lists what no record names on one target, or on all with "".
func (w *Worker) Orphans(ctx context.Context, target string) ([]Orphan, error) {
	var out []Orphan
	for _, p := range w.o.Targets.places {
		if target != "" && p.Target != target {
			continue
		}
		store, err := w.o.Targets.store(p.Target)
		if err != nil {
			return out, err
		}
		strays := map[AttemptID]bool{}
		for after := ""; ; {
			infos, err := store.List(ctx, nameRoot, after, objstore.ListMax)
			if err != nil {
				return out, fmt.Errorf("list target %s: %w", p.Target, err)
			}
			if len(infos) == 0 {
				break
			}
			for _, info := range infos {
				after = info.Key
				o, err := w.orphan(ctx, store, p.Target, info, strays)
				if err != nil {
					return out, err
				}
				if o != nil {
					out = append(out, *o)
				}
			}
		}
		for i := range out { // the manifest sorts before the shards, so all of an attempt are known by now
			out[i].Stray = out[i].Stray || out[i].Target == p.Target && strays[out[i].Name.Attempt]
		}
	}
	return out, nil
}

func (w *Worker) orphan(ctx context.Context, store objstore.Store, target string, info objstore.Info, strays map[AttemptID]bool) (*Orphan, error) {
	name, ok := ParseName(info.Key)
	if !ok {
		return nil, nil // not ours
	}
	r, _, err := w.o.Records.Read(ctx, name.Ledger)
	switch {
	case errors.Is(err, ErrNoRecord):
	case err != nil:
		return nil, err
	case r.names(name, target):
		return nil, nil
	}
	if name.Manifest {
		_, err := w.strayManifest(ctx, store, info.Key, info.Size)
		strays[name.Attempt] = err == nil
	}
	return &Orphan{Target: target, Key: info.Key, Name: name, Size: info.Size, Modified: info.Modified, Stray: strays[name.Attempt]}, nil
}

// names reports whether a record accounts for an object.
func (r *Record) names(n Name, target string) bool {
	for i := range r.Garbage {
		if r.Garbage[i].Attempt == n.Attempt {
			return true
		}
	}
	for _, s := range r.Stale {
		if s.Attempt == n.Attempt && s.Target == target && (n.Manifest && s.Shard == staleManifest || s.Shard == n.Shard && s.Generation == n.Generation) {
			return true
		}
	}
	if r.Attempt != n.Attempt {
		return false
	}
	if r.State == StateUploading || r.State == StateDeleting {
		return true
	}
	if n.Manifest {
		return contains(r.Manifest.Targets, target)
	}
	if n.Shard >= len(r.Placement) {
		return false
	}
	p := &r.Placement[n.Shard]
	return p.Target == target && p.Generation == n.Generation || p.Move != nil && p.Move.Target == target && p.Move.Generation == n.Generation
}

func (w *Worker) strayManifest(ctx context.Context, store objstore.Store, key string, size int64) (*Manifest, error) {
	if size <= 0 || size > ManifestMax {
		return nil, fmt.Errorf("%s has %d bytes", key, size)
	}
	get := func(offset int64, b []byte) error { return getAll(ctx, store, key, offset, b) }
	if size > manifestWholeMax {
		m, err := readManifest(key, size, get)
		if err != nil || m.pages == nil {
			return m, err
		}
		for n := range m.pages.refs { // one at a time
			b := make([]byte, m.pages.refs[n].length)
			if err := get(m.pages.refs[n].offset, b); err != nil {
				return nil, err
			}
			if _, err := m.decodePageAlone(n, b); err != nil {
				return nil, corrupt.New(key, m.pages.refs[n].offset, "manifest page", err)
			}
		}
		return m, nil
	}
	b := make([]byte, size)
	if err := get(0, b); err != nil {
		return nil, err
	}
	return DecodeManifest(key, b)
}

// DeleteOrphan removes an orphan that is older than OrphanAge and no stray.
func (w *Worker) DeleteOrphan(ctx context.Context, o Orphan) error {
	switch age := w.o.now().Sub(o.Modified); {
	case o.Stray:
		return fmt.Errorf("%s on target %s belongs to a ledger with a good manifest: adopt it, or remove it by hand", o.Key, o.Target)
	case age < OrphanAge:
		return fmt.Errorf("%s on target %s is %s old; only objects older than %s are removed", o.Key, o.Target, age.Round(time.Second), OrphanAge)
	}
	_, err := w.remove(ctx, o.Target, o.Key, &Swept{})
	return err
}

// Adopt makes a stray readable again: it writes a record, RELEASED, or COMPLETE if the ledger still exists as it was. Manifests do not
// hold the password, so a released ledger that is adopted takes the one given.
func (w *Worker) Adopt(ctx context.Context, o Orphan, password []byte) error {
	store, err := w.o.Targets.store(o.Target)
	if err != nil {
		return err
	}
	key := ManifestName(o.Name.Attempt, o.Name.Ledger)
	info, err := store.Head(ctx, key)
	if err != nil {
		return err
	}
	m, err := w.strayManifest(ctx, store, key, info.Size)
	if err != nil {
		return err
	}
	id := m.Ledger
	meta, err := metadata.DecodeLedger(key, m.LedgerMetadata)
	if err != nil {
		return err
	}
	meta.Password = password
	now := w.o.now().UnixMilli()
	r := &Record{
		State: StateReleased, Attempt: m.Attempt, Number: 1, Worker: w.o.Name, Geometry: m.Geometry, CellBytes: m.CellBytes, Inline: m.Inline != nil,
		Manifest: ManifestRef{Length: info.Size}, LastEntry: m.LastEntry, Length: m.Length, Key: m.Key, StartedAt: now, CompletedAt: now, ReleasedAt: now,
	}
	for i := range m.Shards {
		r.Placement = append(r.Placement, Placement{Target: m.Shards[i].Target, Generation: m.Shards[i].Generation})
	}
	if r.Manifest.CRC32C, err = sumOf(ctx, store, key, info.Size); err != nil {
		return err
	}
	if r.Manifest.Targets, err = w.holders(ctx, key, r); err != nil {
		return err
	}
	cond := LedgerCond{Check: true, Version: metadata.Absent}
	current, v, err := w.o.Records.Ledger(ctx, id)
	switch {
	case errors.Is(err, metadata.ErrNoLedger):
	case err != nil:
		return err
	case current.State != ledger.StateClosed || current.LastEntry != m.LastEntry || current.Length != m.Length:
		return fmt.Errorf("ledger %d exists and is not the one that was offloaded", id)
	default:
		meta, r.State, r.ReleasedAt, cond.Version = current, StateComplete, 0, v
	}
	if r.LedgerMetadata, err = metadata.EncodeLedger(meta); err != nil {
		return err
	}
	_, err = w.o.Records.Write(ctx, id, r, metadata.Absent, cond)
	return err
}

// holders looks which targets have this very manifest.
func (w *Worker) holders(ctx context.Context, key string, r *Record) ([]string, error) {
	var out []string
	for _, p := range w.o.Targets.places {
		if err := w.t.checkManifestCopy(ctx, p.Target, key, r); err == nil {
			out = append(out, p.Target)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return out[:min(len(out), shardsMax)], nil
}

// MayCreate says whether a ledger may be created under an id that its creator chose: not while the tier knows the id.
func (r *Records) MayCreate(ctx context.Context, id ledger.ID) error {
	rec, _, err := r.Read(ctx, id)
	if errors.Is(err, ErrNoRecord) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("ledger %d was offloaded and is %s: its id may not be used again; choose another, or delete that ledger first: %w", id, rec.State, metadata.ErrExists)
}
