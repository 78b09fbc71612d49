package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
)

//go:embed page.html
var pageText string

// pageTemplate is one self-contained page: ratios first, bars as inline SVG, all figures as tables below, light and dark.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"kib": func(n int) int { return n >> 10 },
	"fig": func(p peerRow, key string, digits int) string { return p.figure(key, digits) },
	"ratio": func(p peerRow, key string, digits int) string {
		return p.ratio(key, digits)
	},
	"ahead":  func(p peerRow, key string) string { return p.ahead(key) },
	"ledger": func() string { return fmt.Sprintf("%d of %d", collectLedgers-1, collectLedgers) },
}).Parse(pageText))

// chart is one figure of all loads and peers as bars.
type chart struct {
	Title, Better string
	Bottom        int // of the bars
	Height        int
	Keys          []bar
	Groups        []group
	Ticks         []tick
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

// tick is a power of ten.
type tick struct {
	At   float64
	Text string
}

// Measures of the drawing.
const (
	barLeft   = 340.0
	barRoom   = 430.0
	barHeight = 14
	groupGap  = 12
	axisRoom  = 22
)

// chartRow is one group of a chart before it is drawn.
type chartRow struct {
	label string
	peers []peerRow
}

// page renders the report as HTML.
func (r *report) page() ([]byte, error) {
	rows := func(keep func(l loadRow) bool) (list []chartRow) {
		for _, l := range r.Loads {
			if keep(l) {
				list = append(list, chartRow{l.Name, l.Peers})
			}
		}
		return list
	}
	adds := rows(func(l loadRow) bool { return !l.Tail })
	closed := rows(func(l loadRow) bool { return !l.Tail && !l.OpenLoop })
	tails := rows(func(l loadRow) bool { return l.Tail })
	all := rows(func(loadRow) bool { return true })
	less, more := "less is better", "more is better"
	charts := []chart{
		newChart("Durable adds a second, closed loops", "adds_per_s", "", more, 0, closed),
		newChart("p50 of an add", "p50_ms", " ms", less, 2, adds),
		newChart("p99 of an add", "p99_ms", " ms", less, 2, adds),
		newChart("p99.9 of an add", "p99.9_ms", " ms", less, 2, adds),
		newChart("From an add's acknowledgement to a reader that follows, p50", "p50_ms", " ms", less, 2, tails),
		newChart("From an add's acknowledgement to a reader that follows, p99", "p99_ms", " ms", less, 2, tails),
		newChart("Processor seconds a million adds", "cpu_s_per_million", " s", less, 1, all),
		newChart("Resident memory", "resident_mb", " MB", less, 0, all),
		newChart("Disk bytes written for each payload byte", "disk_bytes_per_byte", "", less, 2, all),
		newChart("Catch-up reads of a cold ledger", "read_mb_per_s", " MB/s", more, 0, []chartRow{{"through our client", r.Reads}}),
		newChart("Start after kill -9 under full load", "seconds", " s", less, 2, []chartRow{{"until it serves", r.Starts}}),
		newChart("Garbage collection", "freed_mb_per_s", " MB/s", more, 0, []chartRow{{"entry logs freed", r.Collect}}),
	}
	var others []string // whose figures are compared with ours
	for _, l := range r.Loads {
		for _, p := range l.Peers {
			if p.Ratios != nil && !slices.Contains(others, p.Peer) {
				others = append(others, p.Peer)
			}
		}
	}
	var w bytes.Buffer
	err := pageTemplate.Execute(&w, map[string]any{"R": r, "Charts": charts, "Others": others})
	return w.Bytes(), err
}

// ahead is the class of a ratio to bindery's figure: of rates, less than 1 says that bindery is ahead, of all others more.
func (p *peerRow) ahead(key string) string {
	v, ok := p.Ratios[key]
	if !ok {
		return ""
	}
	ours := v.Median > 1
	if key == "adds_per_s" {
		ours = v.Median < 1
	}
	switch {
	case v.Median > 0.95 && v.Median < 1.05:
		return "even"
	case ours:
		return "ahead"
	}
	return "behind"
}

// newChart draws one figure on a logarithmic scale: loads differ by orders of magnitude.
func newChart(title, key, unit, better string, digits int, rows []chartRow) chart {
	c := chart{Title: title, Better: better}
	low, high := math.Inf(1), 0.0
	for _, row := range rows {
		for _, p := range row.peers {
			if v := p.Values[key]; p.Peer != "" && v.Min > 0 {
				low, high = min(low, v.Min), max(high, v.Max)
			}
		}
	}
	if high == 0 {
		return c
	}
	first := math.Floor(math.Log10(low * 0.999)) // the shortest bar is one, too
	span := math.Log10(high) - first + 0.05
	at := func(v float64) float64 { return math.Round(10*barRoom*max(math.Log10(v)-first, 0)/span) / 10 }
	classes := map[string]string{}
	for _, row := range rows {
		g := group{Label: row.label, Y: c.Bottom}
		for _, p := range row.peers {
			v := p.Values[key]
			if p.Peer == "" || v.Median <= 0 {
				continue
			}
			b := bar{
				Class: classes[p.Peer], Peer: p.Peer, Text: v.Text(digits) + unit, Y: c.Bottom + len(g.Bars)*(barHeight+2),
				Width: max(at(v.Median), 1), Low: barLeft + at(max(v.Min, 1e-9)), High: barLeft + at(v.Max), At: barLeft + at(v.Max) + 6,
			}
			if b.Class == "" {
				b.Class = "p" + strconv.Itoa(len(classes))
				classes[p.Peer] = b.Class
				c.Keys = append(c.Keys, b)
			}
			g.Bars = append(g.Bars, b)
		}
		if len(g.Bars) > 0 {
			c.Groups = append(c.Groups, g)
			c.Bottom += len(g.Bars)*(barHeight+2) + groupGap
		}
	}
	for e := first; e <= first+span; e++ {
		c.Ticks = append(c.Ticks, tick{barLeft + at(math.Pow(10, e)), strconv.FormatFloat(math.Pow(10, e), 'f', max(0, -int(e)), 64) + unit})
	}
	c.Height = c.Bottom + axisRoom
	return c
}
