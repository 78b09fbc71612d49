package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/binderylog/bindery/tools/iobench/chart"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// drawing says how a chapter is shown.
type drawing struct {
	name  string
	title string
	draw  func(*result.Run, *result.Chapter) []figure
}

// drawings are the chapters in the order of the page.
var drawings = []drawing{
	{result.ChapterSync, "Durable writes by method and size", drawSync},
	{result.ChapterAlloc, "State of allocation", drawRanges("durable write")},
	{result.ChapterAlign, "Alignment", drawRanges("durable write")},
	{result.ChapterJournals, "Journals on one disk", drawJournals},
	{result.ChapterCoupling, "A journal while another disk syncs", drawRanges("durable write")},
	{result.ChapterInterfere, "The journal beside other work", drawInterfere},
	{result.ChapterSustain, "Writing on after caches are full", drawSeries},
	{result.ChapterStalls, "Stalls", drawStalls},
	{result.ChapterBandwidth, "Sequential writing", drawRates},
	{result.ChapterRead, "Reading", drawRates},
	{result.ChapterMetadata, "Files: create, rename, unlink", drawRanges("operation")},
	{result.ChapterModel, "The real journal at a load", drawRanges("add")},
	{result.ChapterPipeline, "Durable writes as a journal's groups, one and two at once, beside flushes", drawRanges("durable write")},
	{result.ChapterEngines, "Engines", drawEngines},
	{result.ChapterSoak, "Hours under load", drawStalls},
	{result.ChapterLive, "Beside a running bookie", drawStalls},
}

// sections makes a section of each chapter that is there or was planned.
func (v *runView) sections(r *result.Run) {
	var notAsked []string
	for _, d := range drawings {
		found := false
		for i := range r.Chapters {
			c := &r.Chapters[i]
			if c.Name != d.name {
				continue
			}
			found = true
			s := section{ID: fmt.Sprintf("%s-%s-%d", v.ID, c.Name, c.Device), Title: d.title, Notes: notes(r, c)}
			if len(r.OtherDevices) > 0 {
				s.Title += ": " + r.DeviceAt(c.Device).Dir
			}
			if s.Figures = d.draw(r, c); len(s.Figures) == 0 {
				s.Missing = "nothing was measured"
				if !c.Complete {
					s.Missing = "it ended before anything was measured"
				}
			}
			v.Sections = append(v.Sections, s)
		}
		switch {
		case found:
		case slices.Contains(r.Plan.Chapters, d.name):
			why := "planned, but the run ended before it"
			for _, w := range r.Warnings {
				if w.Chapter == d.name {
					why = w.Text
				}
			}
			v.Sections = append(v.Sections, section{ID: v.ID + "-" + d.name, Title: d.title, Missing: "Not measured: " + why + "."})
		case d.name != result.ChapterModel && d.name != result.ChapterPipeline && d.name != result.ChapterEngines && d.name != result.ChapterSoak && d.name != result.ChapterLive:
			notAsked = append(notAsked, d.name)
		}
	}
	v.NotAsked = strings.Join(notAsked, ", ")
	for i := range r.Chapters { // a chapter that this version can not draw still has its tables
		c := &r.Chapters[i]
		if !slices.ContainsFunc(drawings, func(d drawing) bool { return d.name == c.Name }) {
			v.Sections = append(v.Sections, section{ID: fmt.Sprintf("%s-%s-%d", v.ID, c.Name, c.Device), Title: c.Name, Missing: "This version has no drawing for it; its figures are in the tables."})
		}
	}
}

// notes are the sentences above a chapter's drawings.
func notes(r *result.Run, c *result.Chapter) (out []string) {
	capped := slices.ContainsFunc(r.Warnings, func(w result.Warning) bool {
		return w.Code == result.WarnWriteCap && w.Chapter == c.Name && w.Device == c.Device
	})
	switch {
	case capped:
		out = append(out, fmt.Sprintf("ENDED EARLY, after %s: the run had written what --max-write allows.", chart.Seconds(c.ElapsedS)))
	case !c.Complete:
		out = append(out, fmt.Sprintf("INTERRUPTED after %s: the figures are of what was measured until then.", chart.Seconds(c.ElapsedS)))
	}
	if text := result.Legend(c.Name); text != "" {
		out = append(out, "How to read the names: "+text+".")
	}
	out = append(out, verdictTexts(c.Verdicts)...)
	var unsteady, notDurable, unsupported []string
	for i := range c.Cells {
		cell := &c.Cells[i]
		switch {
		case cell.Unsupported != "":
			unsupported = append(unsupported, cell.ID+" ("+cell.Unsupported+")")
		case !cell.Steady && cell.Latency != nil && (c.Name == result.ChapterSustain || c.Name == result.ChapterBandwidth):
			unsteady = append(unsteady, cell.ID)
		}
		if cell.Op == "write" && !cell.Durable && cell.Unsupported == "" {
			notDurable = append(notDurable, cell.ID)
		}
	}
	if len(unsupported) > 0 {
		out = append(out, "Not measured: "+strings.Join(unsupported, "; ")+". Nothing else was put in their place.")
	}
	if len(notDurable) > 0 {
		out = append(out, "NOT DURABLE: no sync follows each write of "+list(notDurable)+".")
	}
	if len(unsteady) > 0 {
		out = append(out, "Not steady: "+list(unsteady)+" had not settled at the end.")
	}
	if s := c.Sustained; s != nil {
		out = append(out, sustainText(s))
	}
	if c.LimitedBy != "" && c.LimitedBy != "device" { // the device is what a reader expects
		out = append(out, "Limited by "+limit(c.LimitedBy)+".")
	}
	return out
}

func list(ids []string) string {
	const most = 6
	if len(ids) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(ids[:most], ", "), len(ids)-most)
	}
	return strings.Join(ids, ", ")
}

// verdictTexts say who leads, and in one sentence where nobody does.
func verdictTexts(verdicts []result.Verdict) (out []string) {
	var open []string
	for _, v := range verdicts {
		metric := map[string]string{"p50_us": "p50", "p99_us": "p99", "mb_per_s": "MB/s"}[v.Metric]
		if metric == "" {
			metric = v.Metric
		}
		switch {
		case v.Second == "":
			out = append(out, fmt.Sprintf("%s: only %s could be measured.", upperFirst(v.Question), v.Best))
		case v.Significant:
			out = append(out, fmt.Sprintf("%s: %s is ahead of %s, %s times by %s, in %d of %d rounds; spread of the rounds %s %%.",
				upperFirst(v.Question), v.Best, v.Second, chart.Number(v.Ratio), metric, v.RoundsWon, v.Rounds, chart.Number(v.SpreadPct)))
		default:
			open = append(open, fmt.Sprintf("%s (by %s, %s first in %d of %d rounds, spread %s %%)", v.Question, metric, v.Best, v.RoundsWon, v.Rounds, chart.Number(v.SpreadPct)))
		}
	}
	if len(open) > 0 {
		out = append(out, "No ranking, for the lead lies inside the spread of the rounds: "+strings.Join(open, "; ")+".")
	}
	return out
}

func sustainText(s *result.Sustain) string {
	text := fmt.Sprintf("No drop: %s MB/s throughout, %s written.", chart.Number(s.SteadyMBPerS), gigabytes(float64(s.FastBytes)))
	if s.Dropped {
		text = fmt.Sprintf("%s MB/s for the first %s, then %s MB/s.", chart.Number(s.FastMBPerS), gigabytes(float64(s.FastBytes)), chart.Number(s.SteadyMBPerS))
	}
	if s.Throttled {
		text += " The drop came with heat."
	}
	if s.RecoverS > 0 {
		text += " At the asked rate latency was as before after " + chart.Seconds(s.RecoverS) + "."
	}
	return text
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
