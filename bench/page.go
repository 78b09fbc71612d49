package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"math"
)

//go:embed page.html
var pageText string

// pageTemplate is one self-contained page: bars as inline SVG, tables below for those who read them, light and dark.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"kib": func(n int) int { return n >> 10 }}).Parse(pageText))

// chart is one figure of all loads and peers as bars.
type chart struct {
	Title, Unit, Better string
	Height              int
	Groups              []group
}

// group is one load.
type group struct {
	Label string
	Y     int
	Bars  []bar
}

// bar is one peer's median and range. Positions are in the units of the drawing.
type bar struct {
	Class, Peer, Text    string
	Y                    int
	Width, Low, High, At float64
}

// Measures of the drawing.
const (
	barLeft   = 300.0
	barRoom   = 430.0
	barHeight = 14
	groupGap  = 12
)

// page renders the report as HTML.
func (r *report) page() ([]byte, error) {
	charts := []chart{
		r.chart("Durable adds a second", "adds_per_s", "", "more is better", 0),
		r.chart("p50 of an add", "p50_ms", " ms", "less is better", 2),
		r.chart("p99 of an add", "p99_ms", " ms", "less is better", 2),
		r.chart("p99.9 of an add", "p99.9_ms", " ms", "less is better", 2),
		r.chart("Processor seconds a million adds", "cpu_s_per_million", " s", "less is better", 1),
		r.chart("Resident memory", "resident_mb", " MB", "less is better", 0),
		r.chart("Disk bytes written for each payload byte", "disk_bytes_per_byte", "", "less is better", 2),
	}
	var w bytes.Buffer
	err := pageTemplate.Execute(&w, map[string]any{"R": r, "Charts": charts})
	return w.Bytes(), err
}

// chart draws one figure on a logarithmic scale: loads differ by orders of magnitude.
func (r *report) chart(title, key, unit, better string, digits int) chart {
	c := chart{Title: title, Unit: unit, Better: better}
	low, high := math.Inf(1), 0.0
	for _, l := range r.Loads {
		for _, p := range l.Peers {
			if v := p.Values[key]; p.Peer != "" && v.Min > 0 {
				low, high = min(low, v.Min), max(high, v.Max)
			}
		}
	}
	if high == 0 {
		return c
	}
	low = math.Pow(10, math.Floor(math.Log10(low)))
	span := math.Log10(high/low) + 0.05
	at := func(v float64) float64 { return math.Round(10*barRoom*math.Log10(max(v, low)/low)/span) / 10 }
	for _, l := range r.Loads {
		g := group{Label: l.Name, Y: c.Height}
		for i, p := range l.Peers {
			v := p.Values[key]
			if p.Peer == "" || v.Median <= 0 {
				continue
			}
			g.Bars = append(g.Bars, bar{
				Class: fmt.Sprintf("p%d", i), Peer: p.Peer, Text: v.Text(digits) + unit, Y: c.Height + len(g.Bars)*(barHeight+2),
				Width: max(at(v.Median), 1), Low: barLeft + at(v.Min), High: barLeft + at(v.Max), At: barLeft + at(v.Max) + 6,
			})
		}
		if len(g.Bars) > 0 {
			c.Groups = append(c.Groups, g)
			c.Height += len(g.Bars)*(barHeight+2) + groupGap
		}
	}
	return c
}
