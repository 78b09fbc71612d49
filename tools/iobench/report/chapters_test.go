package report

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// TestChaptersOfOtherCommands: soak with its hours, engines, the model, and predictions that were checked.
func TestChaptersOfOtherCommands(t *testing.T) {
	r := example(t)
	add := func(name string, cells ...result.Cell) *result.Chapter {
		r.Chapters = append(r.Chapters, result.Chapter{Name: name, Complete: true, ElapsedS: 7200, Cells: cells})
		return &r.Chapters[len(r.Chapters)-1]
	}
	base := r.Chapters[0].Cells[0]
	cell := func(id, op, engine string) result.Cell {
		c := base
		c.ID, c.Op, c.Engine = id, op, engine
		return c
	}
	soak := add(result.ChapterSoak, cell("soak", "write", ""))
	soak.Exceedance = []result.Hour{{Hour: 1, Ops: 3600000, P99US: 71, MaxUS: 9000, Over1MSPct: 0.25, Over8MSPct: 0.001, MBPerS: 4.1}, {Hour: 2, Ops: 3500000, P99US: 80, MaxUS: 120000, Over1MSPct: 0.5, Over64MSPct: 0.0001}}
	soak.Stalls = []result.Stalls{{Cell: "soak", LongestUS: 120000, Over10MS: 1, Over50MS: 1, Over100MS: 1, Events: []result.StallEvent{{AtS: 5000, GapUS: 120000}}}}
	lost := cell("plain/1024", "add", "plain")
	lost.Latency, lost.Rounds, lost.Ops, lost.Unsupported = nil, nil, 0, "no space"
	add(result.ChapterEngines, cell("bindery/1024", "add", "bindery"), cell("tidwall/wal/1024", "add", "tidwall/wal"), lost)
	add(result.ChapterModel, cell("1024/80", "add", ""))
	add(result.ChapterLive, cell("live", "write", ""))
	p := r.Recommendation.Predictions[1]
	r.Verification = &result.Verification{
		PeakPredictedPerS: 600000, PeakMeasuredPerS: 550000, Command: "bindery bench cluster",
		Rows: []result.Verified{
			{Predicted: p, MeasuredPerS: 299000, MeasuredP50US: 95, MeasuredP99US: 400, MeasuredP99LowUS: 390, MeasuredP99HighUS: 410, P50Within: true},
			{Predicted: p, MeasuredP50US: 95, NoisePct: 77, Noisy: true},
		},
	}
	add(result.ChapterPipeline, cell("50/4096/1", "write", ""))
	require.NoError(t, r.Validate())
	page := html(t, r)
	for _, want := range []string{
		"Hours under load", "<td>3500000</td><td>80.0</td><td>120000</td><td>0.500</td><td>0.000</td><td>0.000</td>",
		"120 ms without a completion, 83.3 min after the start",
		">Engines: /data/journal<", "tidwall/wal/1024", "Not measured: plain/1024 (no space)", ">1024 B, 80 %<", "Beside a running bookie",
		"Predicted and then measured by bindery bench cluster", "<td>95 µs</td><td>yes</td>", "<td>390 µs – 410 µs</td><td>NO</td>", "<td>noisy</td><td>77 %</td>", "at 50 %: 4 KiB ×1",
	} {
		contains(t, page, want)
	}
}
