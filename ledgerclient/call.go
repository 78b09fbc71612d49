package ledgerclient

import (
	"errors"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
)

// callKey matches an answer to its request: V3 by operation and transaction, a V2 read by its ids, a V2 batch read by its
// request id. Reads that fence are only ever sent as V3: a V2 answer could belong to a plain read of the same entry.
type callKey struct {
	op   wire.Op
	a, b int64
}

// call is one request other than a writer's add, and then its answer.
type call struct {
	key    callKey
	op     wire.Op
	conn   *conn
	next   *call // further V2 reads with the same key
	sink   callSink
	expiry int64 // tick

	// What the sink needs to know of its request.
	index  int
	round  int
	entry  EntryID
	kind   ledger.EventKind
	detail any

	kindOf  opKind    // for the figures
	started time.Time // likewise; zero: not counted

	// The answer. Slices are owned by the call.
	err     error // no answer: network, time-out
	code    wire.Code
	body    []byte
	entries [][]byte
	lac     int64
	hasLAC  bool
	lacBody []byte
	last    []byte
}

// callSink gets a call when it has been answered or has failed, exactly once, on a goroutine of the connection. It must
// not block.
type callSink interface{ callDone(c *call) }

// failure returns what went wrong as a *BookieError, nil if the bookie said OK.
func (c *call) failure() error {
	switch {
	case c.err != nil:
		return &BookieError{Bookie: c.conn.peer.id, Op: c.op.String(), Err: c.err}
	case c.code != wire.OK:
		return &BookieError{Bookie: c.conn.peer.id, Op: c.op.String(), Code: c.code.String(), Err: codeError(c.code)}
	}
	return nil
}

// answer classifies the answer for the protocol's cores.
func (c *call) answer() ledger.Answer {
	if c.err != nil {
		return ledger.AnswerUnknown
	}
	return answerOf(c.code)
}

// answered reports whether the bookie said what it has; a denial says that, too.
func (c *call) answered() bool {
	a := c.answer()
	return a == ledger.AnswerOK || a == ledger.AnswerNegative
}

func answerOf(code wire.Code) ledger.Answer {
	switch code {
	case wire.OK:
		return ledger.AnswerOK
	case wire.NoEntry, wire.NoLedger:
		return ledger.AnswerNegative
	case wire.Fenced:
		return ledger.AnswerFenced
	case wire.UA:
		return ledger.AnswerUnauthorized
	}
	return ledger.AnswerUnknown
}

// send sends a request whose answer goes to c.sink, or nowhere if that is nil.
func (p *peer) send(proto wire.Proto, r *wire.Request, c *call, timeout time.Duration) {
	if f := p.encode(proto, r, c); f != nil {
		p.conn(proto).call(c, f, timeout)
	}
}

// encode makes the frame of a request, and what its answer is matched by. One that can not be encoded has failed with that:
// then there is no frame.
func (p *peer) encode(proto wire.Proto, r *wire.Request, c *call) *frame {
	r.Proto, r.Version = proto, byte(proto)
	c.op = r.Op
	c.kindOf, c.started = kindOf(r), time.Now()
	switch {
	case proto == wire.V3:
		r.TxnID = p.client.nextTxn()
		c.key = callKey{op: r.Op, a: int64(r.TxnID)}
	case r.Op == wire.OpBatchRead:
		r.RequestID = int64(p.client.nextTxn())
		c.key = callKey{op: r.Op, a: r.RequestID}
	default:
		c.key = callKey{op: r.Op, a: r.Ledger, b: r.Entry}
	}
	f := newFrame(len(r.Body) + 256)
	b, err := wire.AppendRequest(f.b, r)
	if err != nil {
		c.conn = &conn{peer: p}
		c.err = err
		f.drop()
		if c.sink != nil {
			c.deliver()
		}
		return nil
	}
	f.b = b
	return f
}

// hungUp reports whether a bookie hung up on the first batch reads that it was sent: it does not know them, and is not sent
// any more.
func (c *call) hungUp() bool {
	p := c.conn.peer
	if c.op != wire.OpBatchRead || !errors.Is(c.err, errConnClosed) || p.answered.Load() {
		return false
	}
	if !p.noBatch.Swap(true) {
		p.client.o.Logger.Info("bookie does not know batch reads", "bookie", string(p.id))
	}
	return true
}
