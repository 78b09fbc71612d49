package bookie

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/binderylog/bindery/internal/wire"
)

// conn is one connection of a client.
//
// One goroutine reads (serve): it takes every complete frame that has arrived and hands them to the server as a batch.
// Answers come from anywhere: from that goroutine, from journals' acknowledging goroutines, from read workers. They are
// encoded into out under mu; whoever finds no send under way sends, without blocking. What the socket does not take is
// left to a writer goroutine, which lives until everything is sent.
type conn struct {
	srv  *server
	nc   net.Conn
	sock socket // non-blocking reads and writes on nc

	// Owned by the reading goroutine.
	dec      wire.Decoder
	in       *[]byte // received and not yet processed; nil while idle
	inFrom   *budget // what in was counted in
	inBudget int64   // bytes of it
	inWant   int     // size of the next buffer
	quiet    int     // reads in a row that a smaller buffer would have held
	armedAt  int64   // when the peer last got on with a frame that is not complete; 0 = there is none
	progress int     // bytes received since
	frameAt  int64   // when the wait for the rest of that frame began
	choked   bool    // the last add that waited for room waited in vain

	closing   chan struct{} // closed by shut
	closeOnce sync.Once

	reads atomic.Int32 // reads handed to workers and not answered

	mu       sync.Mutex // guards what follows
	cond     sync.Cond  // on mu: out drained, a read answered, or shut
	out      outQueue   // encoded answers that no sender has taken yet
	sending  bool       // a sender owns send
	isShut   bool
	table    *slotTable // answers owed by the journals; nil while there are none
	owed     int        // slots in use
	polls    pollList
	parked   deque[*readTask] // reads that wait until the peer has taken earlier answers
	unsent   int64            // bytes in out and send
	counted  int64            // of them in the budget
	now      int64            // time of the group being acknowledged, 0 between groups
	released int64            // budget to give back at the end of the group
	acked    int64            // adds answered in the group

	send outQueue // owned by the sender
	at   int      // index of the buffer of send that is being sent; those before it are gone
	sent int      // bytes of that buffer that the socket took
}

// slot remembers what an answer owed by a journal has to say.
type slot struct {
	txn           uint64
	ledger, entry int64
	start         int64 // nanoseconds, see now()
	size          int32 // bytes taken from the budget
	rawOp         uint32
	op            wire.Op
	proto         wire.Proto
	version       byte
	code          wire.Code // the answer if the record is durable
}

// slotTable is the slots of a connection with answers owed. Tables come from a pool, so that connections that are idle
// after a burst hold none.
type slotTable struct {
	slots []slot
	free  []uint32
}

var slotTables = sync.Pool{New: func() any { return new(slotTable) }}

func newConn(s *server, nc net.Conn) (*conn, error) {
	c := &conn{srv: s, nc: nc, closing: make(chan struct{}), inWant: bufSmall}
	c.cond.L = &c.mu
	if err := c.sock.init(nc); err != nil {
		return nil, err
	}
	return c, nil
}

// errDrain ends the reading of a connection whose server stops: what has been read is still answered.
var errDrain = errors.New("the bookie is stopping")

// serve reads until the connection ends. It is the connection's goroutine.
func (c *conn) serve() {
	err := c.readLoop()
	c.dropIn()
	switch {
	case errors.Is(err, errDrain):
		c.waitAnswered()
		err = nil
	case errors.Is(err, io.EOF):
		err = nil // the peer has gone
	case unreadable(err): // what came before is served: only what can not be read is refused, and by closing
		c.cancelPolls()
		c.waitAnswered()
	}
	c.srv.ended(c, err)
	c.shut()
}

// waitAnswered waits until everything that was read is answered and sent, or the connection is shut.
func (c *conn) waitAnswered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.isShut && (c.owed > 0 || c.reads.Load() > 0 || c.unsent > 0) {
		c.cond.Wait()
	}
}

func (c *conn) readLoop() error {
	for {
		if !c.waitWritable() {
			return io.EOF
		}
		if err := c.fill(); err != nil {
			return err
		}
		used, err := c.srv.take(c, *c.in)
		if err != nil {
			return err
		}
		if used > 0 {
			c.progress, c.frameAt = slowPace, 0 // a whole frame is progress
		}
		if err := c.keep(used); err != nil {
			return err
		}
	}
}

// waitWritable holds the reader back while the peer does not take its answers, or while too many reads are under way.
func (c *conn) waitWritable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.isShut && c.chokedLocked() {
		c.cond.Wait()
	}
	return !c.isShut
}

func (c *conn) chokedLocked() bool {
	return c.unsent > connOutHigh || c.reads.Load() >= connReadsMax || c.parked.len() >= parkedMax
}

// mayRead reports whether another read of the peer can be taken without waiting.
func (c *conn) mayRead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.chokedLocked()
}

// fill reads once into the buffer, getting one when there is something to read.
func (c *conn) fill() error {
	if c.in != nil && len(*c.in) == 0 {
		c.dropIn()
	}
	c.arm()
	if c.srv.stopping.Load() {
		return errDrain // whoever stops the server sets a deadline, which arm may have overwritten
	}
	n, err := c.sock.read(c)
	for err != nil && c.mayContinue(err) {
		n, err = c.sock.read(c)
	}
	if err != nil {
		return c.readError(err)
	}
	c.progress += n
	c.adapt(n)
	return nil
}

// arm sets the deadline for the rest of a frame: a peer that stops in the middle of one holds a buffer, and not for
// ever. Progress moves the deadline on.
func (c *conn) arm() {
	switch {
	case c.in == nil && c.armedAt != 0:
		c.armedAt, c.frameAt = 0, 0
		_ = c.nc.SetReadDeadline(time.Time{})
	case c.in != nil:
		t := now()
		if c.frameAt == 0 {
			c.frameAt = t
		}
		if c.armedAt != 0 && (c.progress < slowPace || t-c.armedAt < int64(time.Second)) {
			return
		}
		c.armedAt, c.progress = t, 0
		c.setReadStep()
	}
}

// setReadStep sets the time after which mayContinue is asked.
func (c *conn) setReadStep() {
	_ = c.nc.SetReadDeadline(time.Now().Add(min(pressedTimeout, c.srv.slowClientTimeout())))
}

// mayContinue decides, after a read that ended with err, whether the peer gets more time for the rest of its frame: it has
// slowClientTimeout to go on with it; while others wait for the room of its frame it has pressedTimeout for that, and
// slowClientTimeout for the whole frame.
func (c *conn) mayContinue(err error) bool {
	var ne net.Error
	if !errors.As(err, &ne) || !ne.Timeout() || c.srv.stopping.Load() || c.armedAt == 0 {
		return false
	}
	t, patience := now(), int64(c.srv.slowClientTimeout())
	if c.progress >= slowPace {
		c.armedAt, c.progress = t, 0
	}
	stalled := t - c.armedAt
	if stalled >= patience {
		return false
	}
	if c.inFrom == c.srv.frames && c.srv.frames.pressed() && (stalled >= int64(pressedTimeout) || t-c.frameAt >= patience) {
		return false
	}
	c.setReadStep()
	return true
}

func (c *conn) readError(err error) error {
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		if c.srv.stopping.Load() {
			return errDrain
		}
		c.srv.m.slowClosed.Add(1)
		return errors.New("the peer stopped in the middle of a frame")
	}
	if errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) {
		return io.EOF
	}
	return err
}

// room returns the part of the buffer to read into, getting a buffer if there is none. Called by sock.read once there
// may be something to read.
func (c *conn) room() []byte {
	if c.in == nil {
		c.takeIn(c.inWant)
	}
	b := *c.in
	return b[len(b):cap(b)]
}

// takeIn gets a buffer for n bytes, or for less. Small ones are always had; for a large one there must be room.
func (c *conn) takeIn(n int) {
	c.inFrom = c.srv.buffers
	switch {
	case n > bufMedium && c.inFrom.try(int64(n), laneOrdinary):
	case n > bufSmall && c.inFrom.try(bufMedium, laneOrdinary):
		n = bufMedium
	default:
		n = bufSmall
		c.inFrom.add(bufSmall)
	}
	c.in, c.inBudget = getBuf(n), int64(n)
}

func (c *conn) dropIn() {
	if c.in == nil {
		return
	}
	putBuf(c.in)
	c.in = nil
	c.inFrom.release(c.inBudget)
	c.inFrom, c.inBudget = nil, 0
}

// adapt chooses the size of the next buffer: large at once when a read filled the buffer, small after a while of little.
func (c *conn) adapt(n int) {
	switch {
	case len(*c.in) == cap(*c.in):
		c.inWant, c.quiet = bufLarge, 0
	case n > bufSmall/2:
		c.quiet = 0
	default:
		if c.quiet++; c.quiet >= 64 {
			c.inWant, c.quiet = bufSmall, 0
		}
	}
}

// keep drops the used bytes and makes room for the rest of a frame that is not complete.
func (c *conn) keep(used int) error {
	b := *c.in
	rest := b[used:]
	if len(rest) == 0 {
		*c.in = b[:0]
		return nil
	}
	need := wire.LengthSize
	if len(rest) >= wire.LengthSize {
		size, err := wire.FrameSize(rest, c.srv.o.FrameLimit)
		if err != nil {
			return err
		}
		need = size
	}
	need = max(need, len(rest)+1)
	switch {
	case need <= cap(b) && (used > 0 || len(rest) < cap(b)):
		*c.in = b[:copy(b[:cap(b)], rest)]
		return nil
	default:
		return c.growIn(rest, need)
	}
}

// growIn moves rest to a larger buffer, in steps: what a peer claims is believed as far as it has sent. Room is taken for
// the whole frame at once, from a share of memory that nobody waits for who has some of it: connections that all have part
// of a frame can not keep one another from the rest.
func (c *conn) growIn(rest []byte, need int) error {
	size := min(need, max(bufLarge, 2*len(rest)))
	from, got := c.inFrom, c.inBudget
	if from == c.srv.frames {
		c.inBudget = 0 // it moves along
	} else if from, got = c.srv.buffers, int64(need); need > bufLarge || !from.try(got, laneOrdinary) {
		from = c.srv.frames
		if got = from.acquire(got, laneOf(rest), c.closing); got == 0 {
			return net.ErrClosed
		}
		c.armedAt, c.frameAt = 0, 0 // the wait was not the peer's fault
	}
	bigger := getBuf(size)
	*bigger = append(*bigger, rest...)
	c.dropIn()
	c.in, c.inFrom, c.inBudget = bigger, from, got
	return nil
}

// laneOf guesses the lane of a frame from its first bytes.
func laneOf(frame []byte) lane {
	const flagsAt = wire.LengthSize + 3
	if len(frame) <= flagsAt+8 {
		return laneOrdinary
	}
	if frame[wire.LengthSize] != 0x0A {
		if frame[flagsAt]&byte(wire.RecoveryAdd) != 0 {
			return laneReserved
		}
		return laneOrdinary
	}
	// V3: the header message comes first, and its last field is the priority, if any: 0x20 is the tag of field 4.
	header := frame[wire.LengthSize+1:]
	if n := int(header[0]); n < len(header)-1 {
		for _, b := range header[1 : n+1] {
			if b == 0x20 {
				return laneReserved
			}
		}
	}
	return laneOrdinary
}

// shut closes the connection, once. Answers that are still owed go nowhere.
func (c *conn) shut() {
	c.closeOnce.Do(func() {
		close(c.closing)
		_ = c.nc.Close()
		c.mu.Lock()
		c.isShut = true
		polls := c.polls.takeAll()
		c.unparkLocked()
		if !c.sending {
			c.discardLocked()
		}
		c.cond.Broadcast()
		c.mu.Unlock()
		for _, p := range polls {
			p.cancel()
		}
		c.srv.forget(c)
	})
}
