package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sampleRun is a run of two rounds in which the peer gives half of our adds and takes twice our time, and is late in one.
func sampleRun() *benchmark {
	b := &benchmark{rounds: 2, duration: time.Second, memory: "256MiB", apache: true, version: "bindery test", figures: map[string]map[string][]figure{}}
	f := func(adds, ms float64) figure {
		return figure{PerSecond: adds, MB: adds / 1000, Latency: map[string]float64{"p50": 1000 * ms, "p99": 3000 * ms, "p99.9": 9000 * ms}, CPU: 10 * ms, RSS: 1e8 * ms, Written: 2}
	}
	ours, theirs := (&ours{}).name(), (&apacheBookies{}).name()
	for _, l := range loads() {
		if l.server == "" {
			b.figures[l.name] = map[string][]figure{"": {f(1000, 1), f(1200, 1)}}
			continue
		}
		b.figures[l.name] = map[string][]figure{ours: {f(1000, 1), f(1200, 1)}, theirs: {f(500, 2), f(600, 4)}}
	}
	b.figures["bookie: open loop, 60000/s"][theirs][1].Failed = true
	b.disk = []disk{{MB: map[int]float64{1 << 20: 10}, P50: map[int]float64{4096: 100}}, {MB: map[int]float64{1 << 20: 12}, P50: map[int]float64{4096: 120}}}
	b.starts = map[string][]started{ours: {{1e7, 1, 5e6}}, theirs: {{2e8, 10, 0}}}
	b.reads = map[string][]catchUp{ours: {{Disk: 400, Read: 300, Alone: 1000, Beside: 1500}}}
	return b
}

func TestReport(t *testing.T) {
	r := sampleRun().report("")
	text := r.markdown()
	for _, want := range []string{
		"| bookie: 1 connection, 1 in flight | bindery | 1200 (1000-1200) | 1.2 (1.0-1.2) | 0.10 |",
		"| bookie: 1 connection, 1 in flight | Apache BookKeeper 4.18.0 | 0.50 | 4.0 (2.0-4.0) | 4.0 (2.0-4.0) |",
		"| bookie: open loop, 60000/s | Apache BookKeeper 4.18.0 | given |",
		"Apache BookKeeper 4.18.0 (NOT CLEAN)",
		"| journal: 128 of 64 KiB |  | 1200 (1000-1200) | 1.2 (1.0-1.2) | 0.10 | 1.00 | 3.00 | 9.00 |  |  |  |",
		"| bindery | 1.00 | 5 | 10 |",
		"| Apache BookKeeper 4.18.0 | 10.00 | not told | 200 |",
		"| bindery | 300 | 400 | 0.75 | 1.00 | 1.50 | 1.5 |",
	} {
		require.Contains(t, text, want)
	}
	data, err := json.Marshal(r)
	require.NoError(t, err)
	var back report
	require.NoError(t, json.Unmarshal(data, &back))
	require.Equal(t, r.Loads, back.Loads)
	require.Equal(t, "bindery-bench/1", back.Schema)
}

func TestPage(t *testing.T) {
	page, err := sampleRun().report("").page()
	require.NoError(t, err)
	text := string(page)
	require.Equal(t, 7, strings.Count(text, "<svg"))
	require.NotContains(t, text, "NaN")
	require.NotContains(t, text, "http://", "nothing comes from elsewhere")
	require.Contains(t, text, "1200 (1000-1200)")

	bare, err := (&benchmark{}).report("").page() // nothing was measured
	require.NoError(t, err)
	require.NotContains(t, string(bare), "<svg")
}
