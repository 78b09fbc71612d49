package loadgen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/binderylog/bindery/internal/pace"
	"github.com/binderylog/bindery/internal/wire"
)

// rawConn is one connection with its ledgers. The sender owns the encoding state, the receiver the counters below
// "receiver"; what both touch is under mu.
type rawConn struct {
	run   *rawRun
	index int
	conn  net.Conn

	mu       sync.Mutex
	progress sync.Cond // window or slots were freed, or stop
	free     int       // permits of the window
	stop     bool      // no more adds
	ended    bool      // the receiver has gone
	ledgers  []rawLedger

	// sender
	body, frames []byte
	at           int // next ledger
	overruns     int64
	sent         int64

	// receiver
	hist             *hdr.Histogram
	answered, warmup int64
	errors           map[string]int64
	err              error
}

type rawLedger struct {
	id, next, length int64
	// starts holds, by entry id modulo its length, when an add in flight was due (nanoseconds since the epoch of the
	// process's clock); 0 = free.
	starts []int64
}

// clock is the zero of starts.
var clock = time.Now()

// send sends adds until ctx ends.
func (c *rawConn) send(ctx context.Context, start time.Time) {
	var p *schedule
	if rate := c.run.d.Rate; rate > 0 {
		n := float64(c.run.d.Connections)
		p = newSchedule(start, rate/n, float64(c.index)/n)
	}
	for ctx.Err() == nil {
		var more bool
		if p == nil {
			more = c.sendWindow()
		} else {
			more = c.sendDue(p)
		}
		if !more {
			return
		}
	}
}

// sendWindow sends as many adds as the window has room for, after waiting for at least one.
func (c *rawConn) sendWindow() bool {
	c.mu.Lock()
	for c.free == 0 && !c.stop && !c.ended {
		c.progress.Wait()
	}
	ok := !c.stop && !c.ended
	if ok {
		c.encodeLocked(min(c.free, c.batchMax()), func(int64) time.Time { return time.Now() })
	}
	c.mu.Unlock()
	return ok && c.flush()
}

// sendDue sends the adds of an open loop that are due, or sleeps until some are.
func (c *rawConn) sendDue(p *schedule) bool {
	n, next := p.due(time.Now())
	if n == 0 {
		if next.After(c.run.measureTo) {
			next = c.run.measureTo
		}
		pace.SleepUntil(next)
		return !time.Now().After(c.run.measureTo)
	}
	c.mu.Lock()
	if int64(c.free) < n {
		c.overruns += n - int64(c.free)
	}
	for c.free == 0 && !c.stop && !c.ended {
		c.progress.Wait()
	}
	ok := !c.stop && !c.ended
	if ok {
		done := c.encodeLocked(min(int(n), c.free, c.batchMax()), func(i int64) time.Time { return p.dueOf(p.sent + i) })
		p.sent += done
	}
	c.mu.Unlock()
	return ok && c.flush()
}

// batchMax is how many adds go into one write.
func (c *rawConn) batchMax() int { return max(writeBatch/(c.run.d.Size+64), 1) }

// encodeLocked encodes up to n adds into frames, on the next ledgers in turn, and takes their permits. It encodes
// fewer when every ledger has its share in flight, and then waits for progress if it got none.
func (c *rawConn) encodeLocked(n int, due func(i int64) time.Time) int64 {
	done := int64(0)
	c.frames = c.frames[:0]
	for done < int64(n) {
		l := c.nextLedgerLocked()
		if l == nil {
			if done > 0 || c.stop || c.ended {
				break
			}
			c.progress.Wait()
			continue
		}
		l.starts[l.next&int64(len(l.starts)-1)] = max(int64(due(done).Sub(clock)), 1)
		c.appendAdd(l)
		done++
	}
	c.free -= int(done)
	return done
}

// nextLedgerLocked is the next ledger in turn with a free slot, or nil.
func (c *rawConn) nextLedgerLocked() *rawLedger {
	for range c.ledgers {
		l := &c.ledgers[c.at]
		c.at = (c.at + 1) % len(c.ledgers)
		if l.starts[l.next&int64(len(l.starts)-1)] == 0 {
			return l
		}
	}
	return nil
}

func (c *rawConn) appendAdd(l *rawLedger) {
	size := c.run.d.Size
	off := int((l.next*31 + l.id*17) & (1<<20 - 1))
	l.length += int64(size)
	lac := max(l.next-1-int64(len(l.starts)), -1) // confirmed for certain: the slots behind it were free again
	c.body = c.run.digest.Seal(c.body[:0], l.id, l.next, lac, l.length, c.run.payload[off:off+size])
	frames, err := wire.AppendRequest(c.frames, &wire.Request{
		Proto: wire.V2, Version: 2, Op: wire.OpAdd, Ledger: l.id, Entry: l.next, Key: c.run.key[:], HasKey: true, Body: c.body,
	})
	if err != nil {
		panic("BUG: encode an add: " + err.Error())
	}
	c.frames = frames
	l.next++
	c.sent++
}

// flush writes the encoded frames.
func (c *rawConn) flush() bool {
	if len(c.frames) == 0 {
		return true
	}
	_, err := c.conn.Write(c.frames)
	if err != nil {
		c.conn.Close() // the receiver reports why
		return false
	}
	return true
}

// receive takes answers until the connection ends or everything is answered after the end of sending.
func (c *rawConn) receive() {
	defer func() {
		c.mu.Lock()
		c.ended = true
		c.progress.Broadcast()
		c.mu.Unlock()
	}()
	limit := 1 << 20
	buf := make([]byte, readBuffer)
	have := 0
	for {
		n, err := c.conn.Read(buf[have:])
		have += n
		now := time.Now()
		used, perr := c.answers(buf[:have], limit, now)
		if perr != nil {
			c.err = perr
			return
		}
		copy(buf, buf[used:have])
		have -= used
		if c.drained() {
			return
		}
		if err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				c.err = err
			}
			return
		}
		if have == len(buf) {
			c.err = fmt.Errorf("an answer of more than %d bytes", len(buf))
			return
		}
	}
}

// answers takes the whole frames in buf and returns how many bytes they had.
func (c *rawConn) answers(buf []byte, limit int, now time.Time) (int, error) {
	rest := buf
	freed := 0
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		if freed > 0 {
			c.free += freed
			c.progress.Broadcast()
		}
	}()
	for {
		packet, tail, err := wire.Frame(rest, limit)
		if errors.Is(err, wire.ErrShort) {
			return len(buf) - len(rest), nil
		}
		if err != nil {
			return 0, err
		}
		var resp wire.Response
		if err := wire.DecodeResponse(wire.V2, packet, &resp); err != nil {
			return 0, err
		}
		if err := c.answerLocked(&resp, now); err != nil {
			return 0, err
		}
		freed++
		rest = tail
	}
}

func (c *rawConn) answerLocked(resp *wire.Response, now time.Time) error {
	k := resp.Ledger - c.run.d.FirstLedger - int64(c.index)
	n := int64(c.run.d.Connections)
	if k < 0 || k%n != 0 || k/n >= int64(len(c.ledgers)) {
		return fmt.Errorf("an answer for ledger %d, which is not of this connection", resp.Ledger)
	}
	l := &c.ledgers[k/n]
	slot := &l.starts[resp.Entry&int64(len(l.starts)-1)]
	if resp.Entry < 0 || resp.Entry >= l.next || *slot == 0 {
		return fmt.Errorf("an answer for entry %d of ledger %d, which is not in flight", resp.Entry, resp.Ledger)
	}
	due := clock.Add(time.Duration(*slot))
	*slot = 0
	if resp.Code != wire.OK {
		c.errors[resp.Code.String()]++
		return nil
	}
	switch {
	case now.Before(c.run.measureFrom):
		c.warmup++
	case now.Before(c.run.measureTo):
		c.answered++
	}
	if !due.Before(c.run.measureFrom) && due.Before(c.run.measureTo) {
		record(c.hist, now.Sub(due))
	}
	return nil
}

// inFlight is how many adds have no answer.
func (c *rawConn) inFlight() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(c.run.d.Outstanding - c.free)
}

// drained says whether nothing is in flight and nothing more will be sent.
func (c *rawConn) drained() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stop && c.free == c.run.d.Outstanding
}

// finishIfDrained ends the receiver of a connection that has nothing in flight, which no answer would wake.
func (c *rawConn) finishIfDrained() {
	if c.drained() {
		_ = c.conn.SetReadDeadline(time.Unix(1, 0))
	}
}
