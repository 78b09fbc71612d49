package bookie

import (
	"fmt"
	"io"
	"sync/atomic"

	"github.com/binderylog/bindery/internal/wire"
)

// codeSlots is the number of codes counted by rejected: the protocol's list.
var rejectCodes = [...]wire.Code{
	wire.NoLedger, wire.NoEntry, wire.BadReq, wire.IO, wire.UA, wire.BadVersion, wire.Fenced, wire.ReadOnly, wire.TooMany, wire.UnknownState,
}

// metrics are the server's own figures. The journals and the storage write theirs.
type metrics struct {
	addSeconds, readSeconds, longPollSeconds, forceSeconds histogram
	add, read                                              summaryPair
	// What only the full page shows.
	force, writeLAC, readLAC, info, list, longPoll summaryPair
	rejectedAdds                                   atomic.Uint64
	refused                                        [len(rejectCodes)]atomic.Uint64
	writeBytes, readBytes                          atomic.Uint64
	readErrors                                     atomic.Uint64
	slowClosed, malformed                          atomic.Uint64
	connections                                    atomic.Int64
}

// answered records one answer. It takes no lock and allocates nothing.
func (m *metrics) answered(op wire.Op, code wire.Code, nanos int64) {
	switch op {
	case wire.OpAdd:
		m.addSeconds.observe(nanos)
		m.add.observe(code == wire.OK, nanos)
	case wire.OpRead, wire.OpBatchRead:
		m.readSeconds.observe(nanos)
		m.read.observe(code == wire.OK, nanos)
	case wire.OpForce:
		m.forceSeconds.observe(nanos)
	}
	if s := m.other(op); s != nil {
		s.observe(code == wire.OK, nanos)
	}
	if code == wire.TooMany && op == wire.OpAdd {
		m.rejectedAdds.Add(1)
	}
	if code != wire.OK {
		m.refuse(code)
	}
}

func (m *metrics) longPolled(code wire.Code, nanos int64) {
	m.longPollSeconds.observe(nanos)
	m.longPoll.observe(code == wire.OK, nanos)
	if code != wire.OK {
		m.refuse(code)
	}
}

func (m *metrics) refuse(code wire.Code) {
	for i, c := range rejectCodes {
		if c == code {
			m.refused[i].Add(1)
			return
		}
	}
}

// write writes the metrics of the server in Prometheus's text format.
func (s *server) writeMetrics(w io.Writer) {
	m := s.m
	m.addSeconds.write(w, "bindery_add_seconds")
	m.readSeconds.write(w, "bindery_read_request_seconds")
	m.longPollSeconds.write(w, "bindery_long_poll_seconds")
	m.forceSeconds.write(w, "bindery_force_seconds")
	fmt.Fprintf(w, "# TYPE bindery_rejected_total counter\n")
	for i, c := range rejectCodes {
		fmt.Fprintf(w, "bindery_rejected_total{reason=\"%s\"} %d\n", c, m.refused[i].Load())
	}
	ordinary, reserved := s.reads.queued()
	used, limit, waiting := s.inFlight()
	for _, g := range []struct {
		kind, name string
		value      int64
	}{
		{"gauge", "bindery_in_flight_bytes", used},
		{"gauge", "bindery_in_flight_limit_bytes", limit},
		{"gauge", "bindery_in_flight_waiting", waiting},
		{"gauge", "bindery_connections", m.connections.Load()},
		{"gauge", "bindery_long_polls", s.polls.Load()},
		{"counter", "bindery_slow_client_closed_total", int64(m.slowClosed.Load())}, //nolint:gosec // a count
		{"counter", "bindery_malformed_frames_total", int64(m.malformed.Load())},    //nolint:gosec // a count
		{"counter", "bindery_read_errors_total", int64(m.readErrors.Load())},        //nolint:gosec // a count
		{"counter", "bookie_WRITE_BYTES", int64(m.writeBytes.Load())},               //nolint:gosec // a count
		{"counter", "bookie_READ_BYTES", int64(m.readBytes.Load())},                 //nolint:gosec // a count
		{"gauge", "bookkeeper_server_ADD_ENTRY_IN_PROGRESS", s.addsInProgress.Load()},
		{"gauge", "bookkeeper_server_ADD_ENTRY_BLOCKED", waiting},
		{"gauge", "bookkeeper_server_READ_ENTRY_IN_PROGRESS", int64(ordinary + reserved)},
		{"gauge", "bookkeeper_server_READ_ENTRY_BLOCKED", 0},
	} {
		fmt.Fprintf(w, "# TYPE %s %s\n%s %d\n", g.name, g.kind, g.name, g.value)
	}
	fmt.Fprintf(w, "# TYPE bookkeeper_server_thread_executor_queue gauge\n")
	fmt.Fprintf(w, "bookkeeper_server_thread_executor_queue{thread=\"BookieReadThreadPool-0\"} %d\n", ordinary)
	fmt.Fprintf(w, "bookkeeper_server_thread_executor_queue{thread=\"BookieHighPriorityThread-0\"} %d\n", reserved)
	compat{w, s.o.FullMetrics}.requests(m)
}
