package bookie

import (
	"fmt"
	"io"
	"strings"

	"github.com/binderylog/bindery/bookie/gc"
	"github.com/binderylog/bindery/bookie/storage"
)

// writeCompat writes, under BookKeeper's names, the figures of storage and collector that its dashboards ask for. Names
// that this engine can not fill are absent, never zero.
func writeCompat(w io.Writer, disks storage.DiskReport, st storage.Stats, collector *gc.Collector) {
	writable := 0
	for _, d := range disks.Dirs {
		if d.State < storage.DiskFull {
			writable++
		}
		row(w, "gauge", "bookie_ledger_dir_"+metricName(d.Path)+"_usage", fmt.Sprintf("%.2f", d.Used*100))
	}
	row(w, "gauge", "bookie_ledger_num_dirs", len(disks.Dirs))
	row(w, "gauge", "bookie_ledger_writable_dirs", writable)
	for _, prefix := range []string{"bookie_", "bookie_storage_"} { // the second is the old scope
		row(w, "gauge", prefix+"write_cache_size", st.CacheBytes)
		row(w, "gauge", prefix+"write_cache_count", st.CacheEntries)
	}
	if collector == nil {
		return
	}
	s := collector.Status()
	row(w, "counter", "bookie_DELETED_LEDGER_TOTAL", s.LedgersDeleted)
	row(w, "counter", "bookie_DELETED_LEDGER_COUNT", s.LedgersDeleted)
	row(w, "counter", "bookie_MINOR_COMPACTION_TOTAL", s.MinorRuns)
	row(w, "counter", "bookie_MINOR_COMPACTION_COUNT", s.MinorRuns)
	row(w, "counter", "bookie_MAJOR_COMPACTION_TOTAL", s.MajorRuns)
	row(w, "counter", "bookie_RECLAIMED_DELETION_SPACE_BYTES", s.BytesFreed)
	row(w, "gauge", "bookie_ACTIVE_LEDGER_TOTAL", s.LedgersSeen)
	row(w, "gauge", "bookie_ledgers_count", s.LedgersSeen)
	row(w, "gauge", "bookie_storage_ledgers_count", s.LedgersSeen)
}

func row(w io.Writer, kind, name string, value any) {
	fmt.Fprintf(w, "# TYPE %s %s\n%s %v\n", name, kind, name, value)
}

// metricName replaces what may not stand in a metric's name, as BookKeeper does.
func metricName(path string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == ':' {
			return r
		}
		return '_'
	}, path)
}
