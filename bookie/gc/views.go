package gc

import (
	"context"
	"errors"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
)

// Views is Metadata over the typed views of a metadata store.
type Views struct {
	Records *metadata.Ledgers
	Bookie  ledger.BookieID
	// Begin announces a pass: see Metadata.BeginPass.
	Begin func(ctx context.Context) error
	// Locker takes a ledger's replication lock. Nil: no lock can be taken, and no copy too many is deleted.
	Locker func(ctx context.Context, id ledger.ID) (release func(), ok bool, err error)
}

// BeginPass implements Metadata.
func (v *Views) BeginPass(ctx context.Context) error { return v.Begin(ctx) }

// List implements Metadata.
func (v *Views) List(ctx context.Context, after int64, limit int) ([]int64, error) {
	ids, err := v.Records.List(ctx, ledger.ID(after), limit)
	if err != nil {
		return nil, err
	}
	out := make([]int64, len(ids))
	for i, id := range ids {
		out[i] = int64(id)
	}
	return out, nil
}

// Read implements Metadata.
func (v *Views) Read(ctx context.Context, id int64) (Record, error) {
	m, _, err := v.Records.Read(ctx, ledger.ID(id))
	if errors.Is(err, metadata.ErrNoLedger) {
		return Record{}, nil
	}
	if err != nil {
		return Record{}, err
	}
	return Record{Exists: true, Closed: m.State == ledger.StateClosed, Here: m.Names(v.Bookie)}, nil
}

// Lock implements Metadata.
func (v *Views) Lock(ctx context.Context, id int64) (release func(), ok bool, err error) {
	if v.Locker == nil {
		return nil, false, nil
	}
	return v.Locker(ctx, ledger.ID(id))
}
