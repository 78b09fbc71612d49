package compare

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// By says what runs are grouped by.
type By string

// Ways of grouping.
const (
	ByNothing By = ""      // all together, held against the first
	ByModel   By = "model" // the disks of one model, held against their median
	ByHost    By = "host"  // the disks of one host, held against their median
	ByDate    By = "date"  // the runs on one disk, held against the oldest
)

// Valid reports whether there is such a way.
func (b By) Valid() bool { return slices.Contains([]By{ByNothing, ByModel, ByHost, ByDate}, b) }

// Comparison is what came out.
type Comparison struct {
	By     By
	Groups []Group
	Alone  []string // runs that are alone in their group
	Notes  []string
}

// Group is a set of runs that are compared.
type Group struct {
	Name    string
	Members []Member
	Median  bool     // the base is the median; otherwise the first member
	Differs []string // what is not the same among the machines
	Rows    []Row
}

// Member is a run in a group.
type Member struct {
	Name     string
	Run      *result.Run
	Caveats  []string // what its figures must be read with
	Outliers int      // figures by which it stands apart
}

// Verdict is the direction of a change.
type Verdict string

// Verdicts.
const (
	Base     Verdict = "base"
	Same     Verdict = "same"     // less than a tenth
	Noise    Verdict = "noise"    // more, but the rounds do not bear it out
	Unproven Verdict = "unproven" // more, and there are no rounds that could
	Better   Verdict = "better"
	Worse    Verdict = "worse"
	Missing  Verdict = "missing"
)

// Row is one figure of all members.
type Row struct {
	Figure   Figure
	Headline bool
	Base     float64
	Values   []Value
}

// Value is a figure of one member.
type Value struct {
	Value     float64
	Change    float64 // against the base: 0.2 is a fifth more
	Verdict   Verdict
	Deviation float64 // scaled median absolute deviations from the median
	Outlier   bool
}

// Notable reports whether anything about the row is more than noise.
func (r *Row) Notable() bool {
	return slices.ContainsFunc(r.Values, func(v Value) bool { return v.Outlier || v.Verdict == Better || v.Verdict == Worse })
}

// Runs compares runs.
func Runs(runs []*result.Run, by By) (*Comparison, error) {
	if !by.Valid() {
		return nil, fmt.Errorf("--by %q is none of model, host, date", by)
	}
	c := &Comparison{By: by}
	seen := map[string]bool{}
	var unique []*result.Run
	for _, r := range runs {
		if seen[r.RunID] {
			c.Notes = append(c.Notes, fmt.Sprintf("run %s of %s is there twice; it counts once", r.RunID, r.Environment.Host))
			continue
		}
		seen[r.RunID] = true
		unique = append(unique, r)
	}
	if len(unique) < 2 {
		return nil, errors.New("a comparison needs at least two runs")
	}
	groups, order := map[string][]*result.Run{}, []string{}
	for _, r := range unique {
		k := groupKey(r, by)
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], r)
	}
	slices.Sort(order)
	for _, k := range order {
		if len(groups[k]) < 2 {
			c.Alone = append(c.Alone, name(groups[k][0]))
			continue
		}
		c.Groups = append(c.Groups, newGroup(k, groups[k], by))
	}
	if len(c.Groups) == 0 {
		return nil, fmt.Errorf("no two runs have the same %s", map[By]string{ByModel: "model of disk", ByHost: "host", ByDate: "disk"}[by])
	}
	return c, nil
}

func groupKey(r *result.Run, by By) string {
	switch by {
	case ByModel:
		return strings.Join(slices.DeleteFunc([]string{r.Device.Kind, r.Device.Vendor, r.Device.Model}, func(s string) bool { return s == "" }), " ")
	case ByHost:
		return r.Environment.Host
	case ByDate:
		key := r.Device.Key()
		if r.Device.SerialHash == "" {
			key = r.Environment.Host + " " + key // without a serial number only the host tells disks apart
		}
		return key + " " + roleOf(&r.Device)
	}
	return "all runs"
}

func name(r *result.Run) string { return r.Environment.Host + ":" + r.Device.Dir }

func newGroup(key string, runs []*result.Run, by By) Group {
	g := Group{Name: key, Median: by == ByModel || by == ByHost}
	if by == ByDate {
		slices.SortStableFunc(runs, func(a, b *result.Run) int { return a.StartedAt.Compare(b.StartedAt) })
	}
	g.Differs = differs(runs)
	values := make([]map[Figure]sample, len(runs))
	var figures []Figure
	for i, r := range runs {
		g.Members = append(g.Members, Member{Name: name(r), Run: r, Caveats: caveats(r)})
		var order []Figure
		order, values[i] = figuresOf(r)
		for _, f := range order {
			if !slices.Contains(figures, f) {
				figures = append(figures, f)
			}
		}
	}
	distinguish(g.Members, by)
	method, tables := Method(runs[0]), rankTables{}
	for _, f := range figures {
		row := Row{Figure: f, Headline: headline(f, method)}
		if row.fill(values, g.Median, tables) {
			g.Rows = append(g.Rows, row)
		}
	}
	for i := range g.Members {
		for _, r := range g.Rows {
			if r.Values[i].Outlier {
				g.Members[i].Outliers++
			}
		}
	}
	return g
}

// distinguish makes names differ: by date, then by the run.
func distinguish(members []Member, by By) {
	count := func() map[string]int {
		n := map[string]int{}
		for _, m := range members {
			n[m.Name]++
		}
		return n
	}
	n := count()
	for i := range members {
		if by == ByDate || n[members[i].Name] > 1 {
			members[i].Name += members[i].Run.StartedAt.UTC().Format(" 2006-01-02 15:04")
		}
	}
	n = count()
	for i := range members {
		if n[members[i].Name] > 1 {
			members[i].Name += " " + members[i].Run.RunID
		}
	}
}

// fill computes a row from the values of all members; false if fewer than two have the figure.
func (r *Row) fill(values []map[Figure]sample, fromMedian bool, tables rankTables) bool {
	var have []int
	var v []float64
	for i, m := range values {
		if s, ok := m[r.Figure]; ok {
			have = append(have, i)
			v = append(v, s.value)
		}
	}
	if len(have) < 2 || (!fromMedian && have[0] != 0) {
		return false
	}
	mid, dev := deviations(v)
	base := values[have[0]][r.Figure]
	r.Base = base.value
	if fromMedian {
		r.Base = mid
	}
	r.Values = make([]Value, len(values))
	for i := range r.Values {
		r.Values[i].Verdict = Missing
	}
	for k, i := range have {
		s := values[i][r.Figure]
		out := Value{Value: s.value, Deviation: dev[k], Verdict: Same}
		if r.Base != 0 {
			out.Change = s.value/r.Base - 1
		}
		if len(have) >= outlierRuns && mid != 0 && math.Abs(dev[k]) > deviationsMax && math.Abs(s.value/mid-1) >= changeMin {
			out.Outlier = true
		}
		switch {
		case !fromMedian && i == 0:
			out.Verdict = Base
		case math.Abs(out.Change) < changeMin:
		case len(s.rounds) == 0 || (!fromMedian && len(base.rounds) == 0):
			out.Verdict = Unproven
		case fromMedian && !allBeyond(s.rounds, mid, out.Change > 0), !fromMedian && tables.test(s.rounds, base.rounds) > significance:
			out.Verdict = Noise
		case (out.Change > 0) == r.Figure.Metric.LowerIsBetter:
			out.Verdict = Worse
		default:
			out.Verdict = Better
		}
		r.Values[i] = out
	}
	return true
}

// caveats are what the figures of a run must be read with.
func caveats(r *result.Run) (out []string) {
	if r.Device.NotRepresentative != "" {
		out = append(out, "NOT REPRESENTATIVE: "+r.Device.NotRepresentative)
	}
	if !r.Complete {
		out = append(out, "PARTIAL: ended early")
	}
	for _, w := range r.Warnings {
		if w.Severity == result.SeverityError && w.Code != result.WarnNotRepresentative {
			out = append(out, w.Code+": "+w.Text)
		}
	}
	return out
}

// differs lists what is not the same among runs, so that nobody takes a new kernel for an old disk.
func differs(runs []*result.Run) (out []string) {
	for _, what := range []struct {
		name string
		get  func(*result.Run) string
	}{
		{"model", func(r *result.Run) string { return r.Device.Model }},
		{"firmware", func(r *result.Run) string { return r.Device.Firmware }},
		{"kernel", func(r *result.Run) string { return r.Environment.Kernel }},
		{"file system", func(r *result.Run) string { return r.Device.FileSystem.Type }},
		{"mount options", func(r *result.Run) string { return r.Device.FileSystem.MountOptions }},
		{"scheduler", func(r *result.Run) string { return r.Device.Scheduler }},
		{"write cache", func(r *result.Run) string { return r.Device.WriteCache }},
		{"iobench", func(r *result.Run) string { return r.ToolVersion }},
		{"command", func(r *result.Run) string { return r.Command }},
		{"seconds", func(r *result.Run) string { return fmt.Sprint(r.Plan.BudgetS) }},
		{"test file", func(r *result.Run) string { return fmt.Sprint(r.Plan.FileBytes>>20, " MiB") }},
		{"rounds", func(r *result.Run) string { return fmt.Sprint(r.Plan.Rounds) }},
		{"prefill", func(r *result.Run) string { return fmt.Sprint(r.Plan.Prefill) }},
		{"free space (tenths)", func(r *result.Run) string {
			fs := r.Device.FileSystem
			return fmt.Sprint(fs.AvailableBytes * 10 / max(fs.TotalBytes, 1))
		}},
	} {
		count := map[string]int{}
		for _, r := range runs {
			count[what.get(r)]++
		}
		if len(count) < 2 {
			continue
		}
		type kv struct {
			v string
			n int
		}
		var all []kv
		for v, n := range count {
			if v == "" {
				v = "not known"
			}
			all = append(all, kv{v, n})
		}
		slices.SortFunc(all, func(a, b kv) int { return cmp.Or(b.n-a.n, cmp.Compare(a.v, b.v)) })
		var parts []string
		for i, x := range all {
			if i == 5 {
				parts = append(parts, fmt.Sprintf("%d more", len(all)-5))
				break
			}
			parts = append(parts, fmt.Sprintf("%s (%d)", x.v, x.n))
		}
		out = append(out, what.name+": "+strings.Join(parts, ", "))
	}
	return out
}
