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

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

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
		data, _ := json.Marshal(map[string]any{"pid": os.Getpid(), "bookies": []string{"127.0.0.1:1"}})
		if os.WriteFile(filepath.Join(dir, "endpoints.json"), data, 0o600) != nil || os.Getenv("BINDERY_JOURNAL__IO") == "" {
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
		fmt.Printf(`{"adds_per_s": %f, "tick_us": 200, "latency_us": {"p50": 1e9, "p99": 2e9}, "server": {"cpu_s_per_million_adds": 3}, "generator": {"cpu_s_per_million_adds": 1}}`, rate)
		return 0
	}
	return 2
}

// TestVerifyPutsPredictionsBesideMeasurements, on a bookie that answers after a thousand seconds.
func TestVerifyPutsPredictionsBesideMeasurements(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	p := plan(t, Single(result.ChapterSync)...)
	for _, fake := range []string{"works", "fails"} {
		t.Setenv(fakeEnv, fake)
		var log strings.Builder
		r, err := Verify(t.Context(), p, VerifyOptions{Bindery: self, Connections: 4, Each: time.Second, Log: &log})
		require.NotNil(t, r, "%v", err)
		empty(t, p.Directories[0].Path)
		if fake == "fails" {
			require.ErrorContains(t, err, "no bookie")
			continue
		}
		require.NoError(t, err)
		require.NoError(t, r.Validate())
		v := r.Verification
		require.Equal(t, 50_000.0, v.PeakMeasuredPerS)
		require.Positive(t, v.PeakPredictedPerS)
		require.Len(t, v.Rows, 3)
		for i, load := range []float64{10, 50, 80} {
			row := v.Rows[i]
			require.Equal(t, load, row.Predicted.LoadPct)
			require.InDelta(t, row.Predicted.AddsPerS, row.MeasuredPerS, 1)
			require.Positive(t, row.Predicted.P50US)
			require.LessOrEqual(t, row.Predicted.P99LowUS, row.Predicted.P99HighUS)
			require.False(t, row.P50Within)
			require.False(t, row.P99Within)
			require.NotEmpty(t, row.Predicted.LimitedBy)
		}
		require.False(t, v.Within)
		require.Contains(t, v.Command, "bench cluster --raw 127.0.0.1:1")
		require.Contains(t, log.String(), "--rate")
	}
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
