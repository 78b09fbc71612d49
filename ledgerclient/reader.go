package ledgerclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/binderylog/bindery/internal/digest"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/wire"
	"github.com/binderylog/bindery/offload"
)

// Reader reads a ledger. It may be used by any number of goroutines, and any number of iterations may run at once.
type Reader struct {
	client *Client
	id     LedgerID
	digest *digest.Digest
	prefer atomic.Int32                   // index that reads of an unstriped ensemble begin with
	tier   atomic.Pointer[offload.Handle] // not nil: entries come from there, and the ledger's own record may be gone

	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc

	mu   sync.Mutex // guards core
	core *ledger.Reader
}

// Open opens a ledger for reading. An open ledger can be read up to the LAC that an ack quorum of its bookies knows; with
// o.Recover it is ended first, whatever its writer does.
func (c *Client) Open(ctx context.Context, id LedgerID, o OpenOptions) (*Reader, error) {
	if err := c.err(); err != nil {
		return nil, err
	}
	r, err := c.openOnBookies(ctx, id, o)
	if !errors.Is(err, ErrNoSuchLedger) {
		return r, err
	}
	if c.tier == nil {
		return nil, c.explainAbsence(ctx, id, err)
	}
	if r, err = c.openReleased(ctx, id, o); err != nil { // it has moved, maybe since we have read its record
		err = about("open", id, err)
	}
	return r, err
}

// openOnBookies opens a ledger that has a record.
func (c *Client) openOnBookies(ctx context.Context, id LedgerID, o OpenOptions) (*Reader, error) {
	m, v, d, password, err := c.openRecord(ctx, id, o)
	if err != nil {
		return nil, about("open", id, err)
	}
	if o.Recover && m.State != StateClosed {
		if m, v, err = c.recover(ctx, id, m, v, d, password); err != nil {
			return nil, about("recover", id, err)
		}
	}
	r := &Reader{client: c, id: id, digest: d, core: ledger.NewReader(m, int64(v))}
	r.prefer.Store(rand.Int32N(int32(m.Ensemble)))
	r.ctx, r.cancel = context.WithCancelCause(c.ctx)
	if m.State != StateClosed {
		if err := r.readLAC(ctx); err != nil {
			r.cancel(ErrClosed)
			return nil, about("open", id, err)
		}
	}
	return r, nil
}

// openRecord reads the record of a ledger and checks the password.
func (c *Client) openRecord(ctx context.Context, id LedgerID, o OpenOptions) (_ *Metadata, _ metadata.Version, _ *digest.Digest, password []byte, _ error) {
	m, v, err := c.views.Ledgers.Read(ctx, id)
	if err != nil {
		return nil, 0, nil, nil, metaError(err)
	}
	password = o.Password
	switch {
	case o.Admin:
		password = m.Password
	case m.HasPassword && !bytes.Equal(password, m.Password):
		return nil, 0, nil, nil, ErrUnauthorized
	}
	d, err := digestOf(m, password)
	return m, v, d, password, err
}

// digestOf returns the digest of a ledger's entries.
func digestOf(m *Metadata, password []byte) (*digest.Digest, error) {
	typ := m.Digest
	if !typ.Valid() { // records of version 1 carry none
		typ = DigestCRC32
	}
	return digest.New(typ, password)
}

// ID returns the ledger's id.
func (r *Reader) ID() LedgerID { return r.id }

// Metadata returns the ledger's record as this reader knows it.
func (r *Reader) Metadata() *Metadata {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, _ := r.core.Metadata()
	return m.Clone()
}

// LastAddConfirmed returns the id of the last entry that may be read: the last entry of a closed ledger.
func (r *Reader) LastAddConfirmed() EntryID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.LastAddConfirmed()
}

// ReadLastAddConfirmed asks the bookies how far the ledger is confirmed by now and returns it: what packets have carried, and
// what the writer has told them since (Options.ExplicitLACInterval). On a closed ledger it is the end.
func (r *Reader) ReadLastAddConfirmed(ctx context.Context) (EntryID, error) {
	if r.ctx.Err() != nil {
		return InvalidEntry, context.Cause(r.ctx)
	}
	if r.Sealed() {
		return r.LastAddConfirmed(), nil
	}
	if _, err := r.refresh(ctx); err != nil { // the ensemble to ask, or the end
		return InvalidEntry, about("read the LAC of", r.id, err)
	}
	if !r.Sealed() {
		if err := r.readLAC(ctx); err != nil {
			return InvalidEntry, about("read the LAC of", r.id, err)
		}
	}
	return r.LastAddConfirmed(), nil
}

// Sealed reports whether the ledger is closed, so that LastAddConfirmed is its end.
func (r *Reader) Sealed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.Sealed()
}

// Close ends the reader and every iteration of it.
func (r *Reader) Close() error {
	if r.ctx.Err() != nil {
		return ErrClosed
	}
	r.cancel(fmt.Errorf("ledger %d: reader: %w", r.id, ErrClosed))
	return nil
}

// record returns the record as the reader knows it; it must not be changed.
func (r *Reader) record() *ledger.Metadata {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, _ := r.core.Metadata()
	return m
}

// refresh reads the record again and reports whether it is newer.
func (r *Reader) refresh(ctx context.Context) (newer bool, err error) {
	m, v, err := r.client.views.Ledgers.Read(ctx, r.id)
	if err != nil {
		return false, metaError(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, old := r.core.Metadata()
	r.core.Record(m, int64(v))
	return int64(v) > old, nil
}

func (r *Reader) raise(lac EntryID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.core.Raise(lac)
}

// readLAC asks every bookie of the last ensemble for the LAC, until no ack quorum can lie among those that are silent.
func (r *Reader) readLAC(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		unasked, err := r.readLACOnce(ctx)
		if err == nil || !r.client.reconnect(ctx, unasked, attempt) {
			return err
		}
	}
}

// readLACOnce is one attempt. unasked are the bookies that nobody tried to reach, since an attempt had failed a moment ago.
func (r *Reader) readLACOnce(ctx context.Context) (unasked []*peer, _ error) {
	m := r.record()
	read := ledger.NewLACRead(m.Quorum())
	box := newMailbox()
	for i, b := range m.Last().Bookies {
		r.client.peer(b).send(wire.V3, &wire.Request{Op: wire.OpReadLAC, Ledger: int64(r.id)}, &call{sink: box, index: i}, r.client.o.ReadTimeout)
	}
	var causes []error
	for {
		select {
		case <-box.wake:
		case <-ctx.Done():
			return nil, fmt.Errorf("no quorum of answers: %w", context.Cause(ctx))
		}
		calls, _ := box.take()
		for _, x := range calls {
			if x.conn.paused {
				unasked = append(unasked, x.conn.peer)
			}
			lac, answer, err := r.lacOf(x)
			if err != nil {
				causes = append(causes, err)
			}
			switch read.Answer(x.index, answer, lac) {
			case ledger.ReadFound:
				r.raise(read.LAC())
				return nil, nil
			case ledger.ReadFailed:
				return unasked, &QuorumError{Ledger: r.id, Entry: InvalidEntry, Need: m.Ensemble - m.AckQuorum + 1, Got: m.Ensemble - len(causes),
					Causes: append([]error{ErrNotEnoughBookies}, causes...)}
			}
		}
	}
}

// lacOf checks the answer to READ_LAC and returns the highest LAC in it. An Apache bookie that has an explicit LAC and no
// entry answers EIO with the LAC.
func (r *Reader) lacOf(x *call) (EntryID, ledger.Answer, error) {
	lac, answer := InvalidEntry, x.answer()
	if x.err != nil || answer != ledger.AnswerOK && len(x.lacBody) == 0 {
		err := x.failure()
		if answer == ledger.AnswerNegative {
			err = nil
		}
		return lac, answer, err
	}
	if len(x.lacBody) > 0 {
		v, err := r.digest.OpenLAC(x.lacBody, int64(r.id))
		if err != nil {
			return lac, ledger.AnswerBadDigest, r.badDigest(x, err)
		}
		lac = max(lac, EntryID(v))
	}
	if len(x.last) > 0 {
		e, err := r.digest.Open(x.last, int64(r.id), -1)
		if err != nil {
			return lac, ledger.AnswerBadDigest, r.badDigest(x, err)
		}
		lac = max(lac, EntryID(e.LAC))
	}
	return lac, ledger.AnswerOK, nil
}

func (r *Reader) badDigest(x *call, err error) error {
	r.client.m.digestMismatches.Inc()
	return &BookieError{Bookie: x.conn.peer.id, Op: x.op.String(), Err: kinded(ErrDigestMismatch, err)}
}

// watch follows the record until ctx ends.
func (r *Reader) watch(ctx context.Context) <-chan metadata.LedgerEvent {
	return r.client.views.Ledgers.Watch(ctx, r.id)
}
