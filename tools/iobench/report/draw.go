package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/binderylog/bindery/tools/iobench/chart"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// drawRanges shows each cell of a chapter as a row of p50, p99 and p99.9.
func drawRanges(what string) func(*result.Run, *result.Chapter) []figure {
	return func(_ *result.Run, c *result.Chapter) []figure {
		r := chart.Ranges{Label: "p50, p99 and p99.9 of each row", Title: "time of one " + what}
		measured := false
		for i := range c.Cells {
			cell := &c.Cells[i]
			r.Rows = append(r.Rows, rangeOf(cell, cellName(c.Name, cell), "m0"))
			measured = measured || cell.Latency != nil
		}
		if !measured {
			return nil
		}
		title := "Latency"
		if m := methods(c); len(m) == 1 && m[0] != "" {
			title += ", " + m[0]
		}
		return []figure{{Title: title, Caption: rangesCaption, SVG: r.SVG()}}
	}
}

// cellName is a short name of a cell beside its row.
func cellName(chapter string, cell *result.Cell) string {
	switch chapter {
	case result.ChapterAlign:
		return chart.Bytes(float64(cell.BlockBytes))
	case result.ChapterJournals:
		if cell.Journals == 1 {
			return "1 journal"
		}
		return fmt.Sprintf("%d journals", cell.Journals)
	case result.ChapterRead:
		return fmt.Sprintf("%s %s ×%d", cell.Pattern, chart.Bytes(float64(cell.BlockBytes)), cell.Depth)
	case result.ChapterModel:
		if size, load, ok := strings.Cut(cell.ID, "/"); ok {
			return size + " B, " + load + " %"
		}
	case result.ChapterPipeline:
		if load, _, ok := strings.Cut(cell.ID, "/"); ok {
			return fmt.Sprintf("at %s %%: %s ×%d", load, chart.Bytes(float64(cell.BlockBytes)), cell.Depth)
		}
	case result.ChapterBandwidth:
		mode := "direct"
		if cell.Buffered {
			mode = "buffered"
		}
		return fmt.Sprintf("%s, depth %d", mode, cell.Depth)
	}
	return cell.ID
}

// drawRates shows MB/s first, then latency.
func drawRates(r *result.Run, c *result.Chapter) []figure {
	b := chart.Bars{Label: "MB/s of each row", Title: "MB/s (decimal)"}
	measured := false
	for i := range c.Cells {
		cell := &c.Cells[i]
		row := chart.Bar{Name: cellName(c.Name, cell), Class: "m0", Value: cell.MBPerS}
		switch {
		case cell.Unsupported != "":
			row.Note = "not measured"
		case cell.Ops == 0:
			row.Note = "nothing measured"
		default:
			measured = true
		}
		if cell.Op == "write" && !cell.Durable {
			row.Class = "m4"
		}
		b.Rows = append(b.Rows, row)
	}
	if !measured {
		return nil
	}
	f := figure{Title: "Rate", SVG: b.SVG()}
	if slices.ContainsFunc(b.Rows, func(r chart.Bar) bool { return r.Class == "m4" }) {
		f.Caption = "Grey: NOT DURABLE, no sync follows each write."
	}
	return append([]figure{f}, drawRanges("operation")(r, c)...)
}

func drawJournals(r *result.Run, c *result.Chapter) []figure {
	figures := drawRates(r, c)
	if len(figures) > 0 {
		figures[0].Title = "Durable rate of all journals together"
	}
	return figures
}

func drawEngines(r *result.Run, c *result.Chapter) []figure {
	b := chart.Bars{Label: "durable batches a second of each engine", Title: "durable batches/s"}
	for i := range c.Cells {
		cell := &c.Cells[i]
		row := chart.Bar{Name: cell.ID, Class: "m1", Value: cell.OpsPerS}
		if cell.Engine == "bindery" {
			row.Class = "m0"
		}
		if cell.Unsupported != "" || cell.Ops == 0 {
			row.Note = "not measured"
		}
		b.Rows = append(b.Rows, row)
	}
	if len(b.Rows) == 0 {
		return nil
	}
	return append([]figure{{Title: "Rate", SVG: b.SVG()}}, drawRanges("batch")(r, c)...)
}

// interference levels: fine, use rates, separate disks.
const (
	interfereFine  = 2.0
	interfereRates = 5.0
)

// drawInterfere is a heat map: how many times the idle figure each background makes it.
func drawInterfere(_ *result.Run, c *result.Chapter) []figure {
	var rows, disks []string
	cells := map[[2]string]*result.Cell{}
	enough := false
	for i := range c.Cells {
		cell := &c.Cells[i]
		row, disk := backgroundOf(cell)
		if !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
		if !slices.Contains(disks, disk) {
			disks = append(disks, disk)
		}
		cells[[2]string{row, disk}] = cell
		enough = enough || cell.Latency != nil && cell.Latency.Count >= 1000
	}
	if len(rows) == 0 {
		return nil
	}
	percentiles := []string{"p50", "p99", "p99.9"}
	if !enough {
		percentiles = percentiles[:2]
	}
	m := chart.Heatmap{Label: "Durable writes of the journal beside other work, and how many times the idle figures they are", Rows: rows}
	for _, d := range disks {
		m.Groups = append(m.Groups, "work on the "+d+" disk")
		m.Cols = append(m.Cols, percentiles...)
	}
	for _, row := range rows {
		var line []chart.HeatCell
		for _, d := range disks {
			idle := cells[[2]string{"idle", d}]
			if idle == nil || idle.Latency == nil {
				idle = cells[[2]string{"idle", "same"}]
			}
			line = append(line, heatCells(cells[[2]string{row, d}], idle)[:len(percentiles)]...)
		}
		m.Cells = append(m.Cells, line)
	}
	return []figure{{
		Title: "Durable write beside other work", Wide: len(disks) > 1, Fit: true, SVG: m.SVG(),
		Legend:  []legend{{"h0", "up to 1.2 × idle"}, {"h1", "up to 2 ×: share the disk"}, {"h2", "▲ up to 5 ×: with rates"}, {"h3", "▲▲ more: separate disks"}},
		Caption: "Rows: what else runs. Each field: the time, coloured by how many times the idle time it is.",
	}}
}

// backgroundOf is what else runs beside a cell, at which share of its speed, and on which disk: flush/same, compaction/same/25.
func backgroundOf(cell *result.Cell) (row, disk string) {
	parts := strings.Split(cell.ID, "/")
	row, disk = cell.Background, "same"
	if len(parts) > 1 {
		disk = parts[1]
	}
	if len(parts) > 2 {
		row += " at " + parts[2] + " %"
	}
	return row, disk
}

func heatCells(cell, idle *result.Cell) []chart.HeatCell {
	if cell == nil || cell.Latency == nil {
		why := "not measured"
		if cell != nil && cell.Unsupported != "" {
			why = cell.Unsupported
		}
		none := chart.HeatCell{Missing: true, Tip: why}
		return []chart.HeatCell{none, none, none}
	}
	one := func(get func(*result.Latency) float64, enough bool) chart.HeatCell {
		if !enough {
			return chart.HeatCell{Missing: true, Tip: "too few operations to say"}
		}
		v := get(cell.Latency)
		h := chart.HeatCell{Text: chart.Micros(v)}
		if idle == nil || idle.Latency == nil || get(idle.Latency) == 0 {
			h.Missing, h.Tip = true, "no idle figure to compare with"
			return h
		}
		times := v / get(idle.Latency)
		h.Tip = fmt.Sprintf("%s: %s × idle", chart.Micros(v), chart.Number(times))
		switch {
		case times > interfereRates:
			h.Level, h.Text = 3, "▲▲ "+h.Text
		case times > interfereFine:
			h.Level, h.Text = 2, "▲ "+h.Text
		case times > 1.2:
			h.Level = 1
		}
		return h
	}
	return []chart.HeatCell{
		one(func(l *result.Latency) float64 { return l.P50US }, true),
		one(func(l *result.Latency) float64 { return l.P99US }, true),
		one(func(l *result.Latency) float64 { return l.P999US }, cell.Latency.Count >= 1000),
	}
}
