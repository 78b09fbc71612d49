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
	result.ChapterStalls:    {"gaps at a fixed rate", "us"},
	result.ChapterMetadata:  {"files", "us"},
	result.ChapterModel:     {"the real journal", "us"},
	result.ChapterEngines:   {"engines, batches made durable", "us"},
	result.ChapterPipeline:  {"durable writes, one and two at once, beside flushes", "us"},
	result.ChapterSoak:      {"hour by hour, at a fixed rate", "us"},
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
	if len(c.Cells) == 0 {
		p.line("  nothing was measured")
		return
	}
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
	if text := result.Legend(c.Name); text != "" {
		p.wrap("  ", text)
	}
	for _, v := range c.Verdicts {
		if v.Significant {
			p.wrap("  ", fmt.Sprintf("%s: %s, %.2fx ahead of %s, %d/%d rounds", v.Question, v.Best, v.Ratio, v.Second, v.RoundsWon, v.Rounds))
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
	g := grid{least: []int{22, 8, 8, 8, 9, 8, 8}}
	g.add("", "", "p50", "p99", "p99.9", "max", "ops/s", "MB/s")
	unsteady := false
	for i := range c.Cells {
		cell := &c.Cells[i]
		if cell.Latency == nil {
			g.note(cell.ID, unsupported(cell))
			continue
		}
		l := cell.Latency
		rate, mb := fmt.Sprintf("%.0f", cell.OpsPerS), fmt.Sprintf("%.1f", cell.MBPerS)
		if c.Name == result.ChapterLive { // it rests after each: the rate is of its own choice
			rate, mb = "-", "-"
		}
		mark := marks(cell)
		unsteady = unsteady || mark != ""
		g.add(mark, p.name(cell), whole(l.P50US), whole(l.P99US), tail(l), whole(l.MaxUS), rate, mb)
	}
	p.grid(g)
	if unsteady {
		p.line("  ~ not steady: its last five windows differ by more than 10 %%")
	}
}

func unsupported(c *result.Cell) string { return "not supported here: " + c.Unsupported }

func whole(us float64) string { return fmt.Sprintf("%.0f", us) }

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
		return "~"
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
	g := grid{least: []int{12, 8, 8, 9}}
	g.add("", "", "p50", "p99", "max")
	for i := range c.Cells {
		cell := &c.Cells[i]
		if cell.Latency == nil {
			g.note(cell.ID, unsupported(cell))
			continue
		}
		l := cell.Latency
		g.add(" "+bar(l.P50US/top, 36), cell.ID, whole(l.P50US), whole(l.P99US), whole(l.MaxUS))
	}
	p.grid(g)
}

func (p *printer) interference(c *result.Chapter) {
	idle := c.Cell("idle/same")
	g := grid{least: []int{22, 8, 8, 8, 9, 8}}
	g.add("", "beside", "p50", "p99", "p99.9", "MB/s", "p99/idle")
	for i := range c.Cells {
		cell := &c.Cells[i]
		if cell.Latency == nil {
			g.note(cell.ID, unsupported(cell))
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
		g.add(" "+p.paint(paint, sign), cell.ID, whole(l.P50US), whole(l.P99US), tail(l), fmt.Sprintf("%.1f", cell.BackgroundMB), fmt.Sprintf("%.1f", ratio))
	}
	p.grid(g)
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
	g := grid{least: []int{5, 10, 9, 9, 10, 10, 10}}
	g.add("", "hour", "ops", "p99", "max", ">1 ms %", ">8 ms %", ">64 ms %")
	share := func(v float64) string { return fmt.Sprintf("%.3f", v) }
	for _, h := range c.Exceedance {
		g.add("", fmt.Sprint(h.Hour), fmt.Sprint(h.Ops), whole(h.P99US), whole(h.MaxUS), share(h.Over1MSPct), share(h.Over8MSPct), share(h.Over64MSPct))
	}
	p.grid(g)
}
