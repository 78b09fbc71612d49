package entrylog

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/VictoriaMetrics/metrics"
)

// Stats are counters and gauges of a store.
type Stats struct {
	Logs         int   // in the table, removal not pending
	Bytes        int64 // in them
	Unsealed     int   // of them without a footer
	PendingLogs  int   // removal pending
	PendingBytes int64
	Entries      uint64 // appended since Open, as all below
	EntryBytes   uint64 // of their bodies
	Written      uint64 // bytes written to files
	Checkpoints  uint64
	Syncs        uint64
	Reads        uint64 // single entries and ranges
	ReadBytes    uint64
	Corrupt      uint64 // damaged places met
	Failures     uint64 // logs whose writing ended by an error
}

// Stats returns them.
func (s *Store) Stats() Stats {
	c := &s.count
	st := Stats{
		Entries: c.entries.Load(), EntryBytes: c.entryBytes.Load(), Written: c.written.Load(),
		Checkpoints: c.checkpoints.Load(), Syncs: c.syncs.Load(), Reads: c.reads.Load(), ReadBytes: c.readBytes.Load(),
		Corrupt: c.corrupt.Load(), Failures: c.failures.Load(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.logs {
		if l.removing {
			st.PendingLogs++
			st.PendingBytes += l.info.Size
			continue
		}
		st.Logs++
		st.Bytes += l.info.Size
		if !l.info.Sealed {
			st.Unsealed++
		}
	}
	return st
}

// WritePrometheus writes the store's metrics, labelled with the ledger directory.
func (s *Store) WritePrometheus(w io.Writer) {
	st := s.Stats()
	label := fmt.Sprintf("{dir=%q}", filepath.Dir(s.dir))
	gauge := func(name string, v int64) { metrics.WriteGaugeUint64(w, name+label, uint64(v)) }
	gauge("bindery_entrylog_logs", int64(st.Logs))
	gauge("bindery_entrylog_bytes", st.Bytes)
	gauge("bindery_entrylog_unsealed_logs", int64(st.Unsealed))
	gauge("bindery_entrylog_pending_logs", int64(st.PendingLogs))
	gauge("bindery_entrylog_pending_bytes", st.PendingBytes)
	counter := func(name string, v uint64) { metrics.WriteCounterUint64(w, name+label, v) }
	counter("bindery_entrylog_entries_total", st.Entries)
	counter("bindery_entrylog_entry_bytes_total", st.EntryBytes)
	counter("bindery_entrylog_written_bytes_total", st.Written)
	counter("bindery_entrylog_checkpoints_total", st.Checkpoints)
	counter("bindery_entrylog_syncs_total", st.Syncs)
	counter("bindery_entrylog_reads_total", st.Reads)
	counter("bindery_entrylog_read_bytes_total", st.ReadBytes)
	counter("bindery_entrylog_corrupt_total", st.Corrupt)
	counter("bindery_entrylog_write_failures_total", st.Failures)
}
