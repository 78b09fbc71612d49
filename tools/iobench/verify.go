package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/binderylog/bindery/tools/iobench/result"
	"github.com/binderylog/bindery/tools/iobench/session"
	"github.com/spf13/cobra"
)

func newVerifyCommand() *cobra.Command {
	var o measureFlags
	var v session.VerifyOptions
	var bindery string
	c := &cobra.Command{
		Use:   "verify DIR",
		Short: "Predict what a bookie will do on a disk, run one there, and put both side by side",
		Long: "Measures durable writes in DIR, starts one bookie in a directory of its own under DIR, predicts its rate and latencies at\n" +
			"10, 50 and 80 % of its peak, and measures them with `bindery bench cluster`. The directory is removed at the end; a kill\n" +
			"in between leaves it (.iobench-verify-*). Ends with 5 if a prediction is further off than it may be: p50 within 20 %, p99\n" +
			"within what the rounds of the disk's own figures span.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := o.plan("verify")
			if err == nil && (v.Connections < 1 || v.Connections > 1000 || v.Each < time.Second) {
				err = errors.New("--connections is 1 to 1000, --each at least 1s")
			}
			if err != nil {
				return exit(exitUsage, err)
			}
			if v.Bindery, err = session.FindBindery(bindery); err != nil {
				return ending(err, false)
			}
			if !o.quiet && isTerminal(c.ErrOrStderr()) {
				v.Log = c.ErrOrStderr()
			}
			p.Steps = session.Single(result.ChapterSync)
			p.Directories = []session.Directory{{Path: args[0], Role: "journal"}}
			p.Started = (&progress{w: c.ErrOrStderr(), off: o.quiet}).started
			r, err := session.Verify(c.Context(), p, v)
			if r == nil {
				return ending(err, false)
			}
			if perr := o.printVerification(c, r); perr != nil {
				return errors.Join(perr, err)
			}
			if err == nil && !r.Verification.Within {
				return exit(exitFindings, errors.New("a prediction is further off than it may be"))
			}
			return ending(err, true)
		},
	}
	o.add(c, defaults{duration: 30 * time.Second, fileMiB: 512, maxWrite: "20GiB", rounds: 9})
	c.Flags().StringVar(&bindery, "bindery", "", "the bindery program (default: beside this one, then on the path)")
	c.Flags().IntVar(&v.Connections, "connections", 4, "connections to the bookie")
	c.Flags().DurationVar(&v.Each, "each", 10*time.Second, "measured time of each load")
	return c
}

func (o *measureFlags) printVerification(c *cobra.Command, r *result.Run) error {
	if o.output == "json" || r.Verification == nil {
		return o.print(c, []*result.Run{r})
	}
	quiet := *o
	quiet.output = "none" // the file only
	if err := quiet.print(c, []*result.Run{r}); err != nil {
		return err
	}
	return printVerified(c.OutOrStdout(), r)
}

// printVerified is the table of predicted and measured figures.
func printVerified(w io.Writer, r *result.Run) error {
	v := r.Verification
	entry := 0
	if len(v.Rows) > 0 {
		entry = v.Rows[0].Predicted.EntryBytes
	}
	fmt.Fprintf(w, "%s, entries of %d B; predicted from the disk, measured by bindery bench cluster\n\n", r.Device.Dir, entry)
	fmt.Fprintf(w, "%6s %10s | %9s %9s %5s | %9s %9s %15s %4s\n", "load", "adds/s", "p50 us", "measured", "", "p99 us", "measured", "rounds", "")
	fmt.Fprintf(w, "%6s %10.0f | measured at full speed: %.0f adds/s\n", "peak", v.PeakPredictedPerS, v.PeakMeasuredPerS)
	for _, row := range v.Rows {
		p := row.Predicted
		off := 0.0
		if row.MeasuredP50US > 0 {
			off = 100 * (p.P50US - row.MeasuredP50US) / row.MeasuredP50US
		}
		fmt.Fprintf(w, "%5.0f%% %10.0f | %9.0f %9.0f %+4.0f%% | %9.0f %9.0f %15s %4s  %s\n", p.LoadPct, p.AddsPerS, p.P50US, row.MeasuredP50US, off,
			p.P99US, row.MeasuredP99US, fmt.Sprintf("%.0f-%.0f", p.P99LowUS, p.P99HighUS), okOr(row.P99Within), p.LimitedBy)
	}
	verdict := "every prediction is as close as it must be"
	if !v.Within {
		verdict = "a prediction is further off than it may be (p50 20 %, p99 the span of the rounds)"
	}
	_, err := fmt.Fprintf(w, "\n%s\n", verdict)
	return err
}

func okOr(ok bool) string {
	if ok {
		return "ok"
	}
	return "off"
}
