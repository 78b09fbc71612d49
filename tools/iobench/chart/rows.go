package chart

import (
	"fmt"
	"html/template"
)

// Range is a row of Ranges: a distribution in two or three figures, on a logarithmic axis of microseconds.
type Range struct {
	Name           string
	Class          string
	P50, P99, P999 float64 // P999 of 0 is not shown
	Note           string  // in place of figures: why there are none
}

// Ranges puts distributions below one another: a dot at p50, a bar to p99, a thin line to p99.9.
type Ranges struct {
	Label string
	Title string // of the axis
	Rows  []Range
}

const rowHeight = 24

// SVG draws the chart.
func (r Ranges) SVG() template.HTML {
	names := make([]string, len(r.Rows))
	values := make([]float64, 0, 3*len(r.Rows))
	for i, row := range r.Rows {
		names[i] = row.Name
		if row.Note == "" {
			values = append(values, row.P50, row.P99, row.P999)
		}
	}
	left := labelWidth(names)
	h := float64(rowHeight*len(r.Rows)) + 46
	c := newCanvas(Width, h)
	bottom := h - marginBottom
	x := newScale(Axis{Log: true}, values, left, Width-marginRight)
	Lines{X: Axis{Title: r.Title, Log: true, Format: Micros}, Y: Axis{Log: true, Ticks: []float64{}}}.axes(c, x, scale{a: bottom, b: 6, hi: 1}, 4, 0)
	for i, row := range r.Rows {
		mid := 6 + rowHeight*(float64(i)+0.5)
		c.text("name", "end", left-8, mid+4, clip(row.Name, left))
		if row.Note != "" || !drawable(row.P50, true) {
			c.text("missing", "start", left+4, mid+4, clip(row.Note, Width-left-8))
			continue
		}
		tip := fmt.Sprintf("%s: p50 %s, p99 %s", row.Name, Micros(row.P50), Micros(row.P99))
		if row.P999 > 0 {
			tip += ", p99.9 " + Micros(row.P999)
			c.line("line "+row.Class, x.at(row.P99), mid, x.at(row.P999), mid)
			c.line("line "+row.Class, x.at(row.P999), mid-3, x.at(row.P999), mid+3)
		}
		from := x.at(row.P50)
		c.rect("bar "+row.Class, from, mid-4, max(x.at(row.P99)-from, 1), 8, tip)
		c.circle("dot "+row.Class, from, mid, 4.5, tip)
	}
	return c.svg(r.Label)
}

// Bar is a row of Bars.
type Bar struct {
	Name  string
	Class string
	Value float64
	Text  string // at its end; empty: the value
	Note  string // in place of a value: why there is none
}

// Bars puts rates below one another, on an axis from 0.
type Bars struct {
	Label string
	Title string // of the axis, with its unit
	Rows  []Bar
}

// SVG draws the chart.
func (b Bars) SVG() template.HTML {
	names := make([]string, len(b.Rows))
	values := make([]float64, len(b.Rows))
	widest := 4
	for i, row := range b.Rows {
		names[i], values[i] = row.Name, row.Value
		widest = max(widest, len(row.text()))
	}
	left := labelWidth(names)
	h := float64(rowHeight*len(b.Rows)) + 46
	c := newCanvas(Width, h)
	bottom := h - marginBottom
	x := newScale(Axis{}, values, left, Width-marginRight-textWidth(widest))
	Lines{X: Axis{Title: b.Title}, Y: Axis{Ticks: []float64{}}}.axes(c, x, scale{a: bottom, b: 6, hi: 1}, 4, 0)
	for i, row := range b.Rows {
		mid := 6 + rowHeight*(float64(i)+0.5)
		c.text("name", "end", left-8, mid+4, clip(row.Name, left))
		if row.Note != "" {
			c.text("missing", "start", left+4, mid+4, clip(row.Note, Width-left-8))
			continue
		}
		end := x.at(row.Value)
		c.rect("bar "+row.Class, left, mid-7, max(end-left, 1), 14, row.Name+": "+row.text())
		c.text("value", "start", end+5, mid+4, row.text())
	}
	return c.svg(b.Label)
}

func (b Bar) text() string {
	if b.Text != "" {
		return b.Text
	}
	return Number(b.Value)
}

// labelWidth is the room that names need at the left.
func labelWidth(names []string) float64 {
	n := 4
	for _, s := range names {
		n = max(n, len([]rune(s)))
	}
	return min(textWidth(n)+12, Width*0.5)
}

// clip shortens a text to the room it has.
func clip(s string, width float64) string {
	r := []rune(s)
	n := int(width / textWidth(1))
	if len(r) <= n {
		return s
	}
	return string(r[:max(n-1, 1)]) + "…"
}
