package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/binderylog/bindery/internal/config"
	"github.com/binderylog/bindery/internal/loadgen"
	"github.com/binderylog/bindery/ledgerclient"
	"github.com/spf13/cobra"
)

func newBenchCommand() *cobra.Command {
	return group("bench", "Measure a cluster or a journal (`iobench` measures disks)", newBenchClusterCommand(), newBenchJournalCommand())
}

type benchClusterOptions struct {
	cluster clusterOptions
	plan    loadgen.Plan
	size    string
	quorum  ledgerclient.Quorum
	digest  string
	raw     string
	pids    []int
	output  outputFormat
	keep    bool
	hist    bool
	metrics bool
	tail    bool
}

func newBenchClusterCommand() *cobra.Command {
	var o benchClusterOptions
	c := &cobra.Command{
		Use:   "cluster",
		Short: "Drive a cluster, or one bookie, with adds and print rate and latency percentiles",
		Long: "Writes ledgers through the ledger client and measures each add from end to end. With --rate the loop is open: adds\n" +
			"are due at fixed times and latency counts from the time an add was due, however late it could be sent. Without, it is\n" +
			"closed: --outstanding adds per ledger are in flight, and latency counts from the moment the window lets an add through.\n\n" +
			"With --raw HOST:PORT it drives that one bookie with BookKeeper's V2 frames over --connections connections instead, with\n" +
			"--outstanding adds on each; no metadata and no replication are involved, so any BookKeeper-compatible bookie can be\n" +
			"measured with the same client. Its ledgers have ids from 2^40 up and appear in no metadata store, so the bookie's\n" +
			"garbage collection removes them.",
		Example: "  bindery bench cluster --ledgers 8 --outstanding 500\n  bindery bench cluster --rate 20000 --size 1KiB --duration 60s --output json\n  bindery bench cluster --raw 127.0.0.1:3181 --connections 64 --outstanding 1",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	o.cluster.addFlags(c)
	addOutputFlag(c, &o.output)
	f := c.Flags()
	f.Float64Var(&o.plan.Rate, "rate", 0, "open loop: adds per second over all ledgers")
	f.IntVar(&o.plan.Outstanding, "outstanding", 0, "closed loop: adds in flight per ledger, or per connection with --raw (default 100)")
	f.IntVar(&o.plan.Ledgers, "ledgers", 0, "ledgers (default 4)")
	f.IntVar(&o.plan.Connections, "connections", 4, "with --raw: connections")
	f.StringVar(&o.size, "size", "1KiB", "payload of an add")
	f.DurationVar(&o.plan.Duration, "duration", 10*time.Second, "measured time")
	f.DurationVar(&o.plan.Warmup, "warmup", 2*time.Second, "time before it that is not measured")
	f.IntVar(&o.quorum.Ensemble, "ensemble", 3, "ensemble size")
	f.IntVar(&o.quorum.Write, "write-quorum", 3, "write quorum")
	f.IntVar(&o.quorum.Ack, "ack-quorum", 2, "ack quorum")
	f.StringVar(&o.digest, "digest", "crc32c", "digest of the entries: crc32c, crc32, hmac or dummy")
	f.StringVar(&o.raw, "raw", "", "drive the bookie at this address instead of a cluster")
	f.IntSliceVar(&o.pids, "pid", nil, "processes to measure processor time and memory of (default: the standalone's)")
	f.Uint64Var(&o.plan.Seed, "seed", 1, "seed of the payload")
	f.BoolVar(&o.keep, "keep-ledgers", false, "do not delete the ledgers at the end")
	f.BoolVar(&o.metrics, "client-metrics", false, "print the ledger client's metrics, in Prometheus's text format, to standard error at the end")
	f.BoolVar(&o.tail, "tail", false, "have a reader follow each ledger, and measure the time from an add's acknowledgement until it has the entry")
	f.BoolVar(&o.hist, "histogram", false, "put the whole histogram into the JSON output")
	return c
}

func (o *benchClusterOptions) run(c *cobra.Command) error {
	size, err := config.ParseSize(o.size)
	if err != nil {
		return exit(exitUsage, fmt.Errorf("--size: %w", err))
	}
	o.plan.Size = int(min(size, 1<<30))
	for _, name := range []string{"ledgers", "outstanding"} {
		if f := c.Flags().Lookup(name); f.Changed && f.Value.String() == "0" {
			return exit(exitUsage, fmt.Errorf("--%s must be at least 1", name))
		}
	}
	if o.plan.Ledgers == 0 {
		o.plan.Ledgers = 4
		if o.raw != "" {
			o.plan.Ledgers = o.plan.Connections
		}
	}
	plan := o.plan
	plan.Defaults()
	if err := plan.Validate(); err != nil {
		return exit(exitUsage, err)
	}
	if o.raw != "" && o.tail {
		return exit(exitUsage, errors.New("--tail follows ledgers of a cluster: it does not go with --raw"))
	}
	var r *loadgen.Result
	if o.raw != "" {
		r, err = (&loadgen.Raw{Plan: o.plan, Address: o.raw, Servers: o.pids, KeepHistogram: o.hist}).Run(c.Context())
	} else {
		r, err = o.runCluster(c)
	}
	return o.report(c, r, err)
}

func (o *benchClusterOptions) runCluster(c *cobra.Command) (*loadgen.Result, error) {
	digest, err := parseDigest(o.digest)
	if err != nil {
		return nil, err
	}
	if err := o.quorum.Validate(); err != nil {
		return nil, exit(exitUsage, err)
	}
	uri, err := metadataURI(o.cluster.metadata)
	if err != nil {
		return nil, err
	}
	if len(o.pids) == 0 {
		if ep, err := readEndpoints(defaultDataDir); err == nil && ep.Metadata == uri {
			o.pids = []int{ep.PID}
		}
	}
	var r *loadgen.Result
	err = o.cluster.with(c, func(ctx context.Context, client *ledgerclient.Client) error {
		r, err = (&loadgen.Cluster{
			Plan: o.plan, Client: client, Target: uri, Servers: o.pids, KeepHistogram: o.hist, KeepLedgers: o.keep, Tail: o.tail,
			Create: ledgerclient.CreateOptions{Quorum: o.quorum, Digest: digest},
		}).Run(ctx)
		if o.metrics {
			client.WritePrometheus(c.ErrOrStderr())
		}
		return err
	})
	return r, err
}

// report prints what was measured, also of a run that ended early.
func (o *benchClusterOptions) report(c *cobra.Command, r *loadgen.Result, err error) error {
	if r != nil {
		if o.output == outputJSON {
			if perr := printJSON(c.OutOrStdout(), r); perr != nil {
				return perr
			}
		} else {
			r.Print(c.OutOrStdout())
		}
		if err == nil && r.Failed() > 0 {
			err = fmt.Errorf("%d adds failed or were not answered", r.Failed())
		}
	}
	if errors.Is(err, context.Canceled) {
		return exit(exitPartial, errors.New("interrupted; the figures are of the time until then"))
	}
	return err
}

// tempJournalDir makes a directory for a benchmark beside the data it stands for.
func tempJournalDir(parent string) (string, func() error, error) {
	dir, err := os.MkdirTemp(parent, ".bindery-bench-")
	if err != nil {
		return "", nil, err
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}
