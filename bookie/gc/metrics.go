package gc

import (
	"fmt"
	"io"
	"time"
)

// WritePrometheus writes the collector's metrics.
func (c *Collector) WritePrometheus(w io.Writer) {
	s := c.Status()
	row := func(name string, v any) { fmt.Fprintf(w, "bindery_gc_%s %v\n", name, v) } //nolint:errcheck // the client went away
	row("running", bit(s.Running))
	row("minor_suspended", bit(s.MinorSuspended))
	row("major_suspended", bit(s.MajorSuspended))
	row("last_success_timestamp_seconds", seconds(s.LastSuccess))
	row("passes_total", s.Passes)
	row("failed_passes_total", s.FailedRuns)
	row("minor_compactions_total", s.MinorRuns)
	row("major_compactions_total", s.MajorRuns)
	row("ledgers", s.LedgersSeen)
	row("deleted_ledgers_total", s.LedgersDeleted)
	row("removed_logs_total", s.LogsRemoved)
	row("compacted_logs_total", s.LogsCompacted)
	row("copied_bytes_total", s.BytesCopied)
	row("freed_bytes_total", s.BytesFreed)
	row("damaged_logs", s.DamagedLogs)
	row("pending_removals", s.PendingRemovals)
}

func bit(v bool) int {
	if v {
		return 1
	}
	return 0
}

func seconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}
