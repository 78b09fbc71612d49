package metadata

import (
	"context"
	"fmt"
)

// Views holds every typed view of one cluster.
type Views struct {
	Store        Store
	Root         string
	Ledgers      *Ledgers
	Bookies      *Bookies
	Cookies      *Cookies
	Cluster      *Cluster
	Incarnations *Incarnations
	Replication  *Replication
	Election     *Election
}

// NewViews returns the views of the cluster under root, with the default path scheme. The caller keeps ownership of s.
func NewViews(s Store, root string) *Views {
	return &Views{
		Store:        s,
		Root:         root,
		Ledgers:      NewLedgers(s, root),
		Bookies:      NewBookies(s, root),
		Cookies:      NewCookies(s, root),
		Cluster:      NewCluster(s, root),
		Incarnations: NewIncarnations(s, root),
		Replication:  NewReplication(s, root),
		Election:     NewElection(s, root),
	}
}

// LoadViews is NewViews for a cluster that must exist: it returns ErrNotInitialized otherwise, and takes the path scheme
// from the stored LAYOUT.
func LoadViews(ctx context.Context, s Store, root string) (*Views, error) {
	v := NewViews(s, root)
	if _, err := v.Cluster.InstanceID(ctx); err != nil {
		return nil, err
	}
	layout, err := v.Cluster.Layout(ctx)
	if err != nil {
		return nil, err
	}
	scheme, err := layout.Scheme()
	if err != nil {
		return nil, fmt.Errorf("cluster under %s: %w", root, err)
	}
	v.Ledgers = NewLedgersScheme(s, root, scheme)
	return v, nil
}
