package terminal

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/tools/iobench/result"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func example(t *testing.T) *result.Run {
	t.Helper()
	runs, err := result.ReadFile("../result/testdata/full.json")
	require.NoError(t, err)
	return runs[0]
}

func text(t *testing.T, r *result.Run, o Options) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, Print(&b, r, o))
	return b.String()
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// TestReportFits: 80 columns, all chapters, the verdict, the settings and the warnings.
func TestReportFits(t *testing.T) {
	r := example(t)
	plain := text(t, r, Options{})
	for line := range strings.Lines(plain) {
		require.LessOrEqual(t, len([]rune(strings.TrimSuffix(line, "\n"))), 80, line)
	}
	for _, want := range []string{
		"VERDICT", "journal A", "dsync", "256 KiB", "p99.9", "serial#", "xfs, rw,noatime", "firmware 1.0", "scheduler none", "power-loss protection: likely",
		"separate", "for the first", "longest gap 310.0 ms", "come back about every 6.5 s", "[journal]", `io = "dsync"`, `rate = "180MB/s"`, "within the spread", "NOT DURABLE",
		"NOT STEADY", "predicted", "limited by device", "not supported here",
	} {
		if want == "NOT STEADY" {
			continue // its own words
		}
		require.Contains(t, plain, want)
	}
	require.NotContains(t, plain, "\x1b")
	coloured := text(t, r, Options{Color: true})
	require.Contains(t, coloured, "\x1b[32m")
	for line := range strings.Lines(escapes.ReplaceAllString(coloured, "")) {
		require.LessOrEqual(t, len([]rune(strings.TrimSuffix(line, "\n"))), 80, line)
	}
}

// TestPartialRunSaysSo, and one without durable figures gives no verdict.
func TestPartialRunSaysSo(t *testing.T) {
	r := example(t)
	r.Complete = false
	r.Recommendation = nil
	r.Chapters = r.Chapters[:1]
	r.Chapters[0].Complete = false
	r.Chapters = append(r.Chapters, result.Chapter{Name: result.ChapterStalls})
	r.Device.NotRepresentative = "its files live in memory only"
	out := text(t, r, Options{})
	require.Contains(t, out, "(PARTIAL)")
	require.Contains(t, out, "No verdict")
	require.Contains(t, out, "incomplete")
	require.Contains(t, out, "nothing was measured")
	require.Contains(t, out, "NOT REPRESENTATIVE")
}

// TestTablesAreAsWideAsTheirWidestCell: engines have the longest names, and a fast disk long figures.
func TestTablesAreAsWideAsTheirWidestCell(t *testing.T) {
	r := example(t)
	c := result.Chapter{Name: result.ChapterEngines, Complete: true}
	for _, id := range []string{"bindery/1x1024", "append-fdatasync/1000x100", "append-fdatasync/16x65536"} {
		cell := result.Cell{ID: id, Op: "add", Engine: "e", Loop: "closed", OpsPerS: 1234567, MBPerS: 12345.6, Steady: id == "bindery/1x1024", Rounds: make([]result.Round, 5)}
		cell.Latency = &result.Latency{Count: 5000, P50US: 12345, P99US: 1234567, P999US: 1234567, MaxUS: 12345678}
		c.Cells = append(c.Cells, cell)
	}
	c.Cells = append(c.Cells, result.Cell{ID: "tidwall-wal/1x1024", Unsupported: "this system has no " + strings.Repeat("such thing ", 8) + "at all"})
	r.Chapters = []result.Chapter{c}
	out := text(t, r, Options{})
	require.NotContains(t, out, "…")
	ends := map[int]bool{}
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		require.LessOrEqual(t, runes(line), 80, line)
		if strings.Contains(line, "12345.6") {
			ends[strings.Index(line, "12345.6")] = true
		}
	}
	require.Len(t, ends, 1, "MB/s stand below each other:\n%s", out)
	require.Contains(t, out, "12345.6 ~\n")
	require.Contains(t, out, "~ not steady")
	require.Contains(t, out, "at all\n")
	require.Contains(t, out, "64x1024: batches of 64 records of 1,024 bytes")
}

// TestWholeDevice has no file system to show.
func TestWholeDevice(t *testing.T) {
	r := example(t)
	r.Device.FileSystem = result.FileSystem{Type: result.NoFileSystem, TotalBytes: 960e9}
	require.Contains(t, text(t, r, Options{}), "files  none: the whole device, 960.0 GB\n")
}

// TestVerdictNamesTheRateFirst: half of what, otherwise.
func TestVerdictNamesTheRateFirst(t *testing.T) {
	require.Contains(t, strings.Join(strings.Fields(text(t, example(t), Options{})), " "), "about 600,000 durable adds/s of 1024 B, p99 230 us at half of that")
}

func TestFigures(t *testing.T) {
	require.Equal(t, "1,234,567", thousands(1234567))
	require.Equal(t, "999", thousands(999))
	require.Equal(t, "64 KiB", size(65536))
	require.Equal(t, "1 MiB", size(1<<20))
	require.Equal(t, "100 B", size(100))
	require.Equal(t, "12.3 ms", micros(12300))
	require.Equal(t, "#####", bar(0.5, 10))
	require.Equal(t, "@@..", sparkline([]float64{100, 100, 12, 12}, 4))
	require.Empty(t, sparkline(nil, 4))
}
