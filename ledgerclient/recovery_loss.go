package ledgerclient

import (
	"context"
	"errors"

	"github.com/binderylog/bindery/internal/ledger"
)

// LossKey is the custom metadata in which the record of a ledger keeps what RecoverAcceptingLoss gave up.
const LossKey = ledger.LossKey

// Loss is what a recovery gave up to end a ledger that could not be ended otherwise.
type Loss struct {
	Cut      EntryID    // the ledger ends in front of this entry, which nobody could read or deny; -1: it ends where it should
	Silent   []BookieID // bookies that should know whether they have Cut and could not say
	Unfenced []BookieID // bookies that could not be fenced: a writer that still reaches an ack quorum of them can go on
	Thin     EntryID    // entries from here on are on fewer than an ack quorum of bookies, -1: none is
	Seen     EntryID    // the highest entry that some bookie said it has, -1: none
	LAC      EntryID    // the highest entry known to have been confirmed; nothing up to it is given up
	Text     string     // as the record keeps it under LossKey
	Causes   []error    // what the bookies answered, newest last
}

// RecoverAcceptingLoss ends a ledger as Open with Recover does, and if that fails because too few of its bookies answer or
// can vouch for it, ends it nevertheless. Then entries that were acknowledged may be gone for good: it is the way out when
// their bookies will never come back. note is kept in the record, with what was given up; name who decided it, and why.
// A nil Loss means that nothing was given up.
func (c *Client) RecoverAcceptingLoss(ctx context.Context, id LedgerID, o OpenOptions, note string) (*Metadata, *Loss, error) {
	if err := c.err(); err != nil {
		return nil, nil, err
	}
	m, v, d, password, err := c.openRecord(ctx, id, o)
	if err != nil {
		return nil, nil, about("recover", id, err)
	}
	if m.State == StateClosed {
		return m.Clone(), nil, nil
	}
	sealed, _, err := c.recover(ctx, id, m, v, d, password)
	if err == nil {
		return sealed.Clone(), nil, nil
	}
	if !errors.Is(err, ErrNotEnoughBookies) {
		return nil, nil, about("recover", id, err)
	}
	c.o.Logger.Warn("ledger can not be recovered; going on at the risk of losing acknowledged entries, as asked", "ledger", int64(id), "error", err)
	if m, v, err = c.views.Ledgers.Read(ctx, id); err != nil {
		return nil, nil, about("recover", id, metaError(err))
	}
	r := c.newRecoverer(ctx, id, m, v, d, password, ledger.RecoveryConfig{AcceptLoss: true, LossNote: note})
	if sealed, _, err = r.run(); err != nil {
		c.m.recoveriesFailed.Inc()
		return nil, nil, about("recover", id, err)
	}
	c.m.recoveries.Inc()
	loss := r.loss(sealed)
	if loss != nil {
		c.m.losses.Inc()
		c.o.Logger.Warn("ledger recovered with accepted loss", "ledger", int64(id), "last", int64(sealed.LastEntry), "loss", loss.Text)
	}
	return sealed.Clone(), loss, nil
}

// loss says what the recovery gave up, nil if it is another client's record that closed the ledger.
func (r *recoverer) loss(sealed *Metadata) *Loss {
	l, text := r.core.Loss(), string(sealed.Custom[ledger.LossKey])
	if !l.Any() || text == "" {
		return nil
	}
	out := &Loss{Cut: l.Entry, Thin: l.Thin, Seen: l.Seen, LAC: l.LAC, Text: text, Causes: r.causes}
	for i, b := range l.Ensemble {
		if l.Silent.Has(i) {
			out.Silent = append(out.Silent, b)
		}
		if l.Unfenced.Has(i) {
			out.Unfenced = append(out.Unfenced, b)
		}
	}
	return out
}
