package bookie

import (
	"bytes"
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
)

// dashboardSeries is what the dashboards of BookKeeper, of Pulsar's chart and of StreamNative query, as far as it is about
// a bookie: operations.md 2.3 names their sources. Each is the beginning of a line.
var dashboardSeries = []string{
	"bookie_SERVER_STATUS ",
	`bookkeeper_server_ADD_ENTRY{success="true",quantile="0.5"}`, `bookkeeper_server_ADD_ENTRY{success="true",quantile="0.99"}`,
	`bookkeeper_server_ADD_ENTRY{success="false",quantile="0.999"}`, `bookkeeper_server_ADD_ENTRY_count{success="true"}`,
	`bookkeeper_server_READ_ENTRY{success="true",quantile="0.99"}`, `bookkeeper_server_READ_ENTRY_count{success="false"}`,
	`bookkeeper_server_ADD_ENTRY_REQUEST{success="true",quantile="0.99"}`, `bookkeeper_server_READ_ENTRY_REQUEST_count{success="true"}`,
	"bookkeeper_server_ADD_ENTRY_IN_PROGRESS ", "bookkeeper_server_ADD_ENTRY_BLOCKED ", "bookkeeper_server_READ_ENTRY_IN_PROGRESS ",
	"bookkeeper_server_READ_ENTRY_BLOCKED ",
	`bookkeeper_server_thread_executor_queue{thread="BookieHighPriorityThread-0"}`, `bookkeeper_server_thread_executor_queue{thread="BookieReadThreadPool-0"}`,
	"bookie_WRITE_BYTES ", "bookie_READ_BYTES ",
	`bookie_journal_JOURNAL_SYNC{journalIndex="0",success="true",quantile="1.0"}`, `bookie_journal_JOURNAL_SYNC_count{journalIndex="0",success="true"}`,
	`bookie_journal_JOURNAL_ADD_ENTRY{journalIndex="0",success="true",quantile="0.99"}`, `bookie_journal_JOURNAL_QUEUE_LATENCY{journalIndex="0",success="true",quantile="0.99"}`,
	`bookie_journal_JOURNAL_QUEUE_SIZE{journalIndex="0"}`, `bookie_journal_JOURNAL_FORCE_WRITE_QUEUE_SIZE{journalIndex="0"}`, `bookie_journal_JOURNAL_CB_QUEUE_SIZE{`,
	"bookie_ledgers_count ", "bookie_entries_count{", "bookie_write_cache_size{", "bookie_read_cache_size ",
	"bookie_storage_ledgers_count ", "bookie_storage_entries_count{", "bookie_storage_write_cache_size{", "bookie_storage_read_cache_size ",
	"bookie_read_cache_hits{", "bookie_read_cache_misses{", `bookie_readahead_batch_count_count{success="true"}`, `bookie_readahead_batch_count_sum{success="true"}`,
	`bookie_read_entry_count{success="true"}`, "bookie_ledger_writable_dirs ", "bookie_ledger_dir__ledgers_usage ",
	"bookie_DELETED_LEDGER_TOTAL ", "bookie_DELETED_LEDGER_COUNT ", "bookie_MINOR_COMPACTION_COUNT ", "bookie_MINOR_COMPACTION_TOTAL ",
	"bookie_MAJOR_COMPACTION_TOTAL ", "bookie_RECLAIMED_COMPACTION_SPACE_BYTES ", "bookie_RECLAIMED_DELETION_SPACE_BYTES ",
	"bookie_ACTIVE_ENTRY_LOG_TOTAL ", "bookie_ACTIVE_LEDGER_TOTAL ",
}

// fullSeries are some of those that only the full page has.
var fullSeries = []string{
	`bookkeeper_server_FORCE_LEDGER_count{success="true"} 1`, `bookkeeper_server_WRITE_LAC_REQUEST_count{success="true"} 1`, `bookkeeper_server_READ_LAC_count{success="true"} 1`,
	`bookkeeper_server_GET_BOOKIE_INFO_count{success="true"}`, "bookie_write_cache_hits{", `bookie_flush_count{success="true"} `, "bookie_JOURNAL_QUEUE_MAX_SIZE ",
	`bookie_BOOKIE_ADD_ENTRY_count{success="true"} 20`, "bookie_throttled_write_requests 0", "bookie_ENTRY_LOG_SPACE_BYTES ",
}

var metricLine = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[a-zA-Z_][a-zA-Z0-9_]*="[^"\n]*"(,[a-zA-Z_][a-zA-Z0-9_]*="[^"\n]*")*\})? (NaN|[+-]Inf|[-+0-9.e]+)$`)

// requirePage checks that a page is Prometheus's text format and names each series once.
func requirePage(t *testing.T, page string) {
	t.Helper()
	types, series := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			require.False(t, types[name], "TYPE of %s twice", name)
			require.Contains(t, []string{"gauge", "counter", "summary", "histogram"}, kind)
			types[name] = true
			continue
		}
		require.Regexp(t, metricLine, line)
		id := line[:strings.LastIndexByte(line, ' ')]
		require.False(t, series[id], "%s twice", id)
		series[id] = true
	}
	require.Less(t, len(series), 700)
}

func TestMetricsUnderBookKeepersNames(t *testing.T) {
	for _, full := range []bool{false, true} {
		s := newSite(t)
		s.mod = func(o *Options) { o.FullMetrics, o.GC.Grace = full, time.Millisecond }
		b := s.start()
		_, err := s.views.Ledgers.Create(t.Context(), 1, &ledger.Metadata{
			FormatVersion: 3, Ensemble: 1, WriteQuorum: 1, AckQuorum: 1, State: ledger.StateOpen, LastEntry: -1,
			Fragments: []ledger.Fragment{{Bookies: []ledger.BookieID{"b1"}}}, Digest: ledger.DigestCRC32C, HasPassword: true,
		})
		require.NoError(t, err)
		c := s.dial(b)
		for e := range int64(20) {
			c.add(1, e, "x")
		}
		c.read(wire.V2, 1, 3)
		c3 := s.dial(b)
		require.Equal(t, wire.OK, c3.do(writeLAC(1, 5)).Code)
		require.Equal(t, wire.OK, c3.do(wire.Request{Proto: wire.V3, Op: wire.OpReadLAC, Ledger: 1}).Code)
		require.Equal(t, wire.OK, c3.do(wire.Request{Proto: wire.V3, Op: wire.OpForce, Ledger: 1}).Code)
		require.NoError(t, b.Flush(context.Background()))
		collector := gcView{b}.collector()
		require.NoError(t, collector.Trigger(t.Context(), 0))
		var page bytes.Buffer
		b.WritePrometheus(&page)
		requirePage(t, page.String())
		has := func(start string) bool { return strings.Contains("\n"+page.String(), "\n"+start) }
		for _, want := range dashboardSeries {
			require.True(t, has(want), want)
		}
		require.True(t, has("bookie_ledgers_count 1\n"))
		entries := regexp.MustCompile(`bookie_entries_count{ledgerDir="/ledgers",indexDir="/ledgers"} (\d+)\n`).FindStringSubmatch(page.String())
		require.Len(t, entries, 2)
		n, err := strconv.Atoi(entries[1])
		require.NoError(t, err)
		require.InDelta(t, 20, n, 10)
		for _, name := range fullSeries {
			require.Equal(t, full, has(name), name)
		}
		s.stop(b)
	}
}
