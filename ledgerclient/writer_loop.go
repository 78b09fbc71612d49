package ledgerclient

import (
	"encoding/binary"
	"fmt"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
)

// writerLoop owns the core of a writer and everything that must not be shared. All its methods run on its goroutine.
type writerLoop struct {
	w     *Writer
	core  *ledger.Writer
	acts  []ledger.Action
	busy  bool // step is running
	ops   addRing
	lanes []*lane // by ensemble index
	dirty []*lane // with frames to hand over
	now   int64   // tick

	finished []completion // of this round
	done     completer

	errs       []error // what bookies answered last, for error messages
	meta       metaState
	forces     []chan error // waiting for the force under way, or for the next one if none is
	next       []chan error // waiting for the one after
	closing    bool         // seal when nothing is pending
	forced     bool         // with closing: the last force has been asked for
	closed     *ledger.Action
	armed      bool
	desperate  int   // picks since the last release that had to take quarantined bookies
	retryAt    int64 // tick
	retryPause time.Duration
	lacAt      int64 // tick at which an explicit LAC is due, 0: none

	ensemble []BookieID // as counted last
}

func newWriterLoop(w *Writer, m *ledger.Metadata, version int64) *writerLoop {
	return &writerLoop{w: w, core: ledger.NewWriter(m, version, ledger.WriterConfig{Deferred: w.deferred, Delay: w.delay}), lanes: make([]*lane, m.Ensemble), ensemble: m.Last().Bookies}
}

// run is the writer's goroutine.
func (l *writerLoop) run() {
	w := l.w
	pprof.SetGoroutineLabels(pprof.WithLabels(w.client.ctx, pprof.Labels("ledgerclient", "writer")))
	var in inbox
	for l.closed == nil {
		w.mu.Lock()
		in, w.in = w.in, inbox{adds: in.adds[:0], acks: in.acks[:0], events: in.events[:0]}
		w.mu.Unlock()
		if in.empty() {
			if w.client.ctx.Err() != nil {
				break
			}
			<-w.wake // closing the client wakes, too: a select on its context would have all loops share one lock
			continue
		}
		l.round(&in)
	}
	l.end()
}

// round works off one inbox.
func (l *writerLoop) round(in *inbox) {
	l.now = l.w.client.wheel.now.Load()
	for i := range in.acks {
		l.ack(&in.acks[i])
	}
	for i := range in.events {
		l.event(&in.events[i])
		in.events[i] = writerEvent{}
	}
	for i, p := range in.adds {
		l.add(p)
		in.adds[i] = nil
	}
	if in.tick {
		l.armed = false
		l.timeouts()
	}
	if l.closing {
		l.tryClose()
	}
	l.flush()
	l.publish()
	l.arm()
}

// end gives every waiter its result. Without a close of the core the client was closed.
func (l *writerLoop) end() {
	w := l.w
	err := fmt.Errorf("ledger %d: client: %w", w.id, ErrClosed)
	closeErr := err
	if l.closed != nil {
		if l.closed.Cause == ledger.CauseNone {
			w.client.m.ledgersClosed.Inc()
		}
		closeErr = l.closeError()
		if err = l.causeErr(l.core.Cause(), InvalidEntry); err == nil {
			err = fmt.Errorf("ledger %d: writer: %w", w.id, ErrClosed)
		}
	}
	w.mu.Lock()
	if w.ended == nil {
		w.ended = err
	}
	in := w.in
	w.in = inbox{}
	w.closeErr = closeErr
	w.mu.Unlock()
	for l.ops.n > 0 {
		p, e := l.ops.pop()
		l.complete(p, e, err)
	}
	for _, p := range in.adds {
		l.complete(p, InvalidEntry, err)
	}
	for _, f := range append(l.forces, l.next...) {
		f <- err
	}
	for _, ev := range in.events {
		if ev.force != nil {
			ev.force <- err
		}
	}
	for _, ln := range l.lanes {
		if ln != nil {
			ln.conn.detach(ln)
			for _, f := range ln.out {
				f.drop()
			}
		}
	}
	l.publish()
	l.done.close()
	w.client.mu.Lock()
	delete(w.client.writers, w)
	w.client.mu.Unlock()
	close(w.done)
}

// step feeds the core and carries out what it asks for; what is carried out may feed it again.
func (l *writerLoop) step(ev ledger.Event) {
	l.acts = l.core.Step(ev, l.acts)
	if l.busy {
		return
	}
	l.busy = true
	for i := 0; i < len(l.acts); i++ { //nolint:intrange // what is carried out appends to the list
		a := l.acts[i]
		l.perform(&a)
	}
	clear(l.acts)
	l.acts = l.acts[:0]
	l.busy = false
}

// add gives the core one add.
func (l *writerLoop) add(p *pendingAdd) {
	if c := l.core.Cause(); c != ledger.CauseNone {
		l.complete(p, InvalidEntry, l.causeErr(c, InvalidEntry))
		return
	}
	p.sent = l.now
	l.ops.push(p)
	l.step(ledger.Event{Kind: ledger.EvAppend, Size: int64(p.size)})
}

// ack gives the core one answer to an add.
func (l *writerLoop) ack(a *ack) {
	ln := a.lane
	if ln.outstanding > 0 {
		ln.outstanding--
	}
	ln.progress = l.now
	ln.count(a)
	if l.lanes[ln.index] != ln {
		return
	}
	if a.code != wire.OK {
		l.refused(ln, a.code)
	}
	l.step(ledger.Event{Kind: ledger.EvAnswer, Answer: answerOf(a.code), Index: ln.index, Bookie: ln.conn.peer.id, Entry: a.entry, Conn: ln.conn.id,
		Urgent: a.code == wire.ReadOnly})
}

// event handles one rare event.
func (l *writerLoop) event(ev *writerEvent) {
	switch {
	case ev.lane != nil:
		l.laneDown(ev.lane, ev.err)
	case ev.call != nil:
		l.forceAnswer(ev.call)
	case ev.force != nil:
		if l.core.Forcing() {
			l.next = append(l.next, ev.force)
		} else {
			l.forces = append(l.forces, ev.force)
		}
		l.step(ledger.Event{Kind: ledger.EvForce})
	case ev.close && ev.now:
		l.step(ledger.Event{Kind: ledger.EvClose})
	case ev.close:
		l.closing = true
	case ev.metaOp:
		l.metaDone(ev.core, ev.err)
	case ev.retry:
		l.retry(false)
	case ev.core.Kind != 0:
		if ev.desperate {
			l.desperate++
		}
		l.step(ev.core)
	}
}

// laneDown tells the core that a bookie failed, if anything was under way to it. An idle connection that broke is made
// again with the next add.
func (l *writerLoop) laneDown(ln *lane, err error) {
	if l.lanes[ln.index] != ln {
		return
	}
	l.lanes[ln.index] = nil
	for _, f := range ln.out {
		f.drop()
	}
	ln.out = nil
	if ln.outstanding > 0 {
		l.bookieFailed(ln.index, ln.conn.peer, err)
	}
}

func (l *writerLoop) bookieFailed(i int, p *peer, err error) {
	l.note(&BookieError{Bookie: p.id, Op: "add", Err: err})
	l.step(ledger.Event{Kind: ledger.EvAnswer, Answer: ledger.AnswerUnknown, Index: i, Bookie: p.id, Entry: InvalidEntry})
}

// tryClose seals the ledger once nothing is pending.
func (l *writerLoop) tryClose() {
	if l.core.Pending() > 0 || l.core.Cause() != ledger.CauseNone {
		return
	}
	if l.core.Unforced() && !l.forced {
		l.forced = true
		l.step(ledger.Event{Kind: ledger.EvForce})
	}
	if l.core.Forcing() {
		return
	}
	l.step(ledger.Event{Kind: ledger.EvClose})
}

// perform carries out one action of the core.
func (l *writerLoop) perform(a *ledger.Action) {
	switch a.Kind {
	case ledger.ActSend:
		l.send(a)
	case ledger.ActRelease:
		l.w.lac.Store(int64(l.core.LastAddConfirmed()))
		l.w.length.Store(l.core.Length())
		l.desperate = 0
		for e := a.First; e <= a.Entry; e++ {
			p, id := l.ops.pop()
			invariant.Check(id == e, "released entry %d, the oldest pending one is %d", e, id)
			l.complete(p, e, nil)
		}
	case ledger.ActFail:
		for e := a.First; e <= a.Entry && l.ops.n > 0; e++ {
			p, id := l.ops.pop()
			l.complete(p, id, l.causeErr(a.Cause, id))
		}
		l.ops.first = a.First
	case ledger.ActPick:
		l.pick(a.Indices)
	case ledger.ActWrite:
		l.metaWrite(a)
	case ledger.ActRead:
		l.metaRead(a.Retry)
	case ledger.ActEnsemble:
		l.countChange()
		l.dropStaleLanes()
	case ledger.ActForce:
		l.sendForce(a)
	case ledger.ActForceDone:
		l.forceDone(a)
	case ledger.ActWriteLAC:
		body := l.w.digest.SealLAC(nil, int64(l.w.id), int64(a.LAC))
		l.w.client.peer(a.Bookie).send(wire.V3, &wire.Request{Op: wire.OpWriteLAC, Ledger: int64(l.w.id), LAC: int64(a.LAC), Key: l.w.key, HasKey: true, Body: body},
			&call{}, l.w.client.o.AddTimeout)
	case ledger.ActClosed:
		closed := *a // a itself must stay on the stack: there is one for every add
		l.closed = &closed
	}
}

// countChange counts a new ensemble. The same one may be announced again, after a re-read.
func (l *writerLoop) countChange() {
	if now := l.core.Record().Last().Bookies; !slices.Equal(now, l.ensemble) {
		l.ensemble = now
		l.w.client.m.ensembleChanges.Inc()
	}
}

// send queues the frame of an add for one bookie.
func (l *writerLoop) send(a *ledger.Action) {
	p := l.ops.get(a.Entry)
	if !p.sealed {
		l.seal(p, a)
	} else {
		p.sent = l.now // sent again: its time starts anew
	}
	ln := l.lane(a.Index, a.Bookie)
	if ln == nil {
		return
	}
	p.f.hold(1)
	if len(ln.out) == 0 {
		l.dirty = append(l.dirty, ln)
	}
	ln.out = append(ln.out, p.f)
	if ln.outstanding == 0 {
		ln.progress = l.now
	}
	ln.outstanding++
	if ln.probe == InvalidEntry {
		ln.probe, ln.probeAt, ln.behind = a.Entry, time.Now(), 0
	}
}

// seal completes the frame of an add: length, ids, LAC, digest. The payload lies in its place already; sealing copies it
// onto itself.
func (l *writerLoop) seal(p *pendingAdd, a *ledger.Action) {
	w := l.w
	p.sealed = true
	b := p.f.b
	copy(b, w.prefix)
	binary.BigEndian.PutUint32(b, uint32(len(b)-wire.LengthSize)) //nolint:gosec // bounded by MaxFrameBytes
	head := len(w.prefix)
	w.digest.Seal(b[:head], int64(w.id), int64(a.Entry), int64(a.LAC), a.Length, b[head+w.digest.Overhead():])
	if w.proto == wire.V2 {
		return
	}
	f := newFrame(len(b) + v3Overhead)
	r := wire.Request{Proto: wire.V3, Version: byte(wire.V3), Op: wire.OpAdd, TxnID: w.client.nextTxn() | laneTxn, Ledger: int64(w.id), Entry: int64(a.Entry),
		Key: w.key, HasKey: true, Body: b[head:]}
	if w.deferred {
		r.WriteFlags = wire.DeferredSync
	}
	out, err := wire.AppendRequest(f.b, &r)
	invariant.Check(err == nil, "encode a V3 add: %v", err)
	f.b = out
	f.charge, f.budget = p.f.charge, p.f.budget
	p.f.charge, p.f.budget = 0, nil
	p.f.drop()
	p.f = f
}

// lane returns the way to the bookie at an index, making it if necessary. If the bookie can not be reached, the core is
// told and nil returned.
func (l *writerLoop) lane(i int, id BookieID) *lane {
	if ln := l.lanes[i]; ln != nil && ln.conn.peer.id == id {
		return ln
	}
	p := l.w.client.peer(id)
	for range 3 { // a connection may die between being had and being used, or be one that this writer has left
		c := p.conn(l.w.proto)
		ln := &lane{w: l.w, conn: c, index: i, progress: l.now, probe: InvalidEntry, m: p.op(opAdd)}
		if c.attach(ln) {
			l.lanes[i] = ln
			return ln
		}
	}
	err := p.conn(l.w.proto).failed()
	if err == nil {
		err = errConnClosed
	}
	l.bookieFailed(i, p, err)
	return nil
}

// dropStaleLanes detaches from bookies that are no longer in the ensemble.
func (l *writerLoop) dropStaleLanes() {
	ensemble := l.core.Record().Last().Bookies
	for i, ln := range l.lanes {
		if ln != nil && ln.conn.peer.id != ensemble[i] {
			ln.conn.leave(ln)
			for _, f := range ln.out {
				f.drop()
			}
			ln.out = nil
			l.lanes[i] = nil
		}
	}
}

// flush hands queued frames to their connections.
func (l *writerLoop) flush() {
	for i, ln := range l.dirty {
		if len(ln.out) > 0 {
			ln.conn.enqueue(ln.out...)
			clear(ln.out)
			ln.out = ln.out[:0]
		}
		l.dirty[i] = nil
	}
	l.dirty = l.dirty[:0]
}

// complete ends an add. Waiting callers are told at once, done functions in order by the completer.
func (l *writerLoop) complete(p *pendingAdd, id EntryID, err error) {
	p.f.drop()
	if err == nil {
		l.w.client.m.appends.Inc()
	} else {
		l.w.client.m.appendErrors.Inc()
	}
	if p.wait != nil {
		if p.wait.state.CompareAndSwap(0, 1) {
			p.wait.result <- appendResult{id: id, err: err}
		} else {
			waitPool.Put(p.wait)
		}
	} else {
		l.finished = append(l.finished, completion{done: p.done, id: id, err: err})
	}
	*p = pendingAdd{}
	pendingPool.Put(p)
}

func (l *writerLoop) publish() {
	if len(l.finished) > 0 {
		l.done.add(l.finished)
		clear(l.finished)
		l.finished = l.finished[:0]
	}
}
