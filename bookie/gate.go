package bookie

import (
	"net"
	"sync"
)

// gate is a listener that turns connections away until it is opened: a client that comes while the bookie replays its
// journals is told so at once, by a closed connection, instead of waiting in the system's queue.
type gate struct {
	net.Listener
	wg sync.WaitGroup

	mu     sync.Mutex // guards what follows
	opened bool
	first  net.Conn      // accepted by the turning-away loop after the gate was opened
	ready  chan struct{} // closed when the loop has ended
}

func newGate(ln net.Listener) *gate {
	g := &gate{Listener: ln, ready: make(chan struct{})}
	g.wg.Go(func() { labelled("gate", g.turnAway) })
	return g
}

// turnAway closes what it accepts. The first connection after open is kept for Accept.
func (g *gate) turnAway() {
	defer close(g.ready)
	for {
		c, err := g.Listener.Accept()
		g.mu.Lock()
		if g.opened {
			if err == nil {
				g.first = c
			}
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		if err != nil {
			return // closed: a start that failed
		}
		_ = c.Close()
	}
}

// open lets connections through from now on.
func (g *gate) open() net.Listener {
	g.mu.Lock()
	g.opened = true
	g.mu.Unlock()
	return g
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	<-g.ready
	g.mu.Lock()
	c := g.first
	g.first = nil
	g.mu.Unlock()
	if c != nil {
		return c, nil
	}
	return g.Listener.Accept()
}

// Close implements net.Listener.
func (g *gate) Close() error {
	err := g.Listener.Close()
	g.wg.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.first != nil {
		_ = g.first.Close()
		g.first = nil
	}
	return err
}
