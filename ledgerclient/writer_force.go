package ledgerclient

import (
	"time"

	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
)

// sendForce sends FORCE. With deferred sync it must travel on the connection of the adds that it covers.
func (l *writerLoop) sendForce(a *ledger.Action) {
	l.flush()
	w := l.w
	x := &call{op: wire.OpForce, kindOf: opForce, started: time.Now(), sink: w, kind: ledger.EvForceAnswer, index: a.Index, entry: a.Entry}
	r := wire.Request{Proto: wire.V3, Version: byte(wire.V3), Op: wire.OpForce, TxnID: w.client.nextTxn(), Ledger: int64(w.id)}
	x.key = callKey{op: wire.OpForce, a: int64(r.TxnID)}
	c := w.client.peer(a.Bookie).conn(wire.V3)
	if w.deferred {
		if ln := l.lane(a.Index, a.Bookie); ln != nil {
			c = ln.conn
		}
	}
	f := newFrame(128)
	b, err := wire.AppendRequest(f.b, &r)
	invariant.Check(err == nil, "encode FORCE: %v", err)
	f.b = b
	c.call(x, f, w.client.o.AddTimeout)
}

func (l *writerLoop) forceAnswer(x *call) {
	if err := x.failure(); err != nil {
		l.note(err)
	}
	l.step(ledger.Event{Kind: ledger.EvForceAnswer, Answer: x.answer(), Index: x.index, Bookie: x.conn.peer.id, Entry: x.entry, Conn: x.conn.id})
}

func (l *writerLoop) forceDone(a *ledger.Action) {
	l.w.lac.Store(int64(l.core.LastAddConfirmed()))
	l.w.length.Store(l.core.Length())
	err := l.causeErr(a.Cause, InvalidEntry)
	for _, f := range l.forces {
		f <- err
	}
	l.forces, l.next = append(l.forces[:0], l.next...), l.next[:0]
}
