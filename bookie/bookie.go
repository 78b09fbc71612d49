package bookie

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"github.com/binderylog/bindery/bookie/gc"
	"github.com/binderylog/bindery/internal/admin"
)

// Bookie is one bookie: directories, journals, storage, server and registration. It only wires them.
type Bookie struct {
	o     Options
	state *state
	m     *metrics

	phase  atomic.Value // string, see admin.State
	done   chan struct{}
	failed sync.Once

	hurry   chan struct{} // closed by EndDrain
	hurried sync.Once

	rolledBack atomic.Bool // the metadata store was, and it is not accepted yet
	ids        idWatch

	replayed  replayed // written and read by Start, as the next one
	lossEpoch uint64   // see settleLossEpoch

	switchMu sync.Mutex // serialises an operator's orders: SetReadOnly, and suspending compaction

	mu       sync.Mutex // guards what follows, and o.ID and o.Advertised until Start has returned
	started  bool
	stopped  bool
	err      error
	gate     *gate
	identity *Identity
	eng      *engine
	srv      *server
	gc       *gc.Collector
	reg      *Registration
	bg       *background
}

// Phases of a bookie's life, as the admin views show them.
const (
	phaseNew       = "starting"
	phaseReplaying = "replaying"
	phaseServing   = "serving"
	phaseStopping  = "stopping"
	phaseStopped   = "stopped"
	phaseFailed    = "failed"
)

// New checks the options. It touches neither disk nor network.
func New(o Options) (*Bookie, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, withExit(ExitConfig, err)
	}
	b := &Bookie{o: o, m: &metrics{}, done: make(chan struct{}), hurry: make(chan struct{})}
	b.ids.news = make(chan struct{}, 1)
	b.state = newState(nil)
	b.phase.Store(phaseNew)
	if o.ReadOnly {
		b.state.set(ReasonConfig, true, "started with --read-only")
	}
	return b, nil
}

// Addr returns the address of the listener, nil before there is one.
func (b *Bookie) Addr() net.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gate == nil {
		return nil
	}
	return b.gate.Addr()
}

// ID returns the bookie's id. If the options leave it to the listener, it is known once Start has returned.
func (b *Bookie) ID() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.o.ID)
}

// Done is closed when the bookie can not go on by itself, for instance because another process took its registration.
// Err then tells why; Stop still has to be called.
func (b *Bookie) Done() <-chan struct{} { return b.done }

// Err returns why Done is closed: an *ExitError.
func (b *Bookie) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// fail ends the bookie's service.
func (b *Bookie) fail(err error) {
	b.failed.Do(func() {
		b.mu.Lock()
		b.err = err
		b.mu.Unlock()
		b.phase.Store(phaseFailed)
		b.o.Logger.Error("the bookie can not go on", "err", err)
		close(b.done)
	})
}

// State implements admin.StateView.
func (b *Bookie) State() admin.State {
	phase, _ := b.phase.Load().(string)
	ro := b.state.get()
	s := admin.State{
		ID: b.ID(), Phase: phase, Running: phase == phaseServing, ReadOnly: ro.ReadOnly, Reason: ro.Text,
		ShuttingDown: phase == phaseStopping || phase == phaseStopped, TakesHighPriority: ro.HighPriority,
	}
	b.mu.Lock()
	eng, err := b.eng, b.err
	b.mu.Unlock()
	if eng != nil {
		s.Replay = admin.Replay{DoneBytes: eng.replayDone.Load(), TotalBytes: eng.replayTotal.Load()}
	}
	if err != nil {
		s.Reason = err.Error()
	}
	return s
}

// background is the goroutines of a running bookie that end with its context.
type background struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func newBackground() *background {
	bg := &background{}
	bg.ctx, bg.cancel = context.WithCancel(context.Background())
	return bg
}

func (bg *background) run(name string, fn func(ctx context.Context)) {
	bg.wg.Go(func() { labelled(name, func() { fn(bg.ctx) }) })
}

func (bg *background) stop() {
	bg.cancel()
	bg.wg.Wait()
}
