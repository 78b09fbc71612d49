package offload

import (
	"bytes"
	"context"
	"errors"
	"iter"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
)

// OpenLedger returns the record of a ledger that the tier holds, with its password, and its payloads. It is Open in the form that
// ledgerclient.Options.Tier asks for: a ledger that the tier does not hold is metadata.ErrNoLedger.
func (r *Reader) OpenLedger(ctx context.Context, id ledger.ID) (*ledger.Metadata, func(ctx context.Context, first, last ledger.EntryID) iter.Seq2[[]byte, error], error) {
	h, err := r.Open(ctx, id)
	if errors.Is(err, ErrNotOffloaded) {
		return nil, nil, errors.Join(metadata.ErrNoLedger, err)
	}
	if err != nil {
		return nil, nil, err
	}
	return h.Metadata(), h.payloads, nil
}

func (h *Handle) payloads(ctx context.Context, first, last ledger.EntryID) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for e, err := range h.Entries(ctx, first, last) {
			if !yield(bytes.Clone(e.Payload), err) { // a cache may hold the block; what is read is its reader's
				return
			}
		}
	}
}

// DeleteLedger is Worker.Delete for whoever only reads: deletion needs the records alone, and a janitor removes the objects. A
// ledger that the tier does not know, or that is gone already, is metadata.ErrNoLedger.
func (r *Reader) DeleteLedger(ctx context.Context, id ledger.ID) error {
	rec, _, err := r.o.Records.Read(ctx, id)
	if err == nil && rec.State == StateDeleting {
		if _, _, err = r.o.Records.Ledger(ctx, id); errors.Is(err, metadata.ErrNoLedger) {
			return err
		}
	}
	if err == nil {
		err = (&Worker{o: Options{Records: r.o.Records}}).Delete(ctx, id)
	}
	if errors.Is(err, ErrNoRecord) {
		return errors.Join(metadata.ErrNoLedger, err)
	}
	return err
}
