package main

import (
	"context"
	"fmt"

	"github.com/binderylog/bindery/internal/admin"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload"
	"github.com/binderylog/bindery/offload/objstore"
)

// offloadView shows the role offload of a process.
type offloadView process

// offloadStatus is the body of /api/v2/offload.
type offloadStatus struct {
	offload.Status
	Targets []targetStatus `json:"targets"`
}

// targetStatus is one object store.
type targetStatus struct {
	ID          string                      `json:"id"`
	Domain      string                      `json:"domain"`
	CircuitOpen bool                        `json:"circuit_open"`
	Sent        int64                       `json:"sent_bytes"`
	Received    int64                       `json:"received_bytes"`
	Requests    map[string]map[string]int64 `json:"requests"` // by kind, then by what became of them
}

// Offload implements admin.OffloadView.
func (v *offloadView) Offload(ctx context.Context, after int64, limit int) (any, error) {
	x := v.offload.Load()
	if x == nil {
		return nil, fmt.Errorf("%w: offload", admin.ErrNoRole)
	}
	s, err := x.worker.Status(ctx, ledger.ID(after), limit)
	if err != nil {
		return nil, err
	}
	out := offloadStatus{Status: s, Targets: []targetStatus{}}
	domains := map[string]string{}
	for _, p := range x.targets.Places() {
		domains[p.Target] = p.Domain
	}
	for _, t := range x.targets.Stores {
		out.Targets = append(out.Targets, describeTarget(t, domains[t.ID()]))
	}
	return out, nil
}

func describeTarget(t *objstore.Target, domain string) targetStatus {
	x := targetStatus{ID: t.ID(), Domain: domain, CircuitOpen: t.CircuitOpen(), Requests: map[string]map[string]int64{}}
	x.Sent, x.Received = t.Bytes()
	t.EachRequest(func(op objstore.Op, class string, n int64) {
		of := x.Requests[string(op)]
		if of == nil {
			of = map[string]int64{}
			x.Requests[string(op)] = of
		}
		of[class] = n
	})
	return x
}
