package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/tools/iobench/compare"
	page "github.com/binderylog/bindery/tools/iobench/report"
	"github.com/spf13/cobra"
)

// exitFindings: a threshold was missed.
const exitFindings = 5

// compareOptions are the flags of `iobench compare`.
type compareOptions struct {
	by     string
	failIf []string
	html   string
	output string
	all    bool
}

func newCompareCommand() *cobra.Command {
	var o compareOptions
	c := &cobra.Command{
		Use:   "compare A.json B.json...",
		Short: "Put runs side by side: two runs, the disks of a fleet, one disk over time",
		Long: "Holds each figure that runs have in common against the first run (or, by model and host, against their median; by\n" +
			"date, against the oldest run on the same disk) and says which differences the rounds bear out, and which disks\n" +
			"stand apart. With --fail-if it ends with 5 when a threshold is missed:\n\n" +
			"  iobench compare before.json after.json --fail-if p99+20%\n" +
			"  iobench compare fleet/*.json --by model --fail-if outlier --html fleet.html\n\n" +
			"A threshold is METRIC+N% or METRIC-N%, with METRIC one of p50, p99, p99.9, max, longest_gap, mb_per_s,\n" +
			"steady_mb_per_s; CHAPTER: or CHAPTER/CELL: in front narrows or widens what it is about (sync/dsync/4096:p99+20%, *:p50+30%).",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return o.compare(c, args) },
	}
	f := c.Flags()
	f.StringVar(&o.by, "by", "", "group the runs by model, host or date; empty: all together")
	f.StringArrayVar(&o.failIf, "fail-if", nil, "threshold, or outlier (repeatable)")
	f.StringVar(&o.html, "html", "", "write a page with charts to this file too")
	f.StringVar(&o.output, "output", "table", "table or json")
	f.BoolVar(&o.all, "all", false, "show every figure, not only the main ones and those that differ")
	return c
}

func (o *compareOptions) compare(c *cobra.Command, files []string) error {
	if o.output != "table" && o.output != "json" {
		return exit(exitUsage, fmt.Errorf("--output %q is neither table nor json", o.output))
	}
	if !compare.By(o.by).Valid() {
		return exit(exitUsage, fmt.Errorf("--by %q is none of model, host, date", o.by))
	}
	var conditions []compare.Condition
	for _, text := range o.failIf {
		cond, err := compare.ParseCondition(text)
		if err != nil {
			return exit(exitUsage, err)
		}
		conditions = append(conditions, cond)
	}
	runs, err := readRuns(files)
	if err != nil {
		return err
	}
	result, err := compare.Runs(runs, compare.By(o.by))
	if err != nil {
		return err
	}
	findings, err := result.Judge(conditions)
	if err != nil {
		return err
	}
	if o.html != "" {
		var b bytes.Buffer
		if err := page.WriteComparison(&b, result, findings, len(conditions) > 0); err != nil {
			return err
		}
		if err := vfs.WriteFileAtomic(vfs.OS(), o.html, b.Bytes()); err != nil {
			return err
		}
	}
	w := c.OutOrStdout()
	if o.output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		if err := e.Encode(result.Document(findings)); err != nil {
			return err
		}
	} else {
		if err := result.Print(w, o.all); err != nil {
			return err
		}
		for _, f := range findings {
			fmt.Fprintf(w, "missed %s: %s: %s: %s\n", f.Condition, f.Run, f.Figure, f.Text)
		}
	}
	if len(findings) > 0 {
		return exit(exitFindings, fmt.Errorf("thresholds missed: %d", len(findings)))
	}
	return nil
}
