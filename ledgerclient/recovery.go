package ledgerclient

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/binderylog/bindery/internal/digest"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/pace"
	"github.com/binderylog/bindery/internal/wire"
)

const (
	recoveryReadAhead = 64       // entries read or written back at once, at most
	recoveryBytes     = 16 << 20 // and their payload, estimated
	recoveryAttempts  = 3        // of a recovery that found too few bookies
)

// recoverer drives the core of one recovery on its caller's goroutine. Its reads go as V3, matched by transaction: an answer
// that belonged to a plain read of the same entry would prove no fence.
type recoverer struct {
	c        *Client
	id       LedgerID
	digest   *digest.Digest
	key      []byte
	core     *ledger.Recovery
	box      *mailbox
	ctx      context.Context
	acts     []ledger.Action
	bodies   map[EntryID][]byte // payloads of entries that are being written back
	deadline time.Time          // of the loop over the metadata record
	pause    time.Duration
	causes   []error
	result   *ledger.Action
	metaErr  atomic.Pointer[error] // of the last operation of the store
	bytes, n int64                 // payload read back so far
}

// recover ends a ledger. An attempt that fails because too few bookies answered is repeated, since a bookie that restarts
// is away for a moment only.
func (c *Client) recover(ctx context.Context, id LedgerID, m *ledger.Metadata, v metadata.Version, d *digest.Digest, password []byte) (*ledger.Metadata, metadata.Version, error) {
	if err := c.waitForView(ctx); err != nil {
		return nil, 0, err
	}
	for attempt, pause := 1, 250*time.Millisecond; ; attempt, pause = attempt+1, 4*pause {
		record, version, err := c.newRecoverer(ctx, id, m, v, d, password, ledger.RecoveryConfig{}).run()
		if err == nil {
			c.m.recoveries.Inc()
			return record, version, nil
		}
		c.m.recoveriesFailed.Inc()
		if attempt == recoveryAttempts || !errors.Is(err, ErrNotEnoughBookies) || pace.Sleep(ctx, pause) != nil {
			return nil, 0, err
		}
		c.o.Logger.Warn("ledger recovery found too few bookies; trying again", "ledger", int64(id), "error", err)
		if m, v, err = c.views.Ledgers.Read(ctx, id); err != nil {
			return nil, 0, metaError(err)
		}
	}
}

func (c *Client) newRecoverer(ctx context.Context, id LedgerID, m *ledger.Metadata, v metadata.Version, d *digest.Digest, password []byte, cfg ledger.RecoveryConfig) *recoverer {
	key := digest.MasterKey(password)
	cfg.ReadAhead = 4
	return &recoverer{c: c, id: id, digest: d, key: key[:], box: newMailbox(), ctx: ctx, bodies: map[EntryID][]byte{},
		core: ledger.NewRecovery(m, int64(v), cfg)}
}

// run drives one attempt to its end.
func (r *recoverer) run() (*ledger.Metadata, metadata.Version, error) {
	r.acts = r.core.Start(r.acts)
	r.perform()
	for r.result == nil {
		select {
		case <-r.box.wake:
		case <-r.ctx.Done():
			return nil, 0, context.Cause(r.ctx)
		case <-r.c.ctx.Done():
			return nil, 0, ErrClosed
		}
		calls, events := r.box.take()
		for _, x := range calls {
			r.answer(x)
		}
		for _, ev := range events {
			if ev.Kind == ledger.EvWritten || ev.Kind == ledger.EvRead {
				r.deadline = time.Time{} // the store answers: the next trouble gets its own time
			}
			r.step(ev)
		}
	}
	if r.result.Kind == ledger.ActRecovered {
		return r.result.Record, metadata.Version(r.result.Version), nil
	}
	sentinel := causeError(r.result.Cause)
	switch r.result.Cause {
	case ledger.CauseNotCovered, ledger.CauseUnreadable, ledger.CauseNotEnoughBookies:
		return nil, 0, &QuorumError{Ledger: r.id, Entry: InvalidEntry, Reason: recoveryReason(r.result.Cause), Causes: append([]error{sentinel}, r.causes...)}
	case ledger.CauseMetadata:
		if err := r.metaErr.Load(); err != nil {
			return nil, 0, metaError(*err)
		}
	}
	return nil, 0, sentinel
}

// recoveryReason says what a recovery could not have.
func recoveryReason(c ledger.Cause) string {
	switch c {
	case ledger.CauseNotCovered:
		return "too few bookies answered"
	case ledger.CauseUnreadable:
		return "an entry can be neither read nor proven absent"
	}
	return "not enough bookies to write the last entries back to"
}

func (r *recoverer) step(ev ledger.Event) {
	r.acts = r.core.Step(ev, r.acts)
	r.perform()
}

// perform carries out what the core asks for. Nothing in it feeds the core at once.
func (r *recoverer) perform() {
	for i := range r.acts {
		a := r.acts[i]
		switch a.Kind {
		case ledger.ActFence:
			r.ask(&a, ledger.EvFenceAnswer, wire.Request{Op: wire.OpRead, Entry: int64(InvalidEntry), Flags: wire.Fence | wire.HighPriority, Key: r.key, HasKey: true})
		case ledger.ActRecoveryRead:
			r.ask(&a, ledger.EvReadAnswer, wire.Request{Op: wire.OpRead, Entry: int64(a.Entry), Flags: wire.Fence | wire.HighPriority, Key: r.key, HasKey: true})
		case ledger.ActReadLength:
			r.ask(&a, ledger.EvLengthAnswer, wire.Request{Op: wire.OpRead, Entry: int64(a.Entry)})
		case ledger.ActSend:
			body := r.digest.Seal(nil, int64(r.id), int64(a.Entry), int64(a.LAC), a.Length, r.bodies[a.Entry])
			// An entry that fills a V2 frame to the limit does not fit a V3 frame; that its answer could be taken for that of
			// another add of the very same entry does no harm.
			proto := wire.V3
			if len(body)+v3Overhead > r.c.o.MaxFrameBytes {
				proto = wire.V2
			}
			r.askAs(proto, &a, ledger.EvAnswer, wire.Request{Op: wire.OpAdd, Entry: int64(a.Entry), Flags: wire.RecoveryAdd | wire.HighPriority, Key: r.key, HasKey: true, Body: body})
		case ledger.ActRelease:
			for e := a.First; e <= a.Entry; e++ {
				delete(r.bodies, e)
			}
		case ledger.ActPick:
			r.pick(a.Indices, a.Exclude)
		case ledger.ActWrite:
			r.write(&a)
		case ledger.ActRead:
			r.read(a.Retry)
		case ledger.ActRecovered, ledger.ActAborted:
			result := a
			r.result = &result
		}
	}
	r.acts = r.acts[:0]
}

// ask sends one request whose answer becomes an event of the given kind.
func (r *recoverer) ask(a *ledger.Action, kind ledger.EventKind, req wire.Request) {
	r.askAs(wire.V3, a, kind, req)
}

func (r *recoverer) askAs(proto wire.Proto, a *ledger.Action, kind ledger.EventKind, req wire.Request) {
	req.Ledger = int64(r.id)
	timeout := r.c.o.ReadTimeout
	if req.Op == wire.OpAdd {
		timeout = r.c.o.AddTimeout
	}
	r.c.peer(a.Bookie).send(proto, &req, &call{sink: r.box, index: a.Index, round: a.Round, detail: a.Entry, kind: kind}, timeout)
}

// answer turns an answer into an event. A body is checked before it counts.
func (r *recoverer) answer(x *call) {
	entry := x.detail.(EntryID)
	ev := ledger.Event{Kind: x.kind, Answer: x.answer(), Index: x.index, Round: x.round, Bookie: x.conn.peer.id, Entry: entry, Conn: x.conn.id}
	if err := x.failure(); err != nil && ev.Answer != ledger.AnswerNegative {
		r.note(err)
	}
	if x.op == wire.OpRead && ev.Answer == ledger.AnswerOK {
		want := int64(entry)
		if x.kind == ledger.EvFenceAnswer {
			want = -1
		}
		e, err := r.digest.Open(x.body, int64(r.id), want)
		if err != nil {
			r.c.m.digestMismatches.Inc()
			r.note(&BookieError{Bookie: x.conn.peer.id, Op: x.op.String(), Err: kinded(ErrDigestMismatch, err)})
			ev.Answer = ledger.AnswerBadDigest
		} else {
			ev.Entry, ev.LAC, ev.Length = EntryID(e.Entry), EntryID(e.LAC), e.Length
			if x.kind == ledger.EvReadAnswer && r.bodies[entry] == nil {
				r.keep(entry, e.Payload)
			}
		}
	}
	r.step(ev)
}

// keep holds the payload of an entry until it is written back, and lets the size of entries bound how many are read ahead.
func (r *recoverer) keep(e EntryID, payload []byte) {
	if payload == nil {
		payload = []byte{}
	}
	r.bodies[e] = payload
	r.bytes += int64(len(payload))
	r.n++
	r.core.SetReadAhead(int(min(max(recoveryBytes/(r.bytes/r.n+1), 2), recoveryReadAhead, r.n+4)))
}

// note remembers what went wrong, newest last.
func (r *recoverer) note(err error) { r.causes = noteError(r.causes, err) }

// pick chooses replacements, and reads the incarnation of each before anything is sent to it.
func (r *recoverer) pick(indices ledger.IndexSet, ensemble []BookieID) {
	r.background(func(ctx context.Context) ledger.Event {
		picks := r.c.reachablePicks(ctx, ensemble, indices, wire.V3)
		for i := range picks {
			if picks[i].Bookie == "" {
				continue
			}
			check, err := r.c.views.Incarnations.Check(ctx, picks[i].Bookie)
			if err != nil {
				picks[i].Bookie = ""
				continue
			}
			picks[i].Incarnation = int64(check.Version)
		}
		return ledger.Event{Kind: ledger.EvPicked, Picks: picks}
	})
}

// write starts the compare-and-set that the core asks for, with the conditions on bookies newly named.
func (r *recoverer) write(a *ledger.Action) {
	r.beginMeta()
	record, version := a.Record, metadata.Version(a.Version)
	var checks []metadata.Check
	for _, k := range a.Checks {
		checks = append(checks, metadata.Check{Key: r.c.views.Incarnations.Key(k.Bookie), Version: metadata.Version(k.Version)})
	}
	r.background(func(ctx context.Context) ledger.Event {
		v, err := r.c.views.Ledgers.Write(ctx, r.id, record, version, checks...)
		return r.outcome(writeOutcome(v, err), err)
	})
}

func (r *recoverer) read(retry bool) {
	r.beginMeta()
	pause := time.Duration(0)
	if retry {
		r.pause = min(max(2*r.pause, 20*time.Millisecond), time.Second)
		pause = r.pause
		if time.Now().Add(pause).After(r.deadline) {
			r.box.post(ledger.Event{Kind: ledger.EvMetaTimeout})
			return
		}
	}
	r.background(func(ctx context.Context) ledger.Event {
		if pace.Sleep(ctx, pause) != nil {
			return ledger.Event{Kind: ledger.EvMetaUnknown}
		}
		m, v, err := r.c.views.Ledgers.Read(ctx, r.id)
		return r.outcome(readOutcome(m, v, err), err)
	})
}

// beginMeta starts the clock of a loop over the record; a round that got past it starts a new one.
func (r *recoverer) beginMeta() {
	if r.deadline.IsZero() {
		r.deadline, r.pause = time.Now().Add(r.c.o.MetadataTimeout), 0
	}
}

// outcome logs an unknown one.
func (r *recoverer) outcome(ev ledger.Event, err error) ledger.Event {
	if ev.Kind == ledger.EvMetaUnknown {
		r.metaErr.Store(&err)
		r.c.m.metadataRetries.Inc()
		r.c.o.Logger.Warn("ledger metadata: outcome unknown, reading again", "ledger", int64(r.id), "error", err)
	}
	return ev
}

// background runs one operation of the metadata store and posts its outcome.
func (r *recoverer) background(op func(ctx context.Context) ledger.Event) {
	ctx, cancel := context.WithTimeout(r.ctx, r.c.o.MetadataTimeout)
	stop := context.AfterFunc(r.c.ctx, cancel)
	if !r.c.spawn(func() {
		defer cancel()
		defer stop()
		r.box.post(op(ctx))
	}) {
		stop()
		cancel()
	}
}
