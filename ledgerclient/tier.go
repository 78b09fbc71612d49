package ledgerclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
)

// Tier is where closed ledgers may have moved to; an offload.Reader is one.
type Tier interface {
	// OpenLedger returns the record of a ledger that the tier holds, with its password, and its payloads in order;
	// metadata.ErrNoLedger if it holds none.
	OpenLedger(ctx context.Context, id LedgerID) (*Metadata, func(ctx context.Context, first, last EntryID) iter.Seq2[[]byte, error], error)
	// DeleteLedger deletes a ledger that the tier knows, and its record if there is one; metadata.ErrNoLedger if it knows none.
	DeleteLedger(ctx context.Context, id LedgerID) error
}

// tiered is a ledger in the tier.
type tiered struct {
	meta     *Metadata
	payloads func(ctx context.Context, first, last EntryID) iter.Seq2[[]byte, error]
}

// openTier looks for a ledger in the tier.
func (c *Client) openTier(ctx context.Context, id LedgerID) (*tiered, error) {
	if c.o.Tier == nil {
		return nil, metaError(metadata.ErrNoLedger)
	}
	m, payloads, err := c.o.Tier.OpenLedger(ctx, id)
	if err != nil {
		return nil, metaError(err)
	}
	return &tiered{m, payloads}, nil
}

// openReleased opens a ledger whose record is gone: bookies have it no longer, the tier may.
func (c *Client) openReleased(ctx context.Context, id LedgerID, o OpenOptions) (*Reader, error) {
	t, err := c.openTier(ctx, id)
	if err != nil {
		return nil, err
	}
	if !o.Admin && t.meta.HasPassword && !bytes.Equal(o.Password, t.meta.Password) {
		return nil, ErrUnauthorized
	}
	r := &Reader{client: c, id: id, core: ledger.NewReader(t.meta, 0)}
	r.tier.Store(t)
	r.ctx, r.cancel = context.WithCancelCause(c.ctx)
	return r, nil
}

// moved reports whether the ledger, whose record or entries are not there, is to be read from the tier from now on. Bookies may have
// dropped their copies since the reader was opened: then "no such entry" would be untrue.
func (r *Reader) moved(ctx context.Context) bool {
	if r.client.o.Tier == nil {
		return false
	}
	t, err := r.client.openTier(ctx, r.id)
	if err != nil {
		if !errors.Is(err, ErrNoSuchLedger) {
			r.client.o.Logger.Warn("ledger can not be looked for in the tier", "ledger", int64(r.id), "error", err)
		}
		return false
	}
	r.mu.Lock()
	r.core.Record(t.meta, math.MaxInt64) // closed: no later one comes
	r.mu.Unlock()
	r.tier.Store(t)
	return true
}

// scanTier yields a range from the tier. It reports whether the consumer wants more.
func (r *Reader) scanTier(ctx context.Context, t *tiered, first, last EntryID, yield func(Entry, error) bool) bool {
	if first > last {
		return true
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })()
	next := first
	for payload, err := range t.payloads(ctx, first, last) {
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			yield(Entry{}, fmt.Errorf("read ledger %d entry %d from the tier: %w", r.id, next, err))
			return false
		}
		if !yield(Entry{ID: next, Data: payload}, nil) {
			return false
		}
		next++
	}
	return true
}
