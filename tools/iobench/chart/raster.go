package chart

import (
	"fmt"
	"html/template"
	"math"
)

// Stall is a gap between completions.
type Stall struct{ AtS, GapUS float64 }

// Raster lays time out in rows, one below the other, and marks each stall where it happened: what comes back in a rhythm
// shows as a column or a slope.
type Raster struct {
	Label    string
	SpanS    float64 // that was watched
	Stalls   []Stall
	RowsMost int // 0: 12
}

// rowSpans are the lengths that a row may have, in seconds.
var rowSpans = []float64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400}

// rowSpan picks the shortest row that keeps the number of rows small.
func (r Raster) rowSpan() float64 {
	most := r.RowsMost
	if most == 0 {
		most = 12
	}
	for _, s := range rowSpans {
		if r.SpanS <= s*float64(most) {
			return s
		}
	}
	return math.Ceil(r.SpanS / float64(most))
}

// StallLevel is the class of a gap by its length: from 10, 50, 100 and 500 ms on.
func StallLevel(us float64) int {
	switch {
	case us >= 500e3:
		return 3
	case us >= 100e3:
		return 2
	case us >= 50e3:
		return 1
	}
	return 0
}

// SVG draws the raster.
func (r Raster) SVG() template.HTML {
	const height, left = 22, 64
	row := r.rowSpan()
	rows := max(1, int(math.Ceil(r.SpanS/row-1e-9)))
	c := newCanvas(WideWidth, float64(rows*height)+46)
	x := scale{lo: 0, hi: row, a: left, b: WideWidth - marginRight}
	for i := range rows {
		y := 6 + float64(i*height)
		end := min(row, r.SpanS-row*float64(i))
		c.rect("lane", x.a, y+2, x.at(end)-x.a, height-4, "")
		c.text("tick", "end", left-8, y+height/2+4, Seconds(row*float64(i)))
	}
	for _, s := range r.Stalls {
		i := int(s.AtS / row)
		if s.AtS < 0 || i >= rows || !drawable(s.GapUS, true) {
			continue
		}
		level := StallLevel(s.GapUS)
		at := x.at(s.AtS - row*float64(i))
		w := max(3, s.GapUS/1e6/row*(x.b-x.a))
		h := float64(height-4) * (0.4 + 0.2*float64(level)) // the longer, the taller
		base := 6 + float64(i*height) + height - 2
		c.rect(fmt.Sprintf("stall g%d", level), at, base-h, min(w, x.b-at), h, fmt.Sprintf("%s without a completion, %s after the start", Micros(s.GapUS), Seconds(s.AtS)))
	}
	bottom := 6 + float64(rows*height)
	Lines{X: TimeAxis("time inside the row", row), Y: Axis{Ticks: []float64{}}}.axes(c, x, scale{a: bottom, b: bottom + 3, hi: 1}, 8, 0)
	return c.svg(r.Label)
}
