package terminal

import (
	"fmt"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// titles of chapters, with the unit of their tables.
var titles = map[string][2]string{
	result.ChapterSync:      {"durable writes, one at a time, by method and size", "us"},
	result.ChapterAlloc:     {"durable writes by the state of the blocks", "us"},
	result.ChapterAlign:     {"durable writes by alignment", "us"},
	result.ChapterJournals:  {"independent journals at once", "us"},
	result.ChapterCoupling:  {"durable writes while the other disk syncs", "us"},
	result.ChapterBandwidth: {"sequential writing", "latencies NOT DURABLE"},
	result.ChapterRead:      {"reading, cold", "us"},
	result.ChapterInterfere: {"the journal beside other work", "us"},
	result.ChapterSustain:   {"writing on", ""},
	result.ChapterStalls:    {"gaps at a fixed rate", ""},
	result.ChapterMetadata:  {"files", "us"},
	result.ChapterModel:     {"the real journal", "us"},
	result.ChapterEngines:   {"engines, batches made durable", "us"},
	result.ChapterPipeline:  {"durable writes, one and two at once, beside flushes", "us"},
	result.ChapterSoak:      {"hours", ""},
	result.ChapterLive:      {"beside a running bookie", "us"},
}

func (p *printer) chapter(c *result.Chapter) {
	t, ok := titles[c.Name]
	if !ok {
		t = [2]string{c.Name, ""}
	}
	title := t[0]
	if c.Device > 0 {
		title += ", " + p.r.DeviceAt(c.Device).Dir
	}
	p.title(title, t[1])
	switch c.Name {
	case result.ChapterInterfere:
		p.interference(c)
	case result.ChapterSustain:
		p.sustained(c)
	case result.ChapterSoak:
		p.hours(c)
		p.stalls(c)
	case result.ChapterStalls, result.ChapterLive:
		p.cells(c)
		p.stalls(c)
	case result.ChapterAlloc, result.ChapterAlign, result.ChapterMetadata:
		p.bars(c)
	default:
		p.cells(c)
	}
	for _, v := range c.Verdicts {
		if v.Significant {
			p.line("  %s: %s, %.2fx ahead of %s, %d/%d rounds", v.Question, v.Best, v.Ratio, v.Second, v.RoundsWon, v.Rounds)
		}
	}
	same := 0
	for _, v := range c.Verdicts {
		if !v.Significant {
			same++
		}
	}
	if same > 0 {
		p.line("  %d of %d comparisons lie within the spread of the rounds: no ranking", same, len(c.Verdicts))
	}
	if c.LimitedBy != "" && c.LimitedBy != "device" {
		p.line("  limited by: %s", c.LimitedBy)
	}
	if !c.Complete {
		p.line("  incomplete")
	}
}

// cells is the table that most chapters have.
func (p *printer) cells(c *result.Chapter) {
	p.line("%-22s %8s %8s %8s %9s %8s %8s", "", "p50", "p99", "p99.9", "max", "ops/s", "MB/s")
	for i := range c.Cells {
		cell := &c.Cells[i]
		if cell.Latency == nil {
			p.line("%-22s %s", cell.ID, "not supported here: "+cell.Unsupported)
			continue
		}
		l := cell.Latency
		rate, mb := fmt.Sprintf("%.0f", cell.OpsPerS), fmt.Sprintf("%.1f", cell.MBPerS)
		if c.Name == result.ChapterLive { // it rests after each: the rate is of its own choice
			rate, mb = "-", "-"
		}
		p.line("%-22s %8.0f %8.0f %8s %9.0f %8s %8s%s", p.name(cell), l.P50US, l.P99US, tail(l), l.MaxUS, rate, mb, marks(cell))
	}
}

// name is what a cell is, in words where its id is not.
func (p *printer) name(c *result.Cell) string {
	switch {
	case c.Engine != "" && c.Loop == "open":
		return fmt.Sprintf("%s at %.0f/s", size(c.BlockBytes), c.AskedPerS)
	case c.Op == "add" && c.ID == fmt.Sprintf("%d/100", c.BlockBytes):
		return fmt.Sprintf("%s, %d at once", size(c.BlockBytes), c.Depth)
	case c.Journals == 1:
		return "1 journal, " + size(c.BlockBytes)
	case c.Journals > 0:
		return fmt.Sprintf("%d journals, %s", c.Journals, size(c.BlockBytes))
	case c.Op == "write" && c.Method != "" && c.Allocation != "" && c.Background == "":
		return fmt.Sprintf("%-10s %s", c.Method, size(c.BlockBytes))
	case c.Op == "read":
		return fmt.Sprintf("%-10s %s x%d", c.Pattern, size(c.BlockBytes), c.Depth)
	}
	return c.ID
}

// tail is the p99.9, if there are samples enough for one.
func tail(l *result.Latency) string {
	if l.Count < 1000 {
		return "-"
	}
	return fmt.Sprintf("%.0f", l.P999US)
}

// marks are signs behind a row: ~ not steady.
func marks(c *result.Cell) string {
	if len(c.Rounds) >= 5 && !c.Steady {
		return " ~"
	}
	return ""
}

// bars is a table of p50 with bars, for chapters in which it is what is compared.
func (p *printer) bars(c *result.Chapter) {
	top := 0.0
	for _, cell := range c.Cells {
		if cell.Latency != nil {
			top = max(top, cell.Latency.P50US)
		}
	}
	p.line("%-12s %8s %8s %9s", "", "p50", "p99", "max")
	for i := range c.Cells {
		cell := &c.Cells[i]
		if cell.Latency == nil {
			p.line("%-12s %s", cell.ID, "not supported here: "+cell.Unsupported)
			continue
		}
		l := cell.Latency
		p.line("%-12s %8.0f %8.0f %9.0f  %s", cell.ID, l.P50US, l.P99US, l.MaxUS, bar(l.P50US/top, 38))
	}
}

func (p *printer) interference(c *result.Chapter) {
	idle := c.Cell("idle/same")
	p.line("%-22s %8s %8s %8s %9s %8s  %s", "beside", "p50", "p99", "p99.9", "MB/s", "p99/idle", "")
	for i := range c.Cells {
		cell := &c.Cells[i]
		if cell.Latency == nil {
			p.line("%-22s %s", cell.ID, "not supported here: "+cell.Unsupported)
			continue
		}
		l := cell.Latency
		ratio, sign, paint := 0.0, "", green
		if idle != nil && idle.Latency != nil && idle.Latency.P99US > 0 {
			ratio = l.P99US / idle.Latency.P99US
			switch {
			case idle.Overloaded():
				sign, paint = "?", yellow
			case ratio <= 2:
				sign = "fine"
			case ratio <= 5:
				sign, paint = "! rates", yellow
			default:
				sign, paint = "X separate", red
			}
		}
		p.line("%-22s %8.0f %8.0f %8s %9.1f %8.1f  %s", cell.ID, l.P50US, l.P99US, tail(l), cell.BackgroundMB, ratio, p.paint(paint, sign))
	}
}

func (p *printer) sustained(c *result.Chapter) {
	for i := range c.Series {
		s := &c.Series[i]
		p.line("  %-8s |%s|", s.Cell, sparkline(s.MBPerS, 60))
	}
	s := c.Sustained
	if s == nil {
		return
	}
	if s.Dropped {
		why := ""
		if s.Throttled {
			why = ", with heat"
		}
		p.line("  %.0f MB/s for the first %s, then %.0f MB/s%s; recovered in %.0f s", s.FastMBPerS, gigabytes(s.FastBytes), s.SteadyMBPerS, why, s.RecoverS)
		return
	}
	p.line("  %.0f MB/s throughout, %.0f MB/s at the end", s.FastMBPerS, s.SteadyMBPerS)
}

func (p *printer) stalls(c *result.Chapter) {
	for i := range c.Stalls {
		s := &c.Stalls[i]
		p.wrap("  ", fmt.Sprintf("longest gap %s; over 10 ms: %d, 50 ms: %d, 100 ms: %d, 500 ms: %d", micros(s.LongestUS), s.Over10MS, s.Over50MS, s.Over100MS, s.Over500MS))
		if s.PeriodS > 0 {
			p.line("  they come back about every %.1f s", s.PeriodS)
		}
	}
	for i := range c.Cells {
		if cell := &c.Cells[i]; cell.Late > 0 {
			p.line("  %d of %d began late, behind a slow one", cell.Late, cell.Ops)
		}
	}
}

func (p *printer) hours(c *result.Chapter) {
	p.line("%5s %10s %9s %9s %10s %10s %10s", "hour", "ops", "p99", "max", ">1 ms %", ">8 ms %", ">64 ms %")
	for _, h := range c.Exceedance {
		p.line("%5d %10d %9.0f %9.0f %10.3f %10.3f %10.3f", h.Hour, h.Ops, h.P99US, h.MaxUS, h.Over1MSPct, h.Over8MSPct, h.Over64MSPct)
	}
}
