package offload

import (
	"context"
	"errors"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
)

// Planned is what a policy has done next with a ledger.
type Planned struct {
	Ledger  ledger.ID
	Offload bool      // the tier does not have it yet; otherwise the bookies' copies are given up
	Bytes   int64     // of payload
	After   time.Time // of a release: when the lag is over
}

// plan lists the ledgers that a policy takes and the tier has not, and those that it has and may release; surveyed, if any, gets what
// the records say as soon as all were read. The error says why the list may not be complete.
func (w *Worker) plan(ctx context.Context, p *Policy, surveyed func(*survey)) (out []Planned, err error) {
	have, seen := map[ledger.ID]State{}, newSurvey(w.o.now())
	for l, err := range w.o.Records.All(ctx) {
		if err != nil {
			return nil, err
		}
		if l.Err != nil {
			continue
		}
		have[l.Ledger] = l.Record.State
		seen.add(l.Ledger, l.Record, w.wanting(l.Ledger, l.Record))
		if l.Record.State == StateComplete && !p.KeepCopy {
			out = append(out, Planned{Ledger: l.Ledger, Bytes: l.Record.Length, After: time.UnixMilli(l.Record.CompletedAt).Add(max(w.o.DeletionLag, 0))})
		}
	}
	if surveyed != nil {
		surveyed(seen)
	}
	if p.AfterAge <= 0 {
		return out, nil
	}
	now := w.o.now()
	for r, err := range w.o.Records.ledgers.Records(ctx) {
		if err != nil {
			return out, err
		}
		state, known := have[r.ID]
		if (!known || state == StateUploading) && p.wants(r.Metadata, now) {
			out = append(out, Planned{Ledger: r.ID, Offload: true, Bytes: r.Metadata.Length})
		}
	}
	return out, nil
}

// Plan says what a service that works by a policy would do with the ledgers as they are now: releases only of those whose owner agreed.
func (w *Worker) Plan(ctx context.Context, p Policy) ([]Planned, error) {
	all, err := w.plan(ctx, &p, nil)
	if err != nil {
		return nil, err
	}
	out := all[:0]
	for _, x := range all {
		if !x.Offload {
			m, _, err := w.o.Records.Ledger(ctx, x.Ledger)
			if err != nil && !errors.Is(err, metadata.ErrNoLedger) {
				return nil, err
			}
			if err != nil || w.o.DeletionLag < 0 || string(m.Custom[releaseCustom]) != releaseCustomValue {
				continue
			}
		}
		out = append(out, x)
	}
	return out, nil
}

// Round is how far a service has come with the ledgers that its last look found to be offloaded.
type Round struct {
	Ledgers, Finished int   // whether they could be moved or not
	Total, Done       int64 // payload bytes
	Since             time.Time
}

// Left estimates how long the rest of the round will take, 0 if it can not be told yet.
func (r Round) Left(now time.Time) time.Duration {
	return Progress{Done: r.Done, Total: r.Total, Since: r.Since}.Left(now)
}

// Round tells how far the service is; the zero value: nothing is offloaded.
func (s *Service) Round() Round {
	s.mu.Lock()
	r, under := s.round, s.under
	planned := make(map[ledger.ID]int64, len(under))
	for id, n := range under {
		planned[id] = n
	}
	s.mu.Unlock()
	for _, p := range s.w.Progress() {
		if n, ok := planned[p.Ledger]; ok {
			r.Done += min(p.Done, n)
		}
	}
	return r
}

// begin notes the ledgers of a round that are to be offloaded.
func (s *Service) begin(list []Planned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.round, s.under = Round{Since: s.w.o.now()}, map[ledger.ID]int64{}
	for _, x := range list {
		if x.Offload {
			s.round.Ledgers++
			s.round.Total += x.Bytes
		}
	}
}

// on notes that a ledger is under way, or that it is not any more.
func (s *Service) on(x Planned, under bool) {
	if !x.Offload {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if under {
		s.under[x.Ledger] = x.Bytes
		return
	}
	delete(s.under, x.Ledger)
	s.round.Finished++
	s.round.Done += x.Bytes
}

// ended forgets the round.
func (s *Service) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.round, s.under = Round{}, nil
}
