package bookie

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
	"github.com/binderylog/bindery/journal"
)

// checkOpen reads a ledger's metadata record linearizably: open says that its state is OPEN, here that it names this
// bookie.
type checkOpen func(ctx context.Context, id int64) (open, here bool, err error)

// verifier reads metadata for adds that need it (a ledger deleted here, or one not verified since this bookie lost
// something) and then processes them. Adds wait here by copy, so that the connection goes on; there is a bound on them.
type verifier struct {
	s      *server
	check  checkOpen
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	queue   map[int64][]*verifyAdd // by ledger
	order   []int64                // ledgers nobody works on yet
	waiting int
	workers int
}

// verifyAdd is an add that waits for its ledger's metadata.
type verifyAdd struct {
	c     *conn
	req   wire.Request
	start int64
	taken int64
}

func newVerifier(s *server, check checkOpen) *verifier {
	ctx, cancel := context.WithCancel(context.Background())
	return &verifier{s: s, check: check, ctx: ctx, cancel: cancel, queue: map[int64][]*verifyAdd{}}
}

// close ends the reading of metadata and joins the workers.
func (v *verifier) close() {
	v.cancel()
	v.wg.Wait()
}

// verifyAdds copies the adds marked codeVerify and queues them.
func (s *server) verifyAdds(c *conn, b *batch, id int64, from, to int) {
	for i := from; i < to; i++ {
		if b.adds[i].code != codeVerify {
			continue
		}
		r := b.reqs[i]
		r.Key, r.Body, r.Context, r.AuthPayload = bytes.Clone(r.Key), bytes.Clone(r.Body), nil, nil
		size := int64(len(r.Body) + addOverhead)
		a := &verifyAdd{c: c, req: r, start: b.start, taken: size}
		if !s.verify.enqueue(id, a) {
			b.adds[i].code = wire.TooMany
			continue
		}
	}
}

// enqueue queues an add and sees to it that somebody works on its ledger.
func (v *verifier) enqueue(id int64, a *verifyAdd) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.waiting >= verifyMax || v.ctx.Err() != nil {
		return false
	}
	v.waiting++
	v.s.budget.add(a.taken)
	a.c.reads.Add(1)
	if _, known := v.queue[id]; !known {
		v.order = append(v.order, id)
	}
	v.queue[id] = append(v.queue[id], a)
	if v.workers < verifyConcurrency && len(v.order) > 0 {
		v.workers++
		v.wg.Go(func() { labelled("verifier", v.work) })
	}
	return true
}

// next takes a ledger off the queue. The worker ends when there is none.
func (v *verifier) next() (id int64, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.order) == 0 {
		v.workers--
		return 0, false
	}
	id, v.order = v.order[0], v.order[1:]
	return id, true
}

// take ends the work on a ledger: the adds that have come so far are the caller's.
func (v *verifier) take(id int64) []*verifyAdd {
	v.mu.Lock()
	defer v.mu.Unlock()
	adds := v.queue[id]
	delete(v.queue, id)
	v.waiting -= len(adds)
	return adds
}

func (v *verifier) work() {
	for {
		id, ok := v.next()
		if !ok {
			return
		}
		code := v.verify(id)
		for _, a := range v.take(id) {
			v.finish(a, code)
		}
	}
}

// verify reads the record and applies it. OK means that the adds are to be tried again.
func (v *verifier) verify(id int64) wire.Code {
	l, err := v.s.st.Ledger(id, true)
	if err != nil {
		return codeOf(err)
	}
	defer l.Release()
	l.Lock()
	ticket := l.Replica.Ticket()
	l.Unlock()
	ctx, cancel := context.WithTimeout(v.ctx, min(v.s.o.MetadataTimeout, 4*time.Second)) // Apache's client gives up after 5 s
	defer cancel()
	open, here, err := v.check(ctx, id)
	if err != nil {
		v.s.log.Warn("a ledger could not be verified, its adds are refused for now", "ledger", id, "err", err)
		return wire.TooMany
	}
	return v.apply(l, ticket, open, here)
}

func (v *verifier) apply(l *storage.Ledger, ticket uint32, open, here bool) wire.Code {
	s := v.s
	b := s.batches.Get().(*batch)
	defer s.batches.Put(b)
	l.Lock()
	if ledger.Planted() == ledger.MutantVerifyIgnoresTicket {
		ticket = l.Replica.Ticket()
	}
	openHere := open && (here || !l.Replica.Tombstone)
	verdict, changed := l.Replica.Verify(ticket, openHere, s.lossEpoch)
	code := codeOfVerdict(verdict)
	if changed {
		l.StateChanged()
		if s.appendState(b, l, s.fences, journal.Token{A: l.ID()}) != nil {
			code = wire.IO
		}
	}
	l.Unlock()
	s.commit(b)
	return code
}

// finish processes an add after its ledger was verified, or refuses it.
func (v *verifier) finish(a *verifyAdd, code wire.Code) {
	s, c := v.s, a.c
	b := s.batches.Get().(*batch)
	b.start, b.n = a.start, 1
	b.reqs[0] = a.req
	if code == wire.OK {
		v.again(c, b)
	} else {
		s.answer(c, b, &b.reqs[0], code)
	}
	s.commit(b)
	c.flush()
	b.reqs[0] = wire.Request{}
	s.batches.Put(b)
	s.budget.release(a.taken)
	c.readDone()
}

// again stores the add. The rules are asked anew under the lock: a fence may have come since.
func (v *verifier) again(c *conn, b *batch) {
	s, r := v.s, &b.reqs[0]
	id := bodyLedger(r.Body)
	j, _ := s.journalOf(id)
	l, err := s.st.Ledger(id, true)
	if err != nil {
		s.answer(c, b, r, codeOf(err))
		return
	}
	defer l.Release()
	if s.o.Durability != DurabilityOff {
		if err := j.Reserve(len(r.Body), addWaitMax); err != nil {
			s.answer(c, b, r, codeOf(err))
			return
		}
	}
	b.adds[0] = add{code: codePending, journal: s.o.Durability != DurabilityOff}
	if err := s.reserve(l, b, 0, addWaitMax); err != nil {
		b.adds[0].code = codeOf(err)
	} else {
		s.store(c, b, l, 0, 1)
	}
	s.finishAdds(c, b, 0, 1)
}
