package autorecovery

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// figures are the metrics of one node, under BookKeeper's short names where it has them.
type figures struct {
	set *metrics.Set

	audits, ledgersChecked, delayed, cancelled, skipped, elections, damagedRecords *metrics.Counter
	auditTime, checkTime, placementTime, replicasTime, marking                     *summary
	marked, fragments, bookies                                                     *summary

	entriesRead, entriesWritten, bytesRead, bytesWritten   *metrics.Counter
	readLatency, writeLatency, repair                      *summary
	ledgers, held, unreadable, placed, recovered           *metrics.Counter
	scrubbedEntries, scrubbedBytes, scrubErrors, repairedE *metrics.Counter
	limboEnded                                             *metrics.Counter

	marks, watched, misplaced, noReplica, belowAck, belowWrite atomic.Int64
}

// summary is the part of BookKeeper's summaries that rates and means are made of.
type summary struct {
	count *metrics.Counter
	sum   *metrics.FloatCounter
}

// Update adds one value.
func (s *summary) Update(v float64) {
	s.count.Inc()
	s.sum.Add(v)
}

func newFigures() *figures {
	set := metrics.NewSet()
	f := &figures{set: set}
	c := func(name string) *metrics.Counter { return set.NewCounter(name) }
	t := func(name string) *summary {
		return &summary{set.NewCounter(name + "_count"), set.NewFloatCounter(name + "_sum")}
	}
	f.audits, f.ledgersChecked = c("bindery_auditor_audits_total"), c("auditor_NUM_LEDGERS_CHECKED")
	f.delayed, f.cancelled = c("auditor_NUM_BOOKIE_AUDITS_DELAYED"), c("auditor_NUM_DELAYED_BOOKIE_AUDITS_CANCELLED")
	f.skipped, f.elections = c("auditor_NUM_SKIPPING_CHECK_TASK_TIMES"), c("auditor_election_attempts")
	f.damagedRecords = c("bindery_auditor_damaged_records_total")
	f.auditTime, f.checkTime = t("auditor_AUDIT_BOOKIES_TIME"), t("auditor_CHECK_ALL_LEDGERS_TIME")
	f.placementTime, f.replicasTime = t("auditor_PLACEMENT_POLICY_CHECK_TIME"), t("auditor_REPLICAS_CHECK_TIME")
	f.marking, f.marked = t("auditor_URL_PUBLISH_TIME_FOR_LOST_BOOKIE"), t("auditor_NUM_UNDER_REPLICATED_LEDGERS")
	f.fragments, f.bookies = t("auditor_NUM_FRAGMENTS_PER_LEDGER"), t("auditor_NUM_BOOKIES_PER_LEDGER")

	f.entriesRead, f.entriesWritten = c("replication_worker_NUM_ENTRIES_READ"), c("replication_worker_NUM_ENTRIES_WRITTEN")
	f.bytesRead, f.bytesWritten = c("replication_worker_NUM_BYTES_READ"), c("replication_worker_NUM_BYTES_WRITTEN")
	f.readLatency, f.writeLatency = t("replication_worker_READ_DATA_LATENCY"), t("replication_worker_WRITE_DATA_LATENCY")
	f.repair = t("replication_worker_rereplicate")
	f.ledgers = c("replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED")
	f.held = c("replication_worker_NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER")
	f.unreadable = c("replication_worker_NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION")
	f.placed = c("replication_worker_NUM_NOT_ADHERING_PLACEMENT_LEDGERS_REPLICATED")
	f.recovered = c("bindery_replication_ledgers_recovered_total")
	f.scrubbedEntries, f.scrubbedBytes = c("bindery_scrub_entries_total"), c("bindery_scrub_bytes_total")
	f.scrubErrors, f.repairedE = c("bindery_scrub_errors_total"), c("bindery_scrub_repaired_total")
	f.limboEnded = c("bindery_limbo_ended_total")
	g := func(name string, v *atomic.Int64) { set.NewGauge(name, func() float64 { return float64(v.Load()) }) }
	g("bindery_underreplicated_ledgers", &f.marks)
	g("bindery_auditor_bookies", &f.watched)
	g("auditor_NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY", &f.misplaced)
	g("auditor_NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY", &f.noReplica)
	g("auditor_NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY", &f.belowAck)
	g("auditor_NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY", &f.belowWrite)
	return f
}

func (f *figures) read(entries, bytes int, d time.Duration) {
	f.entriesRead.Add(entries)
	f.bytesRead.Add(bytes)
	f.readLatency.Update(d.Seconds())
}

func (f *figures) wrote(entries, bytes int, d time.Duration) {
	f.entriesWritten.Add(entries)
	f.bytesWritten.Add(bytes)
	f.writeLatency.Update(d.Seconds())
}

// done counts how the work on a ledger ended.
func (f *figures) done(o Outcome, took time.Duration) {
	f.set.GetOrCreateCounter(fmt.Sprintf("bindery_replication_outcomes_total{outcome=%q}", string(o))).Inc()
	f.repair.Update(took.Seconds())
	if o == OutcomeRepaired {
		f.ledgers.Inc()
	}
}

// WritePrometheus writes the node's metrics.
func (s *Service) WritePrometheus(w io.Writer) {
	s.m.set.WritePrometheus(w)
	elected := 0
	if s.auditor.elected.Load() {
		elected = 1
	}
	fmt.Fprintf(w, "bindery_auditor_elected %d\nbindery_replication_ledgers_in_hand %d\nbindery_replication_rate_bytes %d\n",
		elected, len(s.worker.states()), s.rate.current())
}
