// Package terminal prints a run for people: 80 columns, with colour where the terminal has it and signs that say the same
// without.
//
// The package starts no goroutine.
package terminal

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// width is what every terminal has.
const width = 80

// Options say what the terminal can do.
type Options struct{ Color bool }

// Print writes the report of one run.
func Print(w io.Writer, r *result.Run, o Options) error {
	p := &printer{r: r, color: o.Color}
	p.header()
	p.verdict()
	for i := range r.Chapters {
		p.chapter(&r.Chapters[i])
	}
	p.warnings()
	p.recommendation()
	p.line("%s written, %s read in %s%s", gigabytes(r.WrittenBytes()), gigabytes(p.read()), seconds(r.ElapsedS), partial(r))
	_, err := io.WriteString(w, p.b.String())
	return err
}

type printer struct {
	r     *result.Run
	b     strings.Builder
	color bool
}

// line writes one line, cut to the width: what is too long for a terminal would wrap and break the tables.
func (p *printer) line(format string, args ...any) {
	text := strings.TrimRight(fmt.Sprintf(format, args...), " ")
	if n := runes(text); n > width {
		text = string([]rune(text)[:width-1]) + "…"
	}
	p.b.WriteString(text)
	p.b.WriteByte('\n')
}

func runes(s string) int { return len([]rune(s)) }

// wrap writes a paragraph, its further lines indented.
func (p *printer) wrap(first, text string) {
	indent := strings.Repeat(" ", runes(first))
	line := first
	empty := true
	for _, word := range strings.Fields(text) {
		if !empty && runes(line)+1+runes(word) > width {
			p.line("%s", line)
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	p.line("%s", line)
}

func (p *printer) header() {
	r, e := p.r, &p.r.Environment
	p.line("iobench %s %s   %s   %s", r.ToolVersion, r.Command, e.Host, r.StartedAt.Format("2006-01-02 15:04 MST"))
	virtual := ""
	if e.Virtualization != "" {
		virtual = ", on " + e.Virtualization
	}
	p.line("kernel %s, %d cores%s", e.Kernel, e.Cores, virtual)
	for i := range len(r.OtherDevices) + 1 {
		p.device(r.DeviceAt(i))
	}
}

func (p *printer) device(d *result.Device) {
	p.b.WriteByte('\n')
	role := ""
	if d.Role != "disk" {
		role = d.Role + "  "
	}
	p.line("%s%s", role, d.Dir)
	var parts []string
	add := func(format string, v string) {
		if v != "" {
			parts = append(parts, fmt.Sprintf(format, v))
		}
	}
	add("%s", d.Name)
	add("%s", d.Kind)
	if d.Bus != d.Kind {
		add("%s", d.Bus)
	}
	add("%s", strings.TrimSpace(d.Vendor+" "+d.Model))
	add("firmware %s", d.Firmware)
	add("serial#%s", d.SerialHash)
	add("scheduler %s", d.Scheduler)
	add("cache %s", d.WriteCache)
	if d.FUA != nil && *d.FUA {
		parts = append(parts, "fua")
	}
	if d.TemperatureC != nil {
		parts = append(parts, fmt.Sprintf("%.0f C", *d.TemperatureC))
	}
	p.wrap("  disk   ", strings.Join(parts, ", "))
	fs := &d.FileSystem
	if fs.Type == result.NoFileSystem {
		p.line("  files  none: the whole device, %s", gigabytes(fs.TotalBytes))
	} else {
		p.wrap("  files  ", fmt.Sprintf("%s, %s, %s of %s free", fs.Type, fs.MountOptions, gigabytes(fs.AvailableBytes), gigabytes(fs.TotalBytes)))
	}
	if d.PowerLossHint != "" {
		p.line("  power-loss protection: %s", d.PowerLossHint)
	}
	if d.NotRepresentative != "" {
		p.wrap("  ", p.paint(red, "NOT REPRESENTATIVE")+": "+d.NotRepresentative)
	}
}

// verdict is the line that an operator reads first.
func (p *printer) verdict() {
	rec := p.r.Recommendation
	if rec == nil {
		if p.r.Chapter(result.ChapterSync, 0) != nil {
			p.line("\nNo verdict: no durable writes were measured.")
		}
		return
	}
	p.b.WriteByte('\n')
	text := "journal " + p.grade(rec.JournalGrade)
	if rec.LedgerGrade != "" {
		text += ", ledgers " + p.grade(rec.LedgerGrade)
	}
	full, half := "", ""
	for _, pr := range rec.Predictions {
		switch pr.LoadPct {
		case 100:
			full = fmt.Sprintf("; about %s durable adds/s of %d B", thousands(pr.AddsPerS), pr.EntryBytes)
		case 50:
			half = fmt.Sprintf(", p99 %s at half of that", micros(pr.P99US))
		}
	}
	if full != "" {
		text += full + half
	}
	p.wrap("VERDICT  ", text+"; limited by "+rec.LimitedBy+"; confidence "+rec.Confidence+" ("+rec.Why+")")
}

func (p *printer) grade(g string) string {
	switch g {
	case "A", "B":
		return p.paint(green, g)
	case "C":
		return p.paint(yellow, g)
	}
	return p.paint(red, g)
}

func (p *printer) warnings() {
	if len(p.r.Warnings) == 0 {
		return
	}
	p.title("what to know", "")
	for _, w := range p.r.BriefWarnings() {
		sign := "-"
		switch w.Severity {
		case result.SeverityWarning:
			sign = "!"
		case result.SeverityError:
			sign = "X"
		}
		p.wrap(" "+sign+" ", w.Text)
	}
}

func (p *printer) recommendation() {
	rec := p.r.Recommendation
	if rec == nil {
		return
	}
	p.title("settings", "")
	p.comment(rec.Header)
	table := ""
	for _, s := range rec.Settings {
		if s.Table != table {
			p.line("[%s]", s.Table)
			table = s.Table
		}
		text := s.Key + " = " + s.Value
		if line := fmt.Sprintf("%-28s # %s", text, s.Evidence); runes(line) <= width {
			p.line("%s", line)
			continue
		}
		p.comment(s.Evidence)
		p.line("%s", text)
	}
	if len(rec.Predictions) > 0 {
		p.title("a bookie's journal on this disk, predicted", "us")
		g := grid{least: []int{8, 12, 9, 9, 9, 15, 9}}
		g.add("", "    load", "adds/s", "MB/s", "p50", "p99", "p99 of rounds", "limit")
		for _, pr := range slices.SortedFunc(slices.Values(rec.Predictions), func(a, b result.Prediction) int { return cmp.Compare(a.LoadPct, b.LoadPct) }) {
			g.add("", fmt.Sprintf("%7.0f%%", pr.LoadPct), thousands(pr.AddsPerS), fmt.Sprintf("%.1f", pr.MBPerS), whole(pr.P50US), whole(pr.P99US), fmt.Sprintf("%.0f-%.0f", pr.P99LowUS, pr.P99HighUS), pr.LimitedBy)
		}
		p.grid(g)
	}
	for _, text := range rec.Reasons {
		p.wrap(" - ", text)
	}
	p.b.WriteByte('\n')
}

// comment writes lines that TOML skips.
func (p *printer) comment(text string) {
	line := "#"
	for _, word := range strings.Fields(text) {
		if runes(line)+1+runes(word) > width && line != "#" {
			p.line("%s", line)
			line = "#"
		}
		line += " " + word
	}
	p.line("%s", line)
}

func (p *printer) read() (n int64) {
	for i := range p.r.Chapters {
		n += p.r.Chapters[i].ReadBytes
	}
	return n
}

func partial(r *result.Run) string {
	if r.Complete {
		return ""
	}
	return " (PARTIAL)"
}

func (p *printer) title(text, unit string) {
	if unit != "" {
		text += " (" + unit + ")"
	}
	p.b.WriteByte('\n')
	p.line("%s", text+" "+strings.Repeat("-", max(0, width-1-runes(text))))
}
