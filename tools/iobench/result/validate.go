package result

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Validate tests what the package comment promises.
func (r *Run) Validate() error {
	switch {
	case r.Schema != Schema:
		return &SchemaError{Got: r.Schema}
	case r.RunID == "" || len(r.RunID) > 64:
		return &InvalidError{"run_id", "must be 1 to 64 characters"}
	case r.Command == "":
		return &InvalidError{"command", "is missing"}
	case !finite(r.ElapsedS):
		return &InvalidError{"elapsed_s", "is no duration"}
	case len(r.OtherDevices) > devicesMax || len(r.Chapters) > chaptersMax || len(r.Warnings) > warningsMax:
		return &InvalidError{"run", "has more devices, chapters or warnings than a run can have"}
	}
	for i := range r.OtherDevices {
		if err := r.OtherDevices[i].validate(fmt.Sprintf("other_devices[%d]", i)); err != nil {
			return err
		}
	}
	if err := r.Device.validate("device"); err != nil {
		return err
	}
	for i := range r.Chapters {
		if err := r.Chapters[i].validate(fmt.Sprintf("chapters[%d]", i), len(r.OtherDevices)); err != nil {
			return err
		}
	}
	for i, w := range r.Warnings {
		where := fmt.Sprintf("warnings[%d]", i)
		switch {
		case w.Code == "" || w.Text == "":
			return &InvalidError{where, "needs a code and a text"}
		case !slices.Contains([]string{SeverityInfo, SeverityWarning, SeverityError}, w.Severity):
			return &InvalidError{where, fmt.Sprintf("severity %q is not one of info, warning, error", w.Severity)}
		case w.Device < 0 || w.Device > len(r.OtherDevices):
			return &InvalidError{where, "names a device that is not in the run"}
		}
	}
	if strings.ContainsFunc(r.Device.Dir, unicode.IsControl) {
		return &InvalidError{"device.dir", "holds a control character"}
	}
	if r.Recommendation != nil {
		return r.Recommendation.validate()
	}
	return nil
}

func (d *Device) validate(where string) error {
	switch {
	case d.Dir == "":
		return &InvalidError{where, "has no directory"}
	case d.Kind == "":
		return &InvalidError{where, "has no kind"}
	case !slices.Contains([]string{"journal", "ledger", "disk"}, d.Role):
		return &InvalidError{where, fmt.Sprintf("role %q is not one of journal, ledger, disk", d.Role)}
	case d.FileSystem.TotalBytes < 0 || d.FileSystem.AvailableBytes < 0 || d.SizeBytes < 0:
		return &InvalidError{where, "has a negative size"}
	}
	return nil
}

func (c *Chapter) validate(where string, others int) error {
	switch {
	case c.Name == "":
		return &InvalidError{where, "has no name"}
	case c.Device < 0 || c.Device > others:
		return &InvalidError{where, "names a device that is not in the run"}
	case len(c.Cells) > cellsMax || len(c.Series) > seriesMax || len(c.Stalls) > cellsMax:
		return &InvalidError{where, "has more cells or series than a chapter can have"}
	case !finite(c.StartedS, c.ElapsedS) || c.WrittenBytes < 0 || c.ReadBytes < 0:
		return &InvalidError{where, "has a negative time or size"}
	}
	ids := make(map[string]bool, len(c.Cells))
	for i := range c.Cells {
		cell := &c.Cells[i]
		where := fmt.Sprintf("%s.cells[%d]", where, i)
		if cell.ID == "" || ids[cell.ID] {
			return &InvalidError{where, fmt.Sprintf("id %q is empty or taken", cell.ID)}
		}
		ids[cell.ID] = true
		if cell.BackgroundDevice < 0 || cell.BackgroundDevice > others {
			return &InvalidError{where, "names a device that is not in the run"}
		}
		if err := cell.validate(where); err != nil {
			return err
		}
	}
	for i := range c.Series {
		if err := c.Series[i].validate(fmt.Sprintf("%s.series[%d]", where, i), ids); err != nil {
			return err
		}
	}
	for i := range c.Stalls {
		s := &c.Stalls[i]
		if !ids[s.Cell] || len(s.Events) > stallEventsMax || !finite(s.LongestUS, s.PeriodS) || min(s.Over10MS, s.Over50MS, s.Over100MS, s.Over500MS) < 0 {
			return &InvalidError{fmt.Sprintf("%s.stalls[%d]", where, i), "names no cell of its chapter, or has figures that can not be"}
		}
	}
	for i, v := range c.Verdicts {
		if !ids[v.Best] || v.Second != "" && !ids[v.Second] || v.RoundsWon < 0 || v.RoundsWon > v.Rounds || !finite(v.Ratio, v.SpreadPct) {
			return &InvalidError{fmt.Sprintf("%s.verdicts[%d]", where, i), "names no cells of its chapter, or has figures that can not be"}
		}
	}
	return nil
}

func (c *Cell) validate(where string) error {
	switch {
	case c.Op == "":
		return &InvalidError{where, "has no op"}
	case c.Loop != "open" && c.Loop != "closed":
		return &InvalidError{where, fmt.Sprintf("loop %q is neither open nor closed", c.Loop)}
	case c.Durable && c.Op == "write" && c.Method == "":
		return &InvalidError{where, "is durable but names no method"}
	case c.Ops < 0 || c.Bytes < 0 || c.Late < 0 || c.BlockBytes < 0 || c.Depth < 0 || c.Journals < 0:
		return &InvalidError{where, "has a negative count"}
	case !finite(c.ElapsedS, c.OpsPerS, c.MBPerS, c.CPUPercent, c.AskedPerS, c.ClosedMaxUS, c.BackgroundMB):
		return &InvalidError{where, "has a figure that can not be"}
	}
	for i, r := range c.Rounds {
		if r.Ops < 0 || !finite(r.StartedS, r.ElapsedS, r.P50US, r.P99US, r.MaxUS, r.MBPerS) || r.P50US > r.P99US || r.P99US > r.MaxUS {
			return &InvalidError{fmt.Sprintf("%s.rounds[%d]", where, i), "has a figure that can not be"}
		}
	}
	for _, part := range []struct {
		name string
		l    *Latency
	}{{"latency", c.Latency}, {"write_part", c.WritePart}, {"sync_part", c.SyncPart}} {
		if part.l == nil {
			continue
		}
		if err := part.l.validate(where + "." + part.name); err != nil {
			return err
		}
	}
	return nil
}

// validate tests that the percentiles are those of the histogram.
func (l *Latency) validate(where string) error {
	h, err := l.Decode()
	if err != nil {
		return &InvalidError{where, err.Error()}
	}
	if h.TotalCount() == 0 || h.TotalCount() != l.Count {
		return &InvalidError{where, fmt.Sprintf("counts %d, its histogram %d", l.Count, h.TotalCount())}
	}
	want := figures(h)
	for _, p := range []struct {
		name      string
		got, want float64
	}{
		{"min_us", l.MinUS, want.MinUS}, {"p50_us", l.P50US, want.P50US}, {"p90_us", l.P90US, want.P90US}, {"p99_us", l.P99US, want.P99US},
		{"p99_9_us", l.P999US, want.P999US}, {"p99_99_us", l.P9999US, want.P9999US}, {"max_us", l.MaxUS, want.MaxUS},
	} {
		if p.got != p.want {
			return &InvalidError{where, fmt.Sprintf("%s is %v, by its histogram %v", p.name, p.got, p.want)}
		}
	}
	if !finite(l.MeanUS) || l.MeanUS > l.MaxUS*1.01 {
		return &InvalidError{where, "mean_us can not be"}
	}
	return nil
}

func (s *Series) validate(where string, ids map[string]bool) error {
	n := len(s.Ops)
	switch {
	case !ids[s.Cell]:
		return &InvalidError{where, fmt.Sprintf("cell %q is not in its chapter", s.Cell)}
	case n > pointsMax:
		return &InvalidError{where, fmt.Sprintf("%d points, more than %d", n, pointsMax)}
	case !finite(s.StartedS, s.IntervalS) || s.IntervalS == 0:
		return &InvalidError{where, "has no interval"}
	case len(s.MBPerS) != n:
		return &InvalidError{where, "has columns of different lengths"}
	}
	for _, col := range [][]float64{s.MBPerS, s.P50US, s.P99US, s.MaxUS, s.ClockMHz} {
		if len(col) != 0 && len(col) != n {
			return &InvalidError{where, "has columns of different lengths"}
		}
		if !finite(col...) {
			return &InvalidError{where, "has a figure that can not be"}
		}
	}
	if len(s.TemperatureC) != 0 && len(s.TemperatureC) != n {
		return &InvalidError{where, "has columns of different lengths"}
	}
	return nil
}

func (r *Recommendation) validate() error {
	if !slices.Contains([]string{"high", "medium", "low"}, r.Confidence) {
		return &InvalidError{"recommendation", fmt.Sprintf("confidence %q is not one of high, medium, low", r.Confidence)}
	}
	for i, s := range r.Settings {
		if s.Table == "" || s.Key == "" || s.Value == "" || s.Evidence == "" {
			return &InvalidError{fmt.Sprintf("recommendation.settings[%d]", i), "needs table, key, value and evidence"}
		}
		// These four become lines of a configuration file.
		if strings.ContainsFunc(s.Table+s.Key+s.Value+s.Evidence, unicode.IsControl) {
			return &InvalidError{fmt.Sprintf("recommendation.settings[%d]", i), "holds a control character"}
		}
	}
	for i, p := range r.Predictions {
		if !finite(p.LoadPct, p.AddsPerS, p.MBPerS, p.P50US, p.P99US, p.P99LowUS, p.P99HighUS) {
			return &InvalidError{fmt.Sprintf("recommendation.predictions[%d]", i), "has a figure that can not be"}
		}
	}
	return nil
}
