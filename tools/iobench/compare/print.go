package compare

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/binderylog/bindery/tools/iobench/chart"
)

// sideBySide is how many runs have a column each; more are summed up.
const sideBySide = 4

// Format writes a value of a figure with its unit.
func Format(f Figure, v float64) string {
	if f.Time() {
		return chart.Micros(v)
	}
	return chart.Number(v) + " MB/s"
}

// FormatChange writes a change as a percentage with its sign.
func FormatChange(c float64) string {
	if math.IsInf(c, 0) || math.IsNaN(c) {
		return "?"
	}
	return fmt.Sprintf("%+.0f %%", c*100)
}

// Print writes the comparison for people. Without all only headline figures and notable ones are shown.
func (c *Comparison) Print(w io.Writer, all bool) error {
	for i := range c.Groups {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := c.Groups[i].print(w, all); err != nil {
			return err
		}
	}
	if len(c.Alone) > 0 {
		fmt.Fprintf(w, "\nnothing to compare with: %s\n", strings.Join(c.Alone, ", "))
	}
	for _, n := range c.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	return nil
}

func (g *Group) print(w io.Writer, all bool) error {
	fmt.Fprintf(w, "%s: %s, %s\n", g.Name, count(len(g.Members), "run"), g.BaseText())
	letters := len(g.Members) <= sideBySide
	for i, m := range g.Members {
		if letters {
			fmt.Fprintf(w, "  %s  %s\n", letter(i), m.Name)
		} else if len(m.Caveats) > 0 {
			fmt.Fprintf(w, "  %s\n", m.Name)
		}
		for _, c := range m.Caveats {
			fmt.Fprintf(w, "     %s\n", c)
		}
	}
	for _, d := range g.Differs {
		fmt.Fprintf(w, "  not the same: %s\n", d)
	}
	rows := make([]*Row, 0, len(g.Rows))
	for i := range g.Rows {
		if r := &g.Rows[i]; all || r.Headline || r.Notable() {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "  the runs have no figure in common")
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if letters {
		g.columns(tw, rows)
	} else {
		g.summary(tw, rows)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if n := g.notable(); n > 0 {
		fmt.Fprintf(w, "  %d of %d figures stand out; of so many up to %.0f may by chance alone\n", n, len(g.Rows), math.Ceil(significance*float64(len(g.Rows))))
	}
	if hidden := len(g.Rows) - len(rows); hidden > 0 {
		fmt.Fprintf(w, "  %d more figures show no proven difference (--all)\n", hidden)
	}
	return nil
}

// notable counts the figures that are more than noise.
func (g *Group) notable() (n int) {
	for i := range g.Rows {
		if g.Rows[i].Notable() {
			n++
		}
	}
	return n
}

// BaseText says what the runs are held against.
func (g *Group) BaseText() string {
	if g.Median {
		return "against their median"
	}
	return "against " + g.Members[0].Name
}

// count is a number of things with their name.
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

func letter(i int) string { return string(rune('A' + i)) }

func (g *Group) columns(w io.Writer, rows []*Row) {
	fmt.Fprint(w, "  figure")
	if g.Median {
		fmt.Fprint(w, "\tmedian")
	}
	for i := range g.Members {
		fmt.Fprint(w, "\t"+letter(i))
	}
	fmt.Fprintln(w)
	for _, r := range rows {
		fmt.Fprint(w, "  "+r.Figure.String())
		if g.Median {
			fmt.Fprint(w, "\t"+Format(r.Figure, r.Base))
		}
		for _, v := range r.Values {
			fmt.Fprint(w, "\t"+v.text(r.Figure))
		}
		fmt.Fprintln(w)
	}
}

func (v Value) text(f Figure) string {
	switch v.Verdict {
	case Missing:
		return "-"
	case Base:
		return Format(f, v.Value)
	}
	s := fmt.Sprintf("%s %s", Format(f, v.Value), FormatChange(v.Change))
	switch {
	case v.Outlier:
		return s + " OUTLIER"
	case v.Verdict == Worse:
		return s + " WORSE"
	case v.Verdict != Same:
		return s + " " + string(v.Verdict)
	}
	return s
}

// summary has a line for each figure: the middle, the ends, and who stands apart.
func (g *Group) summary(w io.Writer, rows []*Row) {
	fmt.Fprintln(w, "  figure\tmedian\tlowest\thighest\tstanding apart")
	for _, r := range rows {
		low, high, mid := math.Inf(1), math.Inf(-1), []float64{}
		for _, v := range r.Values {
			if v.Verdict != Missing {
				low, high = min(low, v.Value), max(high, v.Value)
				mid = append(mid, v.Value)
			}
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\n", r.Figure, Format(r.Figure, median(mid)), Format(r.Figure, low), Format(r.Figure, high), g.apart(r))
	}
}

// apart names the runs that a row is notable for, the farthest first.
func (g *Group) apart(r *Row) string {
	const named = 3
	var who []int
	for i, v := range r.Values {
		if v.Outlier || (!g.Median && (v.Verdict == Worse || v.Verdict == Better)) {
			who = append(who, i)
		}
	}
	slices.SortStableFunc(who, func(a, b int) int {
		return cmp.Compare(math.Abs(r.Values[b].Change), math.Abs(r.Values[a].Change))
	})
	var parts []string
	for k, i := range who {
		if k == named {
			parts = append(parts, fmt.Sprintf("%d more", len(who)-named))
			break
		}
		parts = append(parts, g.Members[i].Name+" "+FormatChange(r.Values[i].Change))
	}
	return strings.Join(parts, ", ")
}
