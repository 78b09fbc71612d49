package ledgerclient

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/pace"
	"github.com/binderylog/bindery/internal/wire"
)

// Tail yields entries from the given one on and follows the LAC until the ledger is sealed. It waits with a long poll at
// one bookie at a time and watches the record meanwhile; bookies that fail are passed over for as long as ctx lasts.
func (r *Reader) Tail(ctx context.Context, from EntryID) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if from < 0 {
			yield(Entry{}, fmt.Errorf("ledger %d entry %d: %w", r.id, from, ErrNoSuchEntry))
			return
		}
		t := &tail{r: r, ctx: ctx, box: newMailbox()}
		defer t.stop()
		for next := from; ; {
			if lac := r.LastAddConfirmed(); next <= lac {
				if !r.scan(ctx, next, lac, yield) {
					return
				}
				next = lac + 1
				continue
			}
			if r.Sealed() {
				return
			}
			e, err := t.await()
			if err != nil && errors.Is(err, ErrNoSuchLedger) && r.moved(ctx) {
				continue
			}
			if err != nil {
				yield(Entry{}, t.failure(next, err))
				return
			}
			if e != nil && e.ID == next {
				if !yield(*e, nil) {
					return
				}
				next++
			}
		}
	}
}

// tail is the waiting part of one Tail.
type tail struct {
	r      *Reader
	ctx    context.Context
	box    *mailbox
	events <-chan metadata.LedgerEvent
	cancel context.CancelFunc
	round  int           // answers of an earlier poll are ignored
	wait   time.Duration // how long bookies may hold back the answer to the next poll; 0: there was news
	pause  time.Duration
	rest   time.Duration // before the next poll, if bookies answer without waiting
	causes []error       // what bookies did since a poll last brought news
}

// failure says why a tail ends, with what its bookies did last.
func (t *tail) failure(next EntryID, err error) error {
	if len(t.causes) == 0 {
		return fmt.Errorf("tail ledger %d at entry %d: %w", t.r.id, next, err)
	}
	return &QuorumError{Ledger: t.r.id, Entry: next, Reason: "tail: " + err.Error(), Causes: append([]error{&kindError{text: "no news", kind: err, err: err}}, t.causes...)}
}

// pollMin is how long the first poll after news may be held back; each poll without news doubles it, up to LongPollTimeout. A bookie
// of Apache ends a wait at the next add, even if that brings no news, and says so only when the time is over: the add that
// carries a LAC which the reader has from another bookie does that. (bookie-wire.md 3.4.)
const pollMin = 25 * time.Millisecond

// restMin and restMax bound the rest between polls that are answered at once: a bookie does not hold back its answer if the ledger
// is fenced there, which may last until somebody can close it, or if it has not seen the ledger yet. Changes of the record are
// seen at once all the same.
const (
	restMin = 5 * time.Millisecond
	restMax = 100 * time.Millisecond
)

func (t *tail) stop() {
	if t.cancel != nil {
		t.cancel()
	}
}

// await returns when the reader's LAC has moved, its record has changed, or a poll has ended without news. If the answer
// brought the entry after the old LAC, it is returned.
func (t *tail) await() (*Entry, error) {
	r := t.r
	if t.events == nil {
		var ctx context.Context
		ctx, t.cancel = context.WithCancel(r.ctx)
		t.events = r.watch(ctx)
	}
	t.round++
	t.wait = min(max(t.wait, pollMin), r.client.o.LongPollTimeout)
	m, lac := r.record(), r.LastAddConfirmed()
	poll := ledger.NewLongPoll(m.Quorum(), lac)
	for t.ask(&poll, m, lac) && m.Ensemble != m.WriteQuorum {
		// With striping no single bookie sees every entry: all are asked at once.
	}
	slow := time.NewTimer(t.wait + r.client.o.HedgeDelay)
	defer slow.Stop()
	began := time.Now()
	var rested <-chan time.Time
	for {
		select {
		case <-rested:
			return nil, nil
		case <-t.box.wake:
			calls, _ := t.box.take()
			for _, x := range calls {
				if x.round != t.round {
					continue
				}
				e, answer, known := t.open(x, lac)
				if err := x.failure(); err != nil && answer != ledger.AnswerNegative {
					t.causes = noteError(t.causes, err)
				}
				outcome := poll.Answer(answer, e != nil, known)
				if rested != nil && (e != nil || known > lac) { // of one that did wait
					outcome = ledger.ReadFound
				}
				switch outcome {
				case ledger.ReadFound:
					t.wait, t.pause, t.rest, t.causes = 0, 0, 0, nil
					r.raise(known)
					if e != nil && known < e.ID {
						e = nil // here but not confirmed
					}
					return e, nil
				case ledger.ReadEmpty:
					if time.Since(began) >= t.wait/2 {
						t.wait, t.rest = 2*t.wait, 0
						return nil, nil
					}
					t.rest = min(max(2*t.rest, restMin), restMax)
					rested = time.After(t.rest)
					continue
				case ledger.ReadFailed:
					t.pause = min(max(2*t.pause, 100*time.Millisecond), 2*time.Second)
					if pace.Sleep(t.ctx, t.pause) != nil {
						return nil, context.Cause(t.ctx)
					}
					return nil, nil
				}
				if t.ask(&poll, m, lac) {
					slow.Reset(t.wait + r.client.o.HedgeDelay)
				}
			}
		case ev, ok := <-t.events:
			if !ok { // the watch ends with its context or the store only
				t.stop()
				t.events = nil
				if pace.Sleep(t.ctx, 100*time.Millisecond) != nil {
					return nil, context.Cause(t.ctx)
				}
				return nil, context.Cause(r.ctx)
			}
			if ev.Err != nil {
				return nil, ev.Err
			}
			if ev.Metadata == nil {
				return nil, ErrNoSuchLedger
			}
			if t.changed(ev, m) {
				return nil, nil
			}
		case <-slow.C:
			t.ask(&poll, m, lac)
		case <-t.ctx.Done():
			return nil, context.Cause(t.ctx)
		case <-r.ctx.Done():
			return nil, context.Cause(r.ctx)
		}
	}
}

// changed takes a watched record and reports whether the poll must start over: the ledger is sealed, or another ensemble
// gets its entries.
func (t *tail) changed(ev metadata.LedgerEvent, m *ledger.Metadata) bool {
	r := t.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.core.Record(ev.Metadata, int64(ev.Version))
	now, _ := r.core.Metadata()
	if r.core.Sealed() {
		return true
	}
	old, last := m.Last(), now.Last()
	if old.First != last.First {
		return true
	}
	for i := range last.Bookies {
		if old.Bookies[i] != last.Bookies[i] {
			return true
		}
	}
	return false
}

// ask sends the poll to the next bookie, if one is left.
func (t *tail) ask(poll *ledger.LongPoll, m *ledger.Metadata, lac EntryID) bool {
	i, ok := poll.Next()
	if !ok {
		return false
	}
	o := t.r.client.o
	r := wire.Request{Op: wire.OpRead, Ledger: int64(t.r.id), Entry: int64(InvalidEntry), PreviousLAC: int64(lac), HasPreviousLAC: true,
		TimeoutMillis: t.wait.Milliseconds(), HasTimeout: true, Piggyback: true}
	t.r.client.peer(m.Last().Bookies[i]).send(wire.V3, &r, &call{sink: t.box, index: i, round: t.round}, t.wait+o.ReadTimeout)
	return true
}

// open checks the answer to a poll.
func (t *tail) open(x *call, lac EntryID) (e *Entry, a ledger.Answer, known EntryID) {
	a, known = x.answer(), lac
	if a != ledger.AnswerOK {
		return nil, a, known
	}
	if x.hasLAC {
		known = max(known, EntryID(x.lac))
	}
	if len(x.body) == 0 {
		return nil, a, known
	}
	opened, err := t.r.digest.Open(x.body, int64(t.r.id), int64(lac+1))
	if err != nil {
		return nil, ledger.AnswerBadDigest, lac
	}
	return &Entry{ID: lac + 1, Data: opened.Payload}, a, max(known, EntryID(opened.LAC))
}
