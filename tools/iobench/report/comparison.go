package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/binderylog/bindery/tools/iobench/chart"
	"github.com/binderylog/bindery/tools/iobench/compare"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// bounds keep a page about many runs small; what is left out is said.
type bounds struct {
	small   int // small charts; those that stand apart come first
	rows    int // runs in the table of main figures
	dots    int // runs on a strip
	figures int // rows of the table of all figures
}

// boundsOf shares the page among the groups.
func boundsOf(groups int) bounds {
	return bounds{small: max(6, 120/groups), rows: max(20, 400/groups), dots: max(20, 250/groups), figures: max(40, 200/groups)}
}

const (
	columnsMax  = 6 // runs that have a column each
	findingsMax = 40
	stripsMin   = 5 // runs that are worth an axis
)

// comparisonView is a comparison as the template shows it.
type comparisonView struct {
	Title    string
	Sub      string
	Findings []string
	Missed   int
	Judged   bool
	Alone    string
	Notes    []string
	Groups   []groupView
}

type groupView struct {
	ID       string
	Title    string
	Sub      string
	Caveats  []string
	Differs  []string
	Headline comparedTable
	Strips   []figure
	Small    []smallView
	SmallSub string
	All      comparedTable
}

// comparedTable is a table whose fields say whether they are notable.
type comparedTable struct {
	ID      string
	Caption string
	Head    []string
	Rows    [][]comparedCell
}

type comparedCell struct{ Class, Text string }

// smallView is one run among many.
type smallView struct {
	Title string
	Note  string
	Odd   bool
	figure
}

// WriteComparison writes the page about a comparison, with what --fail-if found; judged tells that there was one.
func WriteComparison(w io.Writer, c *compare.Comparison, findings []compare.Finding, judged bool) error {
	v := &comparisonView{Title: "iobench compare", Alone: strings.Join(c.Alone, ", "), Notes: c.Notes, Judged: judged}
	runs := 0
	for i := range c.Groups {
		runs += len(c.Groups[i].Members)
		v.Groups = append(v.Groups, newGroupView(&c.Groups[i], fmt.Sprintf("g%d", i+1), boundsOf(len(c.Groups))))
	}
	v.Sub = fmt.Sprintf("%d runs", runs)
	if c.By != compare.ByNothing {
		v.Sub += " by " + string(c.By)
	}
	for i, f := range findings {
		if i == findingsMax {
			v.Findings = append(v.Findings, fmt.Sprintf("and %d more", len(findings)-i))
			break
		}
		v.Findings = append(v.Findings, fmt.Sprintf("%s: %s: %s: %s", f.Condition, f.Run, f.Figure, f.Text))
	}
	v.Missed = len(findings)
	p := page{Title: v.Title, Comparison: v}
	return p.write(w, runs)
}

func newGroupView(g *compare.Group, id string, most bounds) groupView {
	v := groupView{ID: id, Title: g.Name, Sub: fmt.Sprintf("%d runs, %s", len(g.Members), g.BaseText()), Differs: g.Differs}
	for _, m := range g.Members {
		for _, c := range m.Caveats {
			v.Caveats = append(v.Caveats, m.Name+": "+c)
		}
	}
	v.Headline = headlineTable(g, id, most.rows)
	if len(g.Members) >= stripsMin {
		v.Strips = strips(g, most.dots)
	}
	v.Small, v.SmallSub = smallMultiples(g, most.small)
	v.All = allFigures(g, id, most.figures)
	return v
}

// headlineTable has a row for each run and a column for each headline figure; runs that stand apart come first.
func headlineTable(g *compare.Group, id string, most int) comparedTable {
	t := comparedTable{ID: id + "-h", Caption: "The main figures of each run", Head: []string{"run"}}
	var rows []*compare.Row
	for i := range g.Rows {
		if r := &g.Rows[i]; r.Headline {
			rows = append(rows, r)
			t.Head = append(t.Head, r.Figure.String())
		}
	}
	if len(rows) == 0 {
		return t
	}
	if g.Median {
		line := []comparedCell{{"", "median"}}
		for _, r := range rows {
			line = append(line, comparedCell{"", compare.Format(r.Figure, r.Base)})
		}
		t.Rows = append(t.Rows, line)
	}
	order := oddFirst(g)
	if len(order) > most {
		t.Caption += fmt.Sprintf(" (%d of %d, those that stand apart first)", most, len(order))
	}
	for _, i := range order[:min(len(order), most)] {
		line := []comparedCell{{"", g.Members[i].Name}}
		for _, r := range rows {
			line = append(line, compared(r.Figure, r.Values[i]))
		}
		t.Rows = append(t.Rows, line)
	}
	return t
}

// oddFirst is the order of members in which those that stand apart come first; the base stays at the top.
func oddFirst(g *compare.Group) []int {
	order := make([]int, len(g.Members))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if !g.Median && (a == 0 || b == 0) {
			return cmp.Compare(a, b)
		}
		return cmp.Compare(g.Members[b].Outliers, g.Members[a].Outliers)
	})
	return order
}

func compared(f compare.Figure, v compare.Value) comparedCell {
	switch v.Verdict {
	case compare.Missing:
		return comparedCell{"", "–"}
	case compare.Base:
		return comparedCell{"", compare.Format(f, v.Value)}
	}
	c := comparedCell{Text: compare.Format(f, v.Value) + " " + compare.FormatChange(v.Change)}
	switch {
	case v.Verdict == compare.Worse:
		c.Class, c.Text = "worse", c.Text+" worse"
	case v.Verdict == compare.Better:
		c.Class, c.Text = "better", c.Text+" better"
	case v.Verdict != compare.Same:
		c.Text += " (" + string(v.Verdict) + ")"
	}
	if v.Outlier {
		c.Class, c.Text = c.Class+" odd", c.Text+" outlier"
	}
	return c
}

// strips put each headline figure of all runs on one axis.
func strips(g *compare.Group, most int) (out []figure) {
	order := oddFirst(g)
	for i := range g.Rows {
		r := &g.Rows[i]
		if !r.Headline {
			continue
		}
		s := chart.Strip{Label: r.Figure.String() + " of all runs", Axis: chart.Axis{Log: true, Format: func(v float64) string { return compare.Format(r.Figure, v) }}}
		var values []float64
		for _, k := range order {
			if v := r.Values[k]; v.Verdict != compare.Missing {
				s.Dots = append(s.Dots, chart.StripDot{Name: g.Members[k].Name, Value: v.Value, Outlier: v.Outlier})
				values = append(values, v.Value)
			}
		}
		slices.Sort(values)
		s.Median = values[len(values)/2]
		f := figure{Title: r.Figure.String()}
		if len(s.Dots) > most {
			f.Caption = fmt.Sprintf("Drawn: %d of %d runs, those that stand apart first.", most, len(s.Dots))
			s.Dots = s.Dots[:most]
		}
		f.SVG = s.SVG()
		out = append(out, f)
	}
	return out
}

// smallMultiples draw the distribution of the smallest durable write of each run over that of all runs together.
func smallMultiples(g *compare.Group, most int) (out []smallView, sub string) {
	const cellFormat = "%s/4096"
	all := result.NewHistogram()
	id := fmt.Sprintf(cellFormat, compare.Method(g.Members[0].Run))
	cells := make([]*result.Cell, len(g.Members))
	low, high := math.Inf(1), 0.0
	n := 0
	for i, m := range g.Members {
		c := m.Run.Chapter(result.ChapterSync, 0)
		if c == nil {
			continue
		}
		cell := c.Cell(id)
		if cell == nil || cell.Latency == nil {
			continue
		}
		h, err := cell.Latency.Decode()
		if err != nil {
			continue // not of a decoded result: those are tested
		}
		all.Merge(h)
		cells[i] = cell
		low, high = min(low, cell.Latency.MinUS), max(high, cell.Latency.P999US)
		n++
	}
	if n < 2 {
		return nil, ""
	}
	fleet := tail(result.NewLatency(all))
	x := chart.Axis{Log: true, Format: chart.Micros, Min: math.Pow(10, math.Floor(math.Log10(low))), Max: math.Pow(10, math.Ceil(math.Log10(high)))}
	y := chart.Axis{Log: true, Min: 1e-3, Max: 1, Ticks: []float64{1, 0.1, 0.01, 0.001}, Format: percent}
	for _, i := range oddFirst(g) {
		if cells[i] == nil || len(out) == most {
			continue
		}
		m := &g.Members[i]
		line := chart.Series{Class: "m0", Points: tail(cells[i].Latency)}
		if m.Outliers > 0 {
			line.Class = "odd"
		}
		s := smallView{Title: m.Name, Odd: m.Outliers > 0, Note: fmt.Sprintf("p50 %s, p99 %s", chart.Micros(cells[i].Latency.P50US), chart.Micros(cells[i].Latency.P99US))}
		if m.Outliers > 0 {
			s.Note += fmt.Sprintf("; stands apart by %d figures", m.Outliers)
		}
		s.SVG = chart.Lines{Label: m.Name + ": share of durable writes that took longer than a time", Small: true, X: x, Y: y, Series: []chart.Series{{Class: "fleet", Points: fleet}, line}}.SVG()
		out = append(out, s)
	}
	sub = fmt.Sprintf("Durable writes %s: the share that took longer than a time. Line: the run. Dashed grey: all runs together.", id)
	if n > len(out) {
		sub += fmt.Sprintf(" Shown: %d of %d runs, those that stand apart first.", len(out), n)
	}
	return out, sub
}

// allFigures is the table of every figure that the runs share: a column for each run, or the middle and the ends.
func allFigures(g *compare.Group, id string, most int) comparedTable {
	t := comparedTable{ID: id + "-a", Caption: "All figures that the runs have in common"}
	if len(g.Rows) > most {
		t.Caption += fmt.Sprintf(" (the first %d of %d; iobench compare --all prints all)", most, len(g.Rows))
	}
	wide := len(g.Members) > columnsMax
	t.Head = []string{"figure"}
	if g.Median || wide {
		t.Head = append(t.Head, "base")
	}
	if wide {
		t.Head = append(t.Head, "lowest", "highest", "runs", "outliers")
	} else {
		for _, m := range g.Members {
			t.Head = append(t.Head, m.Name)
		}
	}
	rows := make([]*compare.Row, len(g.Rows))
	for i := range rows {
		rows[i] = &g.Rows[i]
	}
	slices.SortStableFunc(rows, func(a, b *compare.Row) int { // what differs comes first
		switch {
		case a.Notable() == b.Notable():
			return 0
		case a.Notable():
			return -1
		}
		return 1
	})
	for _, r := range rows[:min(len(rows), most)] {
		line := []comparedCell{{"", r.Figure.String()}}
		if g.Median || wide {
			line = append(line, comparedCell{"", compare.Format(r.Figure, r.Base)})
		}
		if !wide {
			for _, v := range r.Values {
				line = append(line, compared(r.Figure, v))
			}
			t.Rows = append(t.Rows, line)
			continue
		}
		low, high, n, odd := math.Inf(1), math.Inf(-1), 0, 0
		for _, v := range r.Values {
			if v.Verdict == compare.Missing {
				continue
			}
			low, high = min(low, v.Value), max(high, v.Value)
			n++
			if v.Outlier {
				odd++
			}
		}
		class := ""
		if odd > 0 {
			class = "odd"
		}
		t.Rows = append(t.Rows, append(line, comparedCell{"", compare.Format(r.Figure, low)}, comparedCell{"", compare.Format(r.Figure, high)}, comparedCell{"", fmt.Sprint(n)}, comparedCell{class, fmt.Sprint(odd)}))
	}
	return t
}
