package autorecovery

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/ledgerclient"
	"github.com/binderylog/bindery/ledgerclient/placement"
)

func isNoLedger(err error) bool {
	return errors.Is(err, metadata.ErrNoLedger) || errors.Is(err, ledgerclient.ErrNoSuchLedger)
}

// place is one place of a fragment that lacks copies, or lies where it should not.
type place struct {
	fragment, index int
	bookie          ledger.BookieID
	last            ledger.EntryID // of the fragment
	to              ledger.BookieID
	has             func(ledger.EntryID) bool // what the bookie says it has; nil: it did not say
}

// inspection is one look at a ledger, on one snapshot of its record: what a ledger that closes meanwhile becomes does not
// matter, since every copy is judged anew on the record that it changes.
type inspection struct {
	s        *Service
	cl       *cluster
	id       ledger.ID
	m        *ledger.Metadata
	suspects []ledger.BookieID // said by the mark to lack copies: all their entries are asked for, not the first and last only
	percent  int               // of the entries are read, beside first and last
	places   bool              // look at placement, too
	filled   map[placeID]bool  // filled since the ledger was locked: what does not say what it has is believed then
}

// placeID names a place across looks at a ledger.
type placeID struct {
	first  ledger.EntryID // of the fragment
	index  int
	bookie ledger.BookieID
}

// run returns the places of final fragments that lack copies.
func (n *inspection) run(ctx context.Context) ([]place, error) {
	copies, err := n.s.o.Client.Copies(n.id, n.m)
	if err != nil {
		return nil, err
	}
	var bad []place
	for i, f := range n.m.Fragments {
		last, final := n.m.FinalFragment(i)
		if !final {
			continue
		}
		whole := true
		for index, b := range f.Bookies {
			p := place{fragment: i, index: index, bookie: b, last: last}
			lacks, err := n.lacks(ctx, copies, &p)
			if err != nil {
				return nil, err
			}
			if lacks {
				bad, whole = append(bad, p), false
			}
		}
		if n.places && whole && n.m.State == ledger.StateClosed {
			bad = n.misplaced(bad, i, last)
		}
	}
	return bad, nil
}

// misplaced adds a place of fragment i whose move brings the fragment onto enough racks.
func (n *inspection) misplaced(bad []place, i int, last ledger.EntryID) []place {
	ensemble := n.m.Fragments[i].Bookies
	if placement.Adheres(n.cl.bookies, ensemble, n.m.WriteQuorum, n.s.o.MinRacks) {
		return bad
	}
	index, to, ok := placement.Misplaced(n.cl.bookies, ensemble, n.m.WriteQuorum, n.s.o.MinRacks, rand.Float64)
	if !ok {
		return bad
	}
	return append(bad, place{fragment: i, index: index, bookie: ensemble[index], last: last, to: to})
}

// lacks reports whether a place lacks copies.
func (n *inspection) lacks(ctx context.Context, copies *ledgerclient.Copies, p *place) (bool, error) {
	if n.cl.lost(p.bookie) {
		return true, nil // also if nothing stripes to it: nobody should wait for it
	}
	first, end, some := n.m.StoredAt(p.fragment, p.index, p.last)
	if !some {
		return false, nil
	}
	if slices.Contains(n.suspects, p.bookie) {
		has, answer, err := copies.List(ctx, p.bookie)
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if err == nil {
			for e := first; e <= end; e++ {
				if n.m.Quorum().Stores(e, p.index) && !has(e) {
					p.has = has
					return true, nil
				}
			}
		} else if answer == ledger.AnswerNegative || !n.filled[placeID{n.m.Fragments[p.fragment].First, p.index, p.bookie}] {
			return true, nil // in limbo, most likely: it is asked for each entry when the place is filled
		}
	}
	// All samples are read, also behind a bad one: the bookie learns of its damage by that, and leaves it out of its list.
	bad := map[ledger.EntryID]bool{}
	for _, e := range n.samples(p, first, end) {
		_, answer, err := copies.Read(ctx, p.bookie, e)
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if answer == ledger.AnswerOK {
			continue
		}
		bad[e] = true
		if said := (*ledgerclient.BookieError)(nil); !errors.As(err, &said) || said.Code == "" {
			break // it does not answer: waiting for each entry in turn tells nothing more
		}
	}
	if len(bad) == 0 {
		return false, nil
	}
	if has, _, err := copies.List(ctx, p.bookie); err == nil {
		p.has = func(e ledger.EntryID) bool { return !bad[e] && has(e) }
	}
	return true, nil
}

// samplesMax bounds how many entries of one place are read.
const samplesMax = 1 << 16

// samples are the entries of a place to read: first, last, and a share of those between.
func (n *inspection) samples(p *place, first, end ledger.EntryID) []ledger.EntryID {
	out := []ledger.EntryID{first}
	if n.percent > 0 {
		for e := first + 1; e < end && len(out) < samplesMax; e++ {
			if n.m.Quorum().Stores(e, p.index) && (n.percent >= 100 || rand.IntN(100) < n.percent) {
				out = append(out, e)
			}
		}
	}
	if end > first {
		out = append(out, end)
	}
	return out
}
