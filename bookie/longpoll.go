package bookie

import (
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/internal/wire"
)

// poll is a long-poll read that waits for the LAC of its ledger to pass the one its client knows. It ends once: when the
// LAC moves or the ledger is fenced or deleted (the storage calls wake), when its time is over (the timer does), or when
// its connection ends. The first of them decides; the answer is then worked out by a read worker.
type poll struct {
	c     *conn
	req   wire.Request
	start int64
	l     *storage.Ledger // pinned
	watch *storage.Watch
	timer *time.Timer
	ended atomic.Bool
	refs  atomic.Int32 // who still uses l: the answer, and wait while it registers
	woken int64        // ms since 1970 when the LAC moved, 0 if it was not that

	prev, next *poll // in the connection's list, under its mu
	listed     bool
}

// pollList is the waiting long polls of a connection.
type pollList struct{ first *poll }

func (pl *pollList) add(p *poll) {
	p.next = pl.first
	if pl.first != nil {
		pl.first.prev = p
	}
	pl.first = p
	p.listed = true
}

func (pl *pollList) remove(p *poll) {
	if !p.listed {
		return
	}
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		pl.first = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	}
	p.prev, p.next, p.listed = nil, nil, false
}

func (pl *pollList) takeAll() []*poll {
	var all []*poll
	for p := pl.first; p != nil; p = pl.first {
		pl.remove(p)
		all = append(all, p)
	}
	return all
}

// longPoll processes a long-poll read.
func (s *server) longPoll(c *conn, b *batch, r *wire.Request) {
	if r.Piggyback && r.Entry != -1 {
		s.answer(c, b, r, wire.BadReq)
		return
	}
	if s.polls.Add(1) > longPollsMax {
		s.polls.Add(-1)
		s.answer(c, b, r, wire.TooMany)
		return
	}
	l, err := s.st.Ledger(r.Ledger, false)
	if err != nil {
		s.polls.Add(-1)
		s.answer(c, b, r, codeOf(err))
		return
	}
	p := &poll{c: c, req: *r, start: b.start, l: l}
	p.req.Key, p.req.Body, p.req.AuthPayload, p.req.Context = nil, nil, nil, nil
	if !r.HasTimeout || r.TimeoutMillis <= 0 {
		p.ended.Store(true)
		p.refs.Store(1)
		p.submit()
		return
	}
	p.refs.Store(2)
	s.settle(c, b) // adds of the same batch are to be seen by others while this one waits
	p.wait(s)
}

// wait registers the poll with its connection, its ledger and the clock. Each of them may end it before this function has
// returned.
func (p *poll) wait(s *server) {
	defer p.unref()
	c := p.c
	c.mu.Lock()
	refused := c.isShut || s.stopping.Load()
	if !refused {
		c.polls.add(p)
	}
	c.mu.Unlock()
	if refused {
		p.unref()
		return
	}
	w, waiting, err := p.l.Watch(p.req.PreviousLAC, func(int64) { p.wake() })
	if err != nil || !waiting {
		// An error shows again, with its code, when the answer is worked out.
		p.timeout()
		return
	}
	ms := min(p.req.TimeoutMillis, math.MaxInt64/int64(time.Millisecond))
	c.mu.Lock()
	ended := p.ended.Load()
	if !ended {
		p.watch = w
		p.timer = time.AfterFunc(time.Duration(ms)*time.Millisecond, p.timeout)
	}
	c.mu.Unlock()
	if ended {
		p.l.Unwatch(w)
	}
}

// wake is called by the storage with the ledger locked.
func (p *poll) wake() {
	if !p.ended.CompareAndSwap(false, true) {
		return
	}
	p.woken = time.Now().UnixMilli()
	p.submit()
}

func (p *poll) timeout() {
	if p.ended.CompareAndSwap(false, true) {
		p.submit()
	}
}

// submit hands the poll to a read worker; from now on its connection owes an answer. It must not call the ledger, which may be
// locked.
func (p *poll) submit() {
	p.c.reads.Add(1)
	p.c.srv.reads.submit(p, laneOrdinary)
}

// cancel ends the poll without an answer.
func (p *poll) cancel() {
	if p.ended.CompareAndSwap(false, true) {
		p.finish()
		p.unref()
	}
}

// finish takes the poll out of everything it is registered with.
func (p *poll) finish() {
	p.c.mu.Lock()
	p.c.polls.remove(p)
	w, t := p.watch, p.timer
	p.c.mu.Unlock()
	if t != nil {
		t.Stop()
	}
	if w != nil {
		p.l.Unwatch(w)
	}
}

// unref ends one use of the ledger, and with the last one the poll.
func (p *poll) unref() {
	if p.refs.Add(-1) == 0 {
		p.l.Release()
		p.c.srv.polls.Add(-1)
	}
}

// cancelPolls ends the waiting long polls of a connection whose server stops.
func (c *conn) cancelPolls() {
	c.mu.Lock()
	polls := c.polls.takeAll()
	c.mu.Unlock()
	for _, p := range polls {
		p.cancel()
	}
}

// run works out the answer. It implements task.
func (p *poll) run(w *worker) {
	c, s := p.c, p.c.srv
	p.finish()
	p.req.Answer(&w.resp, wire.OK)
	p.evaluate(w)
	s.m.longPolled(w.resp.Code, now()-p.start)
	p.unref()
	s.budget.add(int64(len(w.resp.Body)))
	c.reply(&w.resp)
	s.budget.release(int64(len(w.resp.Body)))
	c.flush()
	c.readDone()
}

// evaluate fills in the answer from the storage as it is now.
func (p *poll) evaluate(w *worker) {
	s, r := p.c.srv, &w.resp
	if r.Code = p.lastCode(); r.Code != wire.OK {
		return
	}
	lac, err := p.l.LAC()
	if err != nil {
		r.Code = s.readCode(p.l, err)
		return
	}
	r.MaxLAC, r.HasMaxLAC = lac, true
	entry := p.req.Entry
	if p.req.Piggyback {
		if lac <= p.req.PreviousLAC {
			return // EOK, no body, entry -1
		}
		entry = p.req.PreviousLAC + 1
	}
	body, err := p.l.Read(entry, w.buf[:0])
	w.buf = body
	switch {
	case err == nil:
		r.Body = body
		s.m.readBytes.Add(uint64(len(body)))
		if p.req.Piggyback {
			r.Entry = entry
			r.LACUpdateTimestamp, r.HasLACUpdate = p.woken, p.woken != 0
		}
	case p.req.Piggyback && errors.Is(err, storage.ErrNoEntry):
		// The LAC has moved, but that entry is on other bookies.
	default:
		r.Code = s.readCode(p.l, err)
		r.HasMaxLAC = false
	}
}

// lastCode judges a read that depends on what the ledger's highest entry is.
func (p *poll) lastCode() wire.Code {
	p.l.Lock()
	defer p.l.Unlock()
	return codeOfRead(p.l.Replica.ReadLast(p.l.Replica.Known()))
}
