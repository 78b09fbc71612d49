package offload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
)

// ScrubOptions say what a scrub looks at.
type ScrubOptions struct {
	Level  VerifyLevel
	Older  time.Duration // only ledgers whose last full verification is at least so old; 0: all
	Repair bool          // mend what is found, the ledgers with the fewest good shards first
	Found  func(Finding) // called for each finding
}

// Scrubbed is what a scrub did.
type Scrubbed struct {
	Ledgers  int
	Findings int
	Repaired int
	Problems []error
}

// Scrub verifies the ledgers of the tier, those first that were verified longest ago, within the scrub rate; a full one compares them with
// the bookies while those have copies. The error is the metadata store's, or the context's.
func (w *Worker) Scrub(ctx context.Context, o ScrubOptions) (Scrubbed, error) {
	var out Scrubbed
	type due struct {
		id ledger.ID
		at int64
	}
	var queue []due
	now := w.o.now()
	for l, err := range w.o.Records.All(ctx) {
		switch {
		case err != nil:
			return out, err
		case l.Err != nil:
			out.Problems = append(out.Problems, l.Err)
		case l.Record.State == StateComplete || l.Record.State == StateReleased:
			at := max(l.Record.VerifiedAt, 0)
			if o.Older == 0 || now.Sub(time.UnixMilli(at)) >= o.Older {
				queue = append(queue, due{l.Ledger, at})
			}
		}
	}
	slices.SortFunc(queue, func(a, b due) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) })
	type bad struct {
		id     ledger.ID
		shards int
	}
	var repairs []bad
	var keys []*KeyError
	noKey := map[string]int{}
	for _, d := range queue {
		findings, err := w.verify(ctx, d.id, o.Level, o.Level == VerifyFull)
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		if errors.Is(err, ErrNotOffloaded) {
			continue // deleted since
		}
		out.Ledgers++
		var key *KeyError
		if errors.As(err, &key) { // one line for all ledgers of a key
			if noKey[key.KeyID]++; noKey[key.KeyID] == 1 {
				keys = append(keys, key)
			}
			continue
		}
		if err != nil {
			out.Problems = append(out.Problems, ofLedger(d.id, err))
		}
		shards := map[int]bool{}
		for _, f := range findings {
			if f.Kind != FindingContent { // nothing to rebuild that from
				shards[f.Shard] = true
			}
			if o.Found != nil {
				o.Found(f)
			}
		}
		if out.Findings += len(findings); len(shards) > 0 {
			repairs = append(repairs, bad{d.id, len(shards)})
		}
	}
	for _, k := range keys {
		out.Problems = append(out.Problems, fmt.Errorf("%d ledgers could not be looked at: %w", noKey[k.KeyID], k))
	}
	if !o.Repair {
		return out, nil
	}
	slices.SortStableFunc(repairs, func(a, b bad) int { return cmp.Compare(b.shards, a.shards) })
	for _, r := range repairs {
		if _, err := w.Repair(ctx, r.id, RepairOptions{Level: o.Level}); err != nil {
			if ctx.Err() != nil {
				return out, context.Cause(ctx)
			}
			out.Problems = append(out.Problems, ofLedger(r.id, err))
			continue
		}
		out.Repaired++
	}
	return out, nil
}
