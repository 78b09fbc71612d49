// Package placement chooses the bookies of an ensemble.
//
// It is a pure function of a view of the cluster and a source of random numbers: no I/O, no clock, no state. Rules, in
// this order:
//   - never a bookie that is in the ensemble already, or that the caller excludes;
//   - never a read-only one;
//   - one that failed a moment ago (quarantined) only if nothing else is left;
//   - as many different fault domains as possible, so that no domain holds more members than it must;
//   - among equals, at random, by weight.
package placement

import (
	"errors"
	"fmt"

	"github.com/binderylog/bindery/internal/ledger"
)

// Bookie is a candidate.
type Bookie struct {
	ID          ledger.BookieID
	Domain      string  // rack, zone or the like; "" is a domain of its own for each bookie
	Weight      float64 // share of random choice; 0 counts as 1
	ReadOnly    bool
	Quarantined bool
}

// ErrNotEnoughBookies is returned when fewer candidates than wanted are left.
var ErrNotEnoughBookies = errors.New("not enough bookies")

// Choose returns n bookies for a new ensemble from view. random returns a number in [0,1).
func Choose(view []Bookie, n int, random func() float64) ([]ledger.BookieID, error) {
	return ChooseAtLeast(view, n, n, random)
}

// ChooseAtLeast returns up to n bookies for a new ensemble, and not fewer than least.
func ChooseAtLeast(view []Bookie, least, n int, random func() float64) ([]ledger.BookieID, error) {
	ensemble := make([]ledger.BookieID, 0, n)
	for len(ensemble) < n {
		b, ok := Replace(view, ensemble, ensemble, random)
		if !ok && len(ensemble) >= least {
			break
		}
		if !ok {
			return nil, fmt.Errorf("%w: %d wanted, %d of %d registered can be used", ErrNotEnoughBookies, n, len(ensemble), len(view))
		}
		ensemble = append(ensemble, b)
	}
	return ensemble, nil
}

// Replace returns one more bookie for an ensemble that keeps the members in stay, none of exclude. ok is false if there
// is none.
func Replace(view []Bookie, stay, exclude []ledger.BookieID, random func() float64) (_ ledger.BookieID, ok bool) {
	best, sum := rank{}, 0.0
	var chosen ledger.BookieID
	for i := range view {
		b := &view[i]
		if b.ReadOnly || contains(exclude, b.ID) || contains(stay, b.ID) {
			continue
		}
		r := rank{quarantined: b.Quarantined, shared: sharing(view, stay, b)}
		switch {
		case !ok || r.better(best):
			best, sum, ok = r, 0, true
		case best.better(r):
			continue
		}
		// One pass of weighted sampling: the newcomer takes the place with the probability of its share.
		w := b.Weight
		if w <= 0 {
			w = 1
		}
		sum += w
		if random()*sum < w {
			chosen = b.ID
		}
	}
	return chosen, ok
}

// rank orders candidates; lower is better.
type rank struct {
	quarantined bool
	shared      int // members of the ensemble in the same domain
}

func (r rank) better(o rank) bool {
	if r.quarantined != o.quarantined {
		return !r.quarantined
	}
	return r.shared < o.shared
}

// sharing counts the members in b's domain.
func sharing(view []Bookie, members []ledger.BookieID, b *Bookie) int {
	if b.Domain == "" {
		return 0
	}
	n := 0
	for i := range view {
		if view[i].Domain == b.Domain && contains(members, view[i].ID) {
			n++
		}
	}
	return n
}

func contains(ids []ledger.BookieID, id ledger.BookieID) bool {
	for _, x := range ids {
		if x == id {
			return true
		}
	}
	return false
}
