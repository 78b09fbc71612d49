package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/binderylog/bindery/tools/iobench/chart"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// methods lists the methods of a chapter in the order of its cells, those that were measured only.
func methods(c *result.Chapter) (out []string) {
	for i := range c.Cells {
		if m := c.Cells[i].Method; c.Cells[i].Latency != nil && !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	return out
}

// ofMethod are the measured cells of a method by size.
func ofMethod(c *result.Chapter, method string) (out []*result.Cell) {
	for i := range c.Cells {
		if cell := &c.Cells[i]; cell.Method == method && cell.Latency != nil {
			out = append(out, cell)
		}
	}
	slices.SortStableFunc(out, func(a, b *result.Cell) int { return a.BlockBytes - b.BlockBytes })
	return out
}

// setting is a recommended value without its quotes, empty if there is none.
func setting(r *result.Run, table, key string) string {
	s := settingOf(r, table, key)
	return strings.Trim(s.Value, `"'`)
}

func evidence(r *result.Run, table, key string) string {
	s := settingOf(r, table, key)
	return s.Evidence
}

func settingOf(r *result.Run, table, key string) (none result.Setting) {
	if r.Recommendation == nil {
		return none
	}
	for _, s := range r.Recommendation.Settings {
		if s.Table == table && s.Key == key {
			return s
		}
	}
	return none
}

// chosenMethod is the one that the settings name, otherwise the first durable one.
func chosenMethod(r *result.Run, c *result.Chapter) string {
	all := methods(c)
	if m := setting(r, "journal", "io"); slices.Contains(all, m) {
		return m
	}
	for i := range c.Cells {
		if c.Cells[i].Durable && c.Cells[i].Latency != nil {
			return c.Cells[i].Method
		}
	}
	return ""
}

// chosenSmallest is the smallest durable write by the chosen method, nil if there is none.
func chosenSmallest(r *result.Run, c *result.Chapter) *result.Cell {
	if cells := ofMethod(c, chosenMethod(r, c)); len(cells) > 0 && cells[0].Durable {
		return cells[0]
	}
	return nil
}

func methodClass(c *result.Chapter, method string) string {
	return fmt.Sprintf("m%d", min(max(slices.Index(methods(c), method), 0), 4))
}

func drawSync(r *result.Run, c *result.Chapter) (out []figure) {
	all := methods(c)
	if len(all) == 0 {
		return nil
	}
	chosen := chosenMethod(r, c)
	if f, ok := syncCurve(r, c, chosen); ok {
		out = append(out, f)
	}
	smallest := math.MaxInt
	for _, m := range all {
		smallest = min(smallest, ofMethod(c, m)[0].BlockBytes)
	}
	byMethod := figure{
		Title:   "Latency of " + chart.Bytes(float64(smallest)) + " by method",
		Caption: "How many writes took longer than the time below: p99 is where a line crosses 1 %. Further left is better.",
	}
	cdf := newCDF("Share of durable writes that took longer than a time, by method")
	ranges := chart.Ranges{Label: "p50, p99 and p99.9 of each method", Title: "durable write of " + chart.Bytes(float64(smallest))}
	for _, m := range all {
		cell := ofMethod(c, m)[0]
		if cell.BlockBytes != smallest {
			continue
		}
		name := m
		if !cell.Durable {
			name += " NOT DURABLE"
		}
		cdf.Series = append(cdf.Series, chart.Series{Name: name, Class: methodClass(c, m), Points: tail(cell.Latency)})
		byMethod.Legend = append(byMethod.Legend, legend{methodClass(c, m), name})
		ranges.Rows = append(ranges.Rows, rangeOf(cell, name, methodClass(c, m)))
	}
	for i := range c.Cells {
		if cell := &c.Cells[i]; cell.Unsupported != "" && cell.BlockBytes == smallest {
			ranges.Rows = append(ranges.Rows, chart.Range{Name: cell.Method, Note: "not supported here"})
		}
	}
	byMethod.SVG = cdf.SVG()
	out = append(out, figure{Title: "Methods at " + chart.Bytes(float64(smallest)), Caption: rangesCaption, SVG: ranges.SVG()}, byMethod)
	for _, m := range all {
		f := figure{Title: "Latency by size, " + m, Caption: "A line for each size of a group."}
		if m == chosen {
			f.Title += " (chosen)"
		}
		cdf := newCDF("Share of durable writes by " + m + " that took longer than a time, by size")
		cells := ofMethod(c, m)
		for i, cell := range cells {
			class := fmt.Sprintf("z%d", rank(i, len(cells)))
			cdf.Series = append(cdf.Series, chart.Series{Class: class, Points: tail(cell.Latency)})
			f.Legend = append(f.Legend, legend{class, chart.Bytes(float64(cell.BlockBytes))})
		}
		f.SVG = cdf.SVG()
		out = append(out, f)
	}
	return out
}

const rangesCaption = "Dot: p50. Bar: up to p99. Thin line: up to p99.9."

// rank spreads n sizes over the nine colours there are.
func rank(i, n int) int {
	if n <= 1 {
		return 4
	}
	return i * 8 / (n - 1)
}

// syncCurve is the time of a durable write against its size, with the group size that was chosen.
func syncCurve(r *result.Run, c *result.Chapter, method string) (figure, bool) {
	cells := ofMethod(c, method)
	if len(cells) < 2 {
		return figure{}, false
	}
	p50 := chart.Series{Name: "p50", Class: "m0", Dots: true, Tip: sizeTip("p50")}
	p99 := chart.Series{Name: "p99", Class: "m1", Dots: true, Tip: sizeTip("p99")}
	var ticks []float64
	for _, cell := range cells {
		size := float64(cell.BlockBytes)
		p50.Points = append(p50.Points, chart.Point{X: size, Y: cell.Latency.P50US})
		p99.Points = append(p99.Points, chart.Point{X: size, Y: cell.Latency.P99US})
		ticks = append(ticks, size)
	}
	l := chart.Lines{
		Label:  "Time of a durable write by " + method + " against its size, p50 and p99",
		X:      chart.Axis{Title: "bytes of a group", Log: true, Min: ticks[0], Max: ticks[len(ticks)-1], Ticks: ticks, Format: chart.Bytes},
		Y:      chart.Axis{Title: "time of a durable write", Log: true, Format: chart.Micros},
		Series: []chart.Series{p50, p99},
		YMarks: []chart.Mark{{At: 1.5 * cells[0].Latency.P99US}},
	}
	f := figure{
		Title: "Durable write against group bytes, " + method, Legend: []legend{{"m0", "p50"}, {"m1", "p99"}, {"mark", "1.5 × p99 of " + chart.Bytes(ticks[0])}},
		Caption: "No group size follows from this run.",
	}
	if text := setting(r, "journal", "max_group_bytes"); text != "" {
		f.Caption = "journal.max_group_bytes = " + text
		if bytes := sizeOf(text); bytes >= ticks[0] && bytes <= ticks[len(ticks)-1] {
			l.XMarks = []chart.Mark{{At: bytes, Label: "max_group_bytes"}}
			f.Caption += " (dashed upright line): " + evidence(r, "journal", "max_group_bytes") + "."
		} else {
			f.Caption += ", outside the sizes that were measured."
		}
	}
	f.SVG = l.SVG()
	return f, true
}

func sizeTip(what string) func(chart.Point) string {
	return func(p chart.Point) string { return chart.Bytes(p.X) + ": " + what + " " + chart.Micros(p.Y) }
}

// sizeOf reads a size as settings have it, 0 if it is none.
func sizeOf(s string) float64 {
	for _, u := range []struct {
		name string
		n    float64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}} {
		if num, ok := strings.CutSuffix(s, u.name); ok {
			if f, err := strconv.ParseFloat(strings.TrimSpace(num), 64); err == nil && f > 0 {
				return f * u.n
			}
		}
	}
	return 0
}

func newCDF(label string) chart.Lines {
	return chart.Lines{
		Label: label,
		X:     chart.Axis{Title: "time of a write", Log: true, Format: chart.Micros},
		Y:     chart.Axis{Title: "took longer than", Log: true, Min: 1e-4, Max: 1, Ticks: []float64{1, 0.1, 0.01, 0.001, 0.0001}, Format: percent},
	}
}

func percent(v float64) string { return chart.Number(v*100) + " %" }

// tail is a distribution as points of (time, share that took longer), as far down as its count says anything.
func tail(l *result.Latency) (out []chart.Point) {
	h, err := l.Decode()
	if err != nil {
		return nil // not of a decoded result: those are tested
	}
	const perDecade = 10
	at := []float64{0.99, 0.97, 0.94, 0.9, 0.85} // shares
	for i := 1; i <= 4*perDecade; i++ {
		if share := math.Pow(10, -float64(i)/perDecade); share*float64(l.Count) >= 1 {
			at = append(at, share)
		}
	}
	quantiles := make([]float64, len(at))
	for i, share := range at {
		quantiles[i] = 100 * (1 - share)
	}
	out = append(out, chart.Point{X: l.MinUS, Y: 1})
	if len(at) == 0 {
		return append(out, chart.Point{X: l.MaxUS, Y: 1})
	}
	for i, v := range h.ValueAtPercentilesSlice(quantiles) {
		out = append(out, chart.Point{X: float64(v) / 1e3, Y: at[i]})
	}
	return out
}

// rangeOf is a cell as a row. p99.9 of fewer than a thousand operations would be their maximum.
func rangeOf(cell *result.Cell, name, class string) chart.Range {
	r := chart.Range{Name: name, Class: class}
	switch {
	case cell.Unsupported != "":
		r.Note = "not measured"
	case cell.Latency == nil:
		r.Note = "nothing measured"
	default:
		r.P50, r.P99 = cell.Latency.P50US, cell.Latency.P99US
		if cell.Latency.Count >= 1000 {
			r.P999 = cell.Latency.P999US
		}
	}
	return r
}
