package chart

import "html/template"

// StripDot is one run on a Strip.
type StripDot struct {
	Name    string
	Value   float64
	Outlier bool
}

// Strip puts the same figure of many runs on one axis: those that stand apart are drawn larger, with their name.
type Strip struct {
	Label  string
	Axis   Axis // Title, Log and Format
	Median float64
	Dots   []StripDot
}

// SVG draws the strip.
func (s Strip) SVG() template.HTML {
	const named = 4 // names that fit without touching
	names := 0
	for _, d := range s.Dots {
		if d.Outlier {
			names++
		}
	}
	names = min(names, named)
	top := 12 + 14*float64(names)
	below := 24.0
	if s.Axis.Title != "" {
		below = marginBottom
	}
	c := newCanvas(Width, top+26+below)
	values := make([]float64, len(s.Dots))
	for i, d := range s.Dots {
		values[i] = d.Value
	}
	mid, bottom := top+10, top+26
	a := s.Axis
	x := newScale(a, values, 16, Width-marginRight)
	Lines{X: a, Y: Axis{Ticks: []float64{}}}.axes(c, x, scale{a: bottom, b: top - 4, hi: 1}, 5, 0)
	if drawable(s.Median, a.Log) {
		c.line("mark", x.at(s.Median), top-2, x.at(s.Median), bottom)
	}
	for i, d := range s.Dots {
		if drawable(d.Value, a.Log) && !d.Outlier {
			c.circle("dot run", x.at(d.Value), mid+float64(i%3-1)*4, 3, d.Name+": "+a.format(d.Value))
		}
	}
	for _, d := range s.Dots {
		if !drawable(d.Value, a.Log) || !d.Outlier {
			continue
		}
		at := x.at(d.Value)
		c.circle("dot outlier", at, mid, 5, d.Name+": "+a.format(d.Value))
		if names == 0 {
			continue
		}
		names--
		y := 12 + 14*float64(names)
		c.line("lead", at, y+3, at, mid-6)
		label := d.Name + " " + a.format(d.Value)
		if at > Width/2 {
			c.text("marktext", "end", at-4, y+4, clip(label, at-8))
		} else {
			c.text("marktext", "start", at+4, y+4, clip(label, Width-at-8))
		}
	}
	return c.svg(s.Label)
}
