package main

import (
	"context"
	"fmt"
	"io"

	"github.com/VictoriaMetrics/metrics"
	"github.com/binderylog/bindery/internal/admin"
	"github.com/binderylog/bindery/internal/config"
	"github.com/binderylog/bindery/internal/metadata"
)

// notYet stands in for a bookie until it exists: the admin server is open before that.
type notYet string

// State implements admin.StateView.
func (id notYet) State() admin.State { return admin.State{ID: string(id), Phase: "starting"} }

// replaying says whether the process is still on its way to serving.
func (p *process) replaying() bool {
	return !p.up.Load()
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

// configView shows the configuration in force.
type configView struct{ p *process }

func (v configView) now() (*config.Loaded, config.Effective) {
	l := v.p.live.Load()
	return l, v.p.resolve(l)
}

// Explicit implements admin.ConfigView.
func (v configView) Explicit() map[string]string {
	l, e := v.now()
	out := map[string]string{}
	for _, s := range config.Settings() {
		if l.IsSet(s.Key) {
			value, _ := l.Value(s, e)
			out[s.Key] = value
		}
	}
	return out
}

// Effective implements admin.ConfigView.
func (v configView) Effective() string {
	l, e := v.now()
	var b textBuffer
	_ = l.WriteTOML(&b, &e, true) // a buffer takes everything
	return string(b)
}

type textBuffer []byte

// Write implements io.Writer.
func (b *textBuffer) Write(p []byte) (int, error) { *b = append(*b, p...); return len(p), nil }
