package main

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/VictoriaMetrics/metrics"
	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/internal/admin"
	"github.com/binderylog/bindery/internal/config"
	"github.com/binderylog/bindery/internal/metadata"
)

// bookieView shows one bookie to the admin server, from before it exists until after it has stopped.
type bookieView struct {
	plan bookiePlan

	mu    sync.Mutex
	b     *bookie.Bookie
	phase string // starting, serving, stopping, stopped or failed
	err   error
}

func newBookieView(p bookiePlan) *bookieView { return &bookieView{plan: p, phase: "starting"} }

func (v *bookieView) views() admin.Bookie { return admin.Bookie{State: v} }

func (v *bookieView) bind(b *bookie.Bookie) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.b = b
}

func (v *bookieView) started(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.phase, v.err = "serving", err
	if err != nil {
		v.phase = "failed"
	}
}

func (v *bookieView) stopping() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.phase = "stopping"
}

// State implements admin.StateView.
func (v *bookieView) State() admin.State {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := admin.State{ID: v.plan.id, Phase: v.phase, Running: v.phase == "serving", ShuttingDown: v.phase == "stopping"}
	if v.err != nil {
		s.Reason = v.err.Error()
	}
	return s
}

// replaying says whether a bookie is still on its way to serving.
func (p *process) replaying() bool {
	for _, v := range p.views {
		if v.State().Phase == "starting" {
			return true
		}
	}
	return len(p.views) == 0
}

// clusterView shows the cluster's bookies.
type clusterView process

// Bookies implements admin.ClusterView.
func (v *clusterView) Bookies(ctx context.Context) ([]admin.ClusterBookie, error) {
	if v.store == nil {
		return nil, fmt.Errorf("the metadata store is not connected yet")
	}
	views, err := (*process)(v).loadViews(ctx)
	if err != nil {
		return nil, err
	}
	list, err := views.Bookies.List(ctx, metadata.AnyKind)
	if err != nil {
		return nil, err
	}
	out := make([]admin.ClusterBookie, len(list))
	for i, b := range list {
		out[i] = admin.ClusterBookie{ID: string(b.ID), ReadOnly: b.ReadOnly}
	}
	return out, nil
}

// processMetrics shows the Go runtime and the process.
type processMetrics struct{}

// WritePrometheus implements admin.MetricsWriter.
func (processMetrics) WritePrometheus(w io.Writer) { metrics.WriteProcessMetrics(w) }

// configView shows the configuration.
type configView struct {
	l *config.Loaded
	e config.Effective
}

// Explicit implements admin.ConfigView.
func (v configView) Explicit() map[string]string {
	out := map[string]string{}
	for _, s := range config.Settings() {
		if v.l.IsSet(s.Key) {
			value, _ := v.l.Value(s, v.e)
			out[s.Key] = value
		}
	}
	return out
}

// Effective implements admin.ConfigView.
func (v configView) Effective() string {
	var b textBuffer
	_ = v.l.WriteTOML(&b, &v.e, true) // a buffer takes everything
	return string(b)
}

type textBuffer []byte

// Write implements io.Writer.
func (b *textBuffer) Write(p []byte) (int, error) { *b = append(*b, p...); return len(p), nil }
