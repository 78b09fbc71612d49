package ledgerclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/pprof"
	"time"

	"github.com/binderylog/bindery/internal/wire"
)

const (
	readBufferBytes = 128 << 10 // one read takes in as many answers as have arrived
	ownFrameBytes   = 16 << 10  // an incomplete frame beyond this gets memory of its own, which its reader keeps
	writeFrames     = 512       // frames of one writev; the kernel takes at most 1,024 pieces
	writeBytes      = 1 << 20   // bytes of one writev: a frame's memory is free again once its writev has returned
)

// bookieIDContext is the key of the request context with which a client says whom it means to talk to.
const bookieIDContext = "bindery.bookie-id"

// errWrongBookie is returned when the address of a bookie answers for another one.
var errWrongBookie = errors.New("the address belongs to another bookie")

// run owns a connection from the first dial to its end.
func (c *conn) run(ctx context.Context) {
	pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels("ledgerclient", "receiver", "bookie", string(c.peer.id))))
	nc, err := c.connect(ctx)
	if err != nil {
		c.fail(err)
		return
	}
	c.mu.Lock()
	c.nc, c.busy = nc, false
	c.sock.init(nc)
	if c.err != nil { // failed meanwhile
		c.mu.Unlock()
		_ = nc.Close()
		return
	}
	c.mu.Unlock()
	close(c.up)
	c.peer.reached()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels("ledgerclient", "sender", "bookie", string(c.peer.id))))
		if err := c.sendLoop(nc); err != nil {
			c.fail(fmt.Errorf("%w: send: %w", errConnClosed, err))
		}
	}()
	err = c.receiveLoop(nc)
	c.fail(fmt.Errorf("%w: receive: %w", errConnClosed, err))
	<-sent
}

// connect dials the bookie and greets it. The first frame is a V3 request that names the bookie in its context: a bookie
// of ours refuses if it is not the one, an Apache bookie ignores it. Nothing else is sent before the answer.
func (c *conn) connect(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.peer.client.o.ConnectTimeout)
	defer cancel()
	addr, err := c.peer.address(ctx)
	if err != nil {
		return nil, err
	}
	nc, err := c.peer.client.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	err = c.greet(nc)
	if ended := !stop(); ended || err != nil {
		_ = nc.Close()
		if ended {
			err = fmt.Errorf("%w: %w", ErrTimeout, context.Cause(ctx))
		}
		return nil, fmt.Errorf("greet %s: %w", addr, err)
	}
	return nc, nil
}

func (c *conn) greet(nc net.Conn) error {
	r := wire.Request{Proto: wire.V3, Version: byte(wire.V3), Op: wire.OpBookieInfo, TxnID: c.peer.client.nextTxn(),
		Context: []wire.ContextPair{{Key: []byte(bookieIDContext), Value: []byte(c.peer.id)}}}
	b, err := wire.AppendRequest(nil, &r)
	if err != nil {
		return err
	}
	if _, err := nc.Write(b); err != nil {
		return err
	}
	var head [wire.LengthSize]byte
	if _, err := io.ReadFull(nc, head[:]); err != nil {
		return err
	}
	size, err := wire.FrameSize(head[:], 4<<10)
	if err != nil {
		return err
	}
	packet := make([]byte, size-wire.LengthSize)
	if _, err := io.ReadFull(nc, packet); err != nil {
		return err
	}
	var resp wire.Response
	if err := wire.DecodeResponse(wire.V3, packet, &resp); err != nil {
		return err
	}
	if resp.Code == wire.UA {
		return fmt.Errorf("%w, or it asks for authentication (answer %v)", errWrongBookie, resp.Code)
	}
	return nil
}

// sendLoop writes everything that is queued, as much as possible at once.
func (c *conn) sendLoop(nc net.Conn) error {
	var batch []*frame
	var pieces [][]byte
	var buffers net.Buffers
	writing := false
	for {
		c.mu.Lock()
		if c.err != nil { // somebody else has failed it, and said why
			c.mu.Unlock()
			return nil //nolint:nilerr // nothing went wrong here
		}
		if writing {
			c.busy = false
		}
		part := 0
		if writing = !c.busy && len(c.queue) > 0; writing {
			batch, c.queue = c.queue, batch[:0]
			part, c.part = c.part, 0
			c.busy = true
		}
		c.mu.Unlock()
		if !writing { // nothing to do, or a direct writer is at it, who wakes us if anything is left
			select {
			case <-c.wake:
			case <-c.dead:
				return nil
			}
			continue
		}
		for rest := batch; len(rest) > 0; {
			n, bytes := 0, 0
			pieces = pieces[:0]
			for n < len(rest) && n < writeFrames && (n == 0 || bytes+len(rest[n].b) <= writeBytes) {
				pieces = append(pieces, rest[n].b[part:])
				part = 0
				bytes += len(rest[n].b)
				n++
			}
			buffers = pieces
			_, err := buffers.WriteTo(nc)
			for i := range n {
				rest[i].drop()
				rest[i] = nil
			}
			rest = rest[n:]
			if err != nil {
				for _, f := range rest {
					f.drop()
				}
				return err
			}
		}
	}
}

// receiveLoop takes answers off the socket. Answers to adds are collected per lane and handed over once per read.
func (c *conn) receiveLoop(nc net.Conn) error {
	r := receiver{c: c, limit: c.peer.client.o.MaxFrameBytes + v3Overhead, buf: make([]byte, readBufferBytes)}
	for {
		n, err := nc.Read(r.buf[r.end:])
		r.end += n
		c.heard.Store(c.peer.client.wheel.now.Load())
		if perr := r.frames(nc); perr != nil {
			return perr
		}
		if err != nil {
			return err
		}
	}
}

// receiver is the state of receiveLoop.
type receiver struct {
	c          *conn
	limit      int
	buf        []byte
	start, end int
	resp       wire.Response
	touched    []*lane
	lane       *lane // of the previous add
}

// frames handles every complete frame in the buffer and makes room for the rest.
func (r *receiver) frames(nc net.Conn) error {
	defer r.handOver()
	for r.end-r.start >= wire.LengthSize {
		have := r.buf[r.start:r.end]
		size, err := wire.FrameSize(have, r.limit)
		if err != nil {
			return err
		}
		if size <= len(have) {
			if err := r.packet(have[wire.LengthSize:size], false); err != nil {
				return err
			}
			r.start += size
			continue
		}
		if size <= ownFrameBytes {
			break
		}
		r.handOver() // what is there need not wait for the rest
		own := make([]byte, size)
		n := copy(own, have)
		r.start, r.end = 0, 0
		if _, err := io.ReadFull(nc, own[n:]); err != nil {
			return err
		}
		if err := r.packet(own[wire.LengthSize:], true); err != nil {
			return err
		}
	}
	r.end = copy(r.buf, r.buf[r.start:r.end])
	r.start = 0
	return nil
}

// packet handles one answer. owned says that its memory may be kept.
func (r *receiver) packet(p []byte, owned bool) error {
	resp := &r.resp
	if err := wire.DecodeResponse(r.c.proto, p, resp); err != nil {
		return err
	}
	var key callKey
	switch {
	case r.c.proto == wire.V3:
		key = callKey{op: resp.Op, a: int64(resp.TxnID)}
		if resp.Op == wire.OpAdd && resp.TxnID&laneTxn != 0 {
			r.add(resp)
			return nil
		}
	case resp.Op == wire.OpAdd && r.add(resp):
		return nil
	case resp.Op == wire.OpBatchRead:
		key = callKey{op: resp.Op, a: resp.RequestID}
	default:
		key = callKey{op: resp.Op, a: resp.Ledger, b: resp.Entry}
	}
	x := r.c.take(key)
	if x == nil {
		return nil // timed out: nobody waits any more
	}
	if resp.Op == wire.OpBatchRead && !owned { // one copy for all entries
		p, owned = bytes.Clone(p), true
		if err := wire.DecodeResponse(r.c.proto, p, resp); err != nil {
			return err
		}
	}
	keep := bytes.Clone
	if owned {
		keep = func(b []byte) []byte { return b }
	}
	x.code = resp.Code
	x.body, x.lacBody, x.last = keep(resp.Body), keep(resp.LACBody), keep(resp.LastEntryBody)
	if resp.Op == wire.OpListEntries {
		x.body = keep(resp.Availability)
	}
	x.lac, x.hasLAC = resp.MaxLAC, resp.HasMaxLAC
	if r.c.proto == wire.V2 {
		r.c.peer.answered.Store(true)
	}
	if len(resp.Entries) > 0 {
		x.entries = make([][]byte, len(resp.Entries))
		for i, e := range resp.Entries {
			x.entries[i] = keep(e)
		}
	}
	x.deliver()
	return nil
}

// laneTxn marks the transactions of a writer's adds, whose answers are matched by entry and not by call.
const laneTxn = 1 << 62

// add notes the answer to a writer's add. It reports false if no writer of that ledger uses this connection: then it came
// too late, or answers what a recovery wrote back.
func (r *receiver) add(resp *wire.Response) bool {
	l := r.lane
	if l == nil || l.w.id != LedgerID(resp.Ledger) {
		r.c.laneMu.RLock()
		l = r.c.lanes[LedgerID(resp.Ledger)]
		r.c.laneMu.RUnlock()
		if l == nil {
			return false
		}
		r.lane = l
	}
	if !l.touched {
		l.touched = true
		r.touched = append(r.touched, l)
	}
	l.acks = append(l.acks, ack{lane: l, entry: EntryID(resp.Entry), code: resp.Code})
	return true
}

// handOver gives the collected answers to their writers.
func (r *receiver) handOver() {
	for i, l := range r.touched {
		l.w.answered(l.acks)
		l.acks, l.touched = l.acks[:0], false
		r.touched[i] = nil
	}
	r.touched = r.touched[:0]
	r.lane = nil // a lane that was detached must not be found here for ever
}
