package main

import (
	"bytes"
	"fmt"

	"github.com/binderylog/bindery/internal/vfs"
	page "github.com/binderylog/bindery/tools/iobench/report"
	"github.com/binderylog/bindery/tools/iobench/result"
	"github.com/spf13/cobra"
)

// reportOptions are the flags of `iobench report`.
type reportOptions struct {
	html string
	run  int
}

func newReportCommand() *cobra.Command {
	var o reportOptions
	c := &cobra.Command{
		Use:   "report RUN.json...",
		Short: "Print results again, or write them as one HTML file with charts that needs nothing else",
		Long: "Prints the runs of the files as they were printed when they were measured. With --html it writes them as one HTML page of\n" +
			"at most 1 MB instead: charts, settings with their reasons, and all figures as tables. The page loads nothing from\n" +
			"anywhere. Many runs side by side: iobench compare.",
		Example: "  iobench report disk.json\n  iobench report disk.json --html disk.html",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return o.write(c, args) },
	}
	f := c.Flags()
	f.StringVar(&o.html, "html", "", "write a page with charts to this file")
	f.IntVar(&o.run, "run", 0, "only the run with this number, counted from 1 through all files; 0: all of them")
	return c
}

func (o *reportOptions) write(c *cobra.Command, files []string) error {
	runs, err := readRuns(files)
	if err != nil {
		return err
	}
	if runs, err = pickRun(runs, o.run); err != nil {
		return err
	}
	if o.html == "" {
		return printRuns(c.OutOrStdout(), runs)
	}
	var b bytes.Buffer
	if err := page.Write(&b, runs); err != nil {
		return err
	}
	if err := vfs.WriteFileAtomic(vfs.OS(), o.html, b.Bytes()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %d kB, %d runs\n", o.html, (b.Len()+999)/1000, len(runs))
	return err
}

// readRuns reads the runs of all files in their order.
func readRuns(files []string) (runs []*result.Run, err error) {
	for _, name := range files {
		r, err := result.ReadFile(name)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r...)
	}
	return runs, nil
}

// pickRun keeps the nth run, counted from 1; 0 keeps all.
func pickRun(runs []*result.Run, n int) ([]*result.Run, error) {
	switch {
	case n == 0:
		return runs, nil
	case n < 0 || n > len(runs):
		return nil, exit(exitUsage, fmt.Errorf("--run %d: there are runs 1 to %d", n, len(runs)))
	}
	return runs[n-1 : n], nil
}
