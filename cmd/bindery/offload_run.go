package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/binderylog/bindery/internal/config"
	"github.com/binderylog/bindery/offload"
)

// offloadRunEvery is between two lines of `offload run` where it does not run on a terminal.
const offloadRunEvery = 10 * time.Second

// offloadRun are the flags of `offload run`. Those of the policy have the names of the settings of [offload].
type offloadRun struct {
	tier       *tierOptions
	age        time.Duration
	bytes      sizeFlag
	match      []string
	lag, every time.Duration
	keep       bool
	dryRun     bool
	noProgress bool
	output     outputFormat
}

// sizeFlag is a size with a unit, as the configuration has them.
type sizeFlag config.Size

// String implements pflag.Value.
func (s *sizeFlag) String() string { return config.Size(*s).String() }

// Type implements pflag.Value.
func (s *sizeFlag) Type() string { return "size" }

// Set implements pflag.Value.
func (s *sizeFlag) Set(text string) error {
	n, err := config.ParseSize(text)
	*s = sizeFlag(n)
	return err
}

func newOffloadRunCommand(tier *tierOptions) *cobra.Command {
	o := offloadRun{tier: tier}
	c := &cobra.Command{
		Use: "run", Short: "Offload by a policy until it is told to stop, as the role offload does", Args: cobra.NoArgs,
		Long: "Looks at all ledgers again and again, moves those that the policy names into the tier, releases the bookies' copies after the lag,\n" +
			"cleans up and scrubs. Says how far it is on a terminal, and every ten seconds anywhere else. --dry-run lists what would be moved and\n" +
			"released, and ends. `bindery run --roles offload` does the same from a configuration file.",
		Example: "  bindery offload run --after-age 24h --match team=billing\n  bindery offload run --after-age 24h --after-bytes 1MiB --dry-run",
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f := c.Flags()
	f.DurationVar(&o.age, "after-age", 0, "offload closed ledgers that were made so long ago (default: none by age)")
	f.Var(&o.bytes, "after-bytes", "smaller ledgers stay on the bookies")
	f.StringArrayVar(&o.match, "match", nil, "only ledgers whose custom metadata has KEY=VALUE; may be given again")
	f.DurationVar(&o.lag, "deletion-lag", commandLag, "how long bookies keep their copies of what is in the tier")
	f.DurationVar(&o.every, "every", time.Minute, "between two looks at all ledgers")
	f.BoolVar(&o.keep, "keep", false, "bookies keep their copies")
	f.BoolVar(&o.dryRun, "dry-run", false, "list what would be moved and released, and end")
	f.BoolVar(&o.noProgress, "no-progress", false, "do not say how far it is")
	addOutputFlag(c, &o.output)
	tier.addEncryptionFlags(c)
	return c
}

func (o *offloadRun) policy() (offload.Policy, error) {
	pairs, err := parsePairs("match", o.match)
	p := offload.Policy{AfterAge: o.age, MinBytes: int64(o.bytes), Match: pairs, KeepCopy: o.keep}
	switch {
	case err != nil:
	case o.age < 0:
		err = exit(exitUsage, fmt.Errorf("--after-age %s is negative", o.age))
	case o.age == 0 && (p.MinBytes > 0 || len(pairs) > 0):
		err = exit(exitUsage, errors.New("--after-bytes and --match choose among the ledgers that --after-age takes: give it too, such as --after-age 1s"))
	case o.every <= 0:
		err = exit(exitUsage, fmt.Errorf("--every %s: looks at all ledgers need some time between them", o.every))
	case !o.dryRun && o.output == outputJSON:
		err = exit(exitUsage, errors.New("--output json is for --dry-run"))
	}
	return p, err
}

func (o *offloadRun) run(c *cobra.Command) error {
	p, err := o.policy()
	if err != nil {
		return err
	}
	var s *offload.Service
	started := make(chan struct{})
	line := startStatusLine(c.ErrOrStderr(), o.lineEvery(), func(now time.Time) string {
		select {
		case <-started:
			return roundLine(s.Round(), now)
		default:
			return ""
		}
	})
	defer line.finish()
	level := slog.LevelInfo
	if o.tier.cluster.verbose {
		level = slog.LevelDebug
	}
	change := func(wo *offload.Options) {
		wo.DeletionLag = o.lag
		if !o.dryRun {
			wo.Logger = slog.New(slog.NewTextHandler(line, &slog.HandlerOptions{Level: level}))
		}
	}
	return o.tier.withWorker(c, change, func(ctx context.Context, _ *tier, w *offload.Worker) error {
		if o.dryRun {
			return o.list(ctx, c, w, p)
		}
		s = offload.NewService(w, offload.ServiceOptions{Policy: p, Every: o.every})
		s.Start()
		close(started)
		<-ctx.Done()
		s.Close()
		return nil
	})
}

// lineEvery is how often something is said where nobody looks at a terminal; below 0: nothing is said anywhere.
func (o *offloadRun) lineEvery() time.Duration {
	if o.noProgress || o.dryRun {
		return -1
	}
	return offloadRunEvery
}

// roundLine says how far a round is.
func roundLine(r offload.Round, now time.Time) string {
	if r.Ledgers == 0 {
		return ""
	}
	rate := 0.0
	if s := now.Sub(r.Since).Seconds(); s > 0 {
		rate = float64(r.Done) / s
	}
	return fmt.Sprintf("%d of %s offloaded  %s", r.Finished, plural(r.Ledgers, "ledger"), doneOf(r.Done, max(r.Total, 1), rate, r.Left(now)))
}

// planned is one line of --dry-run.
type planned struct {
	Ledger int64  `json:"ledger"`
	Action string `json:"action"` // offload or release
	Bytes  int64  `json:"payload_bytes"`
	After  string `json:"not_before,omitempty"` // of a release: when the lag is over
}

// list prints what the policy would have done.
func (o *offloadRun) list(ctx context.Context, c *cobra.Command, w *offload.Worker, p offload.Policy) error {
	all, err := w.Plan(ctx, p)
	if err != nil {
		return err
	}
	list := []planned{}
	var rows [][]string
	for _, x := range all {
		row := planned{Ledger: int64(x.Ledger), Action: "offload", Bytes: x.Bytes}
		if !x.Offload {
			row.Action, row.After = "release", x.After.UTC().Format(time.RFC3339)
		}
		list = append(list, row)
		rows = append(rows, []string{strconv.FormatInt(row.Ledger, 10), row.Action, humanBytes(row.Bytes), row.After})
	}
	if o.output == outputJSON {
		return printJSON(c.OutOrStdout(), list)
	}
	return printTable(c.OutOrStdout(), []string{">ledger", "action", ">payload", "not before"}, rows)
}
