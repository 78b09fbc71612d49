package chart

import (
	"html/template"
	"math"
)

// Series is one line.
type Series struct {
	Name   string
	Class  string // names its colour: "m0".."m4" for methods, "z0".."z8" for sizes in order
	Dots   bool   // mark each point
	Points []Point
	Tip    func(Point) string // text under the pointer, with Dots
}

// Mark is a line across the chart at a value. An upright one has its word at the top; that of a level one, which would lie
// on the lines, belongs into the legend.
type Mark struct {
	At    float64
	Label string
	Class string
}

// Lines is a chart of lines.
type Lines struct {
	Label          string // for screen readers: what is to be seen
	Wide, Small    bool
	Height         float64 // 0: of its kind
	X, Y           Axis
	Series         []Series
	XMarks, YMarks []Mark
}

// Place of the plot in the drawing.
const (
	marginLeft   = 52
	marginRight  = 18
	marginTop    = 22
	marginBottom = 38
)

// SVG draws the chart.
func (l Lines) SVG() template.HTML {
	w, h := float64(Width), 250.0
	xTicks, yTicks := 5, 5
	top, bottom, left := float64(marginTop), float64(marginBottom), float64(marginLeft)
	switch {
	case l.Wide:
		w, h, xTicks = WideWidth, 190, 10
	case l.Small:
		w, h, xTicks, yTicks = 180, 120, 2, 3
		top, bottom, left = 8, 22, 44
	}
	if l.Height > 0 {
		h = l.Height
	}
	c := newCanvas(w, h)
	var xs, ys []float64
	for _, s := range l.Series {
		for _, p := range s.Points {
			xs, ys = append(xs, p.X), append(ys, p.Y)
		}
	}
	for _, m := range l.YMarks {
		ys = append(ys, m.At)
	}
	x := newScale(l.X, xs, left, w-marginRight)
	y := newScale(l.Y, ys, h-bottom, top)
	l.axes(c, x, y, xTicks, yTicks)
	for _, m := range l.XMarks {
		if !drawable(m.At, l.X.Log) {
			continue
		}
		at := x.at(m.At)
		c.line("mark "+m.Class, at, top, at, h-bottom)
		anchor, dx := "start", 4.0
		if at+textWidth(len(m.Label)) > w-marginRight {
			anchor, dx = "end", -4
		}
		c.text("marktext", anchor, at+dx, top+10, m.Label)
	}
	for _, m := range l.YMarks {
		if !drawable(m.At, l.Y.Log) {
			continue
		}
		at := y.at(m.At)
		c.line("mark "+m.Class, left, at, w-marginRight, at)
	}
	for _, s := range l.Series {
		l.series(c, s, x, y)
	}
	return c.svg(l.Label)
}

func (l Lines) series(c *canvas, s Series, x, y scale) {
	var run []Point
	flush := func() {
		if len(run) == 1 && !s.Dots { // a line of one point would not be seen
			c.circle("dot "+s.Class, run[0].X, run[0].Y, 2, "")
		} else {
			c.path("line "+s.Class, run)
		}
		run = run[:0]
	}
	for _, p := range s.Points {
		if !drawable(p.X, l.X.Log) || !drawable(p.Y, l.Y.Log) { // a gap in the data is a gap in the line
			flush()
			continue
		}
		run = append(run, Point{x.at(p.X), y.at(p.Y)})
	}
	flush()
	if !s.Dots {
		return
	}
	for _, p := range s.Points {
		if drawable(p.X, l.X.Log) && drawable(p.Y, l.Y.Log) {
			tip := ""
			if s.Tip != nil {
				tip = s.Tip(p)
			}
			c.circle("dot "+s.Class, x.at(p.X), y.at(p.Y), 3, tip)
		}
	}
}

// axes draws the grid, its numbers and the titles. A number that would touch the one before it is left out.
func (l Lines) axes(c *canvas, x, y scale, xTicks, yTicks int) {
	ticks := l.Y.Ticks
	if ticks == nil {
		ticks = y.ticks(yTicks)
	}
	last := math.Inf(1)
	for _, t := range ticks {
		at := y.at(t)
		c.line("gridline", x.a, at, x.b, at)
		if math.Abs(last-at) >= 12 {
			c.text("tick", "end", x.a-6, at+3, l.Y.format(t))
			last = at
		}
	}
	if ticks = l.X.Ticks; ticks == nil {
		ticks = x.ticks(xTicks)
	}
	end := math.Inf(-1)
	for _, t := range ticks {
		at, s := x.at(t), l.X.format(t)
		c.line("gridline", at, y.a, at, y.b)
		half := textWidth(len([]rune(s))) / 2
		centre := max(half, min(at, c.w-half)) // the first and the last one stay inside the drawing
		if centre-half > end+4 {
			c.text("tick", "middle", centre, y.a+16, s)
			end = centre + half
		}
	}
	c.line("axis", x.a, y.a, x.b, y.a)
	if l.Small {
		return
	}
	c.text("title", "middle", (x.a+x.b)/2, c.h-6, l.X.Title)
	c.text("title", "start", 4, 12, l.Y.Title)
}
