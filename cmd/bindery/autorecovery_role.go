package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/internal/autorecovery"
	"github.com/binderylog/bindery/internal/config"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/ledgerclient"
)

// recovery is the auto-recovery of a process: auditor, replication worker, and the scrubber of the process's bookies.
type recovery struct {
	service *autorecovery.Service
	client  *ledgerclient.Client
}

// placementCheck is how often the auditor counts the ledgers on too few domains.
const placementCheck = 24 * time.Hour

// sharedStore is a store that somebody else closes.
type sharedStore struct{ metadata.Store }

// Close implements metadata.Store.
func (sharedStore) Close() error { return nil }

// wantsRecovery says whether a process takes part in auto-recovery: it has the role, or it runs bookies that may.
func wantsRecovery(l *config.Loaded, bookies int) bool {
	return l.HasRole("recovery") || bookies > 0 && l.Recovery.Enabled
}

// startRecovery starts it, after the bookies: they are what it works on.
func (p *process) startRecovery(ctx context.Context) error {
	if !p.plan.recovery {
		return nil
	}
	views, err := p.loadViews(ctx)
	if err != nil {
		return err
	}
	client, err := ledgerclient.Attach(sharedStore{p.store}, views, &ledgerclient.Options{
		MaxFrameBytes: int(p.config.Expert.MaxFrame), MetadataTimeout: p.config.Metadata.Timeout.D(0), Logger: p.log.With("part", "recovery"),
	}, nil)
	if err != nil {
		return exit(bookie.ExitConfig, err)
	}
	o := autorecovery.Options{
		Name: p.recoveryName(), Client: client, Views: views, Logger: p.log.With("part", "recovery"),
		LostBookieDelay: zeroIsOff(p.config.Recovery.LostBookieDelay), LedgerCheck: zeroIsOff(p.config.Recovery.AuditEvery), Rate: recoveryRate(p.config),
		MinRacks: p.config.Placement.MinRacks, PlacementCheck: placementCheck,
	}
	for _, b := range p.bookies {
		o.Local = append(o.Local, b)
	}
	s, err := autorecovery.New(o)
	if err != nil {
		_ = client.Close()
		return exit(bookie.ExitConfig, err)
	}
	s.Start()
	p.recovery.Store(&recovery{service: s, client: client})
	return nil
}

// recoveryName is what votes and locks say: the first bookie of the process, or the host.
func (p *process) recoveryName() string {
	if len(p.bookies) > 0 {
		return p.bookies[0].ID()
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return cmp.Or(host, "unknown")
}

// zeroIsOff is a duration for options of which zero means the default and less than that off.
func zeroIsOff(d config.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d.D(0)
}

// recoveryRate is what recovery.rate comes to.
func recoveryRate(l *config.Loaded) int64 {
	if l.Recovery.Rate == config.AutoSize {
		return autorecovery.DefaultRate
	}
	return int64(l.Recovery.Rate)
}

// stopRecovery ends it, before the bookies.
func (p *process) stopRecovery() {
	if r := p.recovery.Swap(nil); r != nil {
		r.service.Close()
		_ = r.client.Close()
	}
}

// tuneRecovery puts the settings in force that can change.
func (p *process) tuneRecovery(l *config.Loaded) {
	if r := p.recovery.Load(); r != nil {
		r.service.SetRate(recoveryRate(l))
	}
}

// recoveryMetrics are the process's metrics with those of its auto-recovery and of the role offload.
type recoveryMetrics struct {
	processMetrics
	p *process
}

// WritePrometheus implements admin.MetricsWriter.
func (m recoveryMetrics) WritePrometheus(w io.Writer) {
	m.processMetrics.WritePrometheus(w)
	if r := m.p.recovery.Load(); r != nil {
		r.service.WritePrometheus(w)
	}
	if x := m.p.offload.Load(); x != nil {
		x.writeMetrics(w)
	}
}

// showProgress is one line about the emptying of a bookie.
func showProgress(p autorecovery.Progress) string {
	line := fmt.Sprintf("%d of %s left", p.Ledgers, plural(max(p.Total, p.Ledgers), "ledger"))
	if p.Bytes > 0 {
		line += ", about " + humanBytes(p.Bytes)
	}
	if p.ETA > 0 {
		line += ", ETA " + p.ETA.Round(time.Second).String()
	}
	if len(p.Stuck) > 0 {
		line += fmt.Sprintf("; %s can not be moved as things are (ledger %d: %s)", plural(len(p.Stuck), "ledger"), p.Stuck[0].Ledger, p.Stuck[0].Reason)
	}
	return line
}
