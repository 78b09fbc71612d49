// Package placement chooses the bookies of an ensemble.
//
// It is a pure function of a view of the cluster and a source of random numbers: no I/O, no clock, no state. Rules, in
// this order:
//   - never a bookie that is in the ensemble already, or that the caller excludes;
//   - never a read-only one;
//   - one that failed a moment ago (quarantined) only if nothing else is left;
//   - as many different regions as possible, and in a region as many different racks, so that none holds more members than
//     it must;
//   - among equals, at random, by weight.
package placement

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/binderylog/bindery/internal/ledger"
)

// Bookie is a candidate.
type Bookie struct {
	ID          ledger.BookieID
	Domain      string  // rack, zone or the like, or /region/rack; "" is a domain of its own for each bookie
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
	members := domainsOf(view, stay)
	best, sum := rank{}, 0.0
	var chosen ledger.BookieID
	for i := range view {
		b := &view[i]
		if b.ReadOnly || slices.Contains(exclude, b.ID) || slices.Contains(stay, b.ID) {
			continue
		}
		r := rank{quarantined: b.Quarantined}
		r.region, r.shared = sharing(members, b)
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
	region      int // members of the ensemble in the same region
	shared      int // and in the same domain
}

func (r rank) better(o rank) bool {
	if r.quarantined != o.quarantined {
		return !r.quarantined
	}
	if r.region != o.region {
		return r.region < o.region
	}
	return r.shared < o.shared
}

// region is what stands in front of the rack, "" if a domain names only one level.
func region(domain string) string {
	return domain[:max(0, strings.LastIndexByte(domain, '/'))]
}

// domainsOf returns the domains of bookies: "" if it is not registered, and a name of its own for one without a domain.
func domainsOf(view []Bookie, ids []ledger.BookieID) []string {
	domains := make([]string, len(ids))
	for i := range view {
		at := slices.Index(ids, view[i].ID)
		if at < 0 {
			continue
		}
		domains[at] = view[i].Domain
		if view[i].Domain == "" {
			domains[at] = "\x00" + string(view[i].ID)
		}
	}
	return domains
}

// sharing counts the members in b's region and in its domain.
func sharing(members []string, b *Bookie) (inRegion, inDomain int) {
	if b.Domain == "" {
		return 0, 0
	}
	r := region(b.Domain)
	for _, d := range members {
		if r != "" && region(d) == r {
			inRegion++
		}
		if d == b.Domain {
			inDomain++
		}
	}
	return inRegion, inDomain
}

// Adheres reports whether every write set of an ensemble lies on at least min(writeQuorum, domains) different domains. A
// member that is not registered has no domain that is known, and one without a domain is one of its own.
func Adheres(view []Bookie, ensemble []ledger.BookieID, writeQuorum, domains int) bool {
	want := min(writeQuorum, domains)
	of := domainsOf(view, ensemble)
	for start := range ensemble {
		seen := map[string]bool{}
		for i := range writeQuorum {
			if d := of[(start+i)%len(of)]; d != "" {
				seen[d] = true
			}
		}
		if len(seen) < want {
			return false
		}
	}
	return true
}

// Misplaced returns the index of a member whose replacement lets the ensemble adhere, or come closer to it, and the bookie
// to put there; ok is false if there is none. Members are tried in order, so the same view gives the same index.
func Misplaced(view []Bookie, ensemble []ledger.BookieID, writeQuorum, domains int, random func() float64) (index int, to ledger.BookieID, ok bool) {
	for index := range ensemble {
		stay := make([]ledger.BookieID, 0, len(ensemble))
		stay = append(append(stay, ensemble[:index]...), ensemble[index+1:]...)
		to, found := Replace(view, stay, ensemble, random)
		if !found {
			continue
		}
		next := append([]ledger.BookieID(nil), ensemble...)
		next[index] = to
		if Adheres(view, next, writeQuorum, domains) || spread(view, next) > spread(view, ensemble) {
			return index, to, true
		}
	}
	return 0, "", false
}

// spread counts the different domains of an ensemble.
func spread(view []Bookie, ensemble []ledger.BookieID) int {
	seen := map[string]bool{}
	for i := range view {
		if d := view[i].Domain; d != "" && slices.Contains(ensemble, view[i].ID) {
			seen[d] = true
		}
	}
	return len(seen)
}
