package compare

import "math"

// Document is a comparison as JSON, for scripts. Fields are added, never changed.
type Document struct {
	By       By              `json:"by"`
	Groups   []DocumentGroup `json:"groups"`
	Alone    []string        `json:"alone,omitempty"`
	Notes    []string        `json:"notes,omitempty"`
	Findings []DocumentFound `json:"findings"`
}

// DocumentGroup is a group of runs.
type DocumentGroup struct {
	Name    string           `json:"name"`
	Base    string           `json:"base"` // "median" or the name of a run
	Runs    []DocumentRun    `json:"runs"`
	Differs []string         `json:"differs,omitempty"`
	Figures []DocumentFigure `json:"figures"`
}

// DocumentRun is a run of a group.
type DocumentRun struct {
	Name     string   `json:"name"`
	RunID    string   `json:"run_id"`
	Caveats  []string `json:"caveats,omitempty"`
	Outliers int      `json:"outliers"`
}

// DocumentFigure is a figure of all runs of a group.
type DocumentFigure struct {
	Chapter string          `json:"chapter"`
	Role    string          `json:"role"`
	Dir     string          `json:"dir,omitempty"`
	Cell    string          `json:"cell,omitempty"`
	Metric  string          `json:"metric"`
	Unit    string          `json:"unit"` // us or mb_per_s
	Base    float64         `json:"base"`
	Values  []DocumentValue `json:"values"` // in the order of the runs
}

// DocumentValue is a figure of a run. Value is absent where the run has none.
type DocumentValue struct {
	Value      *float64 `json:"value,omitempty"`
	ChangePct  *float64 `json:"change_pct,omitempty"`
	Verdict    Verdict  `json:"verdict"`
	Deviations *float64 `json:"deviations,omitempty"` // scaled median absolute deviations; absent where there is no spread
	Outlier    bool     `json:"outlier,omitempty"`
}

// DocumentFound is a threshold that was missed.
type DocumentFound struct {
	Condition string `json:"condition"`
	Group     string `json:"group"`
	Run       string `json:"run"`
	Figure    string `json:"figure"`
	Text      string `json:"text"`
}

// Document makes the JSON form.
func (c *Comparison) Document(findings []Finding) *Document {
	d := &Document{By: c.By, Alone: c.Alone, Notes: c.Notes, Findings: []DocumentFound{}}
	for _, f := range findings {
		d.Findings = append(d.Findings, DocumentFound(f))
	}
	for i := range c.Groups {
		g := &c.Groups[i]
		dg := DocumentGroup{Name: g.Name, Base: "median", Differs: g.Differs, Figures: []DocumentFigure{}}
		if !g.Median {
			dg.Base = g.Members[0].Name
		}
		for _, m := range g.Members {
			dg.Runs = append(dg.Runs, DocumentRun{m.Name, m.Run.RunID, m.Caveats, m.Outliers})
		}
		for _, r := range g.Rows {
			f := DocumentFigure{Chapter: r.Figure.Chapter, Role: r.Figure.Role, Dir: r.Figure.Dir, Cell: r.Figure.Cell, Metric: r.Figure.Metric.Name, Unit: "mb_per_s", Base: r.Base}
			if r.Figure.Time() {
				f.Unit = "us"
			}
			for _, v := range r.Values {
				dv := DocumentValue{Verdict: v.Verdict, Outlier: v.Outlier}
				if v.Verdict != Missing {
					change := v.Change * 100
					dv.Value, dv.ChangePct = &v.Value, &change
					if !math.IsInf(v.Deviation, 0) {
						dv.Deviations = &v.Deviation
					}
				}
				f.Values = append(f.Values, dv)
			}
			dg.Figures = append(dg.Figures, f)
		}
		d.Groups = append(d.Groups, dg)
	}
	return d
}
