//go:build crash

package crash

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/driver"
)

const (
	ledgersMin   = 6        // that may be written to
	bytesPerDisk = 12 << 20 // of live entries on one bookie; beyond it the oldest ledgers are deleted
)

// records keeps the metadata records of the world's ledgers.
type records struct {
	store   metadata.Store
	ledgers *metadata.Ledgers
	bookies []ledger.BookieID
}

func openRecords(ctx context.Context, uri string) (*records, error) {
	store, root, err := driver.Open(ctx, uri, driver.Options{Timeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	list, err := metadata.NewBookies(store, root).List(ctx, metadata.Writable)
	if err != nil {
		store.Close()
		return nil, err
	}
	r := &records{store: store, ledgers: metadata.NewLedgers(store, root)}
	for _, b := range list {
		r.bookies = append(r.bookies, b.ID)
	}
	return r, nil
}

// create makes a ledger with a record that names all bookies.
func (r *records) create(ctx context.Context, w *world, rng *rand.Rand) error {
	m := &ledger.Metadata{
		FormatVersion: 3, Ensemble: len(r.bookies), WriteQuorum: len(r.bookies), AckQuorum: 1,
		State: ledger.StateOpen, LastEntry: ledger.InvalidEntry, Digest: ledger.DigestCRC32C, HasPassword: true,
		Fragments: []ledger.Fragment{{First: 0, Bookies: r.bookies}},
		CTime:     time.Now().UnixMilli(), HasCTime: true,
	}
	id := 1 + rng.Int64N(1<<40)
	if _, err := r.ledgers.Create(ctx, ledger.ID(id), m); err != nil {
		return err
	}
	w.add(id, true, rng.IntN(6) == 0)
	return nil
}

// remove deletes a ledger's record. From here on bookies may drop what they have of it.
func (r *records) remove(ctx context.Context, w *world, l *ledgerState) {
	l.deleted.Store(int64(w.round))
	// Should this fail, the outcome is unknown, and the record is left over; nothing depends on it.
	_ = r.ledgers.Delete(ctx, ledger.ID(l.id), metadata.Any)
}

// replenish creates and deletes ledgers until there are enough and not too much is in them.
func (r *records) replenish(ctx context.Context, w *world, rng *rand.Rand) error {
	active := w.active()
	var bytes int64
	for i := len(active) - 1; i >= 0; i-- { // newest first
		bytes += active[i].replicas[0].bytes(w.content)
		if bytes > bytesPerDisk {
			for _, l := range active[:i+1] {
				r.remove(ctx, w, l)
			}
			active = active[i+1:]
			break
		}
	}
	for n := len(active); n < ledgersMin || rng.IntN(2) == 0 && n < 2*ledgersMin; n++ {
		if err := r.create(ctx, w, rng); err != nil {
			return err
		}
	}
	return nil
}
