package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/tools/iobench/device"
	"github.com/binderylog/bindery/tools/iobench/result"
	"github.com/binderylog/bindery/tools/iobench/session"
	"github.com/binderylog/bindery/tools/iobench/terminal"
	"github.com/spf13/cobra"
)

// measure runs plans one after the other and prints what they found. The first one that does not end well is the last.
func (o *measureFlags) measure(c *cobra.Command, plans ...session.Plan) error {
	if o.outFile != "" { // rather now than after an hour
		if _, err := vfs.OS().Stat(parentOf(o.outFile)); err != nil {
			return exit(exitUsage, fmt.Errorf("--out: %w", err))
		}
		if info, err := vfs.OS().Stat(o.outFile); err == nil && info.Dir {
			return exit(exitUsage, fmt.Errorf("--out: %s is a directory", o.outFile))
		}
	}
	var runs []*result.Run
	var err error
	for _, p := range plans {
		show := startProgress(c.ErrOrStderr(), o.quiet)
		show.limit = p.Limit
		p.Progress, p.Started = show.update, show.started
		var run *result.Run
		run, err = session.Run(c.Context(), p)
		show.finish()
		if run != nil {
			runs = append(runs, run)
		}
		if err != nil {
			break
		}
	}
	if perr := o.print(c, runs); perr != nil {
		return errors.Join(perr, err)
	}
	return ending(err, len(runs) > 0)
}

// print writes the results. There may be none.
func (o *measureFlags) print(c *cobra.Command, runs []*result.Run) error {
	if len(runs) == 0 {
		return nil
	}
	var b bytes.Buffer
	if err := result.Encode(&b, runs...); err != nil {
		return err
	}
	w := c.OutOrStdout()
	if o.outFile != "" {
		if err := vfs.WriteFileAtomic(vfs.OS(), o.outFile, b.Bytes()); err != nil {
			_, werr := w.Write(b.Bytes()) // what took so long to measure is not lost
			return errors.Join(fmt.Errorf("--out: %w: the result stands on the standard output instead", err), werr)
		}
	}
	if o.output == "json" {
		_, err := w.Write(b.Bytes())
		return err
	}
	if o.output == "prometheus" {
		return terminal.Prometheus(w, runs)
	}
	if o.output != "table" {
		return nil
	}
	return printRuns(w, runs)
}

// printRuns writes the terminal report of each run.
func printRuns(w io.Writer, runs []*result.Run) error {
	for i, r := range runs {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if r.Verification != nil {
			if err := printVerified(w, r); err != nil {
				return err
			}
			continue
		}
		if err := terminal.Print(w, r, terminal.Options{Color: isTerminal(w)}); err != nil {
			return err
		}
	}
	return nil
}

// ending gives an error its exit code.
func ending(err error, measured bool) error {
	var refused *device.RefusedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return exit(exitRefused, err)
	case measured && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return exit(exitPartial, errors.New("interrupted; the result holds what was measured until then"))
	}
	return err
}
