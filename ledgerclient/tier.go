package ledgerclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/offload"
)

// newTier returns the reader of what has moved to the tier, nil if the client knows no targets.
func newTier(views *metadata.Views, targets *offload.Targets, keys offload.KeySource) (*offload.Reader, error) {
	if targets == nil {
		return nil, nil
	}
	return offload.NewReader(offload.ReaderOptions{Records: offload.NewRecords(views), Targets: targets, Keys: keys})
}

// OffloadRecords returns the records of what has moved to the tier. It is for programs of this module.
func (c *Client) OffloadRecords() *offload.Records { return offload.NewRecords(c.views) }

// openTier looks for a ledger in the tier.
func (c *Client) openTier(ctx context.Context, id LedgerID) (*offload.Handle, error) {
	if c.tier == nil {
		return nil, metaError(metadata.ErrNoLedger)
	}
	h, err := c.tier.Open(ctx, id)
	if errors.Is(err, offload.ErrNotOffloaded) {
		err = metadata.ErrNoLedger
	}
	if err != nil {
		return nil, metaError(err)
	}
	return h, nil
}

// explainAbsence says of a ledger without a record that the tier has it, if so, to who knows no targets.
func (c *Client) explainAbsence(ctx context.Context, id LedgerID, err error) error {
	if _, rerr := c.OffloadRecords().Offloaded(ctx, id); rerr != nil {
		return err
	}
	return about("open", id, &kindError{text: ErrOffloaded.Error(), kind: ErrNoSuchLedger, err: ErrOffloaded})
}

// openReleased opens a ledger whose record is gone: bookies have it no longer, the tier may.
func (c *Client) openReleased(ctx context.Context, id LedgerID, o OpenOptions) (*Reader, error) {
	h, err := c.openTier(ctx, id)
	if err != nil {
		return nil, err
	}
	m := h.Metadata()
	if !o.Admin && m.HasPassword && !bytes.Equal(o.Password, m.Password) {
		return nil, ErrUnauthorized
	}
	r := &Reader{client: c, id: id, core: ledger.NewReader(m, math.MaxInt64)}
	r.tier.Store(h)
	r.ctx, r.cancel = context.WithCancelCause(c.ctx)
	return r, nil
}

// moved reports whether the ledger, whose record or entries are not there, is to be read from the tier from now on. Bookies may
// have dropped their copies since the reader was opened: then "no such entry" would be untrue.
func (r *Reader) moved(ctx context.Context) bool {
	h, err := r.client.openTier(ctx, r.id)
	if err != nil {
		if !errors.Is(err, ErrNoSuchLedger) {
			r.client.o.Logger.Warn("ledger can not be looked for in the tier", "ledger", int64(r.id), "error", err)
		}
		return false
	}
	r.mu.Lock()
	r.core.Record(h.Metadata(), math.MaxInt64) // closed: no later one comes
	r.mu.Unlock()
	r.tier.Store(h)
	return true
}

// scanTier yields a range from the tier. It reports whether the consumer wants more.
func (r *Reader) scanTier(ctx context.Context, h *offload.Handle, first, last EntryID, yield func(Entry, error) bool) bool {
	if first > last {
		return true
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })()
	next := first
	for e, err := range h.Entries(ctx, first, last) {
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			yield(Entry{}, fmt.Errorf("read ledger %d entry %d from the tier: %w", r.id, next, err))
			return false
		}
		if !yield(Entry{ID: e.ID, Data: bytes.Clone(e.Payload)}, nil) { // the block may be in a cache
			return false
		}
		next = e.ID + 1
	}
	return true
}
