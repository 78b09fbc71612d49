package bktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/binderylog/bindery/internal/wire"
)

// pipeBytes is what one direction of a connection holds before its writer has to wait.
const pipeBytes = 256 << 10

// Net is a network in memory: streams between named hosts, in order and without loss, as TCP gives them, but with
// latency, with links that stop carrying in one direction or both, with connections that are reset, and with peers that
// go silent. Every byte passes under one lock, so a tap sees one total order of what bookies were told and what they said.
type Net struct {
	mu      sync.Mutex // guards everything below, all hosts and all connections
	rng     *rand.Rand
	base    time.Duration
	hosts   map[string]*Host
	blocked map[link]bool
	lag     map[link]time.Duration
	garbled map[string]bool // hosts whose answers have wrong bits
	pairs   map[*pair]struct{}
	tap     Tap
}

type link struct{ from, to string }

// Tap sees the protocol as it passes. Its methods run under the network's lock, in the order in which things happen.
type Tap interface {
	// Delivered is called when the bookie has taken the last byte of a request off its connection.
	Delivered(p *pair, packet []byte)
	// Answered is called when the bookie hands an answer to its connection.
	Answered(p *pair, packet []byte)
}

// Host is one process on the network. A process that was killed stays dead; its successor is another Host of that name.
type Host struct {
	net  *Net
	name string
	dead bool
	ln   *listener
}

// pair is one connection.
type pair struct {
	client, server *Host
	ends           [2]*end // of client and server
	in, out        []byte  // bytes of frames that are not complete: requests, answers
	calls          calls
}

// end is one side of a connection. It implements net.Conn.
type end struct {
	p                *pair
	host, peer       *Host
	other            *end
	wake, room       chan struct{} // capacity 1
	segs             []segment     // on the way to this end
	size             int
	last             time.Time
	fin              bool // nothing follows segs
	closed, reset    bool
	readBy, writeBy  time.Time
	local, remoteAdr simAddr
}

type segment struct {
	at   time.Time
	data []byte
}

type simAddr string

func (a simAddr) Network() string { return "sim" }
func (a simAddr) String() string  { return string(a) }

// NewNet returns a network without hosts.
func NewNet(seed uint64, base time.Duration, tap Tap) *Net {
	return &Net{rng: rand.New(rand.NewPCG(seed, 0x6e6574)), base: base, hosts: map[string]*Host{}, blocked: map[link]bool{}, lag: map[link]time.Duration{}, garbled: map[string]bool{},
		pairs: map[*pair]struct{}{}, tap: tap}
}

// Join starts a process of that name. Connections that a killed predecessor left half open are reset now.
func (n *Net) Join(name string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.hosts[name]; old != nil {
		n.resetLocked(func(p *pair) bool { return p.client == old || p.server == old })
	}
	h := &Host{net: n, name: name}
	n.hosts[name] = h
	return h
}

// Kill ends a process: nothing that it says from now on reaches anybody. Its peers are told by a reset, or, if silent,
// not until a process of that name joins again.
func (h *Host) Kill(silent bool) {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	h.dead = true
	if h.ln != nil {
		h.ln.closeLocked()
	}
	for p := range n.pairs {
		for _, e := range p.ends {
			if e.host == h {
				e.reset = true
				e.poke()
			}
		}
	}
	if !silent {
		n.resetLocked(func(p *pair) bool { return p.client == h || p.server == h })
	}
}

func (n *Net) resetLocked(which func(*pair) bool) {
	for p := range n.pairs {
		if !which(p) {
			continue
		}
		for _, e := range p.ends {
			e.reset = true
			e.poke()
		}
		delete(n.pairs, p)
	}
}

// Reset breaks every connection between two names.
func (n *Net) Reset(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.resetLocked(func(p *pair) bool {
		return p.client.name == a && p.server.name == b || p.client.name == b && p.server.name == a
	})
}

// Block stops what from sends to to; it waits on the way. Unblock lets it go on.
func (n *Net) Block(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.blocked[link{from, to}] = true
}

// Unblock ends Block.
func (n *Net) Unblock(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.blocked, link{from, to})
	n.pokeAllLocked()
}

// Lag adds latency to one direction; 0 ends it.
func (n *Net) Lag(from, to string, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lag[link{from, to}] = d
}

// Garble lets some of the entries that a host serves have a wrong bit, which no checksum below the entry's own digest finds.
func (n *Net) Garble(name string, on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.garbled[name] = on
}

// garbleLocked flips a bit of the entry in some of the answers in b, if b begins with a whole one.
func (n *Net) garbleLocked(b []byte) {
	frames(b, func(packet []byte) {
		var r wire.Response
		if err := wire.DecodeResponse(protoOf(packet), packet, &r); err != nil || r.Op != wire.OpRead || len(r.Body) == 0 || n.rng.IntN(3) > 0 {
			return
		}
		if at := bytes.Index(packet, r.Body); at >= 0 {
			packet[at+n.rng.IntN(len(r.Body))] ^= 1 << n.rng.IntN(8)
		}
	})
}

// Heal ends every Block and Lag, also for what is on its way.
func (n *Net) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	soon := time.Now().Add(2 * n.base)
	for p := range n.pairs {
		for _, e := range p.ends {
			for i := range e.segs {
				if e.segs[i].at.After(soon) {
					e.segs[i].at = soon
				}
			}
			if e.last.After(soon) {
				e.last = soon
			}
		}
	}
	clear(n.blocked)
	clear(n.lag)
	clear(n.garbled)
	n.pokeAllLocked()
}

func (n *Net) pokeAllLocked() {
	for p := range n.pairs {
		p.ends[0].poke()
		p.ends[1].poke()
	}
}

func (n *Net) delayLocked(from, to string) time.Duration {
	return n.base/2 + time.Duration(n.rng.Int64N(int64(n.base))) + n.lag[link{from, to}]
}

// Listen makes the host reachable. It fits bookie.Options.Listener.
func (h *Host) Listen(_ context.Context, addr string) (net.Listener, error) {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.dead {
		return nil, net.ErrClosed
	}
	if h.ln != nil && !h.ln.closed {
		return nil, syscall.EADDRINUSE
	}
	h.ln = &listener{h: h, addr: simAddr(addr), wake: make(chan struct{}, 1)}
	return h.ln, nil
}

// Dial connects to the process that listens at addr, "name:port". It fits ledgerclient.DialFunc.
func (h *Host) Dial(ctx context.Context, addr string) (net.Conn, error) {
	name, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	n := h.net
	n.mu.Lock()
	wait := n.delayLocked(h.name, name) + n.delayLocked(name, h.name)
	n.mu.Unlock()
	for {
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, &net.OpError{Op: "dial", Net: "sim", Addr: simAddr(addr), Err: context.Cause(ctx)}
		case <-t.C:
		}
		c, err := n.connect(h, name, addr)
		if c != nil || err != nil {
			return c, err
		}
		wait = 200 * time.Millisecond // a blocked link: the handshake is sent again
	}
}

func (n *Net) connect(h *Host, name, addr string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	refused := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "sim", Addr: simAddr(addr), Err: err}
	}
	switch to := n.hosts[name]; {
	case h.dead:
		return refused(net.ErrClosed)
	case n.blocked[link{h.name, name}] || n.blocked[link{name, h.name}]:
		return nil, nil
	case to == nil || to.dead || to.ln == nil || to.ln.closed || len(to.ln.queue) >= 128:
		return refused(syscall.ECONNREFUSED)
	default:
		p := &pair{client: h, server: to, calls: calls{}}
		p.ends[0] = &end{p: p, host: h, peer: to, local: simAddr(h.name), remoteAdr: simAddr(addr)}
		p.ends[1] = &end{p: p, host: to, peer: h, local: simAddr(addr), remoteAdr: simAddr(h.name)}
		for i, e := range p.ends {
			e.other = p.ends[1-i]
			e.wake, e.room = make(chan struct{}, 1), make(chan struct{}, 1)
		}
		n.pairs[p] = struct{}{}
		to.ln.queue = append(to.ln.queue, p.ends[1])
		poke(to.ln.wake)
		return p.ends[0], nil
	}
}

type listener struct {
	h      *Host
	addr   simAddr
	queue  []*end
	closed bool
	wake   chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		l.h.net.mu.Lock()
		if l.closed {
			l.h.net.mu.Unlock()
			return nil, net.ErrClosed
		}
		if len(l.queue) > 0 {
			e := l.queue[0]
			l.queue = l.queue[1:]
			if len(l.queue) > 0 {
				poke(l.wake)
			}
			l.h.net.mu.Unlock()
			return e, nil
		}
		l.h.net.mu.Unlock()
		<-l.wake
	}
}

func (l *listener) closeLocked() {
	l.closed = true
	for _, e := range l.queue {
		e.p.ends[0].reset = true
		e.p.ends[0].poke()
	}
	l.queue = nil
	poke(l.wake)
}

func (l *listener) Close() error {
	l.h.net.mu.Lock()
	defer l.h.net.mu.Unlock()
	l.closeLocked()
	return nil
}

func (l *listener) Addr() net.Addr { return l.addr }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (e *end) poke() {
	poke(e.wake)
	poke(e.room)
}

func opError(op string, e *end, err error) error {
	return &net.OpError{Op: op, Net: "sim", Addr: e.remoteAdr, Err: err}
}

// wait waits for a signal, or until a time; zero means for ever.
func wait(signal <-chan struct{}, until time.Time) {
	if until.IsZero() {
		<-signal
		return
	}
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-signal:
	case <-t.C:
	}
}

// Read implements net.Conn.
func (e *end) Read(b []byte) (int, error) {
	n := e.host.net
	for {
		n.mu.Lock()
		now, until := time.Now(), e.readBy
		blocked := n.blocked[link{e.peer.name, e.host.name}]
		switch {
		case e.closed || e.host.dead:
			n.mu.Unlock()
			return 0, opError("read", e, net.ErrClosed)
		case !until.IsZero() && !now.Before(until):
			n.mu.Unlock()
			return 0, opError("read", e, os.ErrDeadlineExceeded)
		case e.reset:
			n.mu.Unlock()
			return 0, opError("read", e, syscall.ECONNRESET)
		case len(b) == 0:
			n.mu.Unlock()
			return 0, nil
		case !blocked && len(e.segs) > 0 && !now.Before(e.segs[0].at):
			got := e.takeLocked(b, now)
			n.mu.Unlock()
			return got, nil
		case !blocked && len(e.segs) == 0 && e.fin && !now.Before(e.last):
			n.mu.Unlock()
			return 0, io.EOF
		}
		next := time.Time{}
		switch {
		case blocked:
		case len(e.segs) > 0:
			next = e.segs[0].at
		case e.fin:
			next = e.last
		}
		if until.IsZero() || !next.IsZero() && next.Before(until) {
			until = next
		}
		n.mu.Unlock()
		wait(e.wake, until)
	}
}

// takeLocked reads what has arrived.
func (e *end) takeLocked(b []byte, now time.Time) int {
	got := 0
	for len(e.segs) > 0 && got < len(b) && !now.Before(e.segs[0].at) {
		s := &e.segs[0]
		c := copy(b[got:], s.data)
		got += c
		if s.data = s.data[c:]; len(s.data) == 0 {
			e.segs = e.segs[1:]
		}
	}
	e.size -= got
	poke(e.other.room)
	if e.host == e.p.server && e.host.net.tap != nil {
		e.p.in = frames(append(e.p.in, b[:got]...), func(packet []byte) { e.host.net.tap.Delivered(e.p, packet) })
	}
	return got
}

// Write implements net.Conn.
func (e *end) Write(b []byte) (int, error) {
	n := e.host.net
	for done := 0; ; {
		n.mu.Lock()
		now, o := time.Now(), e.other
		switch {
		case e.closed || e.host.dead:
			n.mu.Unlock()
			return done, opError("write", e, net.ErrClosed)
		case !e.writeBy.IsZero() && !now.Before(e.writeBy):
			n.mu.Unlock()
			return done, opError("write", e, os.ErrDeadlineExceeded)
		case e.reset:
			n.mu.Unlock()
			return done, opError("write", e, syscall.EPIPE)
		case done == len(b):
			n.mu.Unlock()
			return done, nil
		case o.size < pipeBytes:
			c := min(len(b)-done, pipeBytes-o.size)
			e.sendLocked(b[done:done+c], now)
			done += c
			n.mu.Unlock()
			if done == len(b) {
				return done, nil
			}
			continue
		}
		until := e.writeBy
		n.mu.Unlock()
		wait(e.room, until)
	}
}

// sendLocked puts bytes on the way. A connection keeps their order, whatever the delays.
func (e *end) sendLocked(b []byte, now time.Time) {
	n, o := e.host.net, e.other
	whole := len(e.p.out) == 0
	if e.host == e.p.server && n.tap != nil {
		e.p.out = frames(append(e.p.out, b...), func(packet []byte) { n.tap.Answered(e.p, packet) })
	}
	if o.closed || o.host.dead {
		return // nobody is there to take it
	}
	at := now.Add(n.delayLocked(e.host.name, e.peer.name))
	if at.Before(o.last) {
		at = o.last
	}
	o.last = at
	s := segment{at: at, data: append([]byte(nil), b...)}
	if whole && e.host == e.p.server && n.garbled[e.host.name] {
		n.garbleLocked(s.data)
	}
	o.segs = append(o.segs, s)
	o.size += len(b)
	poke(o.wake)
}

// Close implements net.Conn. What was written still arrives.
func (e *end) Close() error {
	n := e.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if e.closed {
		return opError("close", e, net.ErrClosed)
	}
	e.closed = true
	if !e.host.dead {
		e.other.fin = true
		if at := time.Now().Add(n.base / 2); at.After(e.other.last) {
			e.other.last = at
		}
	}
	e.poke()
	e.other.poke()
	if e.other.closed || e.other.reset {
		delete(n.pairs, e.p)
	}
	return nil
}

func (e *end) LocalAddr() net.Addr  { return e.local }
func (e *end) RemoteAddr() net.Addr { return e.remoteAdr }

func (e *end) SetDeadline(t time.Time) error {
	return errors.Join(e.SetReadDeadline(t), e.SetWriteDeadline(t))
}

func (e *end) SetReadDeadline(t time.Time) error {
	e.host.net.mu.Lock()
	defer e.host.net.mu.Unlock()
	e.readBy = t
	poke(e.wake)
	return nil
}

func (e *end) SetWriteDeadline(t time.Time) error {
	e.host.net.mu.Lock()
	defer e.host.net.mu.Unlock()
	e.writeBy = t
	poke(e.room)
	return nil
}

// String names the connection.
func (p *pair) String() string { return fmt.Sprintf("%s>%s", p.client.name, p.server.name) }
