package objstore

import (
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// secondsBounds are the upper bounds of the times of requests: loopback to a wide-area link that is nearly dead.
var secondsBounds = []float64{1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300}

// targetMetrics are the figures of one target. Recording allocates nothing.
type targetMetrics struct {
	id       string
	set      *metrics.Set
	requests [len(opsIndex)][kinds]atomic.Int64 // KindUnknown counts successes
	sent     atomic.Int64
	received atomic.Int64
	retries  atomic.Int64
	get, put *metrics.PrometheusHistogram
}

// opsIndex numbers the requests.
var opsIndex = [...]Op{OpPut, OpGet, OpHead, OpDelete, OpList, OpCreate, OpPart, OpComplete, OpAbort, OpUploads}

func indexOf(op Op) int {
	for i, o := range opsIndex {
		if o == op {
			return i
		}
	}
	return 0
}

func newTargetMetrics(id string) *targetMetrics {
	m := &targetMetrics{id: id, set: metrics.NewSet()}
	label := "{target=" + strconv.Quote(id) + "}"
	m.get = m.set.NewPrometheusHistogramExt("bindery_offload_get_seconds"+label, secondsBounds)
	m.put = m.set.NewPrometheusHistogramExt("bindery_offload_put_seconds"+label, secondsBounds)
	return m
}

func (m *targetMetrics) count(op Op, k Kind) { m.requests[indexOf(op)][k].Add(1) }

func (m *targetMetrics) took(r request, k Kind, err error, d time.Duration) {
	if err != nil && k == KindUnknown {
		k = KindMisuse // no driver of ours: every error of theirs has a kind
	}
	m.count(r.op, k)
	m.sent.Add(int64(r.sent))
	if err != nil {
		return
	}
	switch r.op {
	case OpGet:
		m.received.Add(int64(r.read))
		m.get.Update(d.Seconds())
	case OpPut, OpPart:
		m.put.Update(d.Seconds())
	}
}

// Requests returns how many tries of a request ended in a kind; KindUnknown stands for success.
func (t *Target) Requests(op Op, k Kind) int64 { return t.m.requests[indexOf(op)][k].Load() }

// Bytes returns what was sent in bodies, repeats included, and what was read.
func (t *Target) Bytes() (sent, received int64) { return t.m.sent.Load(), t.m.received.Load() }

// expirer is a driver whose credential ends.
type expirer interface{ CredentialExpires() time.Time }

// EachRequest calls f with the number of tries for each kind of request and what became of them, those that there were.
func (t *Target) EachRequest(f func(op Op, class string, n int64)) {
	for i, op := range opsIndex {
		for k := range kinds {
			n := t.m.requests[i][k].Load()
			if n == 0 {
				continue
			}
			class := k.String()
			if k == KindUnknown {
				class = "ok"
			}
			f(op, class, n)
		}
	}
}

// WritePrometheus prints the target's metrics in the text form.
func (t *Target) WritePrometheus(w io.Writer) {
	target := "target=" + strconv.Quote(t.o.ID)
	t.EachRequest(func(op Op, class string, n int64) {
		fmt.Fprintf(w, "bindery_offload_requests_total{%s,op=%q,class=%q} %d\n", target, op, class, n)
	})
	readLimit, reading := t.reads.now()
	writeLimit, writing := t.writes.now()
	open := 0
	if t.CircuitOpen() {
		open = 1
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"bindery_offload_sent_bytes_total{" + target + "}", t.m.sent.Load()},
		{"bindery_offload_received_bytes_total{" + target + "}", t.m.received.Load()},
		{"bindery_offload_retries_total{" + target + "}", t.m.retries.Load()},
		{"bindery_offload_circuit_open{" + target + "}", int64(open)},
		{"bindery_offload_target_concurrency{" + target + `,kind="read"}`, int64(readLimit)},
		{"bindery_offload_target_concurrency{" + target + `,kind="write"}`, int64(writeLimit)},
		{"bindery_offload_target_in_flight{" + target + `,kind="read"}`, int64(reading)},
		{"bindery_offload_target_in_flight{" + target + `,kind="write"}`, int64(writing)},
	} {
		fmt.Fprintf(w, "%s %d\n", f.name, f.value)
	}
	if e, ok := t.in.(expirer); ok {
		if at := e.CredentialExpires(); !at.IsZero() {
			fmt.Fprintf(w, "bindery_offload_credential_expires_seconds{%s} %d\n", target, int64(time.Until(at).Seconds()))
		}
	}
	t.m.set.WritePrometheus(w)
}
