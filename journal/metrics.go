package journal

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/VictoriaMetrics/metrics"
)

// journalMetrics are the figures of one journal. Names are built once; recording allocates nothing.
type journalMetrics struct {
	set       *metrics.Set
	syncTime  *metrics.PrometheusHistogram
	groupSize *metrics.PrometheusHistogram
	add       latencies // append to acknowledgement, one value per record
	write     latencies // one value per group
	queued    latencies // from the first record of a group to the start of its write, one value per record
}

// Upper bounds: 14 steps from 20 us to 10 s, and from a block to 8 MiB.
var (
	secondsBounds = []float64{20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 200e-3, 1, 10}
	bytesBounds   = []float64{4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20}
)

func newJournalMetrics(j *Journal) *journalMetrics {
	m := &journalMetrics{set: metrics.NewSet()}
	name := func(n string) string { return fmt.Sprintf("bindery_journal_%s{journal=%q}", n, j.o.Label) }
	m.syncTime = m.set.NewPrometheusHistogramExt(name("sync_seconds"), secondsBounds)
	m.groupSize = m.set.NewPrometheusHistogramExt(name("group_bytes"), bytesBounds)
	return m
}

// figure is a gauge or counter.
type figure struct {
	name  string
	value float64
}

func (s *Stats) figures() []figure {
	return []figure{
		{"queue_bytes", float64(s.QueueBytes)},
		{"queue_records", float64(s.QueueRecords)},
		{"groups_in_flight", float64(s.InFlight)},
		{"segments", float64(s.Segments)},
		{"spare_segments", float64(s.Spares)},
		{"failed", bit(s.Failed)},
		{"groups_total", float64(s.Groups)},
		{"empty_groups_total", float64(s.EmptyGroups)},
		{"records_total", float64(s.Records)},
		{"payload_bytes_total", float64(s.PayloadBytes)},
		{"written_bytes_total", float64(s.WrittenBytes)},
		{"zeroed_bytes_total", float64(s.ZeroedBytes)},
		{"segments_recycled_total", float64(s.SegmentsRecycled)},
		{"segments_unprepared_total", float64(s.SegmentsUnprepared)},
		{"segment_waits_total", float64(s.SegmentWaits)},
		{"torn_tails_total", float64(s.Cuts)},
		{"damaged_total", float64(s.Damaged)},
		{"repaired_total", float64(s.Repaired)},
	}
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// left notes that n records left the queue, the oldest of them after nanos.
func (m *journalMetrics) left(nanos int64, n int) { m.queued.add(max(nanos, 0), uint64(n)) }

// wrote notes a group's write.
func (m *journalMetrics) wrote(nanos int64, bytes int) {
	m.syncTime.Update(float64(nanos) / 1e9)
	m.groupSize.Update(float64(bytes))
	m.write.add(nanos, 1)
}

// acked notes that n records were acknowledged, the oldest of them after nanos.
func (m *journalMetrics) acked(nanos int64, n int) { m.add.add(nanos, uint64(n)) }

// WritePrometheus writes the journal's metrics: ours, and those under BookKeeper's names that dashboards ask for.
func (j *Journal) WritePrometheus(w io.Writer) {
	j.m.set.WritePrometheus(w)
	s := j.Stats()
	for _, f := range s.figures() {
		j.writeFigure(w, "bindery_journal_"+f.name, "journal", f.value)
	}
	now := j.now()
	j.m.write.summary(w, "bookie_journal_JOURNAL_SYNC", j.o.Label, now)
	j.m.add.summary(w, "bookie_journal_JOURNAL_ADD_ENTRY", j.o.Label, now)
	j.m.queued.summary(w, "bookie_journal_JOURNAL_QUEUE_LATENCY", j.o.Label, now)
	for _, f := range []figure{
		{"QUEUE_SIZE", float64(s.QueueRecords)},
		{"FORCE_WRITE_QUEUE_SIZE", float64(s.InFlight)},
		{"CB_QUEUE_SIZE", float64(s.QueueRecords)},
		{"WRITE_BYTES", float64(s.PayloadBytes)},
		{"MEMORY_MAX", float64(j.o.QueueBytes)},
		{"MEMORY_USED", float64(s.QueueBytes)},
	} {
		j.writeFigure(w, "bookie_journal_JOURNAL_"+f.name, "journalIndex", f.value)
	}
}

// firstLabel is the journal that writes the TYPE lines: a page with two of them for one name is not valid.
const firstLabel = "0"

func (j *Journal) writeFigure(w io.Writer, name, label string, value float64) {
	if j.o.Label == firstLabel {
		kind := "gauge"
		if strings.HasSuffix(name, "_total") || strings.HasSuffix(name, "WRITE_BYTES") {
			kind = "counter"
		}
		fmt.Fprintf(w, "# TYPE %s %s\n", name, kind)
	}
	fmt.Fprintf(w, "%s{%s=%q} %s\n", name, label, j.o.Label, strconv.FormatFloat(value, 'f', -1, 64))
}
