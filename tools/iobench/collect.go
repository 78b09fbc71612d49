package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/binderylog/bindery/tools/iobench/collect"
	"github.com/spf13/cobra"
)

// collectOptions are the flags of `iobench collect`.
type collectOptions struct {
	hosts   string
	dirs    []string
	out     string
	ssh     string
	remote  string
	timeout time.Duration
	output  string
}

func newCollectCommand() *cobra.Command {
	var o collectOptions
	c := &cobra.Command{
		Use:   "collect --hosts FILE [-- FLAGS OF QUICK]",
		Short: "Run quick on one host after another over ssh and gather the results",
		Long: "Runs `iobench quick` on each host of a list, one at a time, with the system's ssh, and writes a file of results for each.\n" +
			"A host a line in the list, behind it the directories to measure; # begins a comment. ssh must get in without asking.\n" +
			"Hosts that fail are passed over and named at the end. Then: iobench compare DIR/*.json --by model\n\n" +
			"  iobench collect --hosts fleet.txt --dir /data/journal --out fleet -- --duration 20s",
		RunE: func(c *cobra.Command, args []string) error { return o.collect(c, args) },
	}
	f := c.Flags()
	f.StringVar(&o.hosts, "hosts", "", "list of hosts; - for the standard input")
	f.StringArrayVar(&o.dirs, "dir", nil, "directory to measure on hosts whose line names none (repeatable)")
	f.StringVar(&o.out, "out", "iobench-results", "directory for the files of results, one a host")
	f.StringVar(&o.ssh, "ssh", "ssh", "ssh program")
	f.StringVar(&o.remote, "remote", "iobench", "iobench on the hosts")
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long one host may take")
	f.StringVar(&o.output, "output", "table", "table or json")
	return c
}

func (o *collectOptions) collect(c *cobra.Command, args []string) error {
	switch {
	case o.hosts == "":
		return missing(c, "--hosts FILE", "the list of hosts, one a line")
	case o.output != "table" && o.output != "json":
		return exit(exitUsage, fmt.Errorf("--output %q is neither table nor json", o.output))
	case o.timeout <= 0:
		return exit(exitUsage, fmt.Errorf("--timeout %v is not positive", o.timeout))
	case len(args) > 0 && c.ArgsLenAtDash() != 0:
		return exit(exitUsage, fmt.Errorf("%q: flags of quick stand behind --, directories in the list of hosts", args[0]))
	}
	for _, a := range args {
		if name, _, _ := strings.Cut(a, "="); name == "--output" || name == "--out" {
			return exit(exitUsage, fmt.Errorf("%s is not for quick here: collect gathers its JSON", a))
		}
	}
	in := os.Stdin
	if o.hosts != "-" {
		f, err := os.Open(o.hosts)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	hosts, err := collect.ParseHosts(in, o.dirs)
	if err != nil {
		return exit(exitUsage, fmt.Errorf("%s: %w", o.hosts, err))
	}
	if _, err := exec.LookPath(o.ssh); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	outcomes := collect.Run(c.Context(), hosts, collect.Options{SSH: o.ssh, Remote: o.remote, Args: args, Timeout: o.timeout, Dir: o.out}, func(n int, h collect.Host) {
		fmt.Fprintf(c.ErrOrStderr(), "%d/%d %s: %s\n", n+1, len(hosts), h.Name, strings.Join(h.Dirs, " "))
	})
	rows := collect.Rows(outcomes)
	if o.output == "json" {
		e := json.NewEncoder(c.OutOrStdout())
		e.SetIndent("", "  ")
		if err := e.Encode(rows); err != nil {
			return err
		}
	} else if err := collect.Print(c.OutOrStdout(), rows); err != nil {
		return err
	}
	failed := 0
	for i := range outcomes {
		if !outcomes[i].OK() {
			failed++
		}
	}
	switch failed {
	case 0:
		return nil
	case len(outcomes):
		return exit(exitFailed, fmt.Errorf("none of the %d hosts gave all results", len(outcomes)))
	}
	return exit(exitPartial, fmt.Errorf("%d of %d hosts did not give all results", failed, len(outcomes)))
}
