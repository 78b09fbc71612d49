package chart

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// Width is that of a chart in CSS pixels, WideWidth that of one with Wide.
const (
	Width     = 360
	WideWidth = 760
)

// textWidth is a generous guess at the width of n characters at the size of labels (11 px).
func textWidth(n int) float64 { return 6.7 * float64(n) }

// canvas collects the elements of one drawing.
type canvas struct {
	b    strings.Builder
	w, h float64
}

func newCanvas(w, h float64) *canvas { return &canvas{w: w, h: h} }

// svg closes the drawing. The label is what a screen reader says.
func (c *canvas) svg(label string) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg class="chart" viewBox="0 0 %s %s" width="%s" height="%s" role="img" aria-label="%s">`+"\n%s</svg>",
		px(c.w), px(c.h), px(c.w), px(c.h), html.EscapeString(label), c.b.String()))
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&c.b, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`+"\n", html.EscapeString(class), px(x1), px(y1), px(x2), px(y2))
}

// text writes at the base line y; anchor is start, middle or end.
func (c *canvas) text(class, anchor string, x, y float64, s string) {
	fmt.Fprintf(&c.b, `<text class="%s" x="%s" y="%s" text-anchor="%s">%s</text>`+"\n", html.EscapeString(class), px(x), px(y), anchor, html.EscapeString(s))
}

// rect draws a rectangle; a tip is shown by the browser under the pointer.
func (c *canvas) rect(class string, x, y, w, h float64, tip string) {
	fmt.Fprintf(&c.b, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"%s`+"\n", html.EscapeString(class), px(x), px(y), px(w), px(h), tipped("rect", tip))
}

func (c *canvas) circle(class string, x, y, r float64, tip string) {
	fmt.Fprintf(&c.b, `<circle class="%s" cx="%s" cy="%s" r="%s"%s`+"\n", html.EscapeString(class), px(x), px(y), px(r), tipped("circle", tip))
}

func tipped(element, tip string) string {
	if tip == "" {
		return "/>"
	}
	return "><title>" + html.EscapeString(tip) + "</title></" + element + ">"
}

// path draws straight lines from point to point.
func (c *canvas) path(class string, points []Point) {
	if len(points) == 0 {
		return
	}
	fmt.Fprintf(&c.b, `<path class="%s" d="M`, html.EscapeString(class))
	for i, p := range points {
		if i > 0 {
			c.b.WriteByte('L')
		}
		c.b.WriteString(px(p.X) + " " + px(p.Y))
	}
	c.b.WriteString(`"/>` + "\n")
}

// px formats a coordinate: a tenth of a pixel is finer than anybody sees.
func px(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "0"
	}
	return strconv.FormatFloat(math.Round(v*10)/10+0, 'f', -1, 64) // +0: no "-0"
}
