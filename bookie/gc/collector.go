package gc

import (
	"context"
	"errors"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"
)

// Kind says what a triggered pass does besides the ordinary.
type Kind uint8

// The kinds. Each includes looking for deleted ledgers and removing logs that hold nothing alive.
const (
	Pass  Kind = iota // what is due
	Minor             // and compact below Minor.Below
	Major             // and compact below Major.Below
)

func (k Kind) String() string { return [...]string{"pass", "minor", "major"}[min(k, Major)] }

// ErrClosed is returned by Trigger after Close.
var ErrClosed = errors.New("garbage collector is closed")

// Collector is the garbage collector of one bookie.
type Collector struct {
	meta    Metadata
	ledgers Ledgers
	logs    Logs
	o       Options
	tuning  atomic.Pointer[tuning] // what of o may have changed since
	retimed chan struct{}          // capacity 1
	rate    limiter
	reads   limiter

	stop   context.CancelFunc
	ctx    context.Context
	wg     sync.WaitGroup
	wake   chan struct{} // capacity 1
	resume chan struct{} // closed and replaced when a suspension ends; guarded by mu

	mu      sync.Mutex
	status  Status
	asked   []request // passes asked for
	started bool
	closed  bool

	extra map[int64]surplus // copies too many seen by earlier passes; the run goroutine's
}

type request struct {
	kind Kind
	done chan error // capacity 1
}

// New returns a collector; Start starts it. The storage usually is both ledgers and logs.
func New(meta Metadata, ledgers Ledgers, logs Logs, o Options) (*Collector, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c := &Collector{meta: meta, ledgers: ledgers, logs: logs, o: o, wake: make(chan struct{}, 1), retimed: make(chan struct{}, 1), resume: make(chan struct{}), extra: map[int64]surplus{}}
	c.tuning.Store(tuningOf(&o))
	c.rate.perSecond = func() float64 {
		rate := float64(c.tuning.Load().rate)
		if o.Busy != nil && o.Busy() {
			return rate / 4
		}
		return rate
	}
	c.reads.perSecond = func() float64 { return float64(o.MetadataRate) }
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// Start starts the collector's goroutine.
func (c *Collector) Start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started || c.closed {
		return
	}
	c.started = true
	c.wg.Go(c.run)
}

// Close ends a pass under way at its next step and joins the goroutine.
func (c *Collector) Close() {
	c.mu.Lock()
	c.closed = true
	asked := c.asked
	c.asked = nil
	c.mu.Unlock()
	for _, r := range asked {
		r.done <- ErrClosed
	}
	c.stop()
	c.wg.Wait()
}

// Trigger asks for a pass now and waits for it, or until ctx ends; the pass goes on regardless. An error says what the
// pass could not do; what it could, it did.
func (c *Collector) Trigger(ctx context.Context, k Kind) error {
	r := request{k, make(chan error, 1)}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	c.asked = append(c.asked, r)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Suspend stops minor or major compaction, or both, until Resume; a compaction under way pauses. Deleting goes on.
func (c *Collector) Suspend(minor, major bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.MinorSuspended = c.status.MinorSuspended || minor
	c.status.MajorSuspended = c.status.MajorSuspended || major
}

// Resume ends a suspension.
func (c *Collector) Resume(minor, major bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.MinorSuspended = c.status.MinorSuspended && !minor
	c.status.MajorSuspended = c.status.MajorSuspended && !major
	close(c.resume)
	c.resume = make(chan struct{})
}

// Status is what the collector did and does.
type Status struct {
	Running        bool
	Step           string // of the running pass
	MinorSuspended bool
	MajorSuspended bool

	LastStart, LastEnd    time.Time
	LastSuccess           time.Time // end of the last pass that did everything it had to
	LastMinor, LastMajor  time.Time
	LastError             string
	Passes, MinorRuns     uint64
	MajorRuns, FailedRuns uint64

	LedgersSeen     int // by the last pass
	LedgersDeleted  uint64
	LogsRemoved     uint64
	LogsCompacted   uint64
	BytesCopied     uint64
	BytesFreed      uint64 // by removing logs that held nothing, and by compaction
	BytesCompacted  uint64 // of them by compaction
	LogsSeen        int    // collectable logs measured by the last pass
	LogBytesSeen    int64  // in them
	LiveBytesSeen   int64  // of them alive
	DamagedLogs     int    // met by the last pass
	PendingRemovals int    // files that could not be deleted yet
}

// Status returns it.
func (c *Collector) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

func (c *Collector) update(fn func(*Status)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn(&c.status)
}

func (c *Collector) step(what string) { c.update(func(s *Status) { s.Step = what }) }

// run makes passes until the collector is closed.
func (c *Collector) run() {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("bindery", "gc")))
	timer := time.NewTimer(c.tuning.Load().interval)
	defer timer.Stop()
	begun := time.Now() // compactions are due after their interval, counted from the start
	c.update(func(s *Status) { s.LastMinor, s.LastMajor = begun, begun })
	lastExtra := begun
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.retimed:
			timer.Reset(c.tuning.Load().interval)
			continue
		case <-timer.C:
		case <-c.wake:
		}
		asked := c.takeAsked()
		now := time.Now()
		w := c.due(asked, now, lastExtra)
		if w.extra {
			lastExtra = now
		}
		err := c.pass(w)
		for _, r := range asked {
			r.done <- err
		}
		timer.Reset(c.tuning.Load().interval)
	}
}

func (c *Collector) takeAsked() []request {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := c.asked
	c.asked = nil
	return asked
}

// work says what a pass does.
type work struct {
	minor, major bool
	extra        bool // look for copies too many
}

// due decides what a pass does.
func (c *Collector) due(asked []request, now, lastExtra time.Time) work {
	s, t := c.Status(), c.tuning.Load()
	w := work{
		minor: t.minor.Every > 0 && now.Sub(s.LastMinor) >= t.minor.Every,
		major: t.major.Every > 0 && now.Sub(s.LastMajor) >= t.major.Every,
		extra: c.o.OverReplicatedEvery >= 0 && now.Sub(lastExtra) >= c.o.OverReplicatedEvery,
	}
	for _, r := range asked {
		w.minor = w.minor || r.kind == Minor
		w.major = w.major || r.kind == Major
	}
	return w
}

// pass makes one pass: ledgers, then logs. A failure of one part does not keep the others from being done.
func (c *Collector) pass(w work) error {
	c.update(func(s *Status) {
		s.Running, s.LastStart, s.DamagedLogs, s.PendingRemovals = true, time.Now(), 0, 0
		s.LogsSeen, s.LogBytesSeen, s.LiveBytesSeen = 0, 0, 0
	})
	err := c.collectLedgers(w.extra)
	for dir := range c.logs.Dirs() {
		if c.ctx.Err() != nil {
			break
		}
		err = errors.Join(err, c.collectLogs(dir, w))
	}
	err = errors.Join(err, c.ctx.Err())
	end := time.Now()
	c.update(func(s *Status) {
		s.Running, s.Step, s.LastEnd, s.LastError = false, "", end, ""
		s.Passes++
		if w.minor {
			s.LastMinor = end
			s.MinorRuns++
		}
		if w.major {
			s.LastMajor = end
			s.MajorRuns++
		}
		if err != nil {
			s.FailedRuns++
			s.LastError = err.Error()
		} else {
			s.LastSuccess = end
		}
	})
	if err != nil && c.ctx.Err() == nil {
		c.o.Logger.Warn("a garbage collection pass was not complete; the next one goes on", "err", err)
	}
	return err
}
