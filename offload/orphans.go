package offload

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	// Stray says that the attempt has a good manifest on some target, or that a repair wrote the object after the record was: the metadata
	// store may have been restored from an old backup. It is never deleted by anybody but an operator, and Adopt makes it readable again.
	Stray bool
	// Surplus says that it is a copy of a ledger's manifest beside those that the record names, all of which are good.
	Surplus bool
	// Unclear says why it can not be told whether it is a stray. It is kept like one.
	Unclear error
}

// OrphanAge is how old an object without a manifest has to be before it may be deleted as an orphan.
const OrphanAge = 7 * 24 * time.Hour

// ErrYoung is returned by DeleteOrphan for an object that is younger than OrphanAge: an attempt may still be under way.
var ErrYoung = errors.New("too young to be removed")

// Orphans lists what no record names on one target, or on all with "". Whether it is a stray is asked of all targets: most shards lie where
// no copy of their manifest is.
func (w *Worker) Orphans(ctx context.Context, target string) ([]Orphan, error) {
	var out []Orphan
	if target != "" {
		if _, err := w.o.Targets.store(target); err != nil {
			return nil, err
		}
	}
	s := strays{w: w, known: map[Name]verdict{}}
	for _, p := range w.o.Targets.places {
		if target != "" && p.Target != target {
			continue
		}
		store, err := w.o.Targets.store(p.Target)
		if err != nil {
			return out, err
		}
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
				o, err := s.orphan(ctx, p.Target, info)
				if err != nil {
					return out, err
				}
				if o != nil {
					out = append(out, *o)
				}
			}
		}
	}
	return out, nil
}

// strays remembers which attempts have a good manifest that no record names.
type strays struct {
	w     *Worker
	known map[Name]verdict // by attempt and ledger
}

type verdict struct {
	stray   bool
	unclear error
}

func (s *strays) orphan(ctx context.Context, target string, info objstore.Info) (*Orphan, error) {
	name, ok := ParseName(info.Key)
	if !ok {
		return nil, nil // not ours
	}
	r, _, err := s.w.o.Records.Read(ctx, name.Ledger)
	switch {
	case errors.Is(err, ErrNoRecord):
		r = nil
	case err != nil:
		return nil, err
	case r.names(name, target):
		return nil, nil
	}
	o := &Orphan{Target: target, Key: info.Key, Name: name, Size: info.Size, Modified: info.Modified}
	switch {
	case r == nil || r.Attempt != name.Attempt:
	case name.Manifest:
		o.Surplus, o.Unclear = s.w.hasItsManifests(ctx, name.Ledger, r)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		o.Stray = !o.Surplus && o.Unclear == nil
		return o, nil
	default:
		o.Stray = r.isOlderThan(name)
		return o, nil
	}
	attempt := Name{Attempt: name.Attempt, Ledger: name.Ledger}
	v, ok := s.known[attempt]
	if !ok {
		found, err := s.w.findStray(ctx, attempt)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		v = verdict{stray: found != nil, unclear: err}
		s.known[attempt] = v
	}
	o.Stray, o.Unclear = v.stray, v.unclear
	return o, nil
}

// hasItsManifests reports whether every copy of the manifest that a record names is good, so that another one is not needed. The error says
// why that can not be told.
func (w *Worker) hasItsManifests(ctx context.Context, id ledger.ID, r *Record) (bool, error) {
	var causes []error
	for _, t := range r.Manifest.Targets {
		switch err := w.t.checkManifestCopy(ctx, t, ManifestName(r.Attempt, id), r); {
		case objstore.IsNotFound(err), objstore.KindOf(err) == objstore.KindRange, corrupt.Is(err):
			return false, nil
		case err != nil:
			causes = append(causes, fmt.Errorf("manifest on target %s: %w", t, err))
		}
	}
	return len(r.Manifest.Targets) > 0 && len(causes) == 0, errors.Join(causes...)
}

// giveUpCopy names a surplus copy of a manifest in the record, as one that was replaced: the janitor removes it after the grace. A repair
// may be about to name it, too; of the two writes at one version only one lands.
func (w *Worker) giveUpCopy(ctx context.Context, o Orphan) error {
	r, v, err := w.o.Records.Read(ctx, o.Name.Ledger)
	switch {
	case errors.Is(err, ErrNoRecord):
		return fmt.Errorf("%s on target %s is kept: the ledger's record is gone meanwhile", o.Key, o.Target)
	case err != nil:
		return err
	case r.names(o.Name, o.Target):
		return nil // it is one of those that are needed, or the janitor's already
	case r.Attempt != o.Name.Attempt:
		return fmt.Errorf("%s on target %s is kept: the ledger's record names another attempt meanwhile", o.Key, o.Target)
	}
	enough, err := w.hasItsManifests(ctx, o.Name.Ledger, r)
	if err != nil {
		return fmt.Errorf("%s on target %s is kept: whether the copies that the record names are good can not be told: %w", o.Key, o.Target, err)
	}
	if !enough {
		return fmt.Errorf("%s on target %s is kept: a copy that the record names is not good; `bindery offload repair %d` first", o.Key, o.Target, o.Name.Ledger)
	}
	r = r.Clone()
	r.Stale = append(r.Stale, Stale{Attempt: r.Attempt, Shard: staleManifest, Target: o.Target, Since: w.o.now().UnixMilli()})
	if err := checkStale(r); err != nil {
		return err
	}
	_, err = w.o.Records.Write(ctx, o.Name.Ledger, r, v, LedgerCond{})
	return err
}

// isOlderThan reports whether a shard of the record's own attempt was written by a repair that the record knows nothing of.
func (r *Record) isOlderThan(n Name) bool {
	if n.Shard >= len(r.Placement) {
		return false
	}
	p := &r.Placement[n.Shard]
	return n.Generation > p.Generation && (p.Move == nil || n.Generation > p.Move.Generation)
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

// stray is a good manifest that no record names, and where it is.
type stray struct {
	target   string
	store    objstore.Store
	size     int64
	manifest *Manifest
}

// findStray looks on all targets for a good manifest of an attempt; nil: there is none. The error says why that can not be told: a target
// that does not answer, or another version's manifest, is no proof that there is none.
func (w *Worker) findStray(ctx context.Context, n Name) (*stray, error) {
	key := ManifestName(n.Attempt, n.Ledger)
	var causes []error
	for _, p := range w.o.Targets.places {
		store, err := w.o.Targets.store(p.Target)
		if err != nil {
			return nil, err
		}
		info, err := store.Head(ctx, key)
		if err == nil {
			var m *Manifest
			if m, err = w.strayManifest(ctx, store, n, info.Size); corrupt.Is(err) {
				m, err = w.strayManifest(ctx, store, n, info.Size) // it may have been the way
			}
			if err == nil {
				return &stray{p.Target, store, info.Size, m}, nil
			}
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !objstore.IsNotFound(err) && !corrupt.Is(err) {
			causes = append(causes, fmt.Errorf("manifest on target %s: %w", p.Target, err))
		}
	}
	return nil, errors.Join(causes...)
}

// strayManifest reads a manifest whole, and nothing of it is taken on trust: it has to be of the attempt and the ledger that its name says.
func (w *Worker) strayManifest(ctx context.Context, store objstore.Store, n Name, size int64) (*Manifest, error) {
	key := ManifestName(n.Attempt, n.Ledger)
	if size <= 0 || size > ManifestMax {
		return nil, corrupt.Errorf(key, 0, "manifest", "it has %d bytes", size)
	}
	m, err := readStray(key, size, func(offset int64, b []byte) error { return getAll(ctx, store, key, offset, b) })
	if err != nil {
		return nil, err
	}
	if m.Ledger != n.Ledger || m.Attempt != n.Attempt {
		return nil, corrupt.Errorf(key, 0, "manifest", "it is that of ledger %d, attempt %s", m.Ledger, m.Attempt)
	}
	return m, nil
}

func readStray(key string, size int64, get func(offset int64, b []byte) error) (*Manifest, error) {
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

// DeleteOrphan removes an orphan that is older than OrphanAge and no stray. A surplus copy of a manifest goes by way of the janitor.
func (w *Worker) DeleteOrphan(ctx context.Context, o Orphan) error {
	switch age := w.o.now().Sub(o.Modified); {
	case o.Stray:
		return fmt.Errorf("%s on target %s belongs to a ledger with a good manifest: adopt it, or remove it by hand", o.Key, o.Target)
	case o.Unclear != nil:
		return fmt.Errorf("%s on target %s is kept: whether its ledger has a good manifest can not be told: %w", o.Key, o.Target, o.Unclear)
	case age < OrphanAge:
		return fmt.Errorf("%s on target %s is %s old; only objects older than %s are removed: %w", o.Key, o.Target, age.Round(time.Second), OrphanAge, ErrYoung)
	}
	if o.Surplus {
		return w.giveUpCopy(ctx, o)
	}
	_, err := w.remove(ctx, o.Target, o.Key, &Swept{})
	return err
}

// Adopt makes a stray readable again: it writes a record, RELEASED, or COMPLETE if the ledger still exists as it was. Manifests do not
// hold the password, so a released ledger that is adopted takes the one given. Shards are looked for where they are: a repair may have
// moved them since the manifest was written.
func (w *Worker) Adopt(ctx context.Context, o Orphan, password []byte) error {
	key, id := ManifestName(o.Name.Attempt, o.Name.Ledger), o.Name.Ledger
	switch _, _, err := w.o.Records.Read(ctx, id); {
	case err == nil:
		return fmt.Errorf("ledger %d has a record, and needs none: `bindery offload repair %d` finds what repairs moved that are younger than it", id, id)
	case !errors.Is(err, ErrNoRecord):
		return err
	}
	found, err := w.findStray(ctx, o.Name)
	if err == nil && found == nil {
		err = fmt.Errorf("no target has a good manifest of ledger %d, attempt %s", id, o.Name.Attempt)
	}
	if err != nil {
		return err
	}
	m := found.manifest
	meta, err := metadata.DecodeLedger(key, m.LedgerMetadata)
	if err != nil {
		return err
	}
	meta.Password = password
	now := w.o.now().UnixMilli()
	r := &Record{
		State: StateReleased, Attempt: m.Attempt, Number: 1, Worker: w.o.Name, Geometry: m.Geometry, CellBytes: m.CellBytes, Inline: m.Inline != nil,
		Manifest: ManifestRef{Length: found.size}, LastEntry: m.LastEntry, Length: m.Length, Key: m.Key, StartedAt: now, CompletedAt: now, ReleasedAt: now,
	}
	if r.Placement, _, err = w.whereabouts(ctx, m); err != nil {
		return err
	}
	if r.Manifest.CRC32C, err = sumOf(ctx, found.store, key, found.size); err != nil {
		return err
	}
	if r.Manifest.Targets, err = w.holders(ctx, key, r); err != nil {
		return err
	}
	if !contains(r.Manifest.Targets, found.target) { // a target may have become silent since
		r.Manifest.Targets = append([]string{found.target}, r.Manifest.Targets[:min(len(r.Manifest.Targets), shardsMax-1)]...)
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
	// A store that forgot the ledger forgot that its id was drawn, too. An id that was chosen may be far beyond those that are drawn: who
	// creates a ledger looks at the record.
	if id < math.MaxInt32 {
		if err := w.o.Records.ledgers.AdvanceIDs(ctx, id+1); err != nil {
			return err
		}
	}
	version, err := w.o.Records.Write(ctx, id, r, metadata.Absent, cond)
	if errors.Is(err, metadata.ErrUnknownOutcome) {
		if now, at, rerr := w.o.Records.Read(ctx, id); rerr == nil && now.Attempt == r.Attempt && now.inTier() {
			version, err = at, nil
		}
	}
	if err != nil {
		return err
	}
	return w.stillThere(ctx, id, r, version)
}

// stillThere takes an adoption back whose objects are gone: somebody else may have adopted the ledger, and deleted it, since they were looked
// at. From the record on nobody removes them.
func (w *Worker) stillThere(ctx context.Context, id ledger.ID, r *Record, v metadata.Version) error {
	key := ManifestName(r.Attempt, id)
	for _, t := range r.Manifest.Targets {
		if !w.answersNotFound(ctx, t, key) {
			return nil
		}
	}
	if err := w.o.Records.Remove(ctx, id, v); err != nil && !errors.Is(err, metadata.ErrVersion) {
		return err
	}
	return fmt.Errorf("the objects of ledger %d were removed meanwhile: somebody else has deleted it", id)
}

// inTier reports whether the tier has the ledger.
func (r *Record) inTier() bool { return r.State == StateComplete || r.State == StateReleased }

// whereabouts looks for each shard of a manifest on all targets, and takes the youngest that is whole as far as its target knows. What is
// nowhere, which found does not say, stays where the manifest has it: that target may just not answer.
func (w *Worker) whereabouts(ctx context.Context, m *Manifest) (out []Placement, found []bool, err error) {
	out = make([]Placement, len(m.Shards))
	found = make([]bool, len(m.Shards))
	for i := range m.Shards {
		out[i] = Placement{Target: m.Shards[i].Target, Generation: m.Shards[i].Generation}
	}
	for _, p := range w.o.Targets.places {
		store, err := w.o.Targets.store(p.Target)
		if err != nil {
			return nil, nil, err
		}
		infos, err := store.List(ctx, attemptPrefix(m.Attempt, m.Ledger), "", objstore.ListMax)
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		if err != nil {
			w.o.Logger.Warn("a target can not be asked where shards of a ledger are", "ledger", int64(m.Ledger), "target", p.Target, "error", err)
			continue
		}
		for _, info := range infos {
			n, ok := ParseName(info.Key)
			if !ok || n.Manifest || n.Shard >= len(out) || found[n.Shard] && n.Generation <= out[n.Shard].Generation {
				continue
			}
			if info, err = store.Head(ctx, info.Key); err == nil && checkInfo(info, shardSum{m.Shards[n.Shard].Length, m.Shards[n.Shard].CRC32C}, info.Key) == nil {
				out[n.Shard], found[n.Shard] = Placement{Target: p.Target, Generation: n.Generation}, true
			}
		}
	}
	return out, found, nil
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

// MayCreate says whether a ledger may be created under an id, be it chosen or drawn: not while the tier knows the id, of which a store that
// was restored from a backup, or made anew, knows nothing. metadata.ErrExists says that it may not.
func (r *Records) MayCreate(ctx context.Context, id ledger.ID) error {
	rec, _, err := r.Read(ctx, id)
	switch {
	case errors.Is(err, ErrNoRecord):
		return nil
	case corrupt.Is(err), errors.Is(err, ErrVersion):
		return fmt.Errorf("%w: %w", err, metadata.ErrExists) // of whatever
	case err != nil:
		return err
	}
	return fmt.Errorf("ledger %d was offloaded and is %s: its id may not be used again; choose another, or delete that ledger first: %w", id, rec.State, metadata.ErrExists)
}
