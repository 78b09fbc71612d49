package report

import (
	"fmt"
	"html/template"
	"math"

	"github.com/binderylog/bindery/tools/iobench/chart"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// pointsMax bounds the points of a line: as many as there are pixels to tell them apart.
const pointsMax = 600

// pointsMin is how many seconds make a course; fewer are in the tables.
const pointsMin = 3

// drawSeries draws MB/s and p99 over time, one below the other on the same axis.
func drawSeries(_ *result.Run, c *result.Chapter) (out []figure) {
	for i := range c.Series {
		s := &c.Series[i]
		if len(s.Ops) < pointsMin {
			continue
		}
		step := (len(s.Ops) + pointsMax - 1) / pointsMax
		note := ""
		if step > 1 {
			note = fmt.Sprintf(" Each point stands for %s: rates are means, latencies the worst of their seconds.", chart.Seconds(float64(step)*s.IntervalS))
		}
		if c.Name != result.ChapterStalls { // at a fixed rate it is a straight line
			out = append(out, figure{
				Title: "MB/s over time, " + s.Cell, Wide: true, Caption: "Decimal megabytes a second." + note,
				SVG: timeLine("MB/s over time", chart.Axis{Title: "MB/s", Format: chart.Number}, chart.Series{Class: "m0", Points: points(s, s.MBPerS, step, mean)}),
			})
		}
		if f, ok := latencyLine(s, step); ok {
			f.Caption += note
			out = append(out, f)
		}
		if len(s.TemperatureC) > 0 {
			out = append(out, figure{
				Title: "Temperature over time", Wide: true, Caption: "Degrees Celsius." + note,
				SVG: timeLine("temperature over time", chart.Axis{Title: "°C"}, chart.Series{Class: "m2", Points: points(s, s.TemperatureC, step, largest)}),
			})
		}
	}
	return out
}

// latencyLine draws the p99 of each second, and its longest operation where both are known.
func latencyLine(s *result.Series, step int) (figure, bool) {
	f := figure{Title: "Latency over time, " + s.Cell, Wide: true}
	var lines []chart.Series
	for _, c := range []struct {
		column            []float64
		class, name, long string
	}{{s.MaxUS, "m4", "longest", "The longest operation of each second"}, {s.P99US, "m1", "p99", "The p99 of each second"}} {
		if len(c.column) == 0 {
			continue
		}
		lines = append(lines, chart.Series{Class: c.class, Points: points(s, c.column, step, largest)})
		f.Legend = append(f.Legend, legend{c.class, c.name})
		f.Caption = c.long + "."
	}
	switch len(lines) {
	case 0:
		return f, false
	case 1:
		f.Legend = nil
	default:
		f.Caption = "The p99 and the longest operation of each second."
	}
	f.SVG = timeLine("latency over time", chart.Axis{Title: "time of an operation", Log: true, Format: chart.Micros}, lines...)
	return f, true
}

func timeLine(label string, y chart.Axis, lines ...chart.Series) template.HTML {
	end := 1.0
	for _, l := range lines {
		if n := len(l.Points); n > 0 {
			end = max(end, l.Points[n-1].X)
		}
	}
	return chart.Lines{Label: label, Wide: true, X: chart.TimeAxis("time since the start", end), Y: y, Series: lines}.SVG()
}

// points folds every step values of a column into one.
func points(s *result.Series, column []float64, step int, fold func([]float64) float64) (out []chart.Point) {
	for i := 0; i < len(column); i += step {
		end := min(i+step, len(column))
		out = append(out, chart.Point{X: (float64(end)) * s.IntervalS, Y: fold(column[i:end])})
	}
	return out
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

func largest(v []float64) float64 {
	m := math.Inf(-1)
	for _, x := range v {
		m = max(m, x)
	}
	return m
}

// stallsShown bounds the marks of a raster; the longest are kept.
const stallsShown = 1500

// drawStalls draws the raster of gaps, then the latency over time, and the hours of a soak.
func drawStalls(r *result.Run, c *result.Chapter) (out []figure) {
	for i := range c.Stalls {
		s := &c.Stalls[i]
		raster := chart.Raster{SpanS: c.ElapsedS, Label: fmt.Sprintf("%d gaps over 10 ms, the longest %s", s.Over10MS, chart.Micros(s.LongestUS))}
		for j := range c.Series {
			if series := &c.Series[j]; series.Cell == s.Cell {
				raster.SpanS = float64(len(series.Ops)) * series.IntervalS
			}
		}
		events := s.Events
		caption := fmt.Sprintf("Longest gap %s. Over 10 ms: %d, over 50 ms: %d, over 100 ms: %d, over 500 ms: %d.", chart.Micros(s.LongestUS), s.Over10MS, s.Over50MS, s.Over100MS, s.Over500MS)
		if s.PeriodS > 0 {
			caption += fmt.Sprintf(" They come back about every %s.", chart.Seconds(s.PeriodS))
		}
		if len(events) > stallsShown {
			events = longest(events)
			caption += fmt.Sprintf(" Drawn: the %d longest.", stallsShown)
		}
		for _, e := range events {
			raster.Stalls = append(raster.Stalls, chart.Stall{AtS: e.AtS, GapUS: e.GapUS})
			raster.SpanS = max(raster.SpanS, e.AtS)
		}
		if raster.SpanS == 0 {
			continue
		}
		if len(events) == 0 {
			caption += " None is drawn."
		}
		out = append(out, figure{
			Title: "Gaps between completions, " + s.Cell, Wide: true, Caption: caption, SVG: raster.SVG(),
			Legend: []legend{{"g0", "from 10 ms"}, {"g1", "from 50 ms"}, {"g2", "from 100 ms"}, {"g3", "from 500 ms"}},
		})
	}
	return append(out, drawSeries(r, c)...)
}
