package bookie

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/internal/wire"
	"github.com/binderylog/bindery/journal"
)

// server answers the bookie protocol from storage and journals. It knows nothing of directories, cookies or registration.
type server struct {
	o        *Options
	log      *slog.Logger
	st       *storage.Storage
	journals []*journal.Journal
	state    *state
	budget   *budget // of adds, reads and answers under way
	buffers  *budget // of what connections receive into; nobody waits for room there
	frames   *budget // of frames that need a buffer of their own
	reads    *readPool
	verify   *verifier
	fences   *pendingFences
	m        *metrics
	patience atomic.Int64 // see slowClientTimeout
	// lossEpoch is the bookie's epoch of its last loss; see ledger.Replica.CheckAdd.
	lossEpoch uint64
	ids       *idWatch // nil: nobody wants to know of new ledgers

	batches sync.Pool
	polls   atomic.Int64 // waiting long polls
	// addsInProgress is the adds that journals have not answered.
	addsInProgress atomic.Int64
	malformed      rateLimit
	slow           rateLimit
	full           rateLimit
	damaged        fileLimits

	stopping atomic.Bool
	stopped  chan struct{}  // closed when stopping is set
	accepts  sync.WaitGroup // accept loops
	readers  sync.WaitGroup // a goroutine per connection
	writers  sync.WaitGroup // writer goroutines of slow connections

	mu    sync.Mutex // guards what follows
	lns   []net.Listener
	conns map[*conn]struct{}
}

// batchSource is what feeds the server: whoever has bytes of a connection in a buffer gives them to take and keeps what
// take has not used. Today that is a goroutine per connection (conn.serve); an event loop can take its place.
type batchSource interface {
	take(c *conn, buf []byte) (used int, err error)
}

var _ batchSource = (*server)(nil)

// epoch is the zero of now.
var epoch = time.Now()

// now returns a monotonic time in nanoseconds.
func now() int64 { return int64(time.Since(epoch)) }

func newServer(o *Options, st *storage.Storage, journals []*journal.Journal, state *state, m *metrics, check checkOpen, lossEpoch uint64) *server {
	s := &server{
		o: o, log: o.Logger, st: st, journals: journals, state: state, m: m, lossEpoch: lossEpoch,
		budget: newBudget(0), buffers: newBudget(0), frames: newBudget(0), fences: newPendingFences(), conns: map[*conn]struct{}{}, stopped: make(chan struct{}),
	}
	s.divide(o.InFlightBytes)
	s.patience.Store(int64(o.SlowClientTimeout))
	s.batches.New = func() any { return new(batch) }
	s.reads = newReadPool(s, o.ReadWorkers)
	s.verify = newVerifier(s, check)
	return s
}

// divide divides the in-flight bytes: half for what is under way, a quarter each for buffers and for large frames. A
// connection that waits for room holds at most what comes before it in this order: buffers, frames, budget.
func (s *server) divide(bytes int64) {
	s.buffers.setLimit(bytes / 4)
	s.frames.setLimit(bytes / 4)
	s.budget.setLimit(bytes - bytes/4 - bytes/4)
}

// inFlight returns the bytes of requests and answers in memory, how many are allowed, and how many connections wait.
func (s *server) inFlight() (used, limit, waiting int64) {
	for _, b := range []*budget{s.buffers, s.frames, s.budget} {
		used += b.used.Load()
		limit += b.limit[laneReserved].Load()
		waiting += int64(b.nWaiting.Load())
	}
	return used, limit, waiting
}

// slowClientTimeout is Options.SlowClientTimeout, or what it was changed to.
func (s *server) slowClientTimeout() time.Duration { return time.Duration(s.patience.Load()) }

// journalOf returns the journal of a ledger and its index.
func (s *server) journalOf(ledgerID int64) (*journal.Journal, int) {
	i := int(uint64(ledgerID) % uint64(len(s.journals))) //nolint:gosec // ids are not negative here
	return s.journals[i], i
}

// listen serves ln until stop.
func (s *server) listen(ln net.Listener) {
	s.mu.Lock()
	s.lns = append(s.lns, ln)
	s.mu.Unlock()
	s.accepts.Go(func() { s.acceptLoop(ln) })
}

func (s *server) acceptLoop(ln net.Listener) {
	for pause := time.Duration(0); ; {
		nc, err := ln.Accept()
		if err == nil {
			pause = 0
			s.accept(nc)
			continue
		}
		if s.stopping.Load() || errors.Is(err, net.ErrClosed) {
			return
		}
		// Usually out of file descriptors: some connection has to end first.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.log.Warn("accept failed, trying again; is the limit of open files too low?", "err", err, "pause", pause)
		select {
		case <-time.After(pause):
		case <-s.stopped:
			return
		}
	}
}

func (s *server) accept(nc net.Conn) {
	if tc, ok := nc.(*net.TCPConn); ok {
		_ = tc.SetNoDelay(true)
		_ = tc.SetKeepAlive(true)
	}
	c, err := newConn(s, nc)
	if err != nil {
		_ = nc.Close()
		return
	}
	s.mu.Lock()
	if s.stopping.Load() || len(s.conns) >= connectionsMax {
		s.mu.Unlock()
		_ = nc.Close()
		if ok, skipped := s.full.allow(10 * time.Second); ok && !s.stopping.Load() {
			s.log.Warn("closed a new connection: the limit is reached", "connections", connectionsMax, "not_logged", skipped)
		}
		return
	}
	s.conns[c] = struct{}{}
	s.m.connections.Add(1)
	s.readers.Go(func() { labelled("conn-reader", c.serve) })
	s.mu.Unlock()
}

func (s *server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.conns[c]; ok {
		delete(s.conns, c)
		s.m.connections.Add(-1)
	}
}

// ended notes why a connection was closed by this side.
func (s *server) ended(c *conn, err error) {
	if err == nil || s.stopping.Load() {
		return
	}
	if !unreadable(err) {
		s.log.Debug("connection closed", "peer", c.nc.RemoteAddr(), "err", err)
		return
	}
	s.m.malformed.Add(1)
	if ok, skipped := s.malformed.allow(10 * time.Second); ok {
		s.log.Warn("closed a connection that does not speak the bookie protocol", "peer", c.nc.RemoteAddr(), "err", err, "not_logged", skipped)
	}
}

// unreadable reports whether a connection ended because the peer sent what is no request.
func unreadable(err error) bool {
	var format *wire.FormatError
	var long *wire.FrameTooLongError
	return errors.As(err, &format) || errors.As(err, &long)
}

func (s *server) slowClient(c *conn, stalled time.Duration) {
	s.m.slowClosed.Add(1)
	if ok, skipped := s.slow.allow(10 * time.Second); ok {
		s.log.Warn("closed a connection whose peer does not read its answers", "peer", c.nc.RemoteAddr(), "stalled", stalled.Round(time.Millisecond), "not_logged", skipped)
	}
}

// journalFailed is told about every record that a journal could not make durable. One that waits for space has not failed.
func (s *server) journalFailed(err error) {
	if !errors.Is(err, journal.ErrNotStarted) && !errors.Is(err, journal.ErrWaiting) {
		s.state.journalFailed(err)
	}
}

// journalWaits reports whether the journal of a ledger writes nothing for want of space.
func (s *server) journalWaits(ledgerID int64) bool {
	j, i := s.journalOf(ledgerID)
	return s.state.waiting.Load()&(1<<i) != 0 || j.Blocked()
}

// stop stops accepting and reading, answers what has been read, and closes all connections. cut ends the waiting for
// answers: it is closed when the time for a graceful stop is over.
func (s *server) stop(cut <-chan struct{}) {
	s.stopping.Store(true)
	close(s.stopped)
	s.verify.cancel() // adds that wait for metadata are refused now
	s.mu.Lock()
	for _, ln := range s.lns {
		_ = ln.Close()
	}
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	s.accepts.Wait()
	for _, c := range conns {
		// Wakes the reader, which finds that the server is stopping.
		_ = c.nc.SetReadDeadline(time.Now())
		c.cancelPolls()
		c.mu.Lock()
		c.cond.Broadcast()
		c.mu.Unlock()
	}
	done := make(chan struct{})
	go func() {
		s.readers.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-cut:
		s.mu.Lock()
		for c := range s.conns {
			conns = append(conns, c)
		}
		s.mu.Unlock()
		for _, c := range conns {
			c.shut()
		}
		<-done
	}
	s.writers.Wait()
	s.verify.close()
	s.reads.close()
}
