package ledgerclient

import (
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/binderylog/bindery/internal/wire"
)

// clientMetrics are the figures of one client. They are made once; nothing on the way of an add or a read looks a name up.
type clientMetrics struct {
	set *metrics.Set

	appends, appendErrors         *metrics.Counter
	ensembleChanges               *metrics.Counter
	recoveries, recoveriesFailed  *metrics.Counter
	losses                        *metrics.Counter
	speculative, speculativeWon   *metrics.Counter
	digestMismatches              *metrics.Counter
	metadataRetries               *metrics.Counter
	deadPeers, slowReplicas       *metrics.Counter
	quarantines, connectsFailed   *metrics.Counter
	ledgersCreated, ledgersClosed *metrics.Counter
}

func newClientMetrics(c *Client) *clientMetrics {
	s := metrics.NewSet()
	m := &clientMetrics{set: s,
		appends:          s.NewCounter(`bindery_client_appends_total`),
		appendErrors:     s.NewCounter(`bindery_client_append_errors_total`),
		ensembleChanges:  s.NewCounter(`bindery_client_ensemble_changes_total`),
		recoveries:       s.NewCounter(`bindery_client_recoveries_total{result="ok"}`),
		recoveriesFailed: s.NewCounter(`bindery_client_recoveries_total{result="failed"}`),
		losses:           s.NewCounter(`bindery_client_accepted_losses_total`),
		speculative:      s.NewCounter(`bindery_client_speculative_reads_total`),
		speculativeWon:   s.NewCounter(`bindery_client_speculative_reads_won_total`),
		digestMismatches: s.NewCounter(`bindery_client_digest_mismatches_total`),
		metadataRetries:  s.NewCounter(`bindery_client_metadata_retries_total`),
		deadPeers:        s.NewCounter(`bindery_client_dead_peers_total`),
		slowReplicas:     s.NewCounter(`bindery_client_slow_replicas_total`),
		quarantines:      s.NewCounter(`bindery_client_quarantines_total`),
		connectsFailed:   s.NewCounter(`bindery_client_connect_errors_total`),
		ledgersCreated:   s.NewCounter(`bindery_client_ledgers_created_total`),
		ledgersClosed:    s.NewCounter(`bindery_client_ledgers_closed_total`),
	}
	s.NewGauge(`bindery_client_in_flight_bytes`, func() float64 { return float64(c.o.MaxPendingBytes - c.budget.free.Load()) })
	s.NewGauge(`bindery_client_in_flight_limit_bytes`, func() float64 { return float64(c.o.MaxPendingBytes) })
	s.NewGauge(`bindery_client_appends_waiting`, func() float64 { return float64(c.budget.waiting.Load()) })
	s.NewGauge(`bindery_client_open_writers`, func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return float64(len(c.writers))
	})
	s.NewGauge(`bindery_client_connections`, func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return float64(len(c.conns))
	})
	s.NewGauge(`bindery_client_quarantined_bookies`, func() float64 {
		n := 0
		for _, p := range c.allPeers() {
			if p.isQuarantined() {
				n++
			}
		}
		return float64(n)
	})
	return m
}

// Metrics returns the client's figures, for the page on which a process shows its own. docs/operations/monitoring.md lists
// them. They are per client: a process with several gives each page entry a label, or shows one.
func (c *Client) Metrics() *metrics.Set { return c.m.set }

// WritePrometheus writes the client's figures in Prometheus's text format, with those of its reads from the tier if it knows one.
func (c *Client) WritePrometheus(w io.Writer) {
	c.m.set.WritePrometheus(w)
	if c.tier != nil {
		c.tier.WriteMetrics(w)
	}
}

// opKind sorts requests for the figures of a bookie.
type opKind uint8

const (
	opAdd opKind = iota
	opRecoveryAdd
	opRead
	opBatchRead
	opFencingRead
	opReadLAC
	opWriteLAC
	opLongPoll
	opForce
	opPing
	opKinds
)

var opNames = [opKinds]string{"add", "recovery_add", "read", "batch_read", "fencing_read", "read_lac", "write_lac", "long_poll", "force", "ping"}

// kindOf sorts a request.
func kindOf(r *wire.Request) opKind {
	switch r.Op {
	case wire.OpAdd:
		if r.Flags&wire.RecoveryAdd != 0 {
			return opRecoveryAdd
		}
		return opAdd
	case wire.OpBatchRead:
		return opBatchRead
	case wire.OpReadLAC:
		return opReadLAC
	case wire.OpWriteLAC:
		return opWriteLAC
	case wire.OpForce:
		return opForce
	case wire.OpBookieInfo:
		return opPing
	}
	switch {
	case r.LongPoll():
		return opLongPoll
	case r.Flags&wire.Fence != 0:
		return opFencingRead
	}
	return opRead
}

// opMetrics are the figures of one operation on one bookie.
type opMetrics struct {
	ok, failed *metrics.Counter
	seconds    *metrics.PrometheusHistogram
}

// latencyBuckets reach from a loopback round trip to the time-outs.
var latencyBuckets = []float64{0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10}

// peerMetrics are the figures of one bookie, each made when it is first needed.
type peerMetrics struct {
	ops [opKinds]atomic.Pointer[opMetrics]
}

// op returns the figures of one operation.
func (p *peer) op(k opKind) *opMetrics {
	if m := p.m.ops[k].Load(); m != nil {
		return m
	}
	label := `{op="` + opNames[k] + `",bookie=` + strconv.Quote(string(p.id))
	s := p.client.m.set
	m := &opMetrics{
		ok:      s.GetOrCreateCounter(`bindery_client_requests_total` + label + `,result="ok"}`),
		failed:  s.GetOrCreateCounter(`bindery_client_requests_total` + label + `,result="failed"}`),
		seconds: s.GetOrCreatePrometheusHistogramExt(`bindery_client_request_seconds`+label+`}`, latencyBuckets),
	}
	p.m.ops[k].Store(m) // whoever else made it got the same figures
	return m
}

// done counts an answer, or its absence. A denial is an answer.
func (m *opMetrics) done(ok bool, d time.Duration) {
	if ok {
		m.ok.Inc()
	} else {
		m.failed.Inc()
	}
	m.seconds.Update(d.Seconds())
}

// deliver gives a call that has been answered, or has failed, to its sink.
func (c *call) deliver() {
	if !c.started.IsZero() {
		d, ok := time.Since(c.started), c.answered()
		c.conn.peer.op(c.kindOf).done(ok, d)
		if c.kindOf == opRead || c.kindOf == opBatchRead {
			c.conn.peer.reads.observe(d, ok)
		}
	}
	c.sink.callDone(c)
}
