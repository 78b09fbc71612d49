package offload

import (
	"io"
	"strconv"
	"sync/atomic"

	vm "github.com/VictoriaMetrics/metrics"
)

// metrics of one worker, reader and janitor together. Requests, bytes and times by target are counted where they are made: objstore.
type metrics struct {
	set *vm.Set

	started, committed, released, abandoned, deleted     *vm.Counter
	bytesRaw, bytesStored, bytesRead                     *vm.Counter
	partsSent                                            *vm.Counter
	entriesRead, blockGets, cacheHits, degraded          *vm.Counter
	hedges, hedgeWins                                    *vm.Counter
	crcFailures                                          *vm.Counter
	scrubBytes, scrubFindings, repaired                  *vm.Counter
	garbageCleaned, objectsDeleted                       *vm.Counter
	commitSeconds, readHealthy, readDegraded             *vm.Histogram
	states                                               [8]atomic.Int64
	shardsMissing, garbage, oldestUploading, scrubOldest atomic.Int64
	releasable                                           atomic.Int64
}

func newMetrics() *metrics {
	m := &metrics{set: vm.NewSet()}
	counter := func(name string) *vm.Counter { return m.set.NewCounter("bindery_offload_" + name) }
	m.started, m.committed, m.released = counter("ledgers_started_total"), counter("ledgers_committed_total"), counter("ledgers_released_total")
	m.abandoned, m.deleted = counter("ledgers_abandoned_total"), counter("ledgers_deleted_total")
	m.bytesRaw, m.bytesStored, m.bytesRead = counter("raw_bytes_total"), counter("stored_bytes_total"), counter("bookie_read_bytes_total")
	m.partsSent = counter("parts_sent_total")
	m.entriesRead, m.blockGets, m.cacheHits = counter("entries_read_total"), counter("block_gets_total"), counter("cache_hits_total")
	m.degraded, m.hedges, m.hedgeWins = counter("degraded_reads_total"), counter("hedges_total"), counter("hedge_wins_total")
	m.crcFailures = counter("crc_failures_total")
	m.scrubBytes, m.scrubFindings, m.repaired = counter("scrub_bytes_total"), counter("scrub_findings_total"), counter("shards_repaired_total")
	m.garbageCleaned, m.objectsDeleted = counter("garbage_attempts_cleaned_total"), counter("objects_deleted_total")
	m.commitSeconds = m.set.NewHistogram("bindery_offload_commit_seconds")
	m.readHealthy = m.set.NewHistogram(`bindery_offload_entry_read_seconds{path="healthy"}`)
	m.readDegraded = m.set.NewHistogram(`bindery_offload_entry_read_seconds{path="degraded"}`)
	gauge := func(name string, v *atomic.Int64) {
		m.set.NewGauge("bindery_offload_"+name, func() float64 { return float64(v.Load()) })
	}
	for s := StateUploading; s.Valid(); s++ {
		gauge("ledgers{state="+strconv.Quote(s.String())+"}", &m.states[s])
	}
	gauge("shards_missing", &m.shardsMissing)
	gauge("garbage_entries", &m.garbage)
	gauge("oldest_uploading_seconds", &m.oldestUploading)
	gauge("scrub_oldest_seconds", &m.scrubOldest)
	gauge("releasable_bytes", &m.releasable)
	return m
}

// failed counts ledgers that were not offloaded, by reason.
func (m *metrics) failed(reason string) *vm.Counter {
	return m.set.GetOrCreateCounter("bindery_offload_ledgers_failed_total{reason=" + strconv.Quote(reason) + "}")
}

// write prints the metrics in the text form.
func (m *metrics) write(w io.Writer) { m.set.WritePrometheus(w) }
