package autorecovery

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/ledgerclient/placement"
)

// cluster is the bookies as they are at one moment.
type cluster struct {
	bookies  []placement.Bookie // registered; one that is being emptied counts as read-only
	draining []ledger.BookieID
}

// look reads the bookies from the store.
func (s *Service) look(ctx context.Context) (*cluster, error) {
	draining, err := s.o.Views.Replication.Draining(ctx)
	if err != nil {
		return nil, err
	}
	bookies, err := s.o.Client.Candidates(ctx)
	if err != nil {
		return nil, err
	}
	for i := range bookies {
		if slices.Contains(draining, bookies[i].ID) {
			bookies[i].ReadOnly = true
		}
	}
	return &cluster{bookies: bookies, draining: draining}, nil
}

func (c *cluster) find(b ledger.BookieID) *placement.Bookie {
	for i := range c.bookies {
		if c.bookies[i].ID == b {
			return &c.bookies[i]
		}
	}
	return nil
}

// up says that a bookie answers reads.
func (c *cluster) up(b ledger.BookieID) bool { return c.find(b) != nil }

// lost says that a bookie's copies are to be made anew elsewhere: it is not registered, or is being emptied.
func (c *cluster) lost(b ledger.BookieID) bool {
	return c.find(b) == nil || slices.Contains(c.draining, b)
}

// writable says that a bookie takes copies.
func (c *cluster) writable(b ledger.BookieID) bool {
	x := c.find(b)
	return x != nil && !x.ReadOnly
}

// records yields every record. One that can not be decoded is counted and passed over: it must not keep all others from
// being looked at. Other errors are the last thing yielded.
func records(ctx context.Context, l *metadata.Ledgers, damaged func(ledger.ID, error)) iter.Seq2[metadata.Record, error] {
	return func(yield func(metadata.Record, error) bool) {
		after := ledger.ID(-1)
		for r, err := range l.Records(ctx) {
			if err == nil {
				after = r.ID
				if !yield(r, nil) {
					return
				}
				continue
			}
			if !corrupt.Is(err) {
				yield(metadata.Record{}, err)
				return
			}
		}
		// What is left, if the listing ended at a damaged record, is read one by one.
		for {
			ids, err := l.List(ctx, after, 1000)
			if err != nil {
				yield(metadata.Record{}, err)
				return
			}
			if len(ids) == 0 {
				return
			}
			for _, id := range ids {
				after = id
				m, v, err := l.Read(ctx, id)
				switch {
				case isNoLedger(err):
				case corrupt.Is(err):
					damaged(id, err)
				case err != nil:
					yield(metadata.Record{}, fmt.Errorf("read ledger %d: %w", id, err))
					return
				case !yield(metadata.Record{ID: id, Metadata: m, Version: v}, nil):
					return
				}
			}
		}
	}
}
