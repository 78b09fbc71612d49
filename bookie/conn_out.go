package bookie

import (
	"errors"
	"os"
	"time"

	"github.com/binderylog/bindery/internal/wire"
	"github.com/binderylog/bindery/journal"
)

// While others wait for the room that a peer fills, with answers that it does not take or with a frame that it does not
// complete, it is cut unless it gets on by slowPace bytes in pressedTimeout.
const (
	pressedTimeout = 2 * time.Second
	slowPace       = 16 << 10
)

// slotLocked takes a slot for an answer to r that a journal will release.
func (c *conn) slotLocked(r *wire.Request, start int64, size int) uint32 {
	if c.table == nil {
		c.table = slotTables.Get().(*slotTable)
	}
	t := c.table
	var i uint32
	if n := len(t.free); n > 0 {
		i = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		i = uint32(len(t.slots)) //nolint:gosec // bounded by the budget
		t.slots = append(t.slots, slot{})
	}
	t.slots[i] = slot{
		txn: r.TxnID, ledger: r.Ledger, entry: r.Entry, start: start, size: int32(size), //nolint:gosec // a frame's size
		rawOp: r.RawOp, op: r.Op, proto: r.Proto, version: r.Version, code: wire.OK,
	}
	c.owed++
	return i
}

// freeSlotLocked gives a slot back, and with the last one the table.
func (c *conn) freeSlotLocked(i uint32) {
	if c.owed--; c.owed > 0 {
		c.table.free = append(c.table.free, i)
		return
	}
	c.table.slots, c.table.free = c.table.slots[:0], c.table.free[:0]
	slotTables.Put(c.table)
	c.table = nil
}

// JournalDone encodes the answer that was owed by a record. It implements journal.Sink.
func (c *conn) JournalDone(t journal.Token, err error) {
	c.mu.Lock()
	i := uint32(t.C) //nolint:gosec // a slot's index
	s := c.table.slots[i]
	if c.now == 0 {
		c.now = now()
	}
	code := s.code
	if err != nil {
		code = wire.IO
	}
	c.released += int64(s.size)
	if s.op == wire.OpAdd {
		c.acked++
	}
	c.freeSlotLocked(i)
	if !c.isShut {
		if s.op == wire.OpAdd && s.proto == wire.V2 && s.version != 0 {
			c.addAnswerLocked(&s, code)
		} else {
			c.appendLocked(&wire.Response{
				Proto: s.proto, Version: s.version, Op: s.op, RawOp: s.rawOp, Code: code, TxnID: s.txn, Ledger: s.ledger, Entry: s.entry,
			})
		}
	}
	at := c.now
	c.mu.Unlock()
	c.srv.m.answered(s.op, code, at-s.start)
	if err != nil {
		c.srv.journalFailed(err)
	}
}

// addAnswerLocked is appendLocked for the one answer that is sent most.
func (c *conn) addAnswerLocked(s *slot, code wire.Code) {
	b := c.out.room(28)
	*b = wire.AppendAddAnswerV2(*b, s.version, code, s.ledger, s.entry)
	c.unsent += 28
}

// JournalFlush sends what one group has answered. It implements journal.Sink.
func (c *conn) JournalFlush() {
	c.mu.Lock()
	released, acked := c.released, c.acked
	c.released, c.acked, c.now = 0, 0, 0
	c.mu.Unlock()
	c.srv.addsInProgress.Add(-acked)
	c.srv.budget.release(released)
	c.flush()
	c.cond.Broadcast() // for waitAnswered
}

// appendLocked encodes one answer.
func (c *conn) appendLocked(r *wire.Response) {
	b := c.out.room(256 + len(r.Body))
	before := len(*b)
	*b = wire.AppendResponse(*b, r)
	c.unsent += int64(len(*b) - before)
}

// reply encodes an answer; flush sends it.
func (c *conn) reply(r *wire.Response) {
	c.mu.Lock()
	if !c.isShut {
		c.appendLocked(r)
		c.countIfSlowLocked()
	}
	c.mu.Unlock()
}

// replyBuffers takes over the buffers of an answer that was encoded elsewhere.
func (c *conn) replyBuffers(frame []*[]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range frame {
		if c.isShut {
			putBuf(b)
			continue
		}
		c.out.push(b)
		c.unsent += int64(len(*b))
	}
	if !c.isShut {
		c.countIfSlowLocked()
	}
}

// park keeps a read back while the peer has not taken earlier answers: for one connection at most connOutHigh bytes are
// read ahead of it, and nothing at all while the budget is nearly used up. Whoever sends the rest brings the read back.
func (c *conn) park(t *readTask) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isShut || !c.fullLocked() {
		return false
	}
	c.parked.push(t)
	return true
}

// fullLocked reports whether the peer has to take answers before more are made for it.
func (c *conn) fullLocked() bool {
	return c.unsent > connOutHigh || c.unsent > 0 && c.srv.budget.nearlyFull()
}

// unparkLocked brings parked reads back, as many as will not be parked again at once.
func (c *conn) unparkLocked() {
	if c.parked.len() == 0 || !c.isShut && c.unsent > 0 && (c.unsent > connOutHigh/2 || c.srv.budget.nearlyFull()) {
		return
	}
	for n := 0; n < unparkMax || c.isShut; n++ {
		t, ok := c.parked.pop()
		if !ok {
			return
		}
		c.srv.reads.submit(t, laneOrdinary)
	}
}

// unparkMax is how many reads come back at a time. Each brings back the next when it is answered, so it is enough to
// keep the workers busy.
const unparkMax = 16

// flush sends what is there, if nobody else is sending. It never blocks: a writer goroutine takes over what the socket
// does not.
func (c *conn) flush() {
	c.mu.Lock()
	for !c.sending && !c.isShut && !c.out.empty() {
		c.takeOutLocked()
		c.mu.Unlock()
		n, err := c.trySend()
		c.mu.Lock()
		c.unsent -= n
		switch {
		case err != nil:
			c.sending = false
			c.discardLocked()
			c.mu.Unlock()
			c.shut()
			return
		case c.at < len(c.send.chunks):
			c.countLocked()
			// The server waits for writers; it can not be past that, since this connection is not shut.
			c.srv.writers.Go(c.writeRest)
			c.mu.Unlock()
			return
		}
		c.doneSendingLocked()
	}
	c.mu.Unlock()
}

// trySend sends as much as the socket takes and returns how many bytes that was.
func (c *conn) trySend() (n int64, err error) {
	for ; c.at < len(c.send.chunks); c.nextChunk() {
		rest := (*c.send.chunks[c.at])[c.sent:]
		k, err := c.sock.write(rest)
		n += int64(k)
		if c.sent += k; err != nil || k < len(rest) {
			return n, err
		}
	}
	return n, nil
}

// nextChunk goes on to the next buffer. The first one stays: it may be used again.
func (c *conn) nextChunk() {
	if c.at > 0 {
		putBuf(c.send.chunks[c.at])
		c.send.chunks[c.at] = nil
	}
	c.at++
	c.sent = 0
}

// takeOutLocked makes the caller the sender of all answers there are.
func (c *conn) takeOutLocked() {
	c.sending = true
	c.send, c.out = c.out, c.send
	c.at, c.sent = 0, 0
}

// doneSendingLocked ends a send that the socket took whole.
func (c *conn) doneSendingLocked() {
	c.sending = false
	if first := c.send.chunks[0]; len(c.out.chunks) == 0 && cap(*first) <= bufSmall && c.owed > 0 {
		*first = (*first)[:0] // the next answers will come at once
		c.out.chunks = append(c.out.chunks, first)
		c.send.chunks[0] = nil
	}
	c.send.drop()
	c.uncountLocked()
	c.unparkLocked()
	c.cond.Broadcast()
}

// countLocked puts the bytes that wait for a slow peer into the budget.
func (c *conn) countLocked() {
	if d := c.unsent - c.counted; d > 0 {
		c.srv.budget.add(d)
		c.counted += d
	}
}

// countIfSlowLocked counts an answer that was encoded while earlier ones wait for the peer.
func (c *conn) countIfSlowLocked() {
	if c.sending {
		c.countLocked()
	}
}

func (c *conn) uncountLocked() {
	if d := c.counted - min(c.counted, c.unsent); d > 0 {
		c.counted -= d
		c.srv.budget.release(d)
	}
}

// discardLocked drops all answers of a connection that has ended.
func (c *conn) discardLocked() {
	c.out.drop()
	c.send.drop()
	c.unsent = 0
	c.uncountLocked()
}

// writeRest is the writer goroutine: it sends until there is nothing left, or the peer takes nothing for too long.
func (c *conn) writeRest() {
	for {
		for ; c.at < len(c.send.chunks); c.nextChunk() {
			if err := c.writeAll((*c.send.chunks[c.at])[c.sent:]); err != nil {
				c.mu.Lock()
				c.sending = false
				c.discardLocked()
				c.mu.Unlock()
				c.shut()
				return
			}
		}
		c.mu.Lock()
		c.doneSendingLocked()
		if c.isShut {
			c.discardLocked()
			c.mu.Unlock()
			return
		}
		if c.out.empty() {
			// Sends that do not block fail once a deadline has passed; none may be left behind.
			_ = c.nc.SetWriteDeadline(time.Time{})
			c.mu.Unlock()
			return
		}
		c.takeOutLocked()
		c.countLocked()
		c.mu.Unlock()
	}
}

var errSlowClient = errors.New("the peer does not read its answers")

// writeAll writes p in pieces, so that progress can be told from none.
func (c *conn) writeAll(p []byte) error {
	const piece = 64 << 10
	step := min(time.Second, c.srv.slowClientTimeout())
	progress := time.Now()
	window, inWindow := progress, 0
	for len(p) > 0 {
		_ = c.nc.SetWriteDeadline(time.Now().Add(step))
		n, err := c.nc.Write(p[:min(piece, len(p))])
		p = p[n:]
		if n > 0 {
			progress = time.Now()
			inWindow += n
			c.mu.Lock()
			c.unsent -= int64(n)
			c.uncountLocked()
			c.unparkLocked()
			c.cond.Broadcast()
			c.mu.Unlock()
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		crawls := false
		if time.Since(window) >= pressedTimeout {
			crawls = inWindow < slowPace && len(p) > 0
			window, inWindow = time.Now(), 0
		}
		stalled := time.Since(progress)
		if stalled >= c.srv.slowClientTimeout() || crawls && c.srv.budget.pressed() {
			c.srv.slowClient(c, stalled)
			return errSlowClient
		}
	}
	return nil
}
