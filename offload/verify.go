package offload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/binderylog/bindery/internal/pace"
	"github.com/zeebo/xxh3"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/offload/objstore"
)

// VerifyLevel says how much of a ledger is looked at.
type VerifyLevel uint8

// The levels.
const (
	VerifyFull   VerifyLevel = 0 // every byte, and the content against what was read from the bookies
	VerifySample VerifyLevel = 1 // as head, some blocks, and every copy of the manifest
	VerifyHead   VerifyLevel = 2 // every object: size, and checksum where the store has one
)

// ParseVerifyLevel reads "head", "sample" or "full".
func ParseVerifyLevel(s string) (VerifyLevel, error) {
	for l, name := range verifyNames {
		if s == name {
			return VerifyLevel(l), nil
		}
	}
	return 0, fmt.Errorf("level %q: head, sample or full", s)
}

var verifyNames = [...]string{"full", "sample", "head"}

func (l VerifyLevel) String() string { return verifyNames[min(int(l), len(verifyNames)-1)] }

const (
	sampleBlocks   = 16
	verifyInFlight = 4 // cells of a stripe that are read at once
)

// Verify looks at a ledger's objects and notes a full look in the record.
func (w *Worker) Verify(ctx context.Context, id ledger.ID, level VerifyLevel) ([]Finding, error) {
	return w.verify(ctx, id, level, false)
}

// VerifyAgainstBookies is a full Verify that also compares every entry with what the bookies hold, as long as they do. An error about
// that comes with what was found in the tier.
func (w *Worker) VerifyAgainstBookies(ctx context.Context, id ledger.ID) ([]Finding, error) {
	return w.verify(ctx, id, VerifyFull, true)
}

func (w *Worker) verify(ctx context.Context, id ledger.ID, level VerifyLevel, compare bool) ([]Finding, error) {
	s, c, err := w.open(ctx, id)
	if err != nil {
		if s.inTier() && ctx.Err() == nil {
			w.health.blind(id, err)
		}
		return nil, err
	}
	var bookies *comparison
	if compare && s.record.State == StateComplete && s.meta != nil {
		bookies = w.compareWith(ctx, id, s.meta)
		defer bookies.stop()
	}
	findings, err := w.t.verify(ctx, c, level, w.scrub, bookies)
	if err != nil {
		return findings, err
	}
	w.health.looked(id, findings)
	if err := w.note(ctx, id, &s, level, findings); err != nil {
		return nil, err
	}
	if bookies == nil || bookies.err == nil {
		return findings, nil
	}
	if r, _, err := w.o.Records.Read(ctx, id); err == nil && r.State != StateComplete {
		return findings, nil // released meanwhile: the bookies need not have it any more
	}
	return findings, fmt.Errorf("ledger %d could not be compared with its bookies: %w", id, bookies.err)
}

// note writes what a look found into the record, if that is still as it was: which shards are lost, which only a full look takes back, and
// when everything was good.
func (w *Worker) note(ctx context.Context, id ledger.ID, s *seen, level VerifyLevel, findings []Finding) error {
	r := s.record.Clone()
	changed := level == VerifyFull && len(findings) == 0
	if changed {
		r.VerifiedAt = w.o.now().UnixMilli()
	}
	for i := range r.Placement {
		p := &r.Placement[i]
		lost := slices.ContainsFunc(findings, func(f Finding) bool {
			return f.Shard == i && (f.Kind == FindingMissing || f.Kind == FindingShort || f.Kind == FindingCell)
		})
		away := slices.ContainsFunc(findings, func(f Finding) bool { return f.Shard == i && f.Kind == FindingUnchecked })
		if lost != p.Lost && (lost || level == VerifyFull && !away) {
			p.Lost, changed = lost, true
		}
	}
	if !changed {
		return nil
	}
	if _, err := w.o.Records.Write(ctx, id, r, s.version, LedgerCond{}); err != nil && !errors.Is(err, metadata.ErrVersion) && !errors.Is(err, metadata.ErrUnknownOutcome) {
		return err
	}
	return nil
}

// verify looks at a ledger's objects. Findings are in the order of shards and offsets; the error is the context's.
func (t *tier) verify(ctx context.Context, c *copyOf, level VerifyLevel, rate *pace.Bucket, bookies *comparison) ([]Finding, error) {
	v := &verification{t: t, c: c, rate: rate, bad: map[int]bool{}, bookies: bookies}
	v.manifests(ctx, level)
	if c.manifest.Inline == nil {
		for i := range c.record.Placement {
			v.head(ctx, i)
		}
	}
	switch {
	case ctx.Err() != nil:
	case level == VerifySample:
		v.sample(ctx)
	case level == VerifyFull:
		v.full(ctx)
	}
	if ctx.Err() != nil {
		return v.findings, context.Cause(ctx)
	}
	if g := c.manifest.Geometry; v.worst > g.Parity || len(v.bad) > g.Parity {
		v.add(Finding{Kind: FindingLost, Shard: -1, Err: fmt.Errorf("%d of %d shards are good, %d are needed", g.Shards()-max(v.worst, len(v.bad)), g.Shards(), g.Data)})
	}
	return v.findings, nil
}

type verification struct {
	t        *tier
	c        *copyOf
	rate     *pace.Bucket
	findings []Finding
	bad      map[int]bool // shards that need not be read
	worst    int          // the most cells of one stripe that are not good
	bookies  *comparison  // nil: only the tier is looked at
}

func (v *verification) add(f Finding) {
	f.Ledger = v.c.id
	v.findings = append(v.findings, f)
	v.t.m.scrubFindings.inc(string(f.Kind))
}

// kindOf says what an error of a request means for an object.
func kindOf(err error) FindingKind {
	switch objstore.KindOf(err) {
	case objstore.KindNotFound:
		return FindingMissing
	case objstore.KindRange, objstore.KindSize:
		return FindingShort
	}
	return FindingUnchecked
}

func (v *verification) manifests(ctx context.Context, level VerifyLevel) {
	r := v.c.record
	key := ManifestName(r.Attempt, v.c.id)
	for _, target := range r.Manifest.Targets {
		err := v.manifest(ctx, target, key, level)
		if err == nil || ctx.Err() != nil {
			continue
		}
		kind := FindingManifest
		if k := kindOf(err); k == FindingUnchecked && !corrupt.Is(err) {
			kind = k
		}
		v.add(Finding{Kind: kind, Target: target, Object: key, Shard: -1, Err: err})
	}
	if want := min(r.Geometry.Parity+1, len(distinctTargets(r))); len(r.Manifest.Targets) < want {
		v.add(Finding{Kind: FindingManifest, Object: key, Shard: -1, Err: fmt.Errorf("%d copies, there should be %d", len(r.Manifest.Targets), want)})
	}
}

func distinctTargets(r *Record) []string {
	var out []string
	for i := range r.Placement {
		if !slices.Contains(out, r.Placement[i].Target) {
			out = append(out, r.Placement[i].Target)
		}
	}
	return out
}

func (v *verification) manifest(ctx context.Context, target, key string, level VerifyLevel) error {
	r := v.c.record
	store, err := v.t.targets.store(target)
	if err != nil {
		return err
	}
	info, err := store.Head(ctx, key)
	if err != nil {
		return err
	}
	if err := checkInfo(info, shardSum{r.Manifest.Length, r.Manifest.CRC32C}, key); err != nil {
		return err
	}
	if level == VerifyHead {
		return nil
	}
	if err := v.read(ctx, int(r.Manifest.Length)); err != nil {
		return err
	}
	err = v.t.checkManifestCopy(ctx, target, key, r)
	if corrupt.Is(err) && v.again(ctx, target, int(r.Manifest.Length)) {
		err = v.t.checkManifestCopy(ctx, target, key, r)
	}
	return err
}

// read counts and paces bytes.
func (v *verification) read(ctx context.Context, n int) error {
	v.t.m.scrubBytes.Add(n)
	return v.rate.Wait(ctx, n)
}

func (v *verification) head(ctx context.Context, shard int) {
	p := &v.c.record.Placement[shard]
	s := &v.c.manifest.Shards[shard]
	f := Finding{Target: p.Target, Object: v.c.shardName(shard), Shard: shard}
	if p.Missing {
		f.Kind, f.Err = FindingMissing, fmt.Errorf("the record says so")
		v.bad[shard] = true
		v.add(f)
		return
	}
	store, err := v.t.targets.store(p.Target)
	if err == nil {
		var info objstore.Info
		if info, err = store.Head(ctx, f.Object); err == nil {
			err = checkInfo(info, shardSum{s.Length, s.CRC32C}, f.Object)
		}
	}
	if err != nil && ctx.Err() == nil {
		f.Kind, f.Err = kindOf(err), err
		v.bad[shard] = true
		v.add(f)
	}
}

// sample reads some blocks, the first and the last among them.
func (v *verification) sample(ctx context.Context) {
	n := v.c.manifest.Blocks()
	count := min(n, max(sampleBlocks, n/100))
	rng := rand.New(rand.NewPCG(rand.Uint64(), 1)) //nolint:gosec // which blocks is not a secret
	for j := range count {
		i := rng.IntN(n)
		switch j {
		case 0:
			i = 0
		case 1:
			i = n - 1
		}
		p := v.page(ctx, i)
		if p == nil {
			return
		}
		v.block(ctx, p, i)
	}
}

// page returns the page that block i is on; nil says that it could not be had, or that ctx has ended.
func (v *verification) page(ctx context.Context, i int) *page {
	p, err := v.t.page(ctx, v.c, i)
	if err != nil && ctx.Err() == nil {
		kind := FindingManifest
		if errors.Is(err, ErrUnavailable) {
			kind = FindingUnchecked
		}
		v.add(Finding{Kind: kind, Object: ManifestName(v.c.record.Attempt, v.c.id), Shard: -1, Err: err})
	}
	if ctx.Err() != nil {
		return nil
	}
	return p
}

// again says whether bytes that did not match are to be fetched once more: they may have been damaged on the way.
func (v *verification) again(ctx context.Context, target string, n int) bool {
	v.t.m.crcFailures.inc(target)
	return ctx.Err() == nil && v.read(ctx, n) == nil
}

func (v *verification) block(ctx context.Context, p *page, i int) {
	c := v.c
	ref := p.ref(i)
	if c.manifest.Inline != nil {
		if _, err := c.openBlock(p, i, c.manifest.Inline[ref.offset:ref.offset+ref.stored]); err != nil {
			v.add(Finding{Kind: FindingCell, Object: ManifestName(c.record.Attempt, c.id), Shard: -1, Offset: int64(ref.offset), Err: err})
		}
		return
	}
	s := c.spanOf(p, i, i)
	n := int(s.to - s.from)
	if v.bad[s.shard] || v.read(ctx, n) != nil {
		return
	}
	f := Finding{Kind: FindingCell, Target: c.record.Placement[s.shard].Target, Object: c.shardName(s.shard), Shard: s.shard, Offset: s.object + int64(s.from)}
	for try := range 2 {
		b, err := v.t.get(ctx, c, s.stripe, s.shard, s.from, s.to)
		if err != nil {
			f.Kind, f.Err = kindOf(err), err
			break
		}
		f.Kind = FindingCell
		if _, f.Err = c.openBlock(p, i, b); f.Err == nil || try == 0 && !v.again(ctx, f.Target, n) {
			break
		}
	}
	if f.Err != nil && ctx.Err() == nil {
		v.add(f)
	}
}

// full reads every cell once.
func (v *verification) full(ctx context.Context) {
	c := v.c
	content, whole, next := xxh3.New(), true, 0
	var p *page
	buffers := newCellBuffers(c.manifest.Geometry)
	defer buffers.close() //nolint:errcheck // memory of this function
	// cell opens the blocks of a data cell, whose bytes are nil if they are not good.
	cell := func(number uint32, b []byte) {
		for ; next < c.manifest.Blocks(); next++ {
			if p == nil || next == p.behind() {
				if p = v.page(ctx, next); p == nil {
					whole, next = false, c.manifest.Blocks()
					return
				}
			}
			ref := p.ref(next)
			if ref.cell != number {
				return
			}
			if b == nil {
				whole = false
				v.bookies.skip(ctx, p.entries(next))
				continue
			}
			whole = v.open(ctx, p, next, b[ref.offset:ref.offset+ref.stored], content) && whole
		}
	}
	for stripe := range c.manifest.stripes {
		cells := v.fetch(ctx, stripe, buffers)
		lost := 0
		for shard := range cells {
			b := v.check(ctx, stripe, shard, cells[shard], buffers)
			if ctx.Err() != nil {
				return
			}
			if b == nil && (v.bad[shard] || c.manifest.stripes[stripe].length(shard) > 0) {
				lost++
			}
			if shard < c.manifest.Geometry.Data {
				cell(uint32(stripe*c.manifest.Geometry.Data+shard), b) //nolint:gosec // bounded
			}
		}
		v.worst = max(v.worst, lost)
	}
	if c.manifest.Inline != nil {
		cell(0, c.manifest.Inline)
	}
	if whole && content.Sum128().Bytes() != c.manifest.Content {
		v.add(Finding{Kind: FindingContent, Object: ManifestName(c.record.Attempt, c.id), Shard: -1, Err: fmt.Errorf("the digest over all entries is not the one taken while reading the bookies")})
	}
}

// open decodes a block, gathers its content, and compares it with what the bookies hold, if it is to.
func (v *verification) open(ctx context.Context, p *page, i int, stored []byte, content *xxh3.Hasher) bool {
	c := v.c
	b, err := c.openBlock(p, i, stored)
	f := Finding{Kind: FindingCell, Object: ManifestName(c.record.Attempt, c.id), Shard: -1, Offset: int64(p.ref(i).offset), Err: err}
	if c.manifest.Inline == nil {
		s := c.spanOf(p, i, i)
		f.Target, f.Object, f.Shard, f.Offset = c.record.Placement[s.shard].Target, c.shardName(s.shard), s.shard, s.object+int64(s.from)
	}
	if err != nil {
		v.bookies.skip(ctx, p.entries(i))
		v.add(f)
		return false
	}
	if len(b.Entries) > 0 {
		sum := b.content()
		_, _ = content.Write(sum[:]) // never fails
	}
	if err := v.bookies.block(ctx, b); err != nil {
		f.Kind, f.Shard, f.Err = FindingContent, -1, err // no shard is to be rebuilt: all are as they were written
		v.add(f)
	}
	return true
}

// fetched is a cell as a target returned it.
type fetched struct {
	b   []byte
	err error
}

// fetch reads the cells of a stripe into buffers, some at once. Those that need not be read stay empty.
func (v *verification) fetch(ctx context.Context, stripe int, buffers cellBuffers) []fetched {
	c := v.c
	out := make([]fetched, c.manifest.Geometry.Shards())
	slots := make(chan struct{}, verifyInFlight)
	var wg sync.WaitGroup
	for shard := range out {
		n := c.manifest.stripes[stripe].length(shard)
		if v.bad[shard] || n == 0 || v.read(ctx, int(n)) != nil {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			out[shard].b, out[shard].err = v.t.getInto(ctx, c, stripe, shard, 0, n, buffers)
			<-slots
		})
	}
	wg.Wait()
	return out
}

// check compares a cell with its checksum; nil says that it is not good, or was not read.
func (v *verification) check(ctx context.Context, stripe, shard int, f fetched, buffers cellBuffers) []byte {
	c := v.c
	finding := Finding{Target: c.record.Placement[shard].Target, Object: c.shardName(shard), Shard: shard, Offset: c.cellOffset(stripe, shard)}
	if f.err != nil {
		if ctx.Err() == nil {
			finding.Kind, finding.Err = kindOf(f.err), f.err
			v.add(finding)
		}
		return nil
	}
	if f.b == nil {
		return nil
	}
	want := c.manifest.stripes[stripe].crcs[shard]
	if objstore.CRC32C(f.b) != want && v.again(ctx, finding.Target, len(f.b)) {
		if b, err := v.t.getInto(ctx, c, stripe, shard, 0, uint32(len(f.b)), buffers); err == nil { //nolint:gosec // a cell
			f.b = b
		}
	}
	if got := objstore.CRC32C(f.b); got != want {
		finding.Kind, finding.Err = FindingCell, fmt.Errorf("CRC32C %08x, the manifest says %08x", got, want)
		v.add(finding)
		return nil
	}
	return f.b
}
