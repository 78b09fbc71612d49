package offload

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/binderylog/bindery/offload/objstore"
)

// Target is an object store that shards go to. Its id stands in records and never changes its meaning: a bucket that moves gets a
// new id, and the old one is drained.
type Target struct {
	ID     string // 1 to 64 letters, digits, '-', '_' and '.'
	Domain string // targets of one domain fail together; empty: a domain of its own
	Store  objstore.Store
}

// Targets is the set of configured targets.
type Targets struct {
	byID   map[string]objstore.Store
	places []Place
}

// NewTargets checks a configuration. The stores stay the caller's.
func NewTargets(list []Target) (*Targets, error) {
	t := &Targets{byID: map[string]objstore.Store{}}
	for _, x := range list {
		switch {
		case !validTargetID(x.ID):
			return nil, fmt.Errorf("offload target id %q: 1 to %d letters, digits, '-', '_' and '.'", x.ID, targetIDMax)
		case t.byID[x.ID] != nil:
			return nil, fmt.Errorf("offload target %s is configured twice", x.ID)
		case x.Store == nil:
			return nil, fmt.Errorf("offload target %s has no store", x.ID)
		}
		t.byID[x.ID] = x.Store
		t.places = append(t.places, Place{Target: x.ID, Domain: cmp.Or(x.Domain, "target "+x.ID)})
	}
	return t, nil
}

func validTargetID(id string) bool {
	if id == "" || len(id) > targetIDMax {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// Places returns the targets as placement sees them.
func (t *Targets) Places() []Place { return slices.Clone(t.places) }

// domain returns the failure domain of a target, "" for one that is not configured.
func (t *Targets) domain(id string) string {
	for _, p := range t.places {
		if p.Target == id {
			return p.Domain
		}
	}
	return ""
}

// store returns a target's store. A target that is not configured is as good as unreachable, and says what to do.
func (t *Targets) store(id string) (objstore.Store, error) {
	if s := t.byID[id]; s != nil {
		return s, nil
	}
	return nil, &objstore.Error{Kind: objstore.KindUnreachable, Target: id, Op: "use", Err: fmt.Errorf("no target of this id is configured"), Hint: "add it to the offload targets again, under the same id"}
}
