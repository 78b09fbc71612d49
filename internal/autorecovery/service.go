package autorecovery

import (
	"context"
	"errors"
	"runtime/pprof"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/binderylog/bindery/internal/ledger"
)

// Service is one node of auto-recovery.
type Service struct {
	o        Options
	m        *figures
	rate     *governor
	inFlight *semaphore.Weighted
	auditor  *auditor
	worker   *worker
	scrub    *scrubber

	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
}

// ErrClosed is the cause of what Close cuts off.
var ErrClosed = errors.New("auto-recovery is stopping")

// New returns a service that does nothing yet.
func New(o Options) (*Service, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Service{o: o, rate: newGovernor(o.Rate), inFlight: semaphore.NewWeighted(o.InFlightBytes)}
	s.m = newFigures()
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.auditor, s.worker, s.scrub = newAuditor(s), newWorker(s), newScrubber(s)
	return s, nil
}

// Start lets it work, until Close.
func (s *Service) Start() {
	if !s.o.private.noAuditor {
		s.spawn("auditor", s.auditor.run)
	}
	if !s.o.private.noWorker {
		s.spawn("worker", s.worker.run)
	}
	if len(s.o.Local) > 0 {
		s.spawn("scrubber", s.scrub.run)
	}
}

func (s *Service) spawn(name string, task func(ctx context.Context)) {
	s.wg.Go(func() {
		pprof.Do(s.ctx, pprof.Labels("autorecovery", name), task)
	})
}

// Close ends it: copies under way are cut off, locks given back, the auditor's office given up.
func (s *Service) Close() {
	s.cancel(ErrClosed)
	s.wg.Wait()
}

// SetRate changes the bytes a second that this node copies at most.
func (s *Service) SetRate(rate int64) { s.rate.setLimit(rate) }

// releaseTimeout bounds what is done after the context has ended.
const releaseTimeout = 5 * time.Second

// Status is what a node does now.
type Status struct {
	Name    string        `json:"name"`
	Auditor bool          `json:"auditor"` // it is the elected one
	Ledgers []LedgerState `json:"ledgers"`
}

// LedgerState is a ledger in hand.
type LedgerState struct {
	Ledger ledger.ID `json:"ledger"`
	State  string    `json:"state"`
	Since  time.Time `json:"since"`
}

// Status returns what this node does now.
func (s *Service) Status() Status {
	return Status{Name: s.o.Name, Auditor: s.auditor.elected.Load(), Ledgers: s.worker.states()}
}
