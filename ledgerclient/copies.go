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
	if err := x.check(r.body, e); err != nil {
		return nil, ledger.AnswerBadDigest, &BookieError{Bookie: b, Op: r.op.String(), Err: err}
	}
	return r.body, ledger.AnswerOK, nil
}

// check looks whether a body is that of an entry.
func (x *Copies) check(body []byte, e EntryID) error {
	if _, err := x.digest.Open(body, int64(x.id), int64(e)); err != nil && ledger.Planted() != ledger.MutantCopiesUnchecked {
		x.c.m.digestMismatches.Inc()
		return kinded(ErrDigestMismatch, err)
	}
	return nil
}

// ReadRun asks one bookie for the entries first to last in one request, and returns those that come without a gap and with the
// right digest, as Read would: as many as fit into so many bytes, one at least. None says nothing about the bookie, which
// may not even know such requests: Read does.
func (x *Copies) ReadRun(ctx context.Context, b BookieID, first, last EntryID, bytes int) ([][]byte, error) {
	if x.c.peer(b).noBatch.Load() {
		return nil, x.c.err()
	}
	r, err := x.do(ctx, b, wire.V2, &wire.Request{Op: wire.OpBatchRead, Entry: int64(first), MaxCount: int32(min(last-first+1, chunkEntries)), //nolint:gosec // bounded
		MaxSize: int64(min(bytes, x.c.o.MaxFrameBytes))})
	if err != nil {
		return nil, err
	}
	if r.hungUp() || r.answer() != ledger.AnswerOK {
		return nil, nil
	}
	n := 0
	for n < len(r.entries) && first+EntryID(n) <= last && x.check(r.entries[n], first+EntryID(n)) == nil {
		n++
	}
	return r.entries[:n], nil
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
	return x.WriteRun(ctx, b, e, [][]byte{body})
}

// WriteRun puts copies of consecutive entries, as Read or ReadRun returned them, on one bookie. They leave together, so that its
// journal need not write for each. A nil error means that all of them are durable there.
func (x *Copies) WriteRun(ctx context.Context, b BookieID, first EntryID, bodies [][]byte) error {
	if err := x.c.err(); err != nil {
		return err
	}
	p := x.c.peer(b)
	done := make(oneCall, len(bodies))
	var calls []*call
	var frames []*frame
	for i, body := range bodies {
		e := first + EntryID(i)
		r := &wire.Request{Op: wire.OpAdd, Ledger: int64(x.id), Entry: int64(e), Flags: wire.RecoveryAdd, Key: x.key, HasKey: true, Body: body}
		c := &call{sink: done, entry: e}
		if len(body)+v3Overhead > x.c.o.MaxFrameBytes {
			p.send(wire.V2, r, c, x.c.o.AddTimeout)
		} else if f := p.encode(wire.V3, r, c); f != nil {
			calls, frames = append(calls, c), append(frames, f)
		}
	}
	if len(calls) > 0 {
		p.conn(wire.V3).callAll(calls, frames, x.c.o.AddTimeout)
	}
	var failed error
	for range bodies {
		select {
		case a := <-done:
			if err := a.failure(); err != nil && failed == nil {
				failed = fmt.Errorf("copy entry %d: %w", a.entry, err)
			}
		case <-ctx.Done():
			return fmt.Errorf("copy entries from %d on to %s: %w", first, b, context.Cause(ctx))
		}
	}
	return failed
}
