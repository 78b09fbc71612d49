package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sampleRun is a run of two rounds in which the peer gives half of our adds and takes twice our time, and is late in one.
func sampleRun() *benchmark {
	b := &benchmark{rounds: 2, duration: time.Second, open: 30 * time.Second, warmup: 2 * time.Second, args: []string{"-rounds", "2"}, memory: "256MiB", apache: true, version: "bindery test", figures: map[string]map[string][]figure{}}
	f := func(adds, ms float64) figure {
		return figure{PerSecond: adds, MB: adds / 1000, Latency: map[string]float64{"p50": 1000 * ms, "p99": 3000 * ms, "p99.9": 9000 * ms}, CPU: 10 * ms, RSS: 1e8 * ms, Written: 2, Disk: 10 * adds / 1000}
	}
	ours, theirs := (&ours{}).name(), (&apacheBookies{}).name()
	for _, l := range append(loads(), perfLoads()...) {
		if l.server == "" && !l.open && strings.HasPrefix(l.name, "journal") {
			list := []figure{f(1000, 1), f(1200, 1)}
			for i := range list { // there is no server
				list[i].CPU, list[i].RSS, list[i].Written = 0, 0, 0
			}
			b.figures[l.name] = map[string][]figure{"": list}
			continue
		}
		b.figures[l.name] = map[string][]figure{ours: {f(1000, 1), f(1200, 1)}, theirs: {f(500, 2), f(600, 4)}}
	}
	for _, peers := range b.figures {
		for _, list := range peers {
			for i := range list {
				list[i].Round = i + 1
			}
		}
	}
	b.figures["bookie: open loop, 60000/s"][theirs][1].Failed = true
	b.disk = []disk{{MB: map[int]float64{1 << 20: 10}, P50: map[int]float64{4096: 100}}, {MB: map[int]float64{1 << 20: 12}, P50: map[int]float64{4096: 120}}}
	b.starts = map[string][]started{ours: {{1e7, 1, 5e6}}, theirs: {{2e8, 10, 0}}}
	b.reads = map[string][]catchUp{ours: {{Disk: 400, Read: 300, Alone: 1000, Beside: 1500, BesideRead: 120}}}
	b.collections = map[string][]collected{ours: {{Freed: 5e8, Wait: 70, Seconds: 2.5, Alone: 1000, Beside: 2000}}}
	b.tiers = map[string][]besideTier{ours: {{AloneP50: 800, Alone: 3000, BesideP50: 900, Beside: 3300, Rate: 64e6}}}
	b.leftOut = []string{"round 3 of 3"}
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
		"| bindery | 300 | 400 | 0.75 | 1.00 | 1.50 | 1.5 | 120 |",
		"| bindery | 500 | 70 | 2.5 | 200 | 1.00 | 2.00 | 2.0 |",
		"| bindery | 64 | 0.80 | 0.90 | 3.00 | 3.30 | 1.1 |",
		"a closed loop is measured for 1 s, an open one for 30 s, after 2 s of warming up",
		"Flags: `-rounds 2`.",
		"**Left out for lack of time:** round 3 of 3.",
	} {
		require.Contains(t, text, want)
	}
	data, err := json.Marshal(r)
	require.NoError(t, err)
	var back report
	require.NoError(t, json.Unmarshal(data, &back))
	require.Equal(t, r.Loads, back.Loads)
	require.Equal(t, "bindery-bench/2", back.Schema)
}

func TestPage(t *testing.T) {
	page, err := sampleRun().report("").page()
	require.NoError(t, err)
	text := string(page)
	require.Equal(t, 12, strings.Count(text, "<svg"))
	require.Contains(t, text, `<td class="ahead">0.50</td>`, "a rate below ours")
	require.NotContains(t, text, "NaN")
	require.NotContains(t, text, "http://", "nothing comes from elsewhere")
	require.Contains(t, text, "1200 (1000-1200)")

	bare, err := (&benchmark{}).report("").page() // nothing was measured
	require.NoError(t, err)
	require.NotContains(t, string(bare), "<svg")
}

// TestLoads: names are told apart, the rows of a fixed rate are open loops, and every row has its place.
func TestLoads(t *testing.T) {
	seen := map[string]bool{}
	for _, l := range append(loads(), perfLoads()...) {
		require.False(t, seen[l.name], l.name)
		seen[l.name] = true
		if strings.HasPrefix(l.name, "perf") {
			continue
		}
		require.Equal(t, slices.Contains(l.args, "--rate"), l.open, l.name)
		require.Equal(t, slices.Contains(l.args, "--tail"), l.tail, l.name)
		require.Contains(t, []string{"", "one", "three"}, l.server, l.name)
	}
}

func TestPerfLine(t *testing.T) {
	f, ok := perfLine("Throughput written :  19876.5  records/s ---     19.4 MB/s --- Latency: mean:   3.100 ms - med:   2.900 - 95pct:   5.000 - 99pct:   7.250 - 99.9pct:  12.500 - 99.99pct:  20.000 - Max:  25.000")
	require.True(t, ok)
	require.Equal(t, figure{PerSecond: 19876.5, MB: 19876.5 * 1024 / 1e6, Latency: map[string]float64{"p50": 2900, "p99": 7250, "p99.9": 12500}}, f)
	_, ok = perfLine("Aggregated latency stats --- Latency: mean:   0.000 ms")
	require.False(t, ok)
	mean := meanFigure([]figure{f, {PerSecond: 0.5, Latency: map[string]float64{"p50": 100}}})
	require.InDelta(t, 9938.5, mean.PerSecond, 0.01)
	require.InDelta(t, 1500, mean.Latency["p50"], 0.01)
}

// TestLogSizes: what is freed is told from what is added beside it, also of a log that is renamed while it shrinks.
func TestLogSizes(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, n int) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), make([]byte, n), 0o644))
	}
	write("current/1.log", 1000)
	write("current/2.log", 1000)
	write("current/3.log.compacting", 500)
	write("current/entrylog.list", 700)
	before := logSizes(dir)
	require.Len(t, before, 2)
	require.NoError(t, os.Rename(filepath.Join(dir, "current/1.log"), filepath.Join(dir, "current/1.log.removing")))
	require.Zero(t, shrunk(before, logSizes(dir)))
	require.NoError(t, os.Truncate(filepath.Join(dir, "current/1.log.removing"), 400))
	require.NoError(t, os.Truncate(filepath.Join(dir, "current/2.log"), 900), "it is sealed")
	write("current/4.log", 5000)
	require.Equal(t, int64(600), shrunk(before, logSizes(dir)))
	require.NoError(t, os.Remove(filepath.Join(dir, "current/2.log")))
	require.Equal(t, int64(1600), shrunk(before, logSizes(dir)))
}

func TestBesideCollection(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	list := []window{{at(0), at(2), 10}, {at(2), at(4), 30}, {at(4), at(6), 20}, {at(6), at(8), 100}, {at(8), at(10), 300}, {at(12), at(14), 7}}
	alone, beside := besideCollection(list, at(7), at(9))
	require.Equal(t, 20.0, alone)
	require.Equal(t, 300.0, beside)
}

// TestWithin: what would end too late is left out and named, and the time left is judged by how long the rest has taken.
func TestWithin(t *testing.T) {
	b := &benchmark{within: time.Minute, progress: progress{begun: time.Now().Add(-30 * time.Second), total: 100 * time.Second}}
	require.False(t, b.late("short", 10*time.Second))
	require.True(t, b.late("long", 40*time.Second))
	require.Equal(t, []string{"long"}, b.leftOut)
	require.InDelta(t, 45, b.progress.left(b.progress.begun.Add(30*time.Second)).Seconds(), 0.1, "40 of 100 s of the plan took 30 s")
}

func TestPlan(t *testing.T) {
	b := &benchmark{rounds: 2, duration: time.Second, open: time.Second, apache: true, only: regexp.MustCompile("^(tail|collection|perf)")}
	var names []string
	for _, st := range b.stages() {
		for _, s := range st.steps {
			require.Positive(t, s.takes)
			names = append(names, s.name)
		}
	}
	require.Len(t, names, 5)
	require.Equal(t, perfStep, names[4])
	b.apache = false
	require.Len(t, b.stages()[1].steps, 1, "Apache's generator comes with Apache's bookies")
	require.Len(t, b.stages()[1].peers, 1)
	var w strings.Builder
	b.plan(&w)
	require.Contains(t, w.String(), "start and drive three bookies")
}

// TestRatiosAreOfOneRound: a figure that is missing in one round does not shift the others.
func TestRatiosAreOfOneRound(t *testing.T) {
	first := []figure{{Round: 1, PerSecond: 100}, {Round: 2, PerSecond: 400}}
	require.Equal(t, value{0.5, 0.5, 0.5}, ratios(first, []figure{{Round: 2, PerSecond: 200}, {Round: 3, PerSecond: 7}})["adds_per_s"])
}

// TestFailure: what could not be measured is named, and the run goes on unless it was interrupted.
func TestFailure(t *testing.T) {
	b := &benchmark{}
	require.NoError(t, b.fail(context.Background(), "tail", &ours{b: b}, errors.New("no answer\nand its log")))
	require.Equal(t, []string{"tail on bindery: no answer"}, b.report("").Settings.Failed)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, b.fail(ctx, "tail", nil, errors.New("no answer")), context.Canceled)
	require.Len(t, b.failures, 1)
}
