package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// gcOptions serve all gc commands.
type gcOptions struct {
	adminCall
	output       outputFormat
	major, minor bool
}

// gcReport is the body of /api/v2/gc.
type gcReport struct {
	InForce        bool      `json:"in_force"`
	MajorSuspended bool      `json:"major_suspended"`
	MinorSuspended bool      `json:"minor_suspended"`
	Summary        gcFigures `json:"summary"`
}

type gcFigures struct {
	Running         bool      `json:"running"`
	Step            string    `json:"step,omitempty"`
	LastSuccess     time.Time `json:"last_success"`
	LastError       string    `json:"last_error,omitempty"`
	Passes          uint64    `json:"passes"`
	FailedPasses    uint64    `json:"failed_passes"`
	LedgersDeleted  uint64    `json:"ledgers_deleted"`
	LogsRemoved     uint64    `json:"logs_removed"`
	LogsCompacted   uint64    `json:"logs_compacted"`
	BytesCopied     uint64    `json:"copied_bytes"`
	BytesFreed      uint64    `json:"freed_bytes"`
	DamagedLogs     int       `json:"damaged_logs"`
	PendingRemovals int       `json:"pending_removals"`
}

func newGCCommand() *cobra.Command {
	return group("gc", "Garbage collection of a running bookie",
		newGCStatusCommand(),
		newGCChangeCommand("run", "Start a pass now", "A pass removes the ledgers that the metadata store has lost for sure and the entry logs that hold nothing else.\n"+
			"With --minor or --major it also compacts the logs below that threshold.", "/api/v2/gc", true),
		newGCChangeCommand("suspend", "Suspend compaction", "Whole logs are still removed. Without --minor or --major both kinds are meant. It lasts until `bindery gc resume`, also across restarts.", "/api/v2/gc/suspend", false),
		newGCChangeCommand("resume", "Resume compaction", "Without --minor or --major both kinds are meant.", "/api/v2/gc/resume", false),
		newGCAcceptCommand(),
	)
}

func newGCStatusCommand() *cobra.Command {
	var o gcOptions
	c := &cobra.Command{
		Use: "status", Short: "Show what collection has done and is doing", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			url, err := o.url("/api/v2/gc")
			if err != nil {
				return err
			}
			var r gcReport
			if err := getJSON(c.Context(), url, &r); err != nil {
				return err
			}
			if o.output == outputJSON {
				return printJSON(c.OutOrStdout(), r)
			}
			return r.print(c.OutOrStdout())
		},
	}
	o.addFlags(c, true)
	addOutputFlag(c, &o.output)
	return c
}

func (r *gcReport) print(w io.Writer) error {
	s := &r.Summary
	now := "idle"
	if s.Running {
		now = "running: " + s.Step
	}
	last := "never"
	if !s.LastSuccess.IsZero() {
		last = s.LastSuccess.UTC().Format(time.RFC3339)
	}
	rows := [][2]string{
		{"now", now},
		{"last success", last},
		{"passes", fmt.Sprintf("%d, %d of them failed", s.Passes, s.FailedPasses)},
		{"suspended", r.suspended()},
		{"ledgers deleted", fmt.Sprint(s.LedgersDeleted)},
		{"logs", fmt.Sprintf("%d removed, %d compacted, %d damaged, %d waiting for removal", s.LogsRemoved, s.LogsCompacted, s.DamagedLogs, s.PendingRemovals)},
		{"bytes", fmt.Sprintf("%s copied, %s freed", humanBytes(int64(s.BytesCopied)), humanBytes(int64(s.BytesFreed)))}, //nolint:gosec // sizes
	}
	if s.LastError != "" {
		rows = append(rows, [2]string{"last error", s.LastError})
	}
	for _, row := range rows {
		if _, err := fmt.Fprintf(w, "%-16s %s\n", row[0], row[1]); err != nil {
			return err
		}
	}
	return nil
}

// suspended says what an operator has suspended and how that ends.
func (r *gcReport) suspended() string {
	var kinds []string
	if r.MinorSuspended {
		kinds = append(kinds, "minor compaction")
	}
	if r.MajorSuspended {
		kinds = append(kinds, "major compaction")
	}
	if len(kinds) == 0 {
		return "nothing"
	}
	return strings.Join(kinds, " and ") + ", until `bindery gc resume`"
}

// newGCChangeCommand makes a command that posts which kinds it is about. If none is named, plain says that neither is
// meant, otherwise both are.
func newGCChangeCommand(use, short, long, path string, plain bool) *cobra.Command {
	var o gcOptions
	c := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !o.major && !o.minor && !plain {
				o.major, o.minor = true, true
			}
			if _, err := o.post(c.Context(), path, map[string]bool{"major": o.major, "minor": o.minor}); err != nil {
				return err
			}
			_, err := fmt.Fprintln(c.OutOrStdout(), gcChanged(use, o.minor, o.major))
			return err
		},
	}
	o.addFlags(c, true)
	c.Flags().BoolVar(&o.minor, "minor", false, "minor compaction")
	c.Flags().BoolVar(&o.major, "major", false, "major compaction")
	return c
}

// gcChanged says what a command has brought about.
func gcChanged(use string, minor, major bool) string {
	kinds := "minor and major compaction"
	switch {
	case minor && !major:
		kinds = "minor compaction"
	case major && !minor:
		kinds = "major compaction"
	}
	switch {
	case use == "suspend":
		return kinds + " suspended, until `bindery gc resume`"
	case use == "resume":
		return kinds + " resumed"
	case minor || major:
		return "a pass with " + kinds + " was asked for; `bindery gc status` shows it"
	}
	return "a pass was asked for; `bindery gc status` shows it"
}

// acceptTimeout is how long one bookie may take to accept a rollback: it may have to draw a million ledger ids.
const acceptTimeout = 10 * time.Minute

func newGCAcceptCommand() *cobra.Command {
	var o gcOptions
	var yes bool
	c := &cobra.Command{
		Use: "accept-rollback", Short: "Let bookies go on after the metadata store was restored from a backup",
		Long: "A bookie that finds its metadata store older than it was takes no new entries and deletes nothing, since ledgers created\n" +
			"after the backup are missing in the store although they exist, and their ids would be given out again. This command says\n" +
			"that every ledger worth keeping is in the store: ids that the bookie may know are never given out, it takes entries again,\n" +
			"and its next collection deletes the ledgers that are not in the store for good. It is about every bookie of the process,\n" +
			"or the one that --bookie names.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !yes {
				return exit(exitRefused, errors.New("ledgers that the restored store does not know will be deleted from this bookie: say --yes if that is meant"))
			}
			first, last := o.bookie, o.bookie
			if !c.Flags().Changed("bookie") {
				n, err := o.bookies(c.Context())
				if err != nil {
					return err
				}
				first, last = 1, n
			}
			o.timeout = acceptTimeout
			for o.bookie = first; o.bookie <= last; o.bookie++ {
				if _, err := o.post(c.Context(), "/api/v2/gc/accept-rollback", nil); err != nil {
					return fmt.Errorf("bookie %d of the process: %w", o.bookie, err)
				}
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "accepted by %s: the metadata store is right as it is now\n", plural(last-first+1, "bookie"))
			return err
		},
	}
	o.addFlags(c, true)
	c.Flags().BoolVar(&yes, "yes", false, "it is meant")
	return c
}
