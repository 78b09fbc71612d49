package compare

import (
	"fmt"
	"math"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// Condition is a threshold of --fail-if.
type Condition struct {
	Text    string
	scope   string // CHAPTER or CHAPTER/CELL with * and ?; empty: what the metric usually is about
	metric  *Metric
	change  float64 // 0.2: a fifth more than the base
	outlier bool
}

var conditionText = regexp.MustCompile(`^(?:([^:]+):)?([a-z0-9_.]+?)([+-])([0-9.]+)%$`)

// ParseCondition reads "p99+20%", "mb_per_s-10%", "interfere/all/*:p99+50%" or "outlier".
func ParseCondition(text string) (Condition, error) {
	c := Condition{Text: text}
	if text == "outlier" {
		c.outlier = true
		return c, nil
	}
	m := conditionText.FindStringSubmatch(text)
	if m == nil {
		return c, fmt.Errorf("--fail-if %q is neither METRIC+N%% (p99+20%%, mb_per_s-10%%) nor outlier; a chapter or cell may stand in front (sync/dsync/4096:p99+20%%)", text)
	}
	c.scope, c.metric = m[1], metricByName(m[2])
	if c.metric == nil {
		return c, fmt.Errorf("--fail-if %q: no metric %q; there are p50, p99, p99.9, max, longest_gap, mb_per_s, steady_mb_per_s", text, m[2])
	}
	if _, err := path.Match(c.scope, ""); err != nil {
		return c, fmt.Errorf("--fail-if %q: %w", text, err)
	}
	pct, err := strconv.ParseFloat(m[4], 64)
	if err != nil || pct <= 0 || pct > 1e6 {
		return c, fmt.Errorf("--fail-if %q: %q is no percentage above 0", text, m[4])
	}
	if c.change = pct / 100; m[3] == "-" {
		c.change = -c.change
	}
	return c, nil
}

// applies reports whether a condition is about a figure.
func (c *Condition) applies(f Figure) bool {
	if f.Metric != c.metric {
		return false
	}
	if c.scope == "" {
		switch {
		case f.Metric == steadyMetric || f.Metric == longestMetric:
			return true
		case f.Metric.LowerIsBetter: // what an add waits for
			return f.Chapter == result.ChapterSync || f.Chapter == result.ChapterInterfere
		}
		return f.Chapter == result.ChapterBandwidth || f.Chapter == result.ChapterJournals || f.Chapter == result.ChapterSync
	}
	if c.scope == "*" {
		return true
	}
	if ok, _ := path.Match(c.scope, f.Chapter); ok {
		return true
	}
	// * stands for any part of a cell's name, a slash too.
	ok, _ := path.Match(strings.ReplaceAll(c.scope, "/", ":"), strings.ReplaceAll(f.Chapter+"/"+f.Cell, "/", ":"))
	return ok
}

// Finding is a threshold that was missed.
type Finding struct {
	Condition string
	Group     string
	Run       string
	Figure    string
	Text      string
}

// Judge holds a comparison against conditions. A condition that is about no figure at all is an error: nothing was judged.
// A change counts if the rounds bear it out; for a figure without rounds the threshold alone decides.
func (c *Comparison) Judge(conditions []Condition) (out []Finding, err error) {
	for i := range conditions {
		cond := &conditions[i]
		judged := false
		for _, g := range c.Groups {
			for _, r := range g.Rows {
				if !cond.outlier && !cond.applies(r.Figure) {
					continue
				}
				for k, v := range r.Values {
					if v.Verdict == Missing || (v.Verdict == Base && !cond.outlier) {
						continue
					}
					if cond.outlier {
						judged = judged || present(r) >= outlierRuns
						if v.Outlier {
							out = append(out, Finding{cond.Text, g.Name, g.Members[k].Name, r.Figure.String(), fmt.Sprintf("%s, median %s", FormatChange(v.Change), Format(r.Figure, r.Base))})
						}
						continue
					}
					judged = true
					if cond.missed(v) {
						out = append(out, Finding{cond.Text, g.Name, g.Members[k].Name, r.Figure.String(), fmt.Sprintf("%s, %s instead of %s", FormatChange(v.Change), Format(r.Figure, v.Value), Format(r.Figure, r.Base))})
					}
				}
			}
		}
		if !judged && cond.outlier {
			return nil, fmt.Errorf("--fail-if outlier: outliers show among %d runs of a group or more", outlierRuns)
		}
		if !judged {
			return nil, fmt.Errorf("--fail-if %s: the runs have no such figure in common", cond.Text)
		}
	}
	return out, nil
}

func present(r Row) (n int) {
	for _, v := range r.Values {
		if v.Verdict != Missing {
			n++
		}
	}
	return n
}

func (c *Condition) missed(v Value) bool {
	if v.Verdict == Noise || math.Signbit(v.Change) != math.Signbit(c.change) {
		return false
	}
	return math.Abs(v.Change) > math.Abs(c.change)
}
