package collect

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/binderylog/bindery/tools/iobench/chart"
	"github.com/binderylog/bindery/tools/iobench/compare"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// Row is a line of the table at the end: a directory of a host, or a host without a result.
type Row struct {
	Host     string  `json:"host"`
	Dir      string  `json:"dir,omitempty"`
	Outcome  string  `json:"outcome"` // ok, partial, failed or not asked
	Error    string  `json:"error,omitempty"`
	Disk     string  `json:"disk,omitempty"`
	Method   string  `json:"method,omitempty"`
	P50US    float64 `json:"durable_4kib_p50_us,omitempty"`
	P99US    float64 `json:"durable_4kib_p99_us,omitempty"`
	Grade    string  `json:"journal_grade,omitempty"`
	Warnings int     `json:"warnings"`
	ElapsedS float64 `json:"elapsed_s"`
	File     string  `json:"file,omitempty"`
}

// Rows sums up outcomes.
func Rows(outcomes []Outcome) (rows []Row) {
	for _, o := range outcomes {
		base := Row{Host: o.Host, Outcome: "ok", File: o.File, ElapsedS: o.Elapsed.Seconds()}
		if o.Err != nil {
			base.Error = oneLine(o.Err.Error())
		}
		if len(o.Runs) == 0 {
			base.Outcome = "failed"
			if !o.Asked {
				base.Outcome = "not asked"
			}
			rows = append(rows, base)
			continue
		}
		for _, r := range o.Runs {
			rows = append(rows, rowOf(base, r))
		}
	}
	return rows
}

func rowOf(row Row, r *result.Run) Row {
	row.Dir, row.Disk = oneLine(r.Device.Dir), oneLine(r.Device.Kind+" "+r.Device.Model)
	if !r.Complete || row.Error != "" {
		row.Outcome = "partial"
	}
	for _, w := range r.Warnings {
		if w.Severity != result.SeverityInfo {
			row.Warnings++
		}
	}
	if r.Recommendation != nil {
		row.Grade = oneLine(r.Recommendation.JournalGrade)
	}
	row.Method = oneLine(compare.Method(r))
	if c := r.Chapter(result.ChapterSync, 0); c != nil {
		if cell := c.Cell(compare.Method(r) + "/4096"); cell != nil && cell.Latency != nil {
			row.P50US, row.P99US = cell.Latency.P50US, cell.Latency.P99US
		}
	}
	return row
}

// Print writes rows for people.
func Print(w io.Writer, rows []Row) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "host\toutcome\tdirectory\tdisk\tmethod\t4 KiB p50\tp99\tgrade\twarnings\ttime")
	for _, r := range rows {
		p50, p99 := "-", "-"
		if r.P50US > 0 {
			p50, p99 = chart.Micros(r.P50US), chart.Micros(r.P99US)
		}
		took := "-"
		if r.ElapsedS > 0 {
			took = time.Duration(r.ElapsedS * float64(time.Second)).Round(time.Second).String()
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", r.Host, r.Outcome, dash(r.Dir), dash(r.Disk), dash(r.Method), p50, p99, dash(r.Grade), r.Warnings, took)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	told := ""
	for _, r := range rows {
		if r.Error == "" || r.Host == told {
			continue
		}
		told = r.Host
		if _, err := fmt.Fprintf(w, "%s: %s\n", r.Host, r.Error); err != nil {
			return err
		}
	}
	return nil
}

func dash(s string) string { return or(s, "-") }
