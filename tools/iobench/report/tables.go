package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/binderylog/bindery/tools/iobench/chart"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// cellTables are the figures of a chapter in full.
func cellTables(r *result.Run, c *result.Chapter, id string) (out []table) {
	name := c.Name
	if len(r.OtherDevices) > 0 {
		name += ", " + r.DeviceAt(c.Device).Dir
	}
	t := table{ID: id, Caption: name, Head: []string{"what", "count", "p50 µs", "p90 µs", "p99 µs", "p99.9 µs", "p99.99 µs", "max µs", "p50 of rounds µs", "per s", "MB/s", notesHead}}
	for i := range c.Cells {
		t.Rows = append(t.Rows, cellRow(&c.Cells[i]))
	}
	if len(t.Rows) > 0 {
		out = append(out, t)
	}
	if len(c.Exceedance) > 0 {
		h := table{ID: id + "h", Caption: name + ": by hour", Head: []string{"hour", "operations", "p99 µs", "max µs", "over 1 ms %", "over 8 ms %", "over 64 ms %", "MB/s"}}
		for _, e := range c.Exceedance {
			h.Rows = append(h.Rows, []string{fmt.Sprint(e.Hour), fmt.Sprint(e.Ops), fixed(e.P99US), fixed(e.MaxUS), share(e.Over1MSPct), share(e.Over8MSPct), share(e.Over64MSPct), fixed(e.MBPerS)})
		}
		out = append(out, h)
	}
	for _, s := range c.Stalls {
		e := table{ID: id + "s", Caption: name + ": longest gaps of " + s.Cell, Head: []string{"after s", "gap ms"}}
		events := slices.Clone(s.Events)
		slices.SortStableFunc(events, func(a, b result.StallEvent) int { return int(b.GapUS - a.GapUS) })
		for _, ev := range events[:min(len(events), 20)] {
			e.Rows = append(e.Rows, []string{fixed(ev.AtS), fixed(ev.GapUS / 1e3)})
		}
		if len(e.Rows) > 0 {
			out = append(out, e)
		}
	}
	for _, s := range c.Series {
		if t := seriesTable(&s, name, id); len(t.Rows) > 0 {
			out = append(out, t)
		}
	}
	return out
}

// seriesTable is a series in at most 30 steps.
func seriesTable(s *result.Series, name, id string) table {
	t := table{ID: id + "t", Caption: name + ": " + s.Cell + " over time", Head: []string{"from s", "MB/s, mean", "p99 µs, worst second", "max µs"}}
	step := (len(s.Ops) + 29) / 30
	for i := 0; step > 0 && i < len(s.Ops); i += step {
		end := min(i+step, len(s.Ops))
		row := []string{fixed(float64(i) * s.IntervalS), fixed(mean(s.MBPerS[i:end])), "–", "–"}
		if len(s.P99US) > 0 {
			row[2] = fixed(largest(s.P99US[i:end]))
		}
		if len(s.MaxUS) > 0 {
			row[3] = fixed(largest(s.MaxUS[i:end]))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func share(v float64) string { return fmt.Sprintf("%.3f", v) }

func cellRow(cell *result.Cell) []string {
	row := make([]string, 12)
	for i := range row {
		row[i] = "–"
	}
	row[0] = cell.ID
	row[11] = strings.Join(cellNotes(cell), ", ")
	if cell.Ops > 0 {
		row[9], row[10] = fixed(cell.OpsPerS), fixed(cell.MBPerS)
	}
	l := cell.Latency
	if l == nil {
		return row
	}
	row[1] = fmt.Sprint(l.Count)
	row[2], row[3], row[4], row[7] = fixed(l.P50US), fixed(l.P90US), fixed(l.P99US), fixed(l.MaxUS)
	if l.Count >= 1000 {
		row[5] = fixed(l.P999US)
	}
	if l.Count >= 10000 {
		row[6] = fixed(l.P9999US)
	}
	if len(cell.Rounds) > 0 {
		low, high := cell.Rounds[0].P50US, cell.Rounds[0].P50US
		for _, r := range cell.Rounds {
			low, high = min(low, r.P50US), max(high, r.P50US)
		}
		row[8] = fixed(low) + "–" + fixed(high)
	}
	return row
}

// cellNotes say what the figures of a cell are of.
func cellNotes(cell *result.Cell) (out []string) {
	if cell.Unsupported != "" {
		return []string{"not measured: " + cell.Unsupported}
	}
	if cell.Op == "write" && !cell.Durable {
		out = append(out, "NOT DURABLE")
	}
	if cell.Buffered {
		out = append(out, "buffered")
	}
	if cell.BlockBytes > 0 {
		op := cell.Op
		if cell.Engine != "" && cell.Pattern != "" { // engines make batches of records durable
			op = "batch"
		}
		out = append(out, fmt.Sprintf("%s of %s", op, chart.Bytes(float64(cell.BlockBytes))))
	}
	if cell.Depth > 1 {
		out = append(out, fmt.Sprintf("%d in flight", cell.Depth))
	}
	if cell.Loop == "open" {
		out = append(out, fmt.Sprintf("open loop, %s/s asked, %d late", chart.Number(cell.AskedPerS), cell.Late))
	}
	if cell.BackgroundMB > 0 {
		out = append(out, fmt.Sprintf("beside %s MB/s", chart.Number(cell.BackgroundMB)))
	}
	if !cell.Steady && cell.Latency != nil {
		out = append(out, "not steady")
	}
	if s := cell.SyncPart; s != nil {
		out = append(out, fmt.Sprintf("sync alone p50 %s p99 %s", chart.Micros(s.P50US), chart.Micros(s.P99US)))
	}
	return out
}
