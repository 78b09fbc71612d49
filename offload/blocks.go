package offload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/offload/objstore"
)

// openBlock opens stored bytes as block i of a page and compares them with the index: a right-looking block from a wrong place is refused.
func (c *copyOf) openBlock(p *page, i int, stored []byte) (*Block, error) {
	ref := p.ref(i)
	h, err := parseBlockHeader(stored)
	if err != nil {
		return nil, err
	}
	if h.crc != ref.crc || h.first != ref.first || int64(h.count) != p.entries(i) || len(stored) != int(ref.stored) {
		return nil, fmt.Errorf("a block of %d entries from %d with CRC32C %08x; the manifest says %d from %d with %08x", h.count, h.first, h.crc, p.entries(i), ref.first, ref.crc)
	}
	return c.codec.open(stored, uint64(ref.number))
}

// blocks reads blocks first to last of a page, all of one cell, with one GET if all is well. degraded says that it was not.
func (t *tier) blocks(ctx context.Context, c *copyOf, p *page, first, last int) (out []*Block, degraded bool, err error) {
	if c.manifest.Inline != nil {
		for i := first; i <= last; i++ {
			ref := p.ref(i)
			b, err := c.openBlock(p, i, c.manifest.Inline[ref.offset:ref.offset+ref.stored])
			if err != nil {
				return nil, false, corrupt.New(ManifestName(c.record.Attempt, c.id), int64(ref.offset), "inline block", err)
			}
			out = append(out, b)
		}
		return out, false, nil
	}
	t.m.blockGets.Inc()
	start := time.Now()
	s := c.spanOf(p, first, last)
	stored, degraded, err := t.fetch(ctx, c, s)
	if err != nil {
		return nil, true, err
	}
	for i := first; i <= last; i++ {
		ref := p.ref(i)
		b, err := c.openBlock(p, i, stored[ref.offset-s.from:ref.offset-s.from+ref.stored])
		if err != nil {
			degraded = true
			if b, err = t.blockAgain(ctx, c, p, i, err); err != nil {
				return nil, true, err
			}
		}
		out = append(out, b)
	}
	if degraded {
		t.m.readDegraded.UpdateDuration(start)
	} else {
		t.m.readHealthy.UpdateDuration(start)
	}
	return out, degraded, nil
}

// fetch reads a span: from its shard, or, where that fails or is late, or its target has been late again and again, from the others.
// degraded says that something went wrong; reading around a slow target does not count.
func (t *tier) fetch(ctx context.Context, c *copyOf, s span) (_ []byte, degraded bool, err error) {
	type answer struct {
		b      []byte
		err    error
		others bool
	}
	ctx, cancel := context.WithCancel(ctx)
	answers := make(chan answer, 2)
	running := 0
	defer func() {
		cancel()
		for ; running > 0; running-- {
			<-answers // whoever lost ends with the context
		}
	}()
	launch := func(others, rebuild bool) {
		running++
		go func() {
			a := answer{others: others}
			if rebuild {
				a.b, a.err = t.rebuild(ctx, c, s, nil)
			} else {
				a.b, a.err = t.get(ctx, c, s.stripe, s.shard, s.from, s.to)
			}
			answers <- a
		}()
	}
	target := c.record.Placement[s.shard].Target
	late := time.NewTimer(t.latencies.read(target))
	defer late.Stop()
	parity := c.manifest.Geometry.Parity > 0
	around := parity && t.hedging && t.latencies.avoid(target)
	launch(around, around)
	hedged := false
	var first error
	for {
		select {
		case <-late.C:
			if t.hedging && !hedged && !around && t.latencies.hedge() {
				hedged = true
				t.m.hedges.Inc()
				launch(true, parity)
			}
		case a := <-answers:
			running--
			if a.err == nil {
				if a.others && hedged && first == nil {
					t.m.hedgeWins.Inc()
					t.latencies.lostTo(target)
				}
				return a.b, a.others && parity && !around, nil
			}
			if ctx.Err() != nil {
				return nil, true, context.Cause(ctx)
			}
			if !a.others {
				t.blame(c, &shardError{s.shard, target, a.err, false}, s.stripe, s.from)
			}
			switch {
			case first == nil && !hedged && (parity || objstore.KindOf(a.err).Retriable()):
				first, hedged = a.err, true
				launch(!around, parity && !around)
			case running == 0:
				return nil, true, t.failed(c, s, a.err, first)
			default:
				first = a.err
			}
		}
	}
}

// failed makes the error of a span that neither way could give.
func (t *tier) failed(c *copyOf, s span, err, first error) error {
	if errors.Is(err, ErrUnavailable) || corrupt.Is(err) || c.manifest.Geometry.Parity > 0 {
		if first != nil {
			return fmt.Errorf("%w (shard %d on target %s: %w)", err, s.shard, c.record.Placement[s.shard].Target, first)
		}
		return err
	}
	return c.lost(c.shardName(s.shard), s.object+int64(s.from), 0, []*shardError{{s.shard, c.record.Placement[s.shard].Target, err, false}})
}

// blockAgain is for a block whose bytes were wrong: the same once more, then rebuilt from the same range of other cells, then from
// whole cells that were checked.
func (t *tier) blockAgain(ctx context.Context, c *copyOf, p *page, i int, cause error) (*Block, error) {
	s := c.spanOf(p, i, i)
	if stored, err := t.get(ctx, c, s.stripe, s.shard, s.from, s.to); err == nil {
		b, err := c.openBlock(p, i, stored)
		if err == nil {
			return b, nil
		}
		cause = err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if errors.Is(cause, ErrNoKey) {
		return nil, cause
	}
	bad := &shardError{s.shard, c.record.Placement[s.shard].Target, cause, true}
	t.blame(c, bad, s.stripe, s.from)
	if c.manifest.Geometry.Parity == 0 {
		return nil, corrupt.New(c.shardName(s.shard), s.object+int64(s.from), "block", cause)
	}
	if stored, err := t.rebuild(ctx, c, s, nil); err == nil {
		if b, err := c.openBlock(p, i, stored); err == nil {
			return b, nil
		}
	} else if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	cell, err := t.cell(ctx, c, s.stripe, s.shard, nil)
	if err != nil {
		return nil, err
	}
	b, err := c.openBlock(p, i, cell[s.from:s.to])
	if err != nil {
		return nil, corrupt.New(c.shardName(s.shard), s.object+int64(s.from), "block", err)
	}
	return b, nil
}
