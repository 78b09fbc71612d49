package session

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/tools/iobench/advice"
	"github.com/binderylog/bindery/tools/iobench/chapter"
	"github.com/binderylog/bindery/tools/iobench/engine"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// fakeEnv makes the test binary be a bindery whose bookie answers what the test wants.
const fakeEnv = "IOBENCH_FAKE_BINDERY"

func TestMain(m *testing.M) {
	if os.Getenv(fakeEnv) != "" {
		os.Exit(fakeBindery(os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

func fakeBindery(args []string) int {
	switch args[0] {
	case "standalone":
		dir := args[slices.Index(args, "--data-dir")+1]
		if os.Getenv(fakeEnv) == "dies" {
			fmt.Fprintln(os.Stderr, "no such setting")
			return 1
		}
		data, _ := json.Marshal(map[string]any{"pid": os.Getpid(), "bookies": []string{"127.0.0.1:1"}})
		if os.WriteFile(filepath.Join(dir, "endpoints.json"), data, 0o600) != nil || os.Getenv("BINDERY_JOURNAL__IO") == "" || os.Getenv("BINDERY_STORAGE__MEMORY") == "" {
			return 1
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		<-ctx.Done()
		return 0
	case "bench":
		if os.Getenv(fakeEnv) == "fails" {
			fmt.Fprintln(os.Stderr, "no bookie")
			return 1
		}
		rate := 50_000.0
		if i := slices.Index(args, "--rate"); i >= 0 {
			_, _ = fmt.Sscan(args[i+1], &rate)
		}
		h := hdr.New(1, 1e6, 3)
		_ = h.RecordValues(1000, 100) // a millisecond beside the disk
		text, _ := h.Encode(hdr.V2CompressedEncodingCookieBase)
		fmt.Printf(`{"adds_per_s": %f, "adds": 400000, "tick_us": 200, "latency_us": {"p50": 1e9, "p99": 2e9}, "latency_hdr_v2_base64": %q,
			"server": {"cpu_s_per_million_adds": 3, "disk_bytes": 1000}, "generator": {"cpu_s_per_million_adds": 1}}`, rate, text)
		return 0
	}
	return 2
}

// TestVerifyPutsPredictionsBesideMeasurements, on a bookie that answers after a thousand seconds.
func TestVerifyPutsPredictionsBesideMeasurements(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	p := plan(t)
	p.Budget, p.MaxWrite = 200*time.Millisecond, 1<<40
	for _, fake := range []string{"works", "fails", "dies"} {
		t.Setenv(fakeEnv, fake)
		var log strings.Builder
		r, err := Verify(t.Context(), p, VerifyOptions{Bindery: self, Connections: 4, Each: time.Second, Rounds: 1, Log: &log})
		require.NotNil(t, r, "%v", err)
		empty(t, p.Directories[0].Path)
		switch fake {
		case "fails":
			require.ErrorContains(t, err, "no bookie")
			continue
		case "dies":
			require.ErrorContains(t, err, "no such setting")
			continue
		}
		require.NoError(t, err)
		require.NoError(t, r.Validate())
		v := r.Verification
		require.Equal(t, 50_000.0, v.PeakMeasuredPerS)
		require.Positive(t, v.PeakPredictedPerS)
		require.Contains(t, v.Rest, "echoes")
		require.Len(t, v.Rows, 3)
		for i, load := range []float64{10, 50, 80} {
			row := v.Rows[i]
			require.Equal(t, load, row.Predicted.LoadPct)
			require.InDelta(t, row.Predicted.AddsPerS, row.MeasuredPerS, 1)
			require.Positive(t, row.Predicted.P50US)
			require.Equal(t, 2e9, row.MeasuredP99HighUS)
			require.LessOrEqual(t, row.Predicted.P99LowUS, row.Predicted.P99HighUS)
			require.False(t, row.P50Within)
			require.False(t, row.P99Within)
			require.NotEmpty(t, row.Predicted.LimitedBy)
		}
		require.False(t, v.Within)
		require.Contains(t, v.Command, "bench cluster --raw 127.0.0.1:1")
		require.Contains(t, log.String(), "adds/s")
		require.NotNil(t, r.Chapter(result.ChapterPipeline, 0).Cell("50/4096/2"), "the calibrations are kept")
		require.Equal(t, "flush", r.Chapter(result.ChapterPipeline, 0).Cell("50/4096/2").Background)
	}
}

// TestVerifyEndsAtTheCap: without all loads there is no verdict.
func TestVerifyEndsAtTheCap(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	t.Setenv(fakeEnv, "works")
	p := plan(t)
	p.Budget = 200 * time.Millisecond
	r, err := Verify(t.Context(), p, VerifyOptions{Bindery: self, Connections: 4, Each: time.Second, Rounds: 1})
	require.ErrorIs(t, err, engine.ErrWriteCap)
	require.True(t, r.HasWarning(result.WarnWriteCap))
	empty(t, p.Directories[0].Path)
}

// TestPredictionOfARound: the disk's time and that of everything else add up, and what moves the disk's figures is noise.
func TestPredictionOfARound(t *testing.T) {
	cells := func(us ...float64) (list []result.Cell) { // a cell alone, one beside another
		for depth, took := range us {
			h := result.NewHistogram()
			for range 100 {
				result.Record(h, time.Duration(took*1e3))
			}
			list = append(list, result.Cell{BlockBytes: 4096, Depth: depth + 1, Latency: result.NewLatency(h)})
		}
		return list
	}
	rest := hdr.New(1, 1e6, 3)
	require.NoError(t, rest.RecordValues(300, 100))
	text, err := rest.Encode(hdr.V2CompressedEncodingCookieBase)
	require.NoError(t, err)
	one := round{rest: measured{Hist: string(text), AddsPerS: 1000}, disk: measured{AddsPerS: 100, Latency: map[string]float64{"p50": 520, "p99": 900}}}
	r := &rounds{pct: 10, rate: 100, entry: 1000, connections: 1, disks: [][]result.Cell{cells(200, 300), cells(200, 300), cells(400, 500)}, list: []round{one, one}}
	require.NoError(t, r.predict())
	row := r.row()
	require.InEpsilon(t, 600, row.Predicted.P50US, 0.02, "200 of the disk and 300 of the rest, 700 in the second round: it is half past the first 400")
	require.True(t, row.P50Within)
	require.InEpsilon(t, 20, row.NoisePct, 0.1, "the median of nothing and of 500 to 700")
	require.InEpsilon(t, 500, row.Predicted.P99LowUS, 0.02)
	require.InEpsilon(t, 700, row.Predicted.P99HighUS, 0.02)
	require.False(t, row.P99Within)
	require.Equal(t, "device", row.Predicted.LimitedBy)

	// While the machine stands still adds pile up, and wait for processors behind each other.
	r.processors = 150
	require.NoError(t, r.predict())
	calm := r.list[0].said.P99US
	r.list[0].disk.pauses = advice.Pauses{List: []advice.Pause{{At: 500 * time.Millisecond, Length: 200 * time.Millisecond}}, Span: time.Second}
	require.NoError(t, r.predict())
	require.InDelta(t, 200_000, r.list[0].said.P99US-calm, 20_000)
	require.Greater(t, r.list[0].said.P50US, 2000.0, "20 adds that piled up take 133 ms, in which 13 more come, and so on: 0.6 s of each second")

	// Full speed is bounded by what the processors allow.
	r = &rounds{pct: 100, entry: 1000, connections: 1, disks: [][]result.Cell{cells(200, 300), cells(200, 300)}, list: []round{one}}
	require.NoError(t, r.predict())
	require.InEpsilon(t, 1000, r.list[0].said.AddsPerS, 0.02)
	require.Equal(t, "CPU", r.list[0].said.LimitedBy)

	// A disk that takes more of the processors than memory does is what bounds it.
	one.disk.Server = &struct {
		CPUPerMillion float64 `json:"cpu_s_per_million_adds"`
		WrittenBytes  int64   `json:"disk_bytes"`
	}{CPUPerMillion: 4000 * cores}
	r.list = []round{one, one}
	r.disks = append(r.disks, cells(200, 300))
	require.NoError(t, r.predict())
	require.InEpsilon(t, 250, r.list[0].said.AddsPerS, 0.02)

	// What is assumed and what is predicted meet.
	next, err := r.settle(1000)
	require.NoError(t, err)
	require.InEpsilon(t, 625, next, 0.02)
	require.Len(t, r.list, 1)
	require.Len(t, r.disks, 2)

	r.disks[1] = nil
	require.ErrorIs(t, r.predict(), errNothingPredicted)
}

func TestFindBindery(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	t.Setenv("PATH", t.TempDir())
	if _, serr := os.Stat(filepath.Join(filepath.Dir(self), "bindery")); serr != nil {
		_, err = FindBindery("")
		require.ErrorContains(t, err, "--bindery")
	}
	got, err := FindBindery(self)
	require.NoError(t, err)
	require.Equal(t, self, got)
}

func TestEchoes(t *testing.T) {
	h, err := echoes(t.Context(), 1024)
	require.NoError(t, err)
	require.Equal(t, int64(3000), h.TotalCount())
	require.Positive(t, h.ValueAtQuantile(50))
}

// TestWritesAreTakenWithoutTheMachinesPauses: pauses come on top of them in the model.
func TestWritesAreTakenWithoutTheMachinesPauses(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	w := watched{start: start, Pauses: advice.Pauses{List: []advice.Pause{{At: 50 * time.Millisecond, Length: 10 * time.Millisecond}}, Span: time.Second}}
	slice := chapter.Slice{Cell: result.Cell{ID: "x"}, Spans: []engine.Span{{From: at(10), To: at(12)}, {From: at(49), To: at(61)}, {From: at(55), To: at(63)}}}
	cells := running([]chapter.Slice{slice}, &w)
	require.Len(t, cells, 1)
	require.Equal(t, "x", cells[0].ID)
	require.EqualValues(t, 3, cells[0].Latency.Count)
	require.InDelta(t, 2000, cells[0].Latency.MinUS, 10)
	require.InDelta(t, 3000, cells[0].Latency.MaxUS, 10)
}
