package ledgerclient

import (
	"context"
	"fmt"

	"github.com/binderylog/bindery/internal/digest"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
)

// Copies reads and writes single copies of the entries of one ledger, for those who check and repair replication. It decides
// nothing: which copies may be made, and when they may be published, is for its user. It may be used concurrently.
type Copies struct {
	c      *Client
	id     LedgerID
	digest *digest.Digest
	key    []byte
}

// Copies returns access to the copies of a ledger whose record is m. The password is the record's own.
func (c *Client) Copies(id LedgerID, m *Metadata) (*Copies, error) {
	d, err := digestOf(m, m.Password)
	if err != nil {
		return nil, about("copy", id, err)
	}
	key := digest.MasterKey(m.Password)
	return &Copies{c: c, id: id, digest: d, key: key[:]}, nil
}

// oneCall waits for the answer to one request.
type oneCall chan *call

func (o oneCall) callDone(x *call) { o <- x }

// do sends one request and waits for its answer.
func (x *Copies) do(ctx context.Context, b BookieID, proto wire.Proto, req *wire.Request) (*call, error) {
	if err := x.c.err(); err != nil {
		return nil, err
	}
	timeout := x.c.o.ReadTimeout
	if req.Op == wire.OpAdd {
		timeout = x.c.o.AddTimeout
	}
	req.Ledger = int64(x.id)
	done := make(oneCall, 1)
	x.c.peer(b).send(proto, req, &call{sink: done}, timeout)
	select {
	case a := <-done:
		return a, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Read asks one bookie for one entry and returns the entry as it is stored, digest included, once that is checked. The answer
// says what the bookie said: negative when it denies having it, unknown when it can not say, bad digest for another body.
func (x *Copies) Read(ctx context.Context, b BookieID, e EntryID) (body []byte, a ledger.Answer, err error) {
	r, err := x.do(ctx, b, wire.V3, &wire.Request{Op: wire.OpRead, Entry: int64(e)})
	if err != nil {
		return nil, ledger.AnswerUnknown, err
	}
	if err := r.failure(); err != nil {
		return nil, r.answer(), err
	}
	if _, err := x.digest.Open(r.body, int64(x.id), int64(e)); err != nil && ledger.Planted() != ledger.MutantCopiesUnchecked {
		x.c.m.digestMismatches.Inc()
		return nil, ledger.AnswerBadDigest, &BookieError{Bookie: b, Op: r.op.String(), Err: kinded(ErrDigestMismatch, err)}
	}
	return r.body, ledger.AnswerOK, nil
}

// List asks one bookie which entries of the ledger it has. Not every bookie knows the question, and one in limbo does not
// answer it.
func (x *Copies) List(ctx context.Context, b BookieID) (has func(EntryID) bool, a ledger.Answer, err error) {
	r, err := x.do(ctx, b, wire.V3, &wire.Request{Op: wire.OpListEntries})
	if err != nil {
		return nil, ledger.AnswerUnknown, err
	}
	if err := r.failure(); err != nil {
		return nil, r.answer(), err
	}
	list, err := wire.DecodeAvailability(r.body)
	if err != nil {
		return nil, ledger.AnswerUnknown, &BookieError{Bookie: b, Op: r.op.String(), Err: err}
	}
	return func(e EntryID) bool { return list.Contains(int64(e)) }, ledger.AnswerOK, nil
}

// Vouches asks one bookie of a ledger that is not closed whether it can say what it has.
func (x *Copies) Vouches(ctx context.Context, b BookieID) (bool, error) {
	r, err := x.do(ctx, b, wire.V3, &wire.Request{Op: wire.OpReadLAC})
	if err != nil {
		return false, err
	}
	return r.answered(), nil
}

// Write puts a copy of an entry, as Read returned it, on one bookie. A nil error means that it is durable there.
func (x *Copies) Write(ctx context.Context, b BookieID, e EntryID, body []byte) error {
	proto := wire.V3
	if len(body)+v3Overhead > x.c.o.MaxFrameBytes {
		proto = wire.V2
	}
	r, err := x.do(ctx, b, proto, &wire.Request{Op: wire.OpAdd, Entry: int64(e), Flags: wire.RecoveryAdd, Key: x.key, HasKey: true, Body: body})
	if err != nil {
		return fmt.Errorf("copy entry %d to %s: %w", e, b, err)
	}
	return r.failure()
}
