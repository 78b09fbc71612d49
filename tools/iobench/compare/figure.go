package compare

import (
	"fmt"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// Metric is one figure of a cell.
type Metric struct {
	Name          string // as in --fail-if
	LowerIsBetter bool
	get           func(*result.Cell) (float64, bool)
	round         func(*result.Round) float64 // nil: rounds do not have it
}

// enoughForP999 is how many operations a p99.9 needs to be more than their maximum.
const enoughForP999 = 1000

func latency(get func(*result.Latency) float64, least int64) func(*result.Cell) (float64, bool) {
	return func(c *result.Cell) (float64, bool) {
		if c.Latency == nil || c.Latency.Count < least {
			return 0, false
		}
		return get(c.Latency), true
	}
}

// metrics are those that cells are compared by.
var metrics = []*Metric{
	{"p50", true, latency(func(l *result.Latency) float64 { return l.P50US }, 1), func(r *result.Round) float64 { return r.P50US }},
	{"p99", true, latency(func(l *result.Latency) float64 { return l.P99US }, 1), func(r *result.Round) float64 { return r.P99US }},
	{"p99.9", true, latency(func(l *result.Latency) float64 { return l.P999US }, enoughForP999), nil},
	{"max", true, latency(func(l *result.Latency) float64 { return l.MaxUS }, 1), func(r *result.Round) float64 { return r.MaxUS }},
	{"mb_per_s", false, func(c *result.Cell) (float64, bool) {
		// An open loop has the rate that was asked for.
		return c.MBPerS, c.Ops > 0 && c.Bytes > 0 && c.Loop == "closed"
	}, func(r *result.Round) float64 { return r.MBPerS }},
}

// Metrics of a chapter as a whole.
var (
	steadyMetric  = &Metric{Name: "steady_mb_per_s"}
	longestMetric = &Metric{Name: "longest_gap", LowerIsBetter: true}
)

func metricByName(name string) *Metric {
	for _, m := range append(metrics, steadyMetric, longestMetric) {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// Figure says what was measured, so that the same figure can be found in two runs.
type Figure struct {
	Chapter string
	Role    string // of the device: journal, ledger
	Dir     string // tells two devices of one role apart; empty if there is only one
	Cell    string
	Metric  *Metric
}

// String is the figure in a word or three.
func (f Figure) String() string {
	s := f.Chapter
	if f.Cell != "" && f.Cell != f.Chapter {
		s += " " + f.Cell
	}
	if f.Role == "ledger" {
		s += " (" + f.Role + ")"
	}
	if f.Dir != "" {
		s += " " + f.Dir
	}
	return s + " " + f.Metric.Name
}

// Time reports whether the figure is a time in microseconds; others are MB/s.
func (f Figure) Time() bool { return f.Metric.LowerIsBetter }

// sample is a figure's value in one run.
type sample struct {
	value  float64
	rounds []float64
}

// roleOf is what a device is compared as. What quick and the single chapters call a disk is measured as full measures a
// journal's.
func roleOf(d *result.Device) string {
	if d.Role == "disk" {
		return "journal"
	}
	return d.Role
}

// figuresOf lists what a run can be compared by, in its order.
func figuresOf(r *result.Run) (order []Figure, values map[Figure]sample) {
	values = map[Figure]sample{}
	add := func(f Figure, s sample) {
		if _, twice := values[f]; !twice {
			order = append(order, f)
			values[f] = s
		}
	}
	roles := map[string]int{}
	for i := range 1 + len(r.OtherDevices) {
		roles[roleOf(r.DeviceAt(i))]++
	}
	for i := range r.Chapters {
		c := &r.Chapters[i]
		d := r.DeviceAt(c.Device)
		f := Figure{Chapter: c.Name, Role: roleOf(d)}
		if roles[f.Role] > 1 {
			f.Dir = d.Dir
		}
		for j := range c.Cells {
			cell := &c.Cells[j]
			if cell.Unsupported != "" {
				continue
			}
			f.Cell = cell.ID
			for _, m := range metrics {
				v, ok := m.get(cell)
				if !ok {
					continue
				}
				s := sample{value: v}
				for k := range cell.Rounds {
					if m.round != nil {
						s.rounds = append(s.rounds, m.round(&cell.Rounds[k]))
					}
				}
				f.Metric = m
				add(f, s)
			}
		}
		if s := c.Sustained; s != nil {
			f.Cell, f.Metric = "", steadyMetric
			add(f, sample{value: s.SteadyMBPerS})
		}
		for _, s := range c.Stalls {
			f.Cell, f.Metric = s.Cell, longestMetric
			add(f, sample{value: s.LongestUS})
		}
	}
	return order, values
}

// headline reports whether a figure is one of those that are shown though nothing is odd about them.
func headline(f Figure, method string) bool {
	switch f.Chapter {
	case result.ChapterSync:
		for _, size := range []int{4096, 65536, 1 << 20} {
			if f.Cell == fmt.Sprintf("%s/%d", method, size) {
				return f.Metric.Name == "p50" || f.Metric.Name == "p99"
			}
		}
	case result.ChapterInterfere:
		return f.Cell == "all/same" && f.Metric.Name == "p99"
	case result.ChapterBandwidth:
		return f.Cell == "direct/4" && f.Metric.Name == "mb_per_s"
	}
	return f.Metric == steadyMetric || f.Metric == longestMetric
}

// Method is the durable method that a run's headline figures are of: the recommended one, or its first.
func Method(r *result.Run) string {
	c := r.Chapter(result.ChapterSync, 0)
	if c == nil {
		return ""
	}
	first := ""
	for i := range c.Cells {
		cell := &c.Cells[i]
		if !cell.Durable || cell.Latency == nil {
			continue
		}
		if first == "" {
			first = cell.Method
		}
		if r.Recommendation == nil {
			continue
		}
		for _, s := range r.Recommendation.Settings {
			if s.Table == "journal" && s.Key == "io" && s.Value == `"`+cell.Method+`"` {
				return cell.Method
			}
		}
	}
	return first
}
