package offload

import (
	"context"
	"errors"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
)

// DeleteLedger is Records.Delete for the ledger client: a ledger that the tier does not know, or that is gone already, is
// metadata.ErrNoLedger.
func (r *Reader) DeleteLedger(ctx context.Context, id ledger.ID) error {
	rec, _, err := r.o.Records.Read(ctx, id)
	if err == nil && rec.State == StateDeleting {
		if _, _, err = r.o.Records.Ledger(ctx, id); errors.Is(err, metadata.ErrNoLedger) {
			return err
		}
	}
	if err == nil {
		err = r.o.Records.Delete(ctx, id)
	}
	if errors.Is(err, ErrNoRecord) {
		return errors.Join(metadata.ErrNoLedger, err)
	}
	return err
}
