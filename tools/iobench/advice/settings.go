package advice

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/binderylog/bindery/journal"
	"github.com/binderylog/bindery/tools/iobench/engine"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// Bounds of journal.max_group_bytes as recommended.
const (
	groupLeast = 64 * engine.KiB
	groupMost  = 4 * engine.MiB
)

// Method is the one that a journal should use on this disk, and why: the one with the lowest p99 at the smallest size, if
// it beats the usual one beyond the spread of the rounds; otherwise the usual one, which is buffered on a spinning disk and
// dsync on flash. firm says that the rounds put the method before the others; ok is false if there are no figures.
func Method(d *result.Device, c *result.Chapter) (m journal.IOMethod, why string, firm, ok bool) {
	cells := smallest(c)
	if len(cells) == 0 {
		return "", "", false, false
	}
	usual := journal.IODSync
	if d.Rotational != nil && *d.Rotational && d.Kind == "hdd" {
		usual = journal.IOBuffered
	}
	best := slices.MinFunc(cells, func(a, b *result.Cell) int { return cmp.Compare(a.Latency.P99US, b.Latency.P99US) })
	i := slices.IndexFunc(cells, func(c *result.Cell) bool { return c.Method == string(usual) })
	if i < 0 { // the usual one does not work here
		return journal.IOMethod(best.Method), fmt.Sprintf("p99 %s; %s does not work here", round(best.Latency.P99US), usual), true, true
	}
	if best == cells[i] {
		text := fmt.Sprintf("%s p99 %s", best.Method, round(best.Latency.P99US))
		if v, ok := engine.Compare("", engine.ByP99, cells); ok {
			second := slices.IndexFunc(cells, func(c *result.Cell) bool { return c.ID == v.Second })
			text += fmt.Sprintf(" vs %s %s, first in %d/%d rounds", cells[second].Method, round(cells[second].Latency.P99US), v.RoundsWon, v.Rounds)
			if firm = v.Significant; !firm {
				text += ", within the spread"
			}
		}
		return usual, text, firm, true
	}
	v, _ := engine.Compare("", engine.ByP99, []*result.Cell{best, cells[i]})
	text := fmt.Sprintf("%s p99 %s vs %s %s, ahead of it in %d/%d rounds", best.Method, round(best.Latency.P99US), usual, round(cells[i].Latency.P99US), v.RoundsWon, v.Rounds)
	if v.Significant {
		return journal.IOMethod(best.Method), text, true, true
	}
	return usual, text + fmt.Sprintf(", within the spread of %.0f %%: the usual one", v.SpreadPct), false, true
}

// smallest are the measured cells of the smallest size.
func smallest(c *result.Chapter) (cells []*result.Cell) {
	if c == nil {
		return nil
	}
	size := 0
	for i := range c.Cells {
		cell := &c.Cells[i]
		if cell.Latency == nil {
			continue
		}
		if size == 0 || cell.BlockBytes < size {
			size, cells = cell.BlockBytes, nil
		}
		if cell.BlockBytes == size {
			cells = append(cells, cell)
		}
	}
	return cells
}

// round is microseconds as people read them.
func round(us float64) string {
	switch {
	case us < 1000:
		return fmt.Sprintf("%.0fus", us)
	case us < 10_000:
		return fmt.Sprintf("%.1fms", us/1e3)
	}
	return fmt.Sprintf("%.0fms", us/1e3)
}

// groupBytes is the largest group whose p99 is at most 1.5 times that of the smallest, or at most half of the goal. The evidence
// has the next larger one; a smaller one that took longer only shows how far the figures scatter.
func groupBytes(c *result.Chapter, m journal.IOMethod, goal time.Duration) (bytes int, why string, ok bool) {
	base := c.Cell(fmt.Sprintf("%s/%d", m, 4*engine.KiB))
	if base == nil || base.Latency == nil {
		return 0, "", false
	}
	best, next := base, (*result.Cell)(nil)
	sizes := slices.DeleteFunc(slices.Clone(c.Cells), func(c result.Cell) bool { return c.Method != string(m) || c.Latency == nil })
	slices.SortFunc(sizes, func(a, b result.Cell) int { return cmp.Compare(a.BlockBytes, b.BlockBytes) })
	for i := range sizes {
		cell := &sizes[i]
		p := cell.Latency.P99US
		switch fits := p <= 1.5*base.Latency.P99US || p <= us(goal)/2; {
		case fits:
			best, next = cell, nil
		case next == nil:
			next = cell
		}
	}
	bytes = min(max(best.BlockBytes, groupLeast), groupMost)
	times := func(c *result.Cell) string {
		return fmt.Sprintf("%.1fx of 4KiB at %s", c.Latency.P99US/base.Latency.P99US, size(c.BlockBytes))
	}
	why = fmt.Sprintf("p99 %s (%s)", round(best.Latency.P99US), times(best))
	if next != nil {
		why += ", " + times(next)
	}
	if bytes != best.BlockBytes {
		why += fmt.Sprintf("; at least %s", size(groupLeast))
	}
	return bytes, why, true
}

// size is bytes as the configuration takes them.
func size(n int) string {
	switch {
	case n >= engine.MiB && n%engine.MiB == 0:
		return fmt.Sprintf("%dMiB", n/engine.MiB)
	case n >= engine.KiB && n%engine.KiB == 0:
		return fmt.Sprintf("%dKiB", n/engine.KiB)
	}
	return fmt.Sprintf("%dB", n)
}

// backgroundRate is the highest rate of copying on the journal's own disk beside which the journal keeps its goal.
func backgroundRate(c *result.Chapter, goal time.Duration) (mib int, why string, ok bool) {
	if c == nil {
		return 0, "", false
	}
	var best, over *result.Cell
	for i := range c.Cells {
		cell := &c.Cells[i]
		if cell.Background != "compaction" || cell.BackgroundDevice != c.Device || cell.Latency == nil {
			continue
		}
		switch fits := cell.Latency.P99US <= us(goal); {
		case fits && (best == nil || cell.BackgroundMB > best.BackgroundMB):
			best = cell
		case !fits && (over == nil || cell.BackgroundMB < over.BackgroundMB):
			over = cell
		}
	}
	if best == nil {
		return 0, "", false
	}
	// The background reads and writes; the setting counts what is copied.
	mib = max(int(best.BackgroundMB*1e6/2)/engine.MiB, 1)
	why = fmt.Sprintf("journal p99 %s with %.0f MB/s copied beside it", round(best.Latency.P99US), best.BackgroundMB/2)
	if over != nil {
		why += fmt.Sprintf(", %s with %.0f", round(over.Latency.P99US), over.BackgroundMB/2)
	}
	return mib, why, true
}

// copied reports whether the journal was measured beside copying on its own disk.
func copied(c *result.Chapter) bool {
	return c != nil && slices.ContainsFunc(c.Cells, func(cell result.Cell) bool {
		return cell.Background == "compaction" && cell.BackgroundDevice == c.Device && cell.Latency != nil
	})
}

// alignment is the smallest size whose writes take at most a tenth longer than the quickest, at least a logical block.
func alignment(c *result.Chapter, d *result.Device) (bytes int, ok bool) {
	if c == nil {
		return 0, false
	}
	quickest := 0.0
	for _, cell := range c.Cells {
		if cell.Latency != nil && (quickest == 0 || cell.Latency.P50US < quickest) {
			quickest = cell.Latency.P50US
		}
	}
	for _, cell := range c.Cells {
		if cell.Latency != nil && cell.Latency.P50US <= 1.1*quickest && (bytes == 0 || cell.BlockBytes < bytes) {
			bytes = cell.BlockBytes
		}
	}
	return max(bytes, d.LogicalBlockBytes), bytes > 0
}

// journals is the smallest number within a tenth of the best rate.
func journals(c *result.Chapter) (n int, why string, ok bool) {
	if c == nil {
		return 0, "", false
	}
	best := 0.0
	for _, cell := range c.Cells {
		best = max(best, cell.MBPerS)
	}
	for _, cell := range c.Cells {
		if cell.Ops > 0 && cell.MBPerS >= 0.9*best && (n == 0 || cell.Journals < n) {
			n, why = cell.Journals, fmt.Sprintf("%.0f MB/s of at most %.0f", cell.MBPerS, best)
		}
	}
	return n, why, n > 0
}

// Grades of a journal by its p99 beside everything else.
func journalGrade(us float64) string {
	switch {
	case us <= 1_000:
		return "A"
	case us <= 5_000:
		return "B"
	case us <= 20_000:
		return "C"
	}
	return "F"
}

// Grades of a ledger disk by its steady rate over the required one.
func ledgerGrade(ratio float64) string {
	switch {
	case ratio >= 2:
		return "A"
	case ratio >= 1.25:
		return "B"
	case ratio >= 1:
		return "C"
	}
	return "F"
}

// oneLine keeps texts fit for a comment in a configuration file.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
