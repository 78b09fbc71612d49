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
		Use:   "report RUN.json... --html FILE",
		Short: "Write results as one HTML file with charts that needs nothing else",
		Long: "Writes the runs of the files as one HTML page of at most 1 MB: charts, settings with their reasons, and all figures as\n" +
			"tables. The page loads nothing from anywhere. Many runs side by side: iobench compare.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return o.write(c, args) },
	}
	f := c.Flags()
	f.StringVar(&o.html, "html", "", "file to write")
	f.IntVar(&o.run, "run", 0, "only the run with this number, counted from 1 through all files; 0: all of them")
	return c
}

func (o *reportOptions) write(c *cobra.Command, files []string) error {
	if o.html == "" {
		return exit(exitUsage, fmt.Errorf("--html FILE says where the page goes"))
	}
	runs, err := readRuns(files)
	if err != nil {
		return err
	}
	if runs, err = pickRun(runs, o.run); err != nil {
		return err
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
