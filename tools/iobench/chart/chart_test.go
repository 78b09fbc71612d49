package chart

import (
	"encoding/xml"
	"errors"
	"flag"
	"html/template"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write testdata/*.svg anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// examples has one chart of each kind, with what is awkward about it.
var examples = map[string]interface{ SVG() template.HTML }{
	"cdf": Lines{
		Label: "share of writes that took longer",
		X:     Axis{Title: "time", Log: true, Format: Micros},
		Y:     Axis{Title: "took longer than", Log: true, Min: 1e-4, Max: 1, Ticks: []float64{1, 0.1, 0.01, 0.001, 0.0001}},
		Series: []Series{
			{Class: "m0", Points: []Point{{30, 1}, {40, 0.5}, {90, 0.01}, {4000, 0.0001}}},
			{Class: "m1", Points: []Point{{60, 1}, {80, 0.5}, {0, 0.2}, {math.NaN(), 0.1}, {200, 0.01}, {1e300, 0}}},
		},
	},
	"knee": Lines{
		Label: "time against size", X: Axis{Title: "bytes", Log: true, Min: 4096, Max: 1 << 20, Ticks: []float64{4096, 65536, 1 << 20}, Format: Bytes},
		Y:      Axis{Title: "time", Log: true, Format: Micros},
		Series: []Series{{Class: "m0", Dots: true, Tip: func(p Point) string { return Bytes(p.X) }, Points: []Point{{4096, 34}, {65536, 60}, {1 << 20, 500}}}},
		XMarks: []Mark{{At: 1 << 20, Label: "max_group_bytes"}, {At: 65536, Label: "left"}, {At: -1, Label: "nowhere"}},
		YMarks: []Mark{{At: 51}, {At: 0}},
	},
	"time":        Lines{Label: "MB/s", Wide: true, X: TimeAxis("time", 7200), Y: Axis{Title: "MB/s"}, Series: []Series{{Class: "m0", Points: []Point{{0, 520}, {3600, 290}, {7200, 300}}}}},
	"lines-small": Lines{Label: "one of many", Small: true, X: Axis{Log: true, Format: Micros}, Y: Axis{Log: true, Min: 1e-3, Max: 1}, Series: []Series{{Class: "m0", Points: []Point{{30, 1}, {90, 0.01}}}}},
	"lines-empty": Lines{Label: "nothing", X: Axis{Log: true}},
	"ranges": Ranges{Label: "methods", Title: "time", Rows: []Range{
		{Name: "dsync", Class: "m0", P50: 34, P99: 71, P999: 90}, {Name: "few samples", Class: "m1", P50: 55, P99: 120},
		{Name: "uring", Note: "not supported here"}, {Name: "a name that is far too long for the room it has", Class: "m2", P50: 80, P99: 80, P999: 3e6},
	}},
	"bars":    Bars{Label: "rates", Title: "MB/s", Rows: []Bar{{Name: "direct", Class: "m0", Value: 12345.6}, {Name: "buffered", Class: "m4", Value: 12, Text: "12 NOT DURABLE"}, {Name: "none", Note: "not measured"}}},
	"heatmap": Heatmap{Label: "interference", Rows: []string{"idle", "flush"}, Cols: []string{"p50", "p99"}, Groups: []string{"same disk"}, Cells: [][]HeatCell{{{Text: "34 µs"}, {Text: "71 µs", Level: 1, Tip: "1.1 × idle"}}, {{Text: "▲▲ 3 ms", Level: 9}}}},
	"raster": Raster{Label: "stalls", SpanS: 65, Stalls: []Stall{
		{3, 14e3}, {9.6, 310e3}, {16, 60e3}, {64.9, 2e6}, {-1, 1e5}, {70, 1e5}, {5, 0},
	}},
	"strip": Strip{Label: "p99 of all", Axis: Axis{Title: "p99", Log: true, Format: Micros}, Median: 71, Dots: []StripDot{
		{Name: "b1", Value: 70}, {Name: "b2", Value: 71}, {Name: "b3", Value: 73}, {Name: "b4", Value: 900, Outlier: true}, {Name: "b5", Value: 20, Outlier: true}, {Name: "b6", Value: 0},
	}},
}

func TestGolden(t *testing.T) {
	for name, c := range examples {
		file := filepath.Join("testdata", name+".svg")
		got := string(c.SVG())
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(got+"\n"), 0o644))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(want), got+"\n", name)
	}
}

// TestWellFormed: every drawing is XML without a number that is none, and nothing lies outside of it.
func TestWellFormed(t *testing.T) {
	for name, c := range examples {
		svg := string(c.SVG())
		require.NotContains(t, svg, "NaN", name)
		require.NotContains(t, svg, "Inf", name)
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, name)
		}
	}
}

// TestTextIsEscaped: what comes from a result stays text.
func TestTextIsEscaped(t *testing.T) {
	const evil = `"><script>alert(1)</script>`
	for name, svg := range map[string]template.HTML{
		"lines":   Lines{Label: evil, X: Axis{Title: evil}, Y: Axis{Title: evil}, XMarks: []Mark{{At: 1, Label: evil, Class: evil}}, Series: []Series{{Class: evil, Points: []Point{{1, 1}, {2, 2}}, Dots: true, Tip: func(Point) string { return evil }}}}.SVG(),
		"ranges":  Ranges{Label: evil, Title: evil, Rows: []Range{{Name: evil, Class: evil, P50: 1, P99: 2}, {Name: evil, Note: evil}}}.SVG(),
		"bars":    Bars{Label: evil, Title: evil, Rows: []Bar{{Name: evil, Class: evil, Value: 1, Text: evil}, {Note: evil}}}.SVG(),
		"heatmap": Heatmap{Label: evil, Rows: []string{evil}, Cols: []string{evil}, Groups: []string{evil}, Cells: [][]HeatCell{{{Text: evil, Tip: evil}}}}.SVG(),
		"strip":   Strip{Label: evil, Axis: Axis{Title: evil}, Dots: []StripDot{{Name: evil, Value: 1, Outlier: true}}}.SVG(),
	} {
		require.NotContains(t, string(svg), "<script", name)
		require.NotContains(t, string(svg), `""`, name)
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.5: "0.5", 0.0001: "0.0001", 1.204: "1.2", 34.96: "35", 99.96: "100", 1234: "1234", 9999.7: "10,000", 1234567: "1,234,567", -12345: "-12,345"} {
		require.Equal(t, want, Number(v))
	}
	for us, want := range map[float64]string{34.2: "34.2 µs", 999.4: "999 µs", 999.6: "1 ms", 1500: "1.5 ms", 999_600: "1 s", 2.5e6: "2.5 s"} {
		require.Equal(t, want, Micros(us))
	}
	for s, want := range map[float64]string{5: "5 s", 119: "119 s", 120: "2 min", 7200: "2 h"} {
		require.Equal(t, want, Seconds(s))
	}
	for b, want := range map[float64]string{512: "512 B", 4096: "4 KiB", 1 << 20: "1 MiB", 3 << 30: "3 GiB"} {
		require.Equal(t, want, Bytes(b))
	}
}

// TestTicks: round, inside the axis, few.
func TestTicks(t *testing.T) {
	for _, tc := range []struct {
		axis   Axis
		values []float64
		want   []float64
	}{
		{Axis{}, []float64{3, 520}, []float64{0, 200, 400, 600}},
		{Axis{}, nil, []float64{0, 2, 4, 6, 8, 10}},
		{Axis{Log: true}, []float64{12, 90}, []float64{10, 20, 50, 100}},
		{Axis{Log: true}, []float64{12, 900}, []float64{10, 30, 100, 300, 1000}},
		{Axis{Log: true}, []float64{1, 1e9}, []float64{1, 100, 1e4, 1e6, 1e8}},
		{Axis{Log: true}, []float64{-1, 0, math.Inf(1)}, []float64{1, 2, 5, 10}},
		{Axis{Log: true}, []float64{5e-324, math.MaxFloat64}, []float64{1, 2, 5, 10}},
		{Axis{}, []float64{math.MaxFloat64, -math.MaxFloat64, math.NaN()}, []float64{0, 2, 4, 6, 8, 10}},
	} {
		got := newScale(tc.axis, tc.values, 0, 100).ticks(5)
		require.InDeltaSlice(t, tc.want, got, 1e-6, "%v: %v", tc.values, got)
	}
	a := TimeAxis("", 86400)
	require.Equal(t, "24 h", a.Format(86400))
	require.LessOrEqual(t, len(a.Ticks), 14)
	require.Equal(t, "180 s", TimeAxis("", 180).Format(180))
	require.Equal(t, "5 min", TimeAxis("", 600).Format(300))
}

// TestRasterRows: whatever the span, a handful of rows.
func TestRasterRows(t *testing.T) {
	for _, span := range []float64{0, 1, 60, 3600, 86400, 40 * 86400} {
		row := Raster{SpanS: span}.rowSpan()
		require.LessOrEqual(t, span/row, 12.0)
	}
	require.Equal(t, []int{0, 0, 1, 2, 3}, []int{StallLevel(1), StallLevel(49e3), StallLevel(50e3), StallLevel(100e3), StallLevel(500e3)})
}
