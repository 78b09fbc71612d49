package bookie

import (
	"fmt"
	"io"
	"strings"

	"github.com/binderylog/bindery/bookie/gc"
	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/internal/wire"
)

// compat writes figures under BookKeeper's names. The standard page has those that the dashboards of BookKeeper and Pulsar
// ask for; the full one has every other name that this engine can fill. Names that it can not fill are absent, never zero.
type compat struct {
	w    io.Writer
	full bool
}

func (c compat) row(kind, name string, value any) {
	fmt.Fprintf(c.w, "# TYPE %s %s\n%s %v\n", name, kind, name, value)
}

func (c compat) gauge(name string, value any)   { c.row("gauge", name, value) }
func (c compat) counter(name string, value any) { c.row("counter", name, value) }

// totals writes a summary that has no quantiles.
func (c compat) totals(name string, count uint64, sum float64) {
	fmt.Fprintf(c.w, "# TYPE %s summary\n%s_count{success=\"true\"} %d\n%s_sum{success=\"true\"} %g\n", name, name, count, name, sum)
}

// perDir writes a figure of each directory.
func (c compat) perDir(kind, name string, dirs []storage.DirFigures, value func(d *storage.DirFigures) any) {
	fmt.Fprintf(c.w, "# TYPE %s %s\n", name, kind)
	for i := range dirs {
		d := &dirs[i]
		fmt.Fprintf(c.w, "%s{ledgerDir=%q,indexDir=%q} %v\n", name, d.Ledger, d.Index, value(d))
	}
}

// disks writes what the last look at the disks has found.
func (c compat) disks(r storage.DiskReport) {
	writable := 0
	for _, d := range r.Dirs {
		if d.State < storage.DiskFull {
			writable++
		}
		c.gauge("bookie_ledger_dir_"+metricName(d.Path)+"_usage", fmt.Sprintf("%.2f", d.Used*100))
	}
	c.gauge("bookie_ledger_num_dirs", len(r.Dirs))
	c.gauge("bookie_ledger_writable_dirs", writable)
}

// storage writes the figures of caches, flushes and entry logs.
func (c compat) storage(f *storage.Figures, capacity int64) {
	dirs := f.Dirs()
	var sum storage.DirFigures
	for _, d := range dirs {
		sum.CacheBytes += d.CacheBytes
		sum.CacheEntries += d.CacheEntries
		sum.Flushes += d.Flushes
		sum.FlushNanos += d.FlushNanos
		sum.FlushedBytes += d.FlushedBytes
		sum.ReadAheads += d.ReadAheads
		sum.ReadAheadEntries += d.ReadAheadEntries
		sum.ReadAheadBytes += d.ReadAheadBytes
		sum.CacheWaits += d.CacheWaits
		sum.CacheFull += d.CacheFull
		sum.LogBytes += d.LogBytes
	}
	entries := f.Entries()
	for _, prefix := range []string{"bookie_", "bookie_storage_"} { // the second is the old scope
		c.perDir("gauge", prefix+"entries_count", dirs, func(d *storage.DirFigures) any {
			for i := range dirs {
				if &dirs[i] == d {
					return entries[i]
				}
			}
			return 0
		})
		c.gauge(prefix+"read_cache_size", f.ReadCacheBytes())
		c.perDir("gauge", prefix+"write_cache_size", dirs, func(d *storage.DirFigures) any { return d.CacheBytes })
	}
	c.perDir("gauge", "bookie_write_cache_count", dirs, func(d *storage.DirFigures) any { return d.CacheEntries })
	c.perDir("counter", "bookie_read_cache_hits", dirs, func(d *storage.DirFigures) any { return d.ReadCacheHits })
	c.perDir("counter", "bookie_read_cache_misses", dirs, func(d *storage.DirFigures) any { return d.ReadCacheMisses })
	c.totals("bookie_readahead_batch_count", sum.ReadAheads, float64(sum.ReadAheadEntries))
	if !c.full {
		return
	}
	c.perDir("counter", "bookie_write_cache_hits", dirs, func(d *storage.DirFigures) any { return d.WriteCacheHits })
	c.perDir("counter", "bookie_write_cache_misses", dirs, func(d *storage.DirFigures) any { return d.WriteCacheMisses })
	c.gauge("bookie_write_cache_max_size", capacity)
	c.totals("bookie_readahead_batch_size", sum.ReadAheads, float64(sum.ReadAheadBytes))
	c.totals("bookie_flush", sum.Flushes, float64(sum.FlushNanos)/1e6)
	c.totals("bookie_flush_size", sum.Flushes, float64(sum.FlushedBytes))
	c.counter("bookie_throttled_write_requests", sum.CacheWaits)
	c.counter("bookie_rejected_write_requests", sum.CacheFull)
	c.gauge("bookie_ENTRY_LOG_SPACE_BYTES", sum.LogBytes)
}

// collection writes the collector's figures; names that end in COUNT are those of before BookKeeper 4.16.
func (c compat) collection(s gc.Status) {
	c.counter("bookie_DELETED_LEDGER_TOTAL", s.LedgersDeleted)
	c.counter("bookie_DELETED_LEDGER_COUNT", s.LedgersDeleted)
	c.counter("bookie_MINOR_COMPACTION_TOTAL", s.MinorRuns)
	c.counter("bookie_MINOR_COMPACTION_COUNT", s.MinorRuns)
	c.counter("bookie_MAJOR_COMPACTION_TOTAL", s.MajorRuns)
	c.counter("bookie_MAJOR_COMPACTION_COUNT", s.MajorRuns)
	c.counter("bookie_RECLAIMED_DELETION_SPACE_BYTES", s.BytesFreed-s.BytesCompacted)
	c.counter("bookie_RECLAIMED_COMPACTION_SPACE_BYTES", s.BytesCompacted)
	if s.Passes == 0 {
		return // nothing has been counted yet
	}
	c.gauge("bookie_ACTIVE_LEDGER_TOTAL", s.LedgersSeen)
	c.gauge("bookie_ledgers_count", s.LedgersSeen)
	c.gauge("bookie_storage_ledgers_count", s.LedgersSeen)
	c.gauge("bookie_ACTIVE_ENTRY_LOG_TOTAL", s.LogsSeen)
	c.gauge("bookie_ACTIVE_ENTRY_LOG_SPACE_BYTES", s.LiveBytesSeen)
	if c.full && s.LogBytesSeen > 0 {
		c.gauge("bookie_ENTRY_LOG_COMPACT_RATIO", fmt.Sprintf("%.4f", 1-float64(s.LiveBytesSeen)/float64(s.LogBytesSeen)))
	}
}

// requests writes the server's operations.
func (c compat) requests(m *metrics) {
	summaries := []struct {
		s     *summaryPair
		names []string
		full  bool
	}{
		{&m.add, []string{"bookkeeper_server_ADD_ENTRY", "bookkeeper_server_ADD_ENTRY_REQUEST"}, false},
		{&m.read, []string{"bookkeeper_server_READ_ENTRY", "bookkeeper_server_READ_ENTRY_REQUEST", "bookie_read_entry"}, false},
		{&m.add, []string{"bookie_add_entry", "bookie_BOOKIE_ADD_ENTRY"}, true},
		{&m.read, []string{"bookie_BOOKIE_READ_ENTRY"}, true},
		{&m.force, []string{"bookkeeper_server_FORCE_LEDGER", "bookkeeper_server_FORCE_LEDGER_REQUEST"}, true},
		{&m.writeLAC, []string{"bookkeeper_server_WRITE_LAC", "bookkeeper_server_WRITE_LAC_REQUEST"}, true},
		{&m.readLAC, []string{"bookkeeper_server_READ_LAC", "bookkeeper_server_READ_LAC_REQUEST"}, true},
		{&m.info, []string{"bookkeeper_server_GET_BOOKIE_INFO", "bookkeeper_server_GET_BOOKIE_INFO_REQUEST"}, true},
		{&m.list, []string{"bookkeeper_server_GET_LIST_OF_ENTRIES_OF_LEDGER", "bookkeeper_server_GET_LIST_OF_ENTRIES_OF_LEDGER_REQUEST"}, true},
		{&m.longPoll, []string{"bookkeeper_server_READ_ENTRY_LONG_POLL_REQUEST"}, true},
	}
	for _, s := range summaries {
		if s.full && !c.full {
			continue
		}
		for _, name := range s.names {
			s.s.write(c.w, name)
		}
	}
	if !c.full {
		return
	}
	c.counter("bookkeeper_server_ADD_ENTRY_REJECTED", m.rejectedAdds.Load())
	c.counter("bookie_BOOKIE_FORCE_LEDGER", m.force.ok.n.Load()+m.force.failed.n.Load())
}

// other returns the summary of an operation that has no histogram of ours, nil for none.
func (m *metrics) other(op wire.Op) *summaryPair {
	switch op {
	case wire.OpForce:
		return &m.force
	case wire.OpWriteLAC:
		return &m.writeLAC
	case wire.OpReadLAC:
		return &m.readLAC
	case wire.OpBookieInfo:
		return &m.info
	case wire.OpListEntries:
		return &m.list
	}
	return nil
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
