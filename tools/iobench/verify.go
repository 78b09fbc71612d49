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

// verifyLoads is how many times --each it takes in all: four loads, each with what is measured around it.
const verifyLoads = 20

func newVerifyCommand() *cobra.Command {
	var o measureFlags
	var v session.VerifyOptions
	var bindery string
	c := &cobra.Command{
		Use:   "verify DIR",
		Short: "Predict what a bookie will do on a disk, run one there, and put both side by side",
		Long: "Measures durable writes in DIR, starts one bookie in a directory of its own under DIR, predicts its rate and latencies at\n" +
			"full speed and at 10, 50 and 80 % of it, and measures them with `bindery bench cluster`, in interleaved rounds: the disk\n" +
			"by itself beside as much flushing, what an add takes beside the disk (by a second bookie in memory), the bookie. Rate and\n" +
			"p50 have to come within 20 %, p99 within what the rounds span; otherwise it ends with 5, or with 4 if the disk's own\n" +
			"figures before and after a round lie so far apart that nothing is proven. The directories (.iobench-verify-*) are removed\n" +
			"at the end; a kill in between leaves them.",
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
			v.Rounds = p.Rounds
			p.Directories = []session.Directory{{Path: args[0], Role: "journal"}}
			p.Started = (&progress{w: c.ErrOrStderr(), off: o.quiet, takesAbout: o.duration + verifyLoads*v.Each}).started
			r, err := session.Verify(c.Context(), p, v)
			if r == nil {
				return ending(err, false)
			}
			if perr := o.printVerification(c, r); perr != nil {
				return errors.Join(perr, err)
			}
			switch {
			case err != nil:
				return ending(err, true)
			case r.Verification.Noisy:
				return exit(exitPartial, errors.New("noisy: "+verdict(r.Verification)))
			case !r.Verification.Within:
				return exit(exitFindings, errors.New(verdict(r.Verification)))
			}
			return nil
		},
	}
	o.add(c, defaults{duration: 20 * time.Second, fileMiB: 512, maxWrite: "60GiB", rounds: 5})
	c.Flags().StringVar(&bindery, "bindery", "", "the bindery program (default: beside this one, then on the path)")
	c.Flags().IntVar(&v.Connections, "connections", 4, "connections to the bookie")
	c.Flags().DurationVar(&v.Each, "each", 10*time.Second, "measured time of each load, all rounds together")
	c.Flags().StringVar(&v.Memory, "memory", "/dev/shm", "file system in memory for the second bookie, 1 to 3 GiB; with none, echoes over loopback take its place")
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
	entry := r.Plan.EntryBytes
	fmt.Fprintf(w, "%s, entries of %d B; predicted from the disk, measured by bindery bench cluster, in turns\n\n", r.Device.Dir, entry)
	fmt.Fprintf(w, "full speed %11.0f adds/s predicted, %.0f measured %+.0f%%, noise %.0f%%, paused %.0f%%  %s\n\n", v.PeakPredictedPerS, v.PeakMeasuredPerS,
		off(v.PeakPredictedPerS, v.PeakMeasuredPerS), v.PeakNoisePct, v.PeakPausedPct, okOr(v.PeakWithin, v.PeakNoisePct > 100*result.VerifyWithin))
	const head = "%4s %8s | %9s %8s %5s %-5s | %13s %13s %-5s | %5s %6s\n"
	fmt.Fprintf(w, head, "", "", "p50 us", "", "", "", "p99 us", "", "", "", "")
	fmt.Fprintf(w, head, "load", "adds/s", "predicted", "measured", "", "", "predicted", "measured", "", "noise", "paused")
	for _, row := range v.Rows {
		p := row.Predicted
		fmt.Fprintf(w, "%3.0f%% %8.0f | %9.0f %8.0f %+4.0f%% %-5s | %13s %13s %-5s | %4.0f%% %5.0f%% %s\n", p.LoadPct, p.AddsPerS, p.P50US, row.MeasuredP50US,
			off(p.P50US, row.MeasuredP50US), okOr(row.P50Within, row.Noisy), fmt.Sprintf("%.0f-%.0f", p.P99LowUS, p.P99HighUS),
			fmt.Sprintf("%.0f-%.0f", row.MeasuredP99LowUS, row.MeasuredP99HighUS), okOr(row.P99Within, row.Noisy), row.NoisePct, row.PausedPct, p.LimitedBy)
	}
	fmt.Fprintf(w, "\np50: medians of the rounds. p99: lowest and highest round. noise: how far apart the disk's figures before and after a\nround put the prediction. paused: how much of the time the machine stood still, for its hypervisor or a quota; the\nprediction knows. Beside the disk: %s.\n", v.Rest)
	_, err := fmt.Fprintf(w, "\n%s\n", verdict(v))
	return err
}

func verdict(v *result.Verification) string {
	switch {
	case v.Noisy:
		return "no verdict: the disk or the machine did not hold still, and what is off lies within that; run it again when it is quiet"
	case !v.Within:
		return "a prediction is further off than it may be (rate and p50 20 %, p99 the span of the rounds)"
	}
	return "every prediction is as close as it must be"
}

// off is how far a prediction is off, in percent.
func off(predicted, measured float64) float64 {
	if measured == 0 {
		return 0
	}
	return 100 * (predicted - measured) / measured
}

func okOr(ok, noisy bool) string {
	switch {
	case ok:
		return "ok"
	case noisy:
		return "noisy"
	}
	return "off"
}
