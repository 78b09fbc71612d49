package storage

import (
	"bytes"
	"fmt"
	"io"
)

// Stats are counters and gauges of a Storage.
type Stats struct {
	Handles, IdleHandles       int
	OverlayPages, OverlayBytes int
	CacheEntries               int64 // in write caches
	CacheBytes, CacheCapacity  int64 // used of the current caches
	Unflushed                  int64 // bytes in write caches, the ones being flushed included
	WaitingLogs                int   // final and not in the index
	TombstoneRuns              int
	TombstoneBytes             int
	Damaged                    int
	Degraded                   bool
}

// Stats returns them.
func (s *Storage) Stats() Stats {
	var st Stats
	st.Handles, st.IdleHandles = s.ledgers.counts()
	for _, d := range s.dirs {
		pages, size := d.ov.stats()
		st.OverlayPages += pages
		st.OverlayBytes += size
		c := d.current.Load()
		st.CacheEntries += c.entries.Load()
		st.CacheBytes += c.used.Load() - cacheStart
		st.CacheCapacity += c.capacity()
		st.Unflushed += c.used.Load() - cacheStart
		if f := d.flushing.Load(); f != nil {
			st.CacheEntries += f.entries.Load()
			st.Unflushed += f.used.Load() - cacheStart
		}
		d.finalMu.Lock()
		st.WaitingLogs += len(d.final)
		d.finalMu.Unlock()
		t := d.tombs.Load()
		st.TombstoneRuns += t.set.runs
		st.TombstoneBytes += t.set.size
	}
	s.damaged.mu.Lock()
	st.Damaged = len(s.damaged.set)
	s.damaged.mu.Unlock()
	st.Degraded = s.degraded.Load()
	return st
}

// WritePrometheus writes the metrics of the storage, of its entry logs and of its indexes. Only counters and gauges that
// say something about one disk carry its label.
func (s *Storage) WritePrometheus(w io.Writer) {
	st := s.Stats()
	var b bytes.Buffer
	gauge := func(name string, v any) { fmt.Fprintf(&b, "bindery_storage_%s %v\n", name, v) }
	gauge("ledger_handles", st.Handles)
	gauge("ledger_handles_idle", st.IdleHandles)
	gauge("overlay_bytes", st.OverlayBytes)
	gauge("overlay_pages", st.OverlayPages)
	gauge("write_cache_entries", st.CacheEntries)
	gauge("write_cache_bytes", st.CacheBytes)
	gauge("write_cache_capacity_bytes", st.CacheCapacity)
	gauge("checkpoint_lag_bytes", st.Unflushed)
	gauge("index_waiting_logs", st.WaitingLogs)
	gauge("deleted_ledger_runs", st.TombstoneRuns)
	gauge("damaged_entries", st.Damaged)
	gauge("degraded", boolMetric(st.Degraded))
	for _, d := range s.dirs {
		d.writeMetrics(&b)
	}
	_, _ = w.Write(b.Bytes()) // the client went away: nobody is left to tell
}

func boolMetric(v bool) int {
	if v {
		return 1
	}
	return 0
}

func (d *dir) writeMetrics(w io.Writer) {
	row := func(name string, v uint64) {
		fmt.Fprintf(w, "bindery_storage_%s{ledger_dir=%q} %d\n", name, d.path, v)
	}
	row("dir_state", uint64(d.diskState()))
	row("puts_total", d.puts.Load())
	row("put_bytes_total", d.putBytes.Load())
	row("flushes_total", d.flushes.Load())
	row("flush_failures_total", d.flushFailures.Load())
	row("flush_nanoseconds_total", d.flushNanos.Load())
	row("flushed_entries_total", d.flushedEntries.Load())
	row("flushed_bytes_total", d.flushedBytes.Load())
	row("reads_write_cache_total", d.cacheHits.Load())
	row("reads_flushing_cache_total", d.flushHits.Load())
	row("reads_read_cache_total", d.readHits.Load())
	row("reads_disk_total", d.diskReads.Load())
	row("read_errors_total", d.readErrors.Load())
	row("read_aheads_total", d.prefetched.Load())
	row("ingested_logs_total", d.ingested.Load())
	row("ingest_failures_total", d.ingestFailures.Load())
	row("deleted_ledgers_total", d.deleted.Load())
	row("compacted_bytes_total", d.compactedBytes.Load())
	row("cache_full_total", d.cacheFull.Load())
	row("cache_waits_total", d.stalls.Load())
}
