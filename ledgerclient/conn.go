package ledgerclient

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/wire"
)

// conn is one connection to a bookie in one form of the protocol. It is made before it is connected: requests queue up
// meanwhile and fail if it can not be reached. A connection that failed stays failed; the peer makes a new one.
//
// Goroutines: run connects, then receives, and send sends; both end with the connection, and the client waits for them.
type conn struct {
	peer  *peer
	proto wire.Proto
	id    uint64 // never reused: the identity that decides whether a force covers an ack

	heard   atomic.Int64 // tick at which something arrived last
	retired atomic.Bool  // it serves those who use it and is given to nobody else
	paused  bool         // it failed at once, since an attempt had failed a moment ago

	up   chan struct{} // closed when it is connected
	dead chan struct{} // closed by fail

	mu     sync.Mutex // guards the fields below
	nc     net.Conn
	busy   bool   // somebody writes to the socket, or it is not connected yet
	sock   socket // used by whoever made busy true
	part   int    // bytes of queue[0] that are written already
	queue  []*frame
	calls  map[callKey]*call
	armed  bool  // the wheel will tell
	owed   int64 // tick since when some call has been under way
	pinged int64 // tick of the ping that was not answered yet, 0: none
	err    error
	wake   chan struct{} // the queue is not empty any more

	laneMu sync.RWMutex       // guards the fields below
	lanes  map[LedgerID]*lane // nil once the connection is dead
	left   map[LedgerID]bool  // ledgers whose writer left this bookie while answers were owed here
}

// lane is a writer's use of one connection: the adds of one ledger to one bookie. Fields without a comment belong to the
// writer's loop.
type lane struct {
	w     *Writer
	conn  *conn
	index int

	outstanding int   // adds sent and not answered
	progress    int64 // tick of the last answer, or of the first add since none was outstanding
	out         []*frame

	// One add at a time is timed: that costs nothing beside the others, and tells how far this bookie is behind.
	probe   EntryID // InvalidEntry: none
	probeAt time.Time
	behind  int64 // tick at which the timed add was found released without this bookie's answer, 0: it was not

	m       *opMetrics
	acks    []ack // the receiver's: answers of the present read
	touched bool  // the receiver's
}

// count notes an answer for the figures.
func (ln *lane) count(a *ack) {
	if a.code == wire.OK {
		ln.m.ok.Inc()
	} else {
		ln.m.failed.Inc()
	}
	if a.entry == ln.probe {
		ln.m.seconds.Update(time.Since(ln.probeAt).Seconds())
		ln.probe, ln.behind = InvalidEntry, 0
	}
}

// ack is one answer to an add.
type ack struct {
	lane  *lane
	entry EntryID
	code  wire.Code
}

var (
	errConnClosed = errors.New("connection closed")
	errRetired    = errors.New("connection replaced by another one")
)

// enqueue hands frames to the sender; each carries a reference for it. It reports whether the connection is still alive;
// if it is not, the references are dropped.
func (c *conn) enqueue(frames ...*frame) bool {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		for _, f := range frames {
			f.drop()
		}
		return false
	}
	if len(frames) == 1 && len(c.queue) == 0 && !c.busy && c.sock.raw != nil && len(frames[0].b) <= directBytes {
		c.busy = true
		c.mu.Unlock()
		return c.writeDirect(frames[0])
	}
	idle := len(c.queue) == 0 && !c.busy
	c.queue = append(c.queue, frames...)
	c.mu.Unlock()
	if idle {
		c.wakeSender()
	}
	return true
}

// directBytes is the largest frame that is written by the goroutine that made it.
const directBytes = 16 << 10

// writeDirect writes one frame from the caller's goroutine as far as the socket takes it at once, and leaves the rest to
// the sender.
func (c *conn) writeDirect(f *frame) bool {
	n := c.sock.write(f.b)
	c.mu.Lock()
	c.busy = false
	switch {
	case c.err != nil:
		c.mu.Unlock()
		f.drop()
		return false
	case n < len(f.b):
		c.queue = append(c.queue, nil)
		copy(c.queue[1:], c.queue)
		c.queue[0], c.part = f, n
		f = nil
	}
	more := len(c.queue) > 0
	c.mu.Unlock()
	if f != nil {
		f.drop()
	}
	if more {
		c.wakeSender()
	}
	return true
}

func (c *conn) wakeSender() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// call registers a call and sends its request. Without a sink nobody waits for the answer.
func (c *conn) call(x *call, f *frame, timeout time.Duration) {
	x.conn = c
	if x.sink == nil {
		if c.enqueue(f) {
			c.peer.op(x.kindOf).ok.Inc()
		} else {
			c.peer.op(x.kindOf).failed.Inc()
		}
		return
	}
	if !c.expect(timeout, x) {
		f.drop()
		x.deliver()
		return
	}
	c.enqueue(f)
}

// callAll is call for several requests, which have sinks and leave together: a bookie then meets them as one batch.
func (c *conn) callAll(calls []*call, frames []*frame, timeout time.Duration) {
	for _, x := range calls {
		x.conn = c
	}
	if !c.expect(timeout, calls...) {
		for i, x := range calls {
			frames[i].drop()
			x.deliver()
		}
		return
	}
	c.enqueue(frames...)
}

// expect registers calls, whose time runs from now on. It reports false if the connection is dead: then they have failed.
func (c *conn) expect(timeout time.Duration, calls ...*call) bool {
	w := &c.peer.client.wheel
	n := ticks(timeout)
	c.mu.Lock()
	if c.err != nil {
		for _, x := range calls {
			x.err = c.err
		}
		c.mu.Unlock()
		return false
	}
	if len(c.calls) == 0 {
		c.owed = w.now.Load()
	}
	for _, x := range calls {
		x.expiry = w.now.Load() + n + 1
		x.next = c.calls[x.key]
		c.calls[x.key] = x
	}
	arm := !c.armed
	c.armed = true
	c.mu.Unlock()
	if arm {
		w.after(min(n, ticks(time.Second)), c)
	}
	return true
}

// take removes and returns the oldest call that an answer matches.
func (c *conn) take(k callKey) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.calls[k]
	if x == nil {
		return nil
	}
	if x.next == nil {
		delete(c.calls, k)
		return x
	}
	prev := x
	for x.next != nil {
		prev, x = x, x.next
	}
	prev.next = nil
	return x
}

// expire fails the calls whose time has passed.
func (c *conn) expire(now int64) {
	var late []*call
	c.mu.Lock()
	for k, first := range c.calls {
		var keep *call
		for x := first; x != nil; {
			next := x.next
			x.next = nil
			if x.expiry <= now {
				late = append(late, x)
			} else {
				x.next, keep = keep, x
			}
			x = next
		}
		if keep == nil {
			delete(c.calls, k)
		} else if keep != first || first.next != nil {
			c.calls[k] = reverse(keep)
		}
	}
	c.armed = len(c.calls) > 0
	again := c.armed
	dead, ping := c.silentLocked(now)
	c.mu.Unlock()
	if again {
		c.peer.client.wheel.after(ticks(250*time.Millisecond), c)
	} else {
		c.endIfRetired()
	}
	for _, x := range late {
		x.err = ErrTimeout
		x.deliver()
	}
	switch {
	case dead:
		c.peer.client.m.deadPeers.Inc()
		c.fail(fmt.Errorf("%w: nothing came over the connection for %v", ErrTimeout, c.peer.client.o.PeerTimeout))
	case ping:
		c.ping()
	}
}

// silentLocked judges a connection over which nothing has come while calls are under way. A bookie may take its time with an
// answer (a long poll does), so it is asked for a sign of life first, where the form of the protocol has one.
func (c *conn) silentLocked(now int64) (dead, ping bool) {
	if len(c.calls) == 0 || c.nc == nil {
		return false, false
	}
	limit := ticks(c.peer.client.o.PeerTimeout)
	silence := now - max(c.heard.Load(), c.owed)
	if c.proto != wire.V3 {
		return silence > limit, false
	}
	if c.heard.Load() >= c.pinged {
		c.pinged = 0
	}
	if c.pinged == 0 && silence > limit/3 {
		c.pinged = now
		return false, true
	}
	return c.pinged != 0 && now-c.pinged > limit-limit/3, false
}

// ping asks for a sign of life.
func (c *conn) ping() {
	r := wire.Request{Proto: wire.V3, Version: byte(wire.V3), Op: wire.OpBookieInfo, TxnID: c.peer.client.nextTxn()}
	f := newFrame(64)
	b, err := wire.AppendRequest(f.b, &r)
	invariant.Check(err == nil, "encode a ping: %v", err)
	f.b = b
	c.call(&call{op: r.Op, key: callKey{op: r.Op, a: int64(r.TxnID)}, kindOf: opPing, started: time.Now(), sink: pinged{}}, f, c.peer.client.o.PeerTimeout)
}

// pinged takes the answer to a ping: that it came is all that it says.
type pinged struct{}

func (pinged) callDone(*call) {}

// reverse restores the order (newest first) of a chain that was built backwards.
func reverse(x *call) *call {
	var out *call
	for x != nil {
		next := x.next
		x.next = out
		out, x = x, next
	}
	return out
}

// attach subscribes a writer to the answers to its adds. It reports false if the connection is dead, or if the writer has
// left it before: the next one from the peer is another.
func (c *conn) attach(l *lane) bool {
	c.laneMu.Lock()
	left := c.left[l.w.id]
	alive := c.lanes != nil && !left
	if alive {
		c.lanes[l.w.id] = l
	}
	c.laneMu.Unlock()
	if left {
		c.peer.retire(c)
		c.endIfRetired()
	}
	return alive
}

// detach ends the subscription.
func (c *conn) detach(l *lane) {
	c.laneMu.Lock()
	if c.lanes[l.w.id] == l {
		delete(c.lanes, l.w.id)
	}
	c.laneMu.Unlock()
	c.endIfRetired()
}

// leave is detach for a bookie that is no longer in the writer's ensemble. If it still owes answers, the writer never uses
// this connection again: an answer says which entry it is about, and not which of two adds of it. One that this bookie gave
// before it was replaced, emptied and chosen anew would count for the add that followed.
func (c *conn) leave(l *lane) {
	if l.outstanding > 0 {
		c.laneMu.Lock()
		if c.left == nil {
			c.left = map[LedgerID]bool{}
		}
		c.left[l.w.id] = true
		c.laneMu.Unlock()
	}
	c.detach(l)
}

// endIfRetired closes a connection that the peer has replaced once nobody uses it.
func (c *conn) endIfRetired() {
	if !c.retired.Load() {
		return
	}
	c.mu.Lock()
	used := len(c.calls) > 0
	c.mu.Unlock()
	c.laneMu.RLock()
	used = used || len(c.lanes) > 0
	c.laneMu.RUnlock()
	if !used {
		c.fail(errRetired)
	}
}

// failed returns why the connection is dead, nil while it lives.
func (c *conn) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// fail ends the connection: everything queued is dropped, every call and every lane is told.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	queue, calls, nc := c.queue, c.calls, c.nc
	c.queue, c.calls = nil, nil
	c.mu.Unlock()
	close(c.dead)
	if nc != nil {
		_ = nc.Close()
	}
	for _, f := range queue {
		f.drop()
	}
	c.peer.connFailed(c, nc != nil, err)
	c.laneMu.Lock()
	lanes := c.lanes
	c.lanes = nil
	c.laneMu.Unlock()
	for _, l := range lanes {
		l.w.laneDown(l, err)
	}
	for _, x := range calls {
		for x != nil {
			next := x.next
			x.next = nil
			x.err = err
			x.deliver()
			x = next
		}
	}
}
