package offload

import (
	"context"

	"github.com/binderylog/bindery/internal/ledger"
)

// DeleteLedger is Records.DeleteLedger.
func (r *Reader) DeleteLedger(ctx context.Context, id ledger.ID) error {
	return r.o.Records.DeleteLedger(ctx, id)
}
