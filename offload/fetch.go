package offload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/offload/objstore"
)

// getMax is the most that one GET asks for.
const getMax = 8 << 20

// copyOf is a ledger's copy in the tier, as one look at the record showed it: what reading, verifying and repairing begin with.
type copyOf struct {
	id       ledger.ID
	record   *Record
	version  metadata.Version
	manifest *Manifest
	whole    *page // of a manifest that was read whole
	codec    *blockCodec
	coder    *coder
}

// tier reads objects of records.
type tier struct {
	targets   *Targets
	keys      KeySource
	latencies *latencies
	hedging   bool
	pages     *lru[pageKey, *page] // of large manifests
	wholeMax  int64                // larger manifests are read by pages; default manifestWholeMax
	m         *metrics
	report    func(Finding) // what a read found wrong
}

// FindingKind says what is wrong with an object.
type FindingKind string

// The kinds of finding.
const (
	FindingMissing   FindingKind = "missing"     // the object is not there
	FindingShort     FindingKind = "wrong size"  // it has another size than it should
	FindingCell      FindingKind = "bad cell"    // bytes of it are not what was written
	FindingManifest  FindingKind = "manifest"    // a copy of the manifest is missing or bad
	FindingUnchecked FindingKind = "unreachable" // it could not be looked at
	FindingContent   FindingKind = "content"     // all checksums hold, but it is not what was read from the bookies
	FindingLost      FindingKind = "unreadable"  // fewer shards are good than it takes to read the ledger
	FindingPlacement FindingKind = "placement"   // it lies where the domains do not allow it
)

// Finding is something wrong with one object of a ledger.
type Finding struct {
	Ledger ledger.ID
	Kind   FindingKind
	Target string
	Object string
	Shard  int   // -1: not a shard
	Offset int64 // in the object, for bad cells
	Err    error
}

func (f Finding) String() string {
	s := fmt.Sprintf("ledger %d: %s", f.Ledger, f.Kind)
	if f.Object != "" {
		s += ": " + f.Object
	}
	if f.Target != "" {
		s += " on target " + f.Target
	}
	if f.Kind == FindingCell {
		s += fmt.Sprintf(" at offset %d", f.Offset)
	}
	if f.Err != nil {
		s += ": " + besides(theTarget(f.Target), f.Err)
	}
	return s
}

// load fetches the manifest that a record names and prepares to read.
func (t *tier) load(ctx context.Context, id ledger.ID, r *Record, v metadata.Version) (*copyOf, error) {
	m, err := t.manifest(ctx, id, r)
	if err != nil {
		return nil, err
	}
	c := &copyOf{id: id, record: r, version: v, manifest: m, whole: m.whole()}
	size, ok := digestSize(m.Digest)
	if !ok {
		return nil, fmt.Errorf("ledger %d has digest type %d, which this version does not know", id, m.Digest)
	}
	c.codec = &blockCodec{digestSize: size}
	key, err := unwrap(ctx, t.keys, cmpKey(r.Key, m.Key))
	if err != nil {
		return nil, ofLedger(id, err)
	}
	if key != nil {
		if c.codec.sealer, err = newSealer(key, id, r.Attempt, 0); err != nil {
			return nil, err
		}
	}
	c.coder, err = newCoder(m.Geometry)
	return c, err
}

// cmpKey prefers the record's key: wrapping anew touches only that.
func cmpKey(record, manifest *WrappedKey) *WrappedKey {
	if record != nil {
		return record
	}
	return manifest
}

// manifest fetches one good copy, of a large one what reading needs at once.
func (t *tier) manifest(ctx context.Context, id ledger.ID, r *Record) (*Manifest, error) {
	key := ManifestName(r.Attempt, id)
	var causes []error
	for _, target := range r.Manifest.Targets {
		m, err := t.manifestFrom(ctx, target, key, r)
		switch {
		case err == nil && (m.Ledger != id || m.Attempt != r.Attempt || m.LastEntry != r.LastEntry):
			err = corrupt.Errorf(key, 0, "manifest", "it describes ledger %d, attempt %s", m.Ledger, m.Attempt)
		case err == nil:
			return m, nil
		case errors.Is(err, ErrVersion):
			return nil, err
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		t.found(Finding{Ledger: id, Kind: FindingManifest, Target: target, Object: key, Shard: -1, Err: err})
		causes = append(causes, onTarget(target, err))
	}
	return nil, noManifest(id, causes)
}

func (t *tier) manifestFrom(ctx context.Context, target, key string, r *Record) (*Manifest, error) {
	if r.Manifest.Length <= cmp.Or(t.wholeMax, manifestWholeMax) {
		b, err := t.manifestCopy(ctx, target, key, r)
		if err != nil {
			return nil, err
		}
		return DecodeManifest(key, b)
	}
	store, err := t.targets.store(target)
	if err != nil {
		return nil, err
	}
	return readManifest(key, r.Manifest.Length, func(offset int64, b []byte) error { return getAll(ctx, store, key, offset, b) })
}

// manifestCopy fetches one copy whole and compares it with the record.
func (t *tier) manifestCopy(ctx context.Context, target, key string, r *Record) ([]byte, error) {
	store, err := t.targets.store(target)
	if err != nil {
		return nil, err
	}
	b := make([]byte, r.Manifest.Length)
	if err := getAll(ctx, store, key, 0, b); err != nil {
		return nil, err
	}
	if got := objstore.CRC32C(b); got != r.Manifest.CRC32C {
		return nil, manifestDamaged(key, got, r)
	}
	return b, nil
}

func manifestDamaged(key string, got uint32, r *Record) error {
	return corrupt.Errorf(key, 0, "manifest", "CRC32C %08x, the record says %08x", got, r.Manifest.CRC32C)
}

// checkManifestCopy compares one copy with the record, a piece at a time.
func (t *tier) checkManifestCopy(ctx context.Context, target, key string, r *Record) error {
	store, err := t.targets.store(target)
	if err != nil {
		return err
	}
	got, err := sumOf(ctx, store, key, r.Manifest.Length)
	if err == nil && got != r.Manifest.CRC32C {
		err = manifestDamaged(key, got, r)
	}
	return err
}

// sumOf is the CRC32C of the first size bytes of an object, of which it holds a piece at a time.
func sumOf(ctx context.Context, store objstore.Store, key string, size int64) (crc uint32, err error) {
	b := make([]byte, min(size, getMax))
	for offset := int64(0); offset < size; offset += int64(len(b)) {
		b = b[:min(size-offset, getMax)]
		if _, err := store.GetRange(ctx, key, offset, b); err != nil {
			return 0, err
		}
		crc = crcUpdate(crc, b)
	}
	return crc, nil
}

// getAll fills b, in several requests if it is large.
func getAll(ctx context.Context, store objstore.Store, key string, offset int64, b []byte) error {
	for len(b) > 0 {
		n := min(len(b), getMax)
		if _, err := store.GetRange(ctx, key, offset, b[:n]); err != nil {
			return err
		}
		b, offset = b[n:], offset+int64(n)
	}
	return nil
}

func (t *tier) found(f Finding) {
	if t.report != nil {
		t.report(f)
	}
}

// shardName is the object of a shard as the record has it.
func (c *copyOf) shardName(shard int) string {
	return ShardName(c.record.Attempt, c.id, shard, c.record.Placement[shard].Generation)
}

// span is a range of one data cell.
type span struct {
	stripe, shard int
	from, to      uint32 // in the cell
	object        int64  // offset of the cell in its shard object
}

// spanOf covers blocks first to last of a page, all of one cell.
func (c *copyOf) spanOf(p *page, first, last int) span {
	b, e := p.ref(first), p.ref(last)
	k := c.manifest.Geometry.Data
	s := span{stripe: int(b.cell) / k, shard: int(b.cell) % k, from: b.offset, to: e.offset + e.stored}
	s.object = c.cellOffset(s.stripe, s.shard)
	return s
}

// cellOffset is where a cell begins in its shard object.
func (c *copyOf) cellOffset(stripe, shard int) (n int64) {
	for i := range stripe {
		n += int64(c.manifest.stripes[i].length(shard))
	}
	return n
}

// get reads a range of a cell of any shard, zeros where it ends before the range does.
func (t *tier) get(ctx context.Context, c *copyOf, stripe, shard int, from, to uint32) ([]byte, error) {
	return t.getInto(ctx, c, stripe, shard, from, to, nil)
}

// getInto is get into one of buffers.
func (t *tier) getInto(ctx context.Context, c *copyOf, stripe, shard int, from, to uint32, buffers cellBuffers) ([]byte, error) {
	p := &c.record.Placement[shard]
	if p.Missing {
		return nil, &objstore.Error{Kind: objstore.KindNotFound, Target: p.Target, Op: objstore.OpGet, Key: c.shardName(shard), Err: errors.New("the record says that this shard is missing")}
	}
	store, err := t.targets.store(p.Target)
	if err != nil {
		return nil, err
	}
	b, err := buffers.get(shard, int(to-from))
	if err != nil {
		return nil, err
	}
	end := max(from, min(to, c.manifest.stripes[stripe].length(shard)))
	clear(b[end-from:])
	if end == from {
		return b, nil
	}
	start := time.Now()
	err = getAll(ctx, store, c.shardName(shard), c.cellOffset(stripe, shard)+int64(from), b[:end-from])
	if err == nil {
		t.latencies.took(p.Target, time.Since(start), int(end-from))
	}
	return b, err
}

// shardError is why a shard did not help.
type shardError struct {
	shard  int
	target string
	err    error
	bad    bool // it answered with bytes that are not what was written
}

func (e *shardError) Error() string {
	return fmt.Sprintf("shard %d on target %s: %s", e.shard, e.target, besides(theTarget(e.target), e.err))
}

// Unwrap returns the cause.
func (e *shardError) Unwrap() error { return e.err }

// lost makes the error for a range that too few shards could give.
func (c *copyOf) lost(object string, offset int64, good int, errs []*shardError) error {
	var all []error
	var targets []string
	bad := 0
	for _, e := range errs {
		all = append(all, e)
		if e.bad {
			bad++
		}
		if !slices.Contains(targets, e.target) {
			targets = append(targets, e.target)
		}
	}
	causes := errors.Join(all...)
	if bad > 0 && c.manifest.Geometry.Shards()-bad < c.manifest.Geometry.Data {
		return corrupt.New(object, offset, "cell", fmt.Errorf("more than %d shards of the stripe are damaged: %w", c.manifest.Geometry.Parity, causes))
	}
	return fmt.Errorf("%w: ledger %d needs %d shards of %s and has %d good ones; look at targets %s: %w", ErrUnavailable, c.id, c.manifest.Geometry.Data, c.manifest.Geometry, good,
		strings.Join(targets, ", "), causes)
}

// order lists the shards that may stand in for others, the quickest targets first.
func (t *tier) order(c *copyOf, except func(int) bool) []int {
	var out []int
	for i := range c.manifest.Geometry.Shards() {
		if !except(i) {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int {
		x, y := c.record.Placement[a].Target, c.record.Placement[b].Target
		if slow := t.latencies.slow(x); slow != t.latencies.slow(y) {
			if slow {
				return 1
			}
			return -1
		}
		return cmp.Compare(t.latencies.p95(x), t.latencies.p95(y))
	})
	return out
}

// gather fetches a range from Data of the given shards, further ones as some fail. check, if not nil, says whether a shard's bytes are
// what was written. The bytes are in buffers, if there are any.
func (t *tier) gather(ctx context.Context, c *copyOf, stripe int, from, to uint32, candidates []int, buffers cellBuffers, check func(shard int, b []byte) error) ([][]byte, []*shardError) {
	type answer struct {
		shard int
		b     []byte
		err   error
		bad   bool
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cells := make([][]byte, c.manifest.Geometry.Shards())
	answers := make(chan answer, len(candidates))
	running, next, good := 0, 0, 0
	launch := func() {
		shard := candidates[next]
		next, running = next+1, running+1
		go func() {
			b, err := t.getInto(ctx, c, stripe, shard, from, to, buffers)
			a := answer{shard: shard, b: b, err: err}
			if err == nil && check != nil {
				a.err = check(shard, b)
				a.bad = a.err != nil
			}
			answers <- a
		}()
	}
	var errs []*shardError
	for need := c.manifest.Geometry.Data; ; {
		for good+running < need && next < len(candidates) {
			launch()
		}
		if running == 0 {
			return cells, errs
		}
		a := <-answers // every one answers: its request ends with the context
		running--
		if a.err != nil {
			e := &shardError{a.shard, c.record.Placement[a.shard].Target, a.err, a.bad}
			errs = append(errs, e)
			t.blame(c, e, stripe, from)
			continue
		}
		cells[a.shard] = a.b
		good++
	}
}

// blame reports a shard that is not as it should be.
func (t *tier) blame(c *copyOf, e *shardError, stripe int, from uint32) {
	f := Finding{Ledger: c.id, Target: e.target, Object: c.shardName(e.shard), Shard: e.shard, Err: e.err}
	k := objstore.KindOf(e.err)
	switch {
	case e.bad:
		f.Kind, f.Offset = FindingCell, c.cellOffset(stripe, e.shard)+int64(from)
		t.m.crcFailures.inc(e.target)
	case k == objstore.KindNotFound:
		f.Kind = FindingMissing
	case k == objstore.KindRange || k == objstore.KindSize:
		f.Kind = FindingShort
	default:
		return // unreachable, slow, or cancelled: nothing to repair yet
	}
	t.found(f)
}

// rebuild makes a range of a cell from other shards. bad lists shards that are not to be asked.
func (t *tier) rebuild(ctx context.Context, c *copyOf, s span, bad []int) ([]byte, error) {
	t.m.degraded.Inc()
	candidates := t.order(c, func(i int) bool { return i == s.shard || slices.Contains(bad, i) })
	cells, errs := t.gather(ctx, c, s.stripe, s.from, s.to, candidates, nil, nil)
	return t.finishRebuild(ctx, c, s.stripe, s.shard, cells, nil, errs)
}

func (t *tier) finishRebuild(ctx context.Context, c *copyOf, stripe, shard int, cells [][]byte, buffers cellBuffers, errs []*shardError) ([]byte, error) {
	good, n := 0, 0
	for _, b := range cells {
		if b != nil {
			good, n = good+1, len(b)
		}
	}
	if good < c.manifest.Geometry.Data {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, c.lost(c.shardName(shard), c.cellOffset(stripe, shard), good, errs)
	}
	if buffers != nil {
		b, err := buffers.get(shard, n)
		if err != nil {
			return nil, err
		}
		cells[shard] = b[:0] // no bytes, and room for them
	}
	if err := c.coder.rebuild(cells, shard); err != nil {
		return nil, err
	}
	return cells[shard], nil
}

// cell returns a whole cell whose checksum holds: the cell itself, or rebuilt from whole cells that were checked. It is in one of buffers,
// if there are any.
func (t *tier) cell(ctx context.Context, c *copyOf, stripe, shard int, buffers cellBuffers) ([]byte, error) {
	info := &c.manifest.stripes[stripe]
	check := func(i int, b []byte) error {
		if got := objstore.CRC32C(b[:info.length(i)]); got != info.crcs[i] {
			return corrupt.Errorf(c.shardName(i), c.cellOffset(stripe, i), "cell", "CRC32C %08x, the manifest says %08x", got, info.crcs[i])
		}
		return nil
	}
	longest := info.longest()
	b, err := t.getInto(ctx, c, stripe, shard, 0, longest, buffers)
	bad := false
	if err == nil {
		if err = check(shard, b); err == nil {
			return b[:info.length(shard)], nil
		}
		bad = true
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	own := &shardError{shard, c.record.Placement[shard].Target, err, bad}
	t.blame(c, own, stripe, 0)
	cells, errs := t.gather(ctx, c, stripe, 0, longest, t.order(c, func(i int) bool { return i == shard }), buffers, check)
	b, err = t.finishRebuild(ctx, c, stripe, shard, cells, buffers, append(errs, own))
	if err != nil {
		return nil, err
	}
	if err := check(shard, b); err != nil {
		return nil, err
	}
	return b[:info.length(shard)], nil
}
