package report

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/binderylog/bindery/tools/iobench/chart"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// runView is one run as the template shows it.
type runView struct {
	ID        string
	Title     string
	Sub       string
	Banners   []banner
	Tiles     []tile
	Facts     []fact
	Snippet   string
	Unusable  bool // figures that settings must not be made from
	Reasons   []string
	Grades    string
	Warnings  []warningView
	Sections  []section
	NotAsked  string // chapters that this kind of run does not have
	Tables    []table
	Predicted *table
	Verified  *table
}

// banner is a line that a reader must not miss.
type banner struct{ Class, Text string }

// tile is one of the few figures that are said first.
type tile struct{ Name, Value, Note string }

type fact struct{ Name, Value string }

type warningView struct{ Severity, Code, Where, Text string }

// section is one chapter.
type section struct {
	ID      string
	Title   string
	Missing string // why there is nothing to see
	Notes   []string
	Figures []figure
}

// figure is one drawing with its words.
type figure struct {
	Title   string
	Caption string
	Wide    bool
	Fit     bool // never larger than it is drawn
	Legend  []legend
	SVG     template.HTML
}

type legend struct{ Class, Name string }

// table is a table of figures.
type table struct {
	ID      string
	Caption string
	Head    []string
	Rows    [][]string
}

// notesHead is the head of a column of sentences, which may take several lines; figures may not.
const notesHead = "notes"

// Words reports whether a column holds sentences.
func (t table) Words(column int) bool { return t.Head[column] == notesHead }

func newRunView(r *result.Run, n int) runView {
	id := fmt.Sprintf("r%d", n+1)
	v := runView{
		ID: id, Title: r.Environment.Host + ": " + r.Device.Dir,
		Sub: fmt.Sprintf("iobench %s %s, %s, ran for %s, wrote %s", r.ToolVersion, r.Command, r.StartedAt.UTC().Format("2006-01-02 15:04 UTC"),
			chart.Seconds(r.ElapsedS), gigabytes(float64(r.WrittenBytes()))),
	}
	v.Banners = banners(r)
	v.Unusable = slices.ContainsFunc(v.Banners, func(b banner) bool { return b.Class == "bad" })
	v.Tiles = tiles(r)
	v.Facts = facts(r)
	v.recommendation(r)
	for _, w := range r.BriefWarnings() {
		where := w.Chapter
		if len(r.OtherDevices) > 0 {
			where = strings.TrimSuffix(r.DeviceAt(w.Device).Dir+", "+w.Chapter, ", ")
		}
		if w.Cell != "" && w.Cell != w.Chapter {
			where += " " + w.Cell
		}
		v.Warnings = append(v.Warnings, warningView{w.Severity, w.Code, where, w.Text})
	}
	v.sections(r)
	for i := range r.Chapters {
		v.Tables = append(v.Tables, cellTables(r, &r.Chapters[i], fmt.Sprintf("%s-t%d", id, i+1))...)
	}
	return v
}

// banners are what makes the figures mean something else than they seem to.
func banners(r *result.Run) (out []banner) {
	for i := range 1 + len(r.OtherDevices) {
		if d := r.DeviceAt(i); d.NotRepresentative != "" {
			out = append(out, banner{"bad", "NOT REPRESENTATIVE: " + d.Dir + ": " + d.NotRepresentative})
		}
	}
	if !r.Complete {
		text := "PARTIAL: this run was ended early. What is shown was measured."
		if missing := notRun(r); len(missing) > 0 {
			text += " Not run: " + strings.Join(missing, ", ") + "."
		}
		out = append(out, banner{"warn", text})
	}
	for _, w := range r.Warnings {
		if w.Severity == result.SeverityError && w.Code != result.WarnNotRepresentative {
			out = append(out, banner{"bad", w.Code + ": " + w.Text})
		}
	}
	return out
}

// notRun lists the chapters that were planned and are not there.
func notRun(r *result.Run) (out []string) {
	for _, name := range r.Plan.Chapters {
		if !slices.ContainsFunc(r.Chapters, func(c result.Chapter) bool { return c.Name == name }) {
			out = append(out, name)
		}
	}
	return out
}

// tiles say first what the reader came for.
func tiles(r *result.Run) (out []tile) {
	if rec := r.Recommendation; rec != nil {
		if rec.JournalGrade != "" {
			out = append(out, tile{"as a journal", "grade " + rec.JournalGrade, gradeMeaning[rec.JournalGrade] + gradedBeside(r)})
		}
		if rec.LedgerGrade != "" {
			out = append(out, tile{"as a ledger disk", "grade " + rec.LedgerGrade, "steady writing against the rate asked for"})
		}
	}
	if c := r.Chapter(result.ChapterSync, 0); c != nil {
		if cell := chosenSmallest(r, c); cell != nil {
			out = append(out, tile{
				"durable write of " + chart.Bytes(float64(cell.BlockBytes)), chart.Micros(cell.Latency.P50US),
				fmt.Sprintf("p50 with %s; p99 %s", cell.Method, chart.Micros(cell.Latency.P99US)),
			})
		}
	}
	for i := range r.Chapters {
		if s := r.Chapters[i].Sustained; s != nil {
			note := r.DeviceAt(r.Chapters[i].Device).Dir
			if s.Dropped {
				note += fmt.Sprintf("; %.0f MB/s for the first %s", s.FastMBPerS, gigabytes(float64(s.FastBytes)))
			}
			out = append(out, tile{"steady writing", chart.Number(s.SteadyMBPerS) + " MB/s", note})
		}
		for _, s := range r.Chapters[i].Stalls {
			out = append(out, tile{"longest gap (" + r.Chapters[i].Name + ")", chart.Micros(s.LongestUS), fmt.Sprintf("%d over 10 ms", s.Over10MS)})
		}
	}
	if rec := r.Recommendation; rec != nil {
		for _, p := range rec.Predictions {
			if p.LoadPct == 100 {
				out = append(out, tile{"predicted peak", chart.Number(p.AddsPerS) + " adds/s", fmt.Sprintf("entries of %s, limited by %s", chart.Bytes(float64(p.EntryBytes)), limit(p.LimitedBy))})
				break
			}
		}
	}
	return out
}

var gradeMeaning = map[string]string{"A": "p99 of at most 1 ms", "B": "p99 of at most 5 ms", "C": "p99 of at most 20 ms", "F": "p99 above 20 ms"}

// gradedBeside says beside what the journal's p99 was measured.
func gradedBeside(r *result.Run) string {
	if r.Chapter(result.ChapterInterfere, 0) == nil {
		return ", nothing beside it"
	}
	return " beside other work"
}

// limit names what limits a figure inside a sentence.
func limit(by string) string {
	switch by {
	case "":
		return "something not known"
	case "CPU", "noise":
		return by
	}
	return "the " + by
}

func (v *runView) recommendation(r *result.Run) {
	rec := r.Recommendation
	if rec == nil {
		return
	}
	v.Snippet = Snippet(rec)
	v.Reasons = rec.Reasons
	v.Grades = "confidence " + rec.Confidence
	if rec.Why != "" {
		v.Grades += ": " + rec.Why
	}
	if rec.LimitedBy != "" {
		v.Grades += "; limited by " + limit(rec.LimitedBy)
	}
	if len(rec.Predictions) > 0 {
		t := table{Caption: "What a bookie whose journal has this disk for itself is predicted to do", Head: []string{"entry", "load", "adds/s", "MB/s", "p50", "p99", "p99 between", "mean group", "limited by"}}
		byLoad := slices.Clone(rec.Predictions)
		slices.SortStableFunc(byLoad, func(a, b result.Prediction) int { return cmp.Compare(a.LoadPct, b.LoadPct) })
		for _, p := range byLoad {
			t.Rows = append(t.Rows, []string{
				chart.Bytes(float64(p.EntryBytes)), chart.Number(p.LoadPct) + " %", chart.Number(p.AddsPerS), fixed(p.MBPerS), chart.Micros(p.P50US), chart.Micros(p.P99US),
				chart.Micros(p.P99LowUS) + " – " + chart.Micros(p.P99HighUS), chart.Bytes(float64(p.GroupBytes)), p.LimitedBy,
			})
		}
		v.Predicted = &t
	}
	if ver := r.Verification; ver != nil {
		v.Verified = verified(ver)
	}
}

// verified shows what was predicted beside what was then measured.
func verified(ver *result.Verification) *table {
	t := table{Caption: "Predicted and then measured by bindery bench cluster", Head: []string{"load", "adds/s predicted", "measured", "p50 predicted", "measured", "within 20 %", "p99 predicted", "measured", "within the spread", "noise", "machine paused"}}
	t.Rows = append(t.Rows, []string{
		"full speed", chart.Number(ver.PeakPredictedPerS), chart.Number(ver.PeakMeasuredPerS), "", "", held(ver.PeakWithin, ver.PeakNoisePct > 100*result.VerifyWithin), "", "", "",
		chart.Number(ver.PeakNoisePct) + " %", chart.Number(ver.PeakPausedPct) + " %",
	})
	for _, row := range ver.Rows {
		t.Rows = append(t.Rows, []string{
			chart.Number(row.Predicted.LoadPct) + " %", chart.Number(row.Predicted.AddsPerS), chart.Number(row.MeasuredPerS),
			chart.Micros(row.Predicted.P50US), chart.Micros(row.MeasuredP50US), held(row.P50Within, row.Noisy),
			chart.Micros(row.Predicted.P99LowUS) + " – " + chart.Micros(row.Predicted.P99HighUS),
			chart.Micros(row.MeasuredP99LowUS) + " – " + chart.Micros(row.MeasuredP99HighUS), held(row.P99Within, row.Noisy), chart.Number(row.NoisePct) + " %", chart.Number(row.PausedPct) + " %",
		})
	}
	return &t
}

// held says whether a prediction was as close as it must be. What is off by less than the noise proves nothing.
func held(ok, noisy bool) string {
	switch {
	case ok:
		return "yes"
	case noisy:
		return "noisy"
	}
	return "NO"
}
func gigabytes(b float64) string { return chart.Number(b/1e9) + " GB" }

func fixed(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}
