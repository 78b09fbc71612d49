package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/spf13/cobra"
)

func newRecoveryCommand() *cobra.Command {
	var o clusterOptions
	c := group("recovery", "Show and steer auditing and re-replication",
		newRecoveryStatusCommand(&o),
		newRecoveryListCommand(&o),
		newRecoverySwitchCommand(&o, true),
		newRecoverySwitchCommand(&o, false),
		newRecoveryAuditCommand(&o),
		newRecoveryAuditorCommand(&o),
		newRecoveryDelayCommand(&o),
	)
	c.Aliases = []string{"autorecovery"}
	o.addFlags(c)
	return c
}

// recoveryStatus is what `recovery status` prints.
type recoveryStatus struct {
	Enabled  bool     `json:"enabled"`
	Auditor  string   `json:"auditor"`
	Delay    string   `json:"lost_bookie_delay,omitempty"`
	Marked   int      `json:"underreplicated_ledgers"`
	Locked   int      `json:"ledgers_in_hand"`
	Workers  []string `json:"workers"`
	Missing  []string `json:"missing_bookies"`
	Draining []string `json:"draining_bookies"`
	Checked  struct {
		Ledgers   *time.Time `json:"ledgers,omitempty"`
		Placement *time.Time `json:"placement,omitempty"`
		Replicas  *time.Time `json:"replicas,omitempty"`
	} `json:"last_checks"`
}

func newRecoveryStatusCommand(o *clusterOptions) *cobra.Command {
	var output outputFormat
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the switch, the auditor, and how many ledgers lack copies",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.withCluster(c, func(ctx context.Context, _ string, v *metadata.Views) error {
				s, err := readRecoveryStatus(ctx, v)
				if err != nil {
					return err
				}
				if output == outputJSON {
					return printJSON(c.OutOrStdout(), s)
				}
				on := "on"
				if !s.Enabled {
					on = "OFF: nothing is audited or copied"
				}
				none := func(list []string) string {
					if len(list) == 0 {
						return "none"
					}
					return strings.Join(list, ", ")
				}
				auditor := s.Auditor
				if auditor == "" {
					auditor = "none"
				}
				last := "never"
				if s.Checked.Ledgers != nil {
					last = s.Checked.Ledgers.UTC().Format(time.RFC3339)
				}
				return printTable(c.OutOrStdout(), []string{"RECOVERY", ""}, [][]string{
					{"re-replication", on}, {"auditor", auditor}, {"lost bookie delay", s.Delay},
					{"under-replicated", plural(s.Marked, "ledger")}, {"in hand", inHand(s)},
					{"missing bookies", none(s.Missing)}, {"draining bookies", none(s.Draining)}, {"last full check", last},
				})
			})
		},
	}
	addOutputFlag(c, &output)
	return c
}

// inHand says how many ledgers workers have locked, and which workers.
func inHand(s recoveryStatus) string {
	if s.Locked == 0 {
		return "none"
	}
	return fmt.Sprintf("%s by %s", plural(s.Locked, "ledger"), strings.Join(s.Workers, ", "))
}

func readRecoveryStatus(ctx context.Context, v *metadata.Views) (s recoveryStatus, err error) {
	r := v.Replication
	if s.Enabled, err = r.Enabled(ctx); err != nil {
		return s, err
	}
	if s.Auditor, err = v.Election.Current(ctx); err != nil {
		return s, err
	}
	d, err := r.Delay(ctx)
	if err == nil {
		s.Delay = d.String()
	} else if !errors.Is(err, metadata.ErrNotFound) {
		return s, err
	}
	for _, err := range r.All(ctx, -1) {
		if err != nil {
			return s, err
		}
		s.Marked++
	}
	held, err := r.Locked(ctx)
	if err != nil {
		return s, err
	}
	s.Locked, s.Workers, s.Missing, s.Draining = len(held), []string{}, []string{}, []string{}
	for _, w := range held {
		if !slices.Contains(s.Workers, w) {
			s.Workers = append(s.Workers, w)
		}
	}
	slices.Sort(s.Workers)
	rows, err := listBookies(ctx, v, []string{"down"})
	if err != nil {
		return s, err
	}
	for _, b := range rows {
		s.Missing = append(s.Missing, b.ID)
	}
	draining, err := r.Draining(ctx)
	if err != nil {
		return s, err
	}
	for _, b := range draining {
		s.Draining = append(s.Draining, string(b))
	}
	for _, x := range []struct {
		kind metadata.CheckKind
		to   **time.Time
	}{{metadata.CheckLedgers, &s.Checked.Ledgers}, {metadata.CheckPlacement, &s.Checked.Placement}, {metadata.CheckReplicas, &s.Checked.Replicas}} {
		at, err := r.Checked(ctx, x.kind)
		if err != nil {
			return s, err
		}
		if !at.IsZero() {
			*x.to = &at
		}
	}
	return s, nil
}

// markRow is one under-replicated ledger.
type markRow struct {
	Ledger  ledger.ID `json:"ledger"`
	Missing []string  `json:"missing_replicas"`
	Since   string    `json:"marked,omitempty"`
	Worker  string    `json:"worker,omitempty"`
}

func newRecoveryListCommand(o *clusterOptions) *cobra.Command {
	var output outputFormat
	var missing string
	c := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the ledgers that lack copies, and who is at work on them",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.withCluster(c, func(ctx context.Context, _ string, v *metadata.Views) error {
				held, err := v.Replication.Locked(ctx)
				if err != nil {
					return err
				}
				rows := []markRow{}
				for m, err := range v.Replication.All(ctx, -1) {
					if err != nil {
						return err
					}
					if missing != "" && !slices.Contains(m.Replicas, ledger.BookieID(missing)) {
						continue
					}
					r := markRow{Ledger: m.Ledger, Missing: []string{}, Worker: held[m.Ledger]}
					for _, b := range m.Replicas {
						r.Missing = append(r.Missing, string(b))
					}
					if m.CTime > 0 {
						r.Since = time.UnixMilli(m.CTime).UTC().Format(time.RFC3339)
					}
					rows = append(rows, r)
				}
				if output == outputJSON {
					return printJSON(c.OutOrStdout(), rows)
				}
				var cells [][]string
				for _, r := range rows {
					cells = append(cells, []string{strconv.FormatInt(int64(r.Ledger), 10), r.Since, strings.Join(r.Missing, " "), r.Worker})
				}
				return printTable(c.OutOrStdout(), []string{">LEDGER", "MARKED", "MISSING ON", "WORKER"}, cells)
			})
		},
	}
	c.Flags().StringVar(&missing, "missing", "", "only ledgers whose copies on this bookie are missing")
	addOutputFlag(c, &output)
	return c
}

func newRecoverySwitchCommand(o *clusterOptions, on bool) *cobra.Command {
	use, alias, short := "off", "disable", "Switch auditing and re-replication off in the whole cluster, for maintenance"
	if on {
		use, alias, short = "on", "enable", "Switch auditing and re-replication on again"
	}
	return &cobra.Command{
		Use:     use,
		Aliases: []string{alias},
		Short:   short,
		Long: short + ".\nThe switch is BookKeeper's own: Java's auditors and workers obey it, too, and its shell shows and sets it. A ledger that is\n" +
			"being copied when it is switched off is still finished.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.withCluster(c, func(ctx context.Context, _ string, v *metadata.Views) error {
				err := v.Replication.SetEnabled(ctx, on)
				text := "re-replication is " + use
				if errors.Is(err, metadata.ErrSwitched) {
					text, err = text+" already", nil
				}
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(c.OutOrStdout(), text)
				return err
			})
		},
	}
}

func newRecoveryAuditCommand(o *clusterOptions) *cobra.Command {
	var full bool
	c := &cobra.Command{
		Use:     "audit",
		Aliases: []string{"check"},
		Short:   "Have the auditor look for ledgers of missing bookies now",
		Long: "Has the elected auditor look for ledgers of missing bookies at once, whatever the delay. With --full the times of the last\n" +
			"big checks are forgotten as well, so that the next auditor that is elected runs them; restart the node that is auditor now.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.withCluster(c, func(ctx context.Context, _ string, v *metadata.Views) error {
				on, err := v.Replication.Enabled(ctx)
				if err != nil {
					return err
				}
				if !on {
					return exit(exitRefused, errors.New("auditing is switched off: `bindery recovery on` lets it go on"))
				}
				name, err := v.Election.Current(ctx)
				if err != nil {
					return err
				}
				if full {
					for _, k := range []metadata.CheckKind{metadata.CheckLedgers, metadata.CheckPlacement, metadata.CheckReplicas} {
						if err := v.Replication.SetChecked(ctx, k, time.Time{}); err != nil {
							return err
						}
					}
				}
				if name == "" {
					return exit(exitRefused, errors.New("no auditor is elected: run a bookie or the role recovery"))
				}
				d, err := v.Replication.Delay(ctx)
				if errors.Is(err, metadata.ErrNotFound) {
					return exit(exitRefused, fmt.Errorf("the auditor %s has only just been elected, and is looking already", name))
				}
				if err != nil {
					return err
				}
				if err := v.Replication.SetDelay(ctx, d, false); err != nil {
					return err
				}
				_, err = fmt.Fprintf(c.OutOrStdout(), "asked %s to audit\n", name)
				return err
			})
		},
	}
	c.Flags().BoolVar(&full, "full", false, "forget when the big checks last ran")
	return c
}

func newRecoveryAuditorCommand(o *clusterOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "auditor",
		Short: "Print who is the elected auditor",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.withCluster(c, func(ctx context.Context, _ string, v *metadata.Views) error {
				name, err := v.Election.Current(ctx)
				if err != nil {
					return err
				}
				if name == "" {
					return exit(exitFindings, errors.New("no auditor is elected"))
				}
				_, err = fmt.Fprintln(c.OutOrStdout(), name)
				return err
			})
		},
	}
}

func newRecoveryDelayCommand(o *clusterOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "delay [DURATION]",
		Short: "Show or set how long a bookie may be missing before its ledgers are copied",
		Long: "Shows or sets the cluster's delay, in whole seconds; Java's auditors use the same one. Setting the value that it has makes\n" +
			"the auditor look at once.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var d time.Duration
			if len(args) == 1 {
				var err error
				if d, err = time.ParseDuration(args[0]); err != nil || d < 0 || d%time.Second != 0 || d > 1<<30*time.Second {
					return exit(exitUsage, fmt.Errorf("%q is no duration in whole seconds, such as 10m", args[0]))
				}
			}
			return o.withCluster(c, func(ctx context.Context, _ string, v *metadata.Views) error {
				if len(args) == 1 {
					if err := v.Replication.SetDelay(ctx, d, false); err != nil {
						return err
					}
				}
				d, err := v.Replication.Delay(ctx)
				if errors.Is(err, metadata.ErrNotFound) {
					return exit(exitFindings, errors.New("no delay is set: the first auditor sets it from its configuration"))
				}
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(c.OutOrStdout(), d)
				return err
			})
		},
	}
}
