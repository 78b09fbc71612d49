package offload

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/binderylog/bindery/internal/pace"
	"golang.org/x/sync/errgroup"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
)

// Policy says which ledgers a Service offloads by itself.
type Policy struct {
	AfterAge time.Duration     // closed ledgers that were made at least so long ago; 0: none by age
	MinBytes int64             // of at least so many payload bytes
	Match    map[string]string // whose custom metadata has all of these
	KeepCopy bool              // bookies keep their copies: nothing is released
}

// wants reports whether the policy takes a ledger.
func (p *Policy) wants(m *ledger.Metadata, now time.Time) bool {
	if p.AfterAge <= 0 || m.State != ledger.StateClosed || m.LastEntry < 0 || m.Length < p.MinBytes || !m.HasCTime {
		return false
	}
	if now.Sub(time.UnixMilli(m.CTime)) < p.AfterAge {
		return false
	}
	for k, v := range p.Match {
		if got, ok := m.Custom[k]; !ok || string(got) != v {
			return false
		}
	}
	return true
}

// ServiceOptions configure a Service.
type ServiceOptions struct {
	Policy     Policy
	Ledgers    int           // offloaded at once; default 2
	Every      time.Duration // between two looks at all ledgers; default 1 min
	CleanEvery time.Duration // between two rounds of the janitor; default 10 min, negative: never
	HeadEvery  time.Duration // between two looks at every object; default 24 h, negative: never
	FullEvery  time.Duration // every ledger is read whole once in this time; default 30 d, negative: never
}

func (o *ServiceOptions) ensureDefaults() {
	if o.Ledgers <= 0 {
		o.Ledgers = 2
	}
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&o.Every, time.Minute}, {&o.CleanEvery, 10 * time.Minute}, {&o.HeadEvery, 24 * time.Hour}, {&o.FullEvery, 30 * 24 * time.Hour}} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
}

// Service runs a worker by a policy until it is closed: it offloads, releases, cleans, scrubs and repairs. Any number of services may
// share the work of a cluster.
//
// Goroutines: one for ledgers, with ServiceOptions.Ledgers under it while there is work, one for the janitor and one for scrubbing.
// Close joins them.
type Service struct {
	w      *Worker
	o      ServiceOptions
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	round Round               // guarded by mu
	under map[ledger.ID]int64 // guarded by mu; bytes of what is being offloaded
}

// NewService starts nothing yet. The worker stays the caller's.
func NewService(w *Worker, o ServiceOptions) *Service {
	o.ensureDefaults()
	s := &Service{w: w, o: o}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start begins: first with what a former run left unfinished.
func (s *Service) Start() {
	s.wg.Go(func() {
		s.resume()
		s.repeat(s.o.Every, 0, func() { s.ledgers(s.wanted()) })
	})
	s.wg.Go(func() { s.repeat(s.o.CleanEvery, s.o.CleanEvery, s.clean) })
	s.wg.Go(func() {
		s.repeat(s.o.HeadEvery, s.o.HeadEvery, func() { s.scrub(ScrubOptions{Level: VerifyHead, Repair: true}) })
	})
	s.wg.Go(func() {
		// A part of the ledgers at a time: those that are due.
		s.repeat(s.o.FullEvery/fullParts, s.o.FullEvery/fullParts, func() { s.scrub(ScrubOptions{Level: VerifyFull, Older: s.o.FullEvery, Repair: true}) })
	})
}

// fullParts is in how many rounds the full scrub looks for ledgers that are due.
const fullParts = 30

// A killed worker's locks outlive it by a lease; after that it has the length of Options.TakeOver before others displace it.
const (
	resumeFor   = 30 * time.Second
	resumeEvery = time.Second
)

// resume goes on with what a former run left unfinished, as soon as that one's locks are gone.
func (s *Service) resume() {
	for until := time.Now().Add(resumeFor); ; {
		var list []Planned
		for _, id := range s.w.Unfinished() {
			list = append(list, Planned{Ledger: id, Offload: true})
		}
		s.ledgers(list)
		if len(s.w.Unfinished()) == 0 || time.Now().After(until) || pace.Sleep(s.ctx, resumeEvery) != nil {
			return
		}
	}
}

// Close ends the service and waits for it.
func (s *Service) Close() {
	s.cancel()
	s.wg.Wait()
}

// repeat calls f after first and then every so often, until the service ends. Negative means never.
func (s *Service) repeat(every, first time.Duration, f func()) {
	if every < 0 {
		return
	}
	for t := time.NewTimer(first); ; t.Reset(every) {
		select {
		case <-s.ctx.Done():
			t.Stop()
			return
		case <-t.C:
			f()
		}
	}
}

// wanted lists what the policy has done next.
func (s *Service) wanted() []Planned {
	list, err := s.w.plan(s.ctx, &s.o.Policy, s.w.publish)
	if err != nil {
		s.warn("not all ledgers can be looked at", err)
	}
	return list
}

// ledgers takes each ledger a step on, several at once.
func (s *Service) ledgers(list []Planned) {
	s.begin(list)
	defer s.ended()
	var g errgroup.Group
	g.SetLimit(s.o.Ledgers)
	for _, x := range list {
		if s.ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			s.on(x, true)
			defer s.on(x, false)
			s.ledger(x.Ledger)
			return nil
		})
	}
	_ = g.Wait() // every step reports by itself
}

func (s *Service) ledger(id ledger.ID) {
	err := s.w.Offload(s.ctx, id)
	if err == nil && !s.o.Policy.KeepCopy {
		err = s.w.Release(s.ctx, id, false)
		s.w.health.moved(id, err)
		s.w.m.refused(err)
	}
	var stopped *StoppedError
	switch {
	case err == nil, errors.Is(err, ErrNotYet), s.ctx.Err() != nil:
	case errors.As(err, &stopped) && stopped.Err == nil:
		s.w.o.Logger.Debug("ledger stays as it is", "ledger", int64(id), "reason", stopped.Reason.String())
	default:
		s.warn("ledger could not be moved on; it is tried again", ofLedger(id, err))
	}
}

func (s *Service) clean() {
	swept, err := s.w.Clean(s.ctx)
	if err != nil {
		s.warn("clean-up ended early", err)
	}
	for _, p := range swept.Problems {
		s.warn("clean-up left something for the next time", p)
	}
}

func (s *Service) scrub(o ScrubOptions) {
	o.Found = func(f Finding) { s.w.o.Logger.Warn("damage in the tier", "finding", f.String()) }
	done, err := s.w.Scrub(s.ctx, o)
	if err != nil {
		s.warn("scrub ended early", err)
	}
	for _, p := range done.Problems {
		s.warn("scrub left something for the next time", p)
	}
	if done.Findings > 0 {
		s.w.o.Logger.Info("scrub finished", "level", o.Level.String(), "ledgers", done.Ledgers, "findings", done.Findings, "repaired", done.Repaired)
	}
}

func (s *Service) warn(what string, err error) {
	if s.ctx.Err() == nil && !errors.Is(err, metadata.ErrClosed) {
		s.w.o.Logger.Warn(what, "error", err)
	}
}
