package ledgerclient

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/pace"
	"github.com/binderylog/bindery/internal/wire"
)

// redialPause is how long after a failed attempt to connect further requests fail at once, so that others are asked; a read
// that nobody else can answer tries earlier (reconnect). It keeps a dead bookie from
// being dialled for every request, and is short against the five seconds in which a new address must be in use.
const redialPause = 500 * time.Millisecond

// resolveAgainMax bounds the look at the store for the address of a bookie that could not be reached.
const resolveAgainMax = 500 * time.Millisecond

// peer is this client's view of one bookie: up to two connections, since adds and plain reads are smaller and cheaper as
// V2, and everything that must be matched by transaction, or that V2 does not have, goes as V3.
type peer struct {
	client *Client
	id     BookieID

	quarantined atomic.Int64 // tick until which it is not chosen for ensembles
	unreachable atomic.Bool  // it is in quarantine only because a connection failed: one that works ends it
	noBatch     atomic.Bool  // it does not know batch reads
	answered    atomic.Bool  // some V2 read has been answered
	reads       latency
	penalty     penalty
	m           peerMetrics

	mu       sync.Mutex // guards the fields below
	conns    [2]*conn   // V2, V3
	failedAt time.Time  // of the last failed attempt to connect
	lastErr  error
}

// conn returns a living connection, or one that fails at once if the bookie could not be reached a moment ago.
func (p *peer) conn(proto wire.Proto) *conn {
	slot := &p.conns[0]
	if proto == wire.V3 {
		slot = &p.conns[1]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if *slot != nil {
		return *slot
	}
	c := &conn{peer: p, proto: proto, id: p.client.nextConn.Add(1), up: make(chan struct{}), dead: make(chan struct{}), wake: make(chan struct{}, 1), busy: true,
		calls: map[callKey]*call{}, lanes: map[LedgerID]*lane{}}
	if p.lastErr != nil && time.Since(p.failedAt) < redialPause {
		c.paused = true
		return deadConn(c, p.lastErr)
	}
	if !p.client.start(c) {
		return deadConn(c, ErrClosed)
	}
	*slot = c
	return c
}

// connected reports whether there is a connection that works.
func (p *peer) connected(proto wire.Proto) bool {
	p.mu.Lock()
	c := p.conns[0]
	if proto == wire.V3 {
		c = p.conns[1]
	}
	p.mu.Unlock()
	if c == nil {
		return false
	}
	select {
	case <-c.up:
		return true
	default:
		return false
	}
}

// deadConn makes c one that has failed already.
func deadConn(c *conn, err error) *conn {
	c.err, c.calls, c.lanes = err, nil, nil
	close(c.dead)
	return c
}

// retire gives a connection to nobody any more; the next one to ask gets another.
func (p *peer) retire(c *conn) {
	c.retired.Store(true)
	p.mu.Lock()
	p.forgetLocked(c)
	p.mu.Unlock()
}

func (p *peer) forgetLocked(c *conn) {
	for i := range p.conns {
		if p.conns[i] == c {
			p.conns[i] = nil
		}
	}
}

// connFailed forgets a connection; up says whether it ever worked.
func (p *peer) connFailed(c *conn, up bool, err error) {
	if errors.Is(err, errRetired) {
		return
	}
	p.mu.Lock()
	p.forgetLocked(c)
	if !up {
		p.failedAt, p.lastErr = time.Now(), err
	}
	p.mu.Unlock()
	if !up {
		p.client.m.connectsFailed.Inc()
	}
	if !errors.Is(err, ErrClosed) {
		p.quarantine(err)
	}
}

// redial lets the next request try to connect, however short ago an attempt failed.
func (p *peer) redial() {
	p.mu.Lock()
	p.lastErr = nil
	p.mu.Unlock()
}

const (
	reconnectTries = 3                     // attempts at a read that failed for want of a connection that nobody tried to make
	reconnectPause = 25 * time.Millisecond // before the second attempt, doubled before the next; up to as much again at random
)

// reconnect lets the next requests to some bookies try to connect, after a short pause: what those would have to wait for
// began before, and may be over. It reports false if ctx ends first, or after reconnectTries attempts.
func (c *Client) reconnect(ctx context.Context, peers []*peer, attempt int) bool {
	if attempt >= reconnectTries || len(peers) == 0 {
		return false
	}
	pause := reconnectPause << (attempt - 1)
	if pace.Sleep(ctx, pause+rand.N(pause)) != nil {
		return false
	}
	for _, p := range peers {
		p.redial()
	}
	return true
}

// address returns where the bookie listens now. A bookie that is not registered is tried under its own id if that is an
// address, as old bookies are.
func (p *peer) address(ctx context.Context) (string, error) {
	b, ok := p.client.view.get(p.id)
	if ok && p.stale() { // what the client has watched may be old; but if the store does not answer soon, it is all there is
		short, cancel := context.WithTimeout(ctx, resolveAgainMax)
		if now, err := p.client.views.Bookies.Resolve(short, p.id); err == nil {
			b = now
		}
		cancel()
	}
	if !ok {
		var err error
		b, err = p.client.views.Bookies.Resolve(ctx, p.id)
		if err != nil && !errors.Is(err, metadata.ErrNotFound) {
			return "", fmt.Errorf("find its address: %w", err)
		}
		if err != nil {
			b = metadata.Bookie{ID: p.id}
		}
	}
	addr, err := b.Address()
	if err != nil {
		return "", fmt.Errorf("find its address: %w", err)
	}
	return addr, nil
}

// stale reports whether the last attempt to connect failed, so that the address that it used may be no longer right.
func (p *peer) stale() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.failedAt.IsZero()
}

// netDial is how connections are made outside tests.
func netDial(ctx context.Context, addr string) (net.Conn, error) {
	// A host that is gone is noticed on idle connections, too, within ten seconds.
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 4 * time.Second, Interval: 2 * time.Second, Count: 2}}
	return d.DialContext(ctx, "tcp", addr)
}
