package offload

import (
	"errors"
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
	crcFailures, scrubFindings                           *labelled // by target, by kind
	scrubBytes, repaired                                 *vm.Counter
	garbageCleaned, objectsDeleted                       *vm.Counter
	commitSeconds, readHealthy, readDegraded             *vm.Histogram
	states                                               [8]atomic.Int64
	redundancy                                           [ParityShardsMax + 1]atomic.Int64 // by shards that may still be lost
	unreadable, degradedLedgers                          atomic.Int64
	shardsMissing, garbage, oldestUploading, scrubOldest atomic.Int64
	payload, releasable                                  atomic.Int64
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
	m.crcFailures = &labelled{set: m.set, name: "crc_failures_total", label: "target"}
	m.scrubFindings = &labelled{set: m.set, name: "scrub_findings_total", label: "kind"}
	m.scrubBytes, m.repaired = counter("scrub_bytes_total"), counter("shards_repaired_total")
	m.garbageCleaned, m.objectsDeleted = counter("garbage_attempts_cleaned_total"), counter("objects_deleted_total")
	m.commitSeconds = m.set.NewHistogram("bindery_offload_commit_seconds")
	m.readHealthy = m.set.NewHistogram(`bindery_offload_entry_read_seconds{path="healthy"}`)
	m.readDegraded = m.set.NewHistogram(`bindery_offload_entry_read_seconds{path="degraded"}`)
	return m
}

// addGauges adds what a worker knows of all ledgers.
func (m *metrics) addGauges() {
	gauge := func(name string, v *atomic.Int64) {
		m.set.NewGauge("bindery_offload_"+name, func() float64 { return float64(v.Load()) })
	}
	for s := StateUploading; s.Valid(); s++ {
		gauge("ledgers{state="+strconv.Quote(s.String())+"}", &m.states[s])
	}
	for left := range m.redundancy {
		gauge("ledgers_by_redundancy{left="+strconv.Quote(strconv.Itoa(left))+"}", &m.redundancy[left])
	}
	gauge("ledgers_unreadable", &m.unreadable)
	gauge("ledgers_degraded", &m.degradedLedgers)
	gauge("shards_missing", &m.shardsMissing)
	gauge("garbage_entries", &m.garbage)
	gauge("oldest_uploading_seconds", &m.oldestUploading)
	gauge("scrub_oldest_seconds", &m.scrubOldest)
	gauge("payload_bytes", &m.payload)
	gauge("releasable_bytes", &m.releasable)
}

// addProgress adds what a worker has under way.
func (m *metrics) addProgress(list func() []Progress) {
	sum := func(f func(Progress) int64) func() float64 {
		return func() float64 {
			n := int64(0)
			for _, p := range list() {
				n += f(p)
			}
			return float64(n)
		}
	}
	for _, stage := range []Stage{StageStarting, StageWaiting, StageUploading, StageVerifying} {
		m.set.NewGauge("bindery_offload_ledgers_under_way{stage="+strconv.Quote(string(stage))+"}", sum(func(p Progress) int64 {
			if p.Stage == stage {
				return 1
			}
			return 0
		}))
	}
	m.set.NewGauge("bindery_offload_under_way_bytes", sum(func(p Progress) int64 { return p.Total }))
	m.set.NewGauge("bindery_offload_under_way_done_bytes", sum(func(p Progress) int64 { return p.Done }))
}

// refused counts a release that a check of the objects stood in the way of.
func (m *metrics) refused(err error) {
	var stopped *StoppedError
	if errors.As(err, &stopped) && stopped.Err != nil {
		m.failed(stopped.Reason.Label()).Inc()
	}
}

// failed counts ledgers that were not offloaded, by reason.
func (m *metrics) failed(reason string) *vm.Counter {
	return m.set.GetOrCreateCounter("bindery_offload_ledgers_failed_total{reason=" + strconv.Quote(reason) + "}")
}

// write prints the metrics in the text form.
func (m *metrics) write(w io.Writer) { m.set.WritePrometheus(w) }

// labelled is a family of counters that differ in one label, made as they are needed, and their sum.
type labelled struct {
	set         *vm.Set
	name, label string
	sum         atomic.Uint64
}

func (l *labelled) inc(value string) {
	l.sum.Add(1)
	l.set.GetOrCreateCounter("bindery_offload_" + l.name + "{" + l.label + "=" + strconv.Quote(value) + "}").Inc()
}
