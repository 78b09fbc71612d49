package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/usage"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/ledgerclient"
	"github.com/binderylog/bindery/offload"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/objstore/dir"
)

// What commands do without being told.
const (
	commandLag      = 4 * time.Hour
	commandTakeOver = 5 * time.Second
	commandLockWait = 25 * time.Second // above the lease that a killed worker's locks outlive it by
)

func newOffloadCommand() *cobra.Command {
	var o tierOptions
	c := group("offload", "Move closed ledgers to object stores, and look after them there",
		newOffloadTargetsCommand(&o),
		newOffloadLedgerCommand(&o),
		newOffloadListCommand(&o),
		newOffloadShowCommand(&o),
		newOffloadReadCommand(&o),
		newOffloadVerifyCommand(&o),
		newOffloadRepairCommand(&o),
		newOffloadRestoreCommand(&o),
		newOffloadDeleteCommand(&o),
		newOffloadScrubCommand(&o),
		newOffloadCleanCommand(&o),
		newOffloadOrphansCommand(&o),
		newOffloadAdoptCommand(&o),
		newOffloadInspectCommand(),
		newOffloadRunCommand(&o),
	)
	o.addFlags(c)
	return c
}

// ledgerIDs reads the ids that a command is given.
func ledgerIDs(args []string) ([]ledger.ID, error) {
	ids := make([]ledger.ID, len(args))
	for i, a := range args {
		id, err := parseLedgerID(a)
		if err != nil {
			return nil, err
		}
		ids[i] = id
	}
	return ids, nil
}

// needIDs refuses a call that names no ledgers, or some and all.
func needIDs(c *cobra.Command, args []string, all bool) error {
	if all && len(args) > 0 {
		return exit(exitUsage, usage.Line(fmt.Errorf("%q and --all: give ledger ids, or --all", args[0]), c.UseLine()))
	}
	if !all && len(args) == 0 {
		return exit(exitUsage, usage.Missing("ID", "give ledger ids, or --all", c.UseLine()))
	}
	_, err := ledgerIDs(args)
	return err
}

// idsOrAll reads the ids, or lists every ledger of the tier that can be read with --all, of those under a key if one is named. Ledgers whose
// record is damaged are among them, so that what is done with all fails for these.
func idsOrAll(ctx context.Context, t *tier, args []string, all bool, keyID string) ([]ledger.ID, error) {
	ids, err := ledgerIDs(args)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if r, _, err := t.records.Read(ctx, id); err == nil && keyID != "" && (r.Key == nil || r.Key.KeyID != keyID) {
			return nil, exit(exitRefused, fmt.Errorf("ledger %d is not encrypted under key %q", id, keyID))
		}
	}
	if !all {
		return ids, nil
	}
	for l, err := range t.records.All(ctx) {
		if err != nil {
			return nil, err
		}
		if l.Err != nil || (l.Record.State == offload.StateComplete || l.Record.State == offload.StateReleased) &&
			(keyID == "" || l.Record.Key != nil && l.Record.Key.KeyID == keyID) {
			ids = append(ids, l.Ledger)
		}
	}
	return ids, nil
}

// eachLedger runs f for each ledger and goes on past those that fail: exit 1 if all did, 4 if some.
func eachLedger(c *cobra.Command, ids []ledger.ID, f func(id ledger.ID) error) error {
	failed := 0
	for _, id := range ids {
		if err := c.Context().Err(); err != nil {
			return context.Cause(c.Context())
		}
		if err := f(id); err != nil {
			failed++
			fmt.Fprintf(c.ErrOrStderr(), "%v\n", describe(id, err))
		}
	}
	switch {
	case failed == 0:
		return nil
	case failed == len(ids):
		return exit(exitFailed, nil)
	}
	return exit(exitPartial, nil)
}

func newOffloadTargetsCommand(o *tierOptions) *cobra.Command {
	var output outputFormat
	ls := &cobra.Command{
		Use: "ls", Short: "List the object stores that are configured", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			t, err := o.open()
			if err != nil {
				return err
			}
			defer t.targets.Close() //nolint:errcheck // idle connections
			if output == outputJSON {
				type place struct {
					Target string `json:"target"`
					Domain string `json:"domain"`
					Kind   string `json:"kind"` // dir or s3
					Where  string `json:"where"`
				}
				list := []place{}
				for i, p := range t.targets.Places() {
					list = append(list, place{p.Target, p.Domain, t.targets.Where[i].Kind, t.targets.Where[i].Name})
				}
				return printJSON(c.OutOrStdout(), list)
			}
			var rows [][]string
			for i, p := range t.targets.Places() {
				rows = append(rows, []string{p.Target, p.Domain, t.targets.Where[i].Kind, t.targets.Where[i].Name})
			}
			return printTable(c.OutOrStdout(), []string{"target", "domain", "kind", "where"}, rows)
		},
	}
	addOutputFlag(ls, &output)
	check := &cobra.Command{
		Use: "check", Short: "Try what offloading needs on every object store: put, ranged get, list, delete, multipart", Args: cobra.NoArgs,
		Long: "Writes a small object to each object store, reads it back in ranges, lists and deletes it, sends a damaged one that has to be\n" +
			"refused, and begins and aborts a multipart upload; then looks whether two of them are the same place. Exit 5 if a store can not\n" +
			"be used.",
		RunE: func(c *cobra.Command, _ []string) error {
			t, err := o.open()
			if err != nil {
				return err
			}
			defer t.targets.Close() //nolint:errcheck // idle connections
			type checked struct {
				Target   string   `json:"target"`
				OK       bool     `json:"ok"`
				Millis   float64  `json:"took_ms"`
				Warnings []string `json:"warnings,omitempty"`
				Error    string   `json:"error,omitempty"`
			}
			var list []checked
			bad := false
			var usable []*objstore.Target
			for _, s := range t.targets.Stores {
				start := time.Now()
				report, err := s.Check(c.Context())
				x := checked{Target: s.ID(), OK: err == nil, Millis: float64(time.Since(start).Microseconds()) / 1e3, Warnings: report.Warnings}
				if err != nil {
					x.Error, bad = err.Error(), true
				} else {
					usable = append(usable, s)
				}
				list = append(list, x)
			}
			for _, err := range objstore.SamePlaces(c.Context(), usable) {
				bad = true
				fmt.Fprintln(c.ErrOrStderr(), err)
			}
			if output == outputJSON {
				err = printJSON(c.OutOrStdout(), list)
			} else {
				var rows [][]string
				for _, x := range list {
					says := "ok"
					if !x.OK {
						says = x.Error
					}
					rows = append(rows, []string{x.Target, fmt.Sprintf("%.1f", x.Millis), says})
					for _, w := range x.Warnings {
						rows = append(rows, []string{x.Target, "", "warning: " + w})
					}
				}
				err = printTable(c.OutOrStdout(), []string{"target", ">ms", "result"}, rows)
			}
			if err == nil && bad {
				err = exit(exitFindings, nil)
			}
			return err
		},
	}
	addOutputFlag(check, &output)
	return group("targets", "List and check the object stores", ls, check)
}

func newOffloadLedgerCommand(o *tierOptions) *cobra.Command {
	var geometry string
	var releaseNow, noProgress bool
	c := &cobra.Command{
		Use: "ledger ID...", Short: "Move closed ledgers into the tier now", Args: cobra.MinimumNArgs(1),
		Long: "Reads each ledger from its bookies, cuts it into shards, sends them to the object stores, reads everything back and commits.\n" +
			"Bookies keep their copies until the deletion lag is over and a worker (role offload, or `bindery offload run`) releases them;\n" +
			"--release-now does so at once, after all checks. What an interrupted run has sent is removed by a worker. A ledger that somebody else\n" +
			"is at is waited for a while: the lock of a worker that was killed ends with its metadata session, and then its attempt is taken over.",
		RunE: func(c *cobra.Command, args []string) error {
			ids, err := ledgerIDs(args)
			if err != nil {
				return err
			}
			var g offload.Geometry
			if geometry != "" {
				if g, err = offload.ParseGeometry(geometry); err != nil {
					return exit(exitUsage, err)
				}
			}
			var p *progress
			change := func(wo *offload.Options) {
				wo.Geometry, wo.ReadRate = g, -1
				waitForLocks(wo, func() io.Writer { return p })
				source := wo.Entries
				wo.Entries = countEntries(source, func(n int) { p.add(n) })
			}
			return o.withWorker(c, change, func(ctx context.Context, t *tier, w *offload.Worker) error {
				if says := w.Crowded(); says != "" {
					fmt.Fprintln(c.ErrOrStderr(), "warning:", says)
				}
				return eachLedger(c, ids, func(id ledger.ID) error {
					total := int64(0)
					if m, err := t.client.Metadata(ctx, id); err == nil {
						total = m.Length
					}
					p = startProgress(c.ErrOrStderr(), total, noProgress)
					err := w.Offload(ctx, id)
					p.finish()
					if err == nil && releaseNow {
						err = w.Release(ctx, id, true)
					}
					if err != nil {
						return err
					}
					r, _, err := t.records.Read(ctx, id)
					if err == nil {
						fmt.Fprintf(c.OutOrStdout(), "ledger %d: %s, %s, %s\n", id, r.State, r.Geometry, humanBytes(r.Length))
					}
					return err
				})
			})
		},
	}
	c.Flags().StringVar(&geometry, "geometry", "", "data+parity shards, such as 4+2 (default: by the number of domains)")
	o.addEncryptionFlags(c)
	c.Flags().BoolVar(&releaseNow, "release-now", false, "bookies give up their copies without the deletion lag")
	c.Flags().BoolVar(&noProgress, "no-progress", false, "show no progress on a terminal")
	return c
}

// waitForLocks has a worker wait for locks that may be those of one that was killed, and say so.
func waitForLocks(wo *offload.Options, w func() io.Writer) {
	wo.LockWait = commandLockWait
	wo.Waiting = func(id ledger.ID, holder string) {
		fmt.Fprintf(w(), "ledger %d: worker %s is at it; waiting up to %s, as the lock of one that was killed goes with its metadata session\n", id, holder, commandLockWait)
	}
}

// stateDamaged stands for the state of a record that can not be read.
const stateDamaged = "damaged"

// offloaded is a record for people and programs.
type offloaded struct {
	Ledger    int64    `json:"ledger"`
	State     string   `json:"state"`
	Geometry  string   `json:"geometry"`
	Bytes     int64    `json:"payload_bytes"`
	Entries   int64    `json:"entries"`
	Missing   int      `json:"shards_missing"`
	Inline    bool     `json:"inline"`
	KeyID     string   `json:"key_id,omitempty"` // under which the data key of an encrypted ledger is wrapped
	Attempt   string   `json:"attempt"`
	Targets   []string `json:"targets"`
	Completed string   `json:"completed,omitempty"`
	Released  string   `json:"released,omitempty"`
	Verified  string   `json:"verified,omitempty"`
	Error     string   `json:"error,omitempty"`
}

func describeOffloaded(l offload.Listed) offloaded {
	if l.Err != nil {
		return offloaded{Ledger: int64(l.Ledger), State: stateDamaged, Targets: []string{}, Error: l.Err.Error()}
	}
	r := l.Record
	at := func(ms int64) string {
		if ms == 0 {
			return ""
		}
		return time.UnixMilli(ms).UTC().Format(time.RFC3339)
	}
	x := offloaded{
		Ledger: int64(l.Ledger), State: r.State.String(), Geometry: r.Geometry.String(), Bytes: r.Length, Entries: int64(r.LastEntry) + 1, Missing: r.Lacking(), Inline: r.Inline,
		Attempt: r.Attempt.String(), Targets: []string{}, Completed: at(r.CompletedAt), Released: at(r.ReleasedAt), Verified: at(r.VerifiedAt),
	}
	for _, p := range r.Placement {
		name := p.Target
		switch {
		case p.Missing:
			name += " (missing)"
		case p.Lost:
			name += " (lost)"
		}
		x.Targets = append(x.Targets, name)
	}
	if r.Inline {
		x.Targets = append([]string{}, r.Manifest.Targets...)
	}
	if r.Key != nil {
		x.KeyID = r.Key.KeyID
	}
	return x
}

// listedStates are the states that a list may be narrowed to.
func listedStates() (out []string) {
	for s := offload.StateUploading; s.Valid(); s++ {
		out = append(out, s.String())
	}
	return append(out, stateDamaged)
}

// knowsTarget refuses the name of a target that is neither configured nor in a record, as a slip of the pen is: nothing being there would
// be taken for news about another one. "" is no name.
func (t *tier) knowsTarget(ctx context.Context, target string) error {
	var known []string
	if t.targets != nil {
		for _, p := range t.targets.Places() {
			known = append(known, p.Target)
		}
	}
	if target == "" || slices.Contains(known, target) {
		return nil
	}
	for l, err := range t.records.All(ctx) {
		if err != nil {
			return err
		}
		if l.Err == nil && l.Record.IsOn(target) {
			return nil
		}
	}
	return exit(exitUsage, fmt.Errorf("no target %q is configured, and no ledger has anything there; configured are: %s", target, cmp.Or(strings.Join(known, ", "), "none")))
}

func newOffloadListCommand(o *tierOptions) *cobra.Command {
	var output outputFormat
	var state, target, keyID string
	var missing bool
	c := &cobra.Command{
		Use: "ls", Short: "List the ledgers that the tier knows", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if state != "" && !slices.Contains(listedStates(), state) {
				return exit(exitUsage, fmt.Errorf("--state %q is none of %s", state, strings.Join(listedStates(), ", ")))
			}
			return o.withRecords(c, func(ctx context.Context, t *tier) error {
				if err := t.knowsTarget(ctx, target); err != nil {
					return err
				}
				list := []offloaded{}
				for l, err := range t.records.All(ctx) {
					if err != nil {
						return err
					}
					x := describeOffloaded(l)
					if state != "" && x.State != state || missing && x.Missing == 0 || target != "" && (l.Err != nil || !l.Record.IsOn(target)) || keyID != "" && x.KeyID != keyID {
						continue
					}
					list = append(list, x)
				}
				if output == outputJSON {
					return printJSON(c.OutOrStdout(), list)
				}
				var rows [][]string
				for _, x := range list {
					rows = append(rows, []string{strconv.FormatInt(x.Ledger, 10), x.State, x.Geometry, humanBytes(x.Bytes), strconv.Itoa(x.Missing), x.Verified, x.Error})
				}
				return printTable(c.OutOrStdout(), []string{">ledger", "state", "geometry", ">payload", ">missing", "verified", ""}, rows)
			})
		},
	}
	addOutputFlag(c, &output)
	c.Flags().StringVar(&state, "state", "", "only those in this state: UPLOADING, COMPLETE, RELEASED or DELETING")
	c.Flags().StringVar(&target, "target", "", "only those with a shard or a copy of the manifest on this target")
	c.Flags().BoolVar(&missing, "missing", false, "only those that lack shards, or some of whose shards the last verify or scrub found lost")
	c.Flags().StringVar(&keyID, "key-id", "", "only those that are encrypted under this key")
	return c
}

// placed is where a shard is.
type placed struct {
	Shard      int    `json:"shard"`
	Target     string `json:"target"`
	Generation uint32 `json:"generation"`
	Missing    bool   `json:"missing,omitempty"`
	Lost       bool   `json:"lost,omitempty"` // the last look found it gone or damaged
	Object     string `json:"object"`
}

func placements(r *offload.Record, id ledger.ID) []placed {
	list := []placed{}
	for i, p := range r.Placement {
		list = append(list, placed{i, p.Target, p.Generation, p.Missing, p.Lost, offload.ShardName(r.Attempt, id, i, p.Generation)})
	}
	return list
}

func newOffloadShowCommand(o *tierOptions) *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show what is recorded about an offloaded ledger", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := parseLedgerID(args[0])
			if err != nil {
				return err
			}
			return o.with(c, func(ctx context.Context, t *tier) error {
				r, v, err := t.records.Read(ctx, id)
				if err != nil {
					return err
				}
				holder, err := t.records.Holder(ctx, id)
				if err != nil {
					return err
				}
				return printJSON(c.OutOrStdout(), struct {
					offloaded
					Version   int64    `json:"version"`
					Locked    string   `json:"locked_by,omitempty"`
					Cell      int      `json:"cell_bytes"`
					Placement []placed `json:"placement"`
					Manifest  []string `json:"manifest_on"`
					Garbage   int      `json:"garbage_attempts"`
					Stale     int      `json:"stale_shards"`
				}{describeOffloaded(offload.Listed{Ledger: id, Record: r, Version: v}), int64(v), holder, r.CellBytes, placements(r, id), append([]string{}, r.Manifest.Targets...), len(r.Garbage), len(r.Stale)})
			})
		},
	}
}

// tierReader returns a reader of the tier alone.
func (t *tier) reader() (*offload.Reader, error) {
	return offload.NewReader(offload.ReaderOptions{Records: t.records, Targets: t.targets.Targets, Keys: t.keys})
}

func newOffloadReadCommand(o *tierOptions) *cobra.Command {
	var count bool
	c := &cobra.Command{
		Use: "read ID [FIRST [LAST]]", Short: "Write a ledger's entries from the tier, and from nowhere else, to standard output", Args: cobra.RangeArgs(1, 3),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := parseLedgerID(args[0])
			if err != nil {
				return err
			}
			bounds := []int64{0, -1}
			for i, a := range args[1:] {
				if bounds[i], err = strconv.ParseInt(a, 10, 64); err != nil || bounds[i] < 0 {
					return exit(exitUsage, fmt.Errorf("%q is no entry id", a))
				}
			}
			if bounds[1] >= 0 && bounds[1] < bounds[0] {
				return exit(exitUsage, fmt.Errorf("entries %d to %d are no range", bounds[0], bounds[1]))
			}
			return o.with(c, func(ctx context.Context, t *tier) error {
				r, err := t.reader()
				if err != nil {
					return err
				}
				h, err := r.Open(ctx, id)
				if err != nil {
					return err
				}
				first, last, end := ledger.EntryID(bounds[0]), ledger.EntryID(bounds[1]), h.LastEntry()
				switch {
				case first > 0 && first > end:
					return fmt.Errorf("ledger %d: entry %d is beyond the last one, %d", id, first, end)
				case last > end:
					return fmt.Errorf("ledger %d: the last entry is %d; entries %d to %d are not all there", id, end, first, last)
				case last < 0:
					last = end
				}
				for e, err := range h.Entries(ctx, first, last) {
					if err != nil {
						return err
					}
					if _, err := c.OutOrStdout().Write(e.Payload); err != nil {
						return err
					}
				}
				if count {
					n := int64(0)
					for _, s := range t.targets.Stores {
						_, received := s.Bytes()
						n += received
					}
					fmt.Fprintf(c.ErrOrStderr(), "%s received\n", humanBytes(n))
				}
				return nil
			})
		},
	}
	c.Flags().BoolVar(&count, "count-bytes", false, "say at the end how many bytes the object stores sent")
	return c
}

func newOffloadVerifyCommand(o *tierOptions) *cobra.Command {
	var output outputFormat
	var level, keyID string
	var all, against bool
	c := &cobra.Command{
		Use: "verify ID...|--all", Short: "Look whether ledgers in the tier are whole; exit 5 if something is wrong",
		RunE: func(c *cobra.Command, args []string) error {
			l, err := offload.ParseVerifyLevel(level)
			if err != nil {
				return exit(exitUsage, err)
			}
			if err := needIDs(c, args, all); err != nil {
				return err
			}
			return o.withWorker(c, unlimited, func(ctx context.Context, t *tier, w *offload.Worker) error {
				ids, err := idsOrAll(ctx, t, args, all, keyID)
				if err != nil {
					return err
				}
				out := newFindings()
				err = eachLedger(c, ids, func(id ledger.ID) error {
					look := func() ([]offload.Finding, error) { return w.Verify(ctx, id, l) }
					if against {
						look = func() ([]offload.Finding, error) { return w.VerifyAgainstBookies(ctx, id) }
					}
					findings, err := look()
					for _, f := range findings {
						out.Findings = append(out.Findings, f.String())
					}
					if err != nil {
						out.Failed = append(out.Failed, describe(id, err).Error())
					} else {
						out.Ledgers++
					}
					return err
				})
				return errors.Join(out.report(c, output), err)
			})
		},
	}
	addOutputFlag(c, &output)
	c.Flags().StringVar(&level, "level", "full", "head: every object is there; sample: and some blocks; full: every byte")
	c.Flags().BoolVar(&all, "all", false, "every ledger of the tier")
	c.Flags().BoolVar(&against, "against-bookies", false, "read every byte, and compare every entry with what the bookies hold while they do")
	c.Flags().StringVar(&keyID, "key-id", "", "only ledgers that are encrypted under this key: proves that the key at hand opens them")
	return c
}

// unlimited takes the limits off that workers have for their neighbours' sake.
func unlimited(o *offload.Options) { o.ReadRate, o.ScrubRate = -1, -1 }

// findings is what a look at ledgers came to.
type findings struct {
	Ledgers  int      `json:"ledgers"` // that were looked at
	Findings []string `json:"findings"`
	Failed   []string `json:"failed"` // what could not be looked at or repaired, and why
}

func newFindings() *findings { return &findings{Findings: []string{}, Failed: []string{}} }

// report prints what was found.
func (f *findings) report(c *cobra.Command, output outputFormat) error {
	if output == outputJSON {
		if err := printJSON(c.OutOrStdout(), f); err != nil {
			return err
		}
	} else {
		for _, text := range f.Findings {
			fmt.Fprintln(c.OutOrStdout(), text)
		}
		failed := ""
		if n := len(f.Failed); n > 0 {
			failed = fmt.Sprintf(", %d failed", n)
		}
		if f.Ledgers == 0 && failed != "" {
			fmt.Fprintf(c.OutOrStdout(), "no ledger could be looked at%s\n", failed)
		} else {
			fmt.Fprintf(c.OutOrStdout(), "%s looked at, %s%s\n", plural(f.Ledgers, "ledger"), plural(len(f.Findings), "finding"), failed)
		}
	}
	if len(f.Findings) > 0 {
		return exit(exitFindings, nil)
	}
	return nil
}

func newOffloadRepairCommand(o *tierOptions) *cobra.Command {
	var drain string
	var all, dryRun bool
	c := &cobra.Command{
		Use: "repair ID...|--all", Short: "Write lost and damaged shards anew from the others",
		Long: "Reads every byte of each ledger, rebuilds what is missing or damaged from the other shards, and writes it under a new name to a\n" +
			"healthy object store. --drain moves everything away from one, so that it can be taken out of the configuration.",
		RunE: func(c *cobra.Command, args []string) error {
			if err := needIDs(c, args, all); err != nil {
				return err
			}
			change := func(wo *offload.Options) {
				unlimited(wo)
				waitForLocks(wo, c.ErrOrStderr)
			}
			return o.withWorker(c, change, func(ctx context.Context, t *tier, w *offload.Worker) error {
				ids, err := idsOrAll(ctx, t, args, all, "")
				if err == nil {
					err = t.knowsTarget(ctx, drain)
				}
				if err != nil {
					return err
				}
				return eachLedger(c, ids, func(id ledger.ID) error {
					r, err := w.Repair(ctx, id, offload.RepairOptions{Drain: drain, DryRun: dryRun})
					for _, f := range r.Findings {
						fmt.Fprintln(c.OutOrStdout(), f)
					}
					if err == nil || len(r.Shards)+len(r.Manifests) > 0 {
						verb := "repaired"
						if dryRun {
							verb = "to be repaired"
						}
						fmt.Fprintf(c.OutOrStdout(), "ledger %d: %s, shards %s: %v, manifests: %v\n", id, plural(len(r.Findings), "finding"), verb, r.Shards, r.Manifests)
					}
					if len(r.Found) > 0 {
						fmt.Fprintf(c.OutOrStdout(), "ledger %d: its record is older than its last repair; shards that were found where that wrote them: %v\n", id, r.Found)
					}
					return err
				})
			})
		},
	}
	c.Flags().StringVar(&drain, "drain", "", "move everything away from this target")
	c.Flags().BoolVar(&all, "all", false, "every ledger of the tier")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be done")
	return c
}

func newOffloadRestoreCommand(o *tierOptions) *cobra.Command {
	var file string
	var inPlace bool
	var quorum ledgerclient.Quorum
	c := &cobra.Command{
		Use: "restore ID", Short: "Write a ledger of the tier into a new ledger, whose id is printed, or into a file", Args: cobra.ExactArgs(1),
		Long: "A restore that fails removes what it has written. One that is killed leaves an open ledger, whose custom metadata " + restoredFrom + "\n" +
			"names the ledger it is a part of, as it does that of every copy (`bindery ledger show`), or a file that ends in .part: remove it.",
		RunE: func(c *cobra.Command, args []string) error {
			id, err := parseLedgerID(args[0])
			if err != nil {
				return err
			}
			if err := quorum.Validate(); err != nil {
				return exit(exitUsage, err)
			}
			if inPlace {
				return exit(exitRefused, fmt.Errorf("ledger %d is not restored in place: bookies remember a ledger that they dropped, fenced as it was, and take no entries for its id; without --in-place it is restored into a new ledger, whose id is printed", id))
			}
			toFile := c.Flags().Changed("to-file")
			if toFile && file == "" {
				return exit(exitUsage, errors.New("--to-file has no name"))
			}
			return o.with(c, func(ctx context.Context, t *tier) error {
				r, err := t.reader()
				if err != nil {
					return err
				}
				h, err := r.Open(ctx, id)
				if err != nil {
					return err
				}
				p := startProgress(c.ErrOrStderr(), h.Length(), false)
				defer p.finish()
				if toFile {
					return restoreToFile(ctx, h, file, p)
				}
				w, err := t.client.Create(ctx, ledgerclient.CreateOptions{Quorum: quorum, Digest: h.Metadata().Digest, Password: h.Metadata().Password, Custom: restoredCustom(h.Metadata().Custom, id)})
				if err != nil {
					return err
				}
				if err := restoreEntries(ctx, h, w, p); err != nil {
					return errors.Join(err, dropCopy(ctx, t.client, w.ID()))
				}
				_, err = fmt.Fprintln(c.OutOrStdout(), w.ID())
				return err
			})
		},
	}
	c.Flags().BoolVar(&inPlace, "in-place", false, "under its old id: refused, bookies remember the id")
	c.Flags().StringVar(&file, "to-file", "", "write the payloads into this file instead, one after the other")
	c.Flags().IntVar(&quorum.Ensemble, "ensemble", 3, "ensemble size of the new ledger")
	c.Flags().IntVar(&quorum.Write, "write-quorum", 3, "its write quorum")
	c.Flags().IntVar(&quorum.Ack, "ack-quorum", 2, "its ack quorum")
	return c
}

// restoredFrom is the custom metadata of a copy that names the ledger it is one of: if the command is killed, it is all that tells a part of
// a copy from a ledger.
const restoredFrom = "bindery.restored-from"

func restoredCustom(custom map[string][]byte, from ledger.ID) map[string][]byte {
	out := map[string][]byte{restoredFrom: strconv.AppendInt(nil, int64(from), 10)}
	for k, v := range custom {
		if k != restoredFrom {
			out[k] = v
		}
	}
	return out
}

// restoreEntries writes all entries of a ledger of the tier into a new one, and closes that.
func restoreEntries(ctx context.Context, h *offload.Handle, w *ledgerclient.Writer, p *progress) error {
	for e, err := range h.Entries(ctx, 0, h.LastEntry()) {
		if err == nil {
			_, err = w.Append(ctx, e.Payload)
		}
		if err != nil {
			return errors.Join(err, w.Close(context.WithoutCancel(ctx)))
		}
		p.add(len(e.Payload))
	}
	return w.Close(ctx)
}

// dropTimeout is how long the removal of an unfinished copy may take.
const dropTimeout = 10 * time.Second

// dropCopy removes a ledger that is not all of what it is a copy of, and that nothing but its length tells from a whole one.
func dropCopy(ctx context.Context, client *ledgerclient.Client, id ledgerclient.LedgerID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	if err := client.Delete(ctx, id); err != nil {
		return fmt.Errorf("ledger %d, the unfinished copy, could not be removed, do it by `bindery ledger rm %d`: %w", id, id, err)
	}
	return nil
}

// restoreToFile writes all payloads into a file that has its name once it is whole.
func restoreToFile(ctx context.Context, h *offload.Handle, name string, p *progress) (err error) {
	if _, err := os.Lstat(name); err == nil {
		return fmt.Errorf("restore to %s: %w", name, os.ErrExist)
	}
	tmp := name + ".part"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("restore to %s: %w: an earlier one may have been interrupted; remove it", name, err)
	}
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err == nil {
			err = vfs.OS().Rename(tmp, name)
		}
		if err != nil {
			err = errors.Join(err, os.Remove(tmp))
			return
		}
		err = vfs.OS().SyncDir(filepath.Dir(name))
	}()
	for e, err := range h.Entries(ctx, 0, h.LastEntry()) {
		if err == nil {
			_, err = f.Write(e.Payload)
		}
		if err != nil {
			return err
		}
		p.add(len(e.Payload))
	}
	return f.Sync()
}

func newOffloadDeleteCommand(o *tierOptions) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "delete ID...", Short: "Delete offloaded ledgers for everybody; workers remove the objects", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ids, err := ledgerIDs(args)
			if err != nil {
				return err
			}
			if !yes {
				if err := confirm(c, ids); err != nil {
					return err
				}
			}
			return o.withWorker(c, nil, func(ctx context.Context, _ *tier, w *offload.Worker) error {
				return eachLedger(c, ids, func(id ledger.ID) error {
					err := w.Delete(ctx, id)
					if err == nil {
						_, err = fmt.Fprintf(c.OutOrStdout(), "ledger %d: deleted; workers remove its objects\n", id)
					}
					return err
				})
			})
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

func newOffloadScrubCommand(o *tierOptions) *cobra.Command {
	var output outputFormat
	var level string
	var older time.Duration
	var repair bool
	c := &cobra.Command{
		Use: "scrub", Short: "Look at every ledger of the tier once; exit 5 if something is wrong, 4 if something could not be looked at", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			l, err := offload.ParseVerifyLevel(level)
			if err != nil {
				return exit(exitUsage, err)
			}
			if older < 0 {
				return exit(exitUsage, fmt.Errorf("--older %s is negative", older))
			}
			return o.withWorker(c, nil, func(ctx context.Context, _ *tier, w *offload.Worker) error {
				out := newFindings()
				done, err := w.Scrub(ctx, offload.ScrubOptions{Level: l, Older: older, Repair: repair, Found: func(f offload.Finding) { out.Findings = append(out.Findings, f.String()) }})
				for _, p := range done.Problems {
					fmt.Fprintln(c.ErrOrStderr(), p)
					out.Failed = append(out.Failed, p.Error())
				}
				if err == nil && len(done.Problems) > 0 {
					err = exit(exitPartial, nil)
				}
				out.Ledgers = done.Ledgers
				return errors.Join(out.report(c, output), err)
			})
		},
	}
	addOutputFlag(c, &output)
	c.Flags().StringVar(&level, "level", "full", "head, sample or full")
	c.Flags().DurationVar(&older, "older", 0, "only ledgers whose last full look is at least so old")
	c.Flags().BoolVar(&repair, "repair", false, "repair what is found")
	return c
}

// orphaned is an orphan for people and programs.
type orphaned struct {
	Target   string `json:"target"`
	Kind     string `json:"kind"` // orphan, surplus, stray, unclear, deleted, or given-up: a surplus copy that workers remove
	Ledger   int64  `json:"ledger"`
	Attempt  string `json:"attempt"`
	Bytes    int64  `json:"size_bytes"`
	Modified string `json:"modified"`
	Object   string `json:"object"`
	Why      string `json:"why,omitempty"` // it is unclear
}

func describeOrphan(x offload.Orphan) orphaned {
	row := orphaned{Target: x.Target, Kind: "orphan", Ledger: int64(x.Name.Ledger), Attempt: x.Name.Attempt.String(), Bytes: x.Size, Modified: x.Modified.UTC().Format(time.RFC3339), Object: x.Key}
	switch {
	case x.Stray:
		row.Kind = "stray"
	case x.Surplus:
		row.Kind = "surplus"
	case x.Unclear != nil:
		row.Kind, row.Why = "unclear", x.Unclear.Error()
	}
	return row
}

func printOrphans(w io.Writer, list []orphaned) error {
	var rows [][]string
	for _, x := range list {
		rows = append(rows, []string{x.Target, x.Kind, strconv.FormatInt(x.Ledger, 10), humanBytes(x.Bytes), x.Modified, x.Object})
	}
	return printTable(w, []string{"target", "kind", ">ledger", ">size", "modified", "object"}, rows)
}

func newOffloadOrphansCommand(o *tierOptions) *cobra.Command {
	var output outputFormat
	var target string
	var remove bool
	c := &cobra.Command{
		Use: "orphans", Short: "List objects under names of ours that no record names", Args: cobra.NoArgs,
		Long: "Objects without a good manifest are what an attempt left that nobody remembers: --delete removes those that are a week old. Strays\n" +
			"have a good manifest on some target, or were written by a repair that their record knows nothing of: the metadata store may have\n" +
			"been restored from an old backup, and `bindery offload adopt` makes those without a record readable again. Surplus is a copy of a\n" +
			"ledger's manifest beside those that its record names, all of which are good: --delete has workers remove it. It is unclear what an\n" +
			"object is while a target that may have the manifest can not be asked. Exit 4 if something could not be deleted.",
		RunE: func(c *cobra.Command, _ []string) error {
			return o.withWorker(c, nil, func(ctx context.Context, _ *tier, w *offload.Worker) error {
				list, err := w.Orphans(ctx, target)
				if err != nil {
					return err
				}
				failed, young := false, 0
				out := []orphaned{}
				for _, x := range list {
					row := describeOrphan(x)
					if remove && !x.Stray {
						switch err := w.DeleteOrphan(ctx, x); {
						case errors.Is(err, offload.ErrYoung):
							young++
						case err != nil:
							failed = true
							fmt.Fprintln(c.ErrOrStderr(), err)
						case x.Surplus:
							row.Kind = "given-up"
						default:
							row.Kind = "deleted"
						}
					}
					out = append(out, row)
				}
				if young > 0 {
					fmt.Fprintf(c.ErrOrStderr(), "%s not deleted: younger than a week\n", plural(young, "object"))
				}
				if output == outputJSON {
					err = printJSON(c.OutOrStdout(), out)
				} else {
					err = printOrphans(c.OutOrStdout(), out)
				}
				if err == nil && failed {
					err = exit(exitPartial, nil)
				}
				return err
			})
		},
	}
	addOutputFlag(c, &output)
	c.Flags().StringVar(&target, "target", "", "only on this target")
	c.Flags().BoolVar(&remove, "delete", false, "delete those that are neither strays nor unclear")
	return c
}

func newOffloadAdoptCommand(o *tierOptions) *cobra.Command {
	var passwordFile string
	c := &cobra.Command{
		Use: "adopt ID", Short: "Make a stray, of which only objects are left, readable again", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := parseLedgerID(args[0])
			if err != nil {
				return err
			}
			password, err := readPassword(passwordFile)
			if err != nil {
				return err
			}
			return o.withWorker(c, nil, func(ctx context.Context, t *tier, w *offload.Worker) error {
				list, err := w.Orphans(ctx, "")
				if err != nil {
					return err
				}
				for _, x := range list {
					if !x.Stray || x.Name.Ledger != id {
						continue
					}
					if err := w.Adopt(ctx, x, password); err != nil {
						return err
					}
					r, _, err := t.records.Read(ctx, id)
					if err == nil {
						_, err = fmt.Fprintf(c.OutOrStdout(), "ledger %d: adopted; %s, %s, %s\n", id, r.State, r.Geometry, humanBytes(r.Length))
					}
					return err
				}
				return fmt.Errorf("no object store has a stray of ledger %d: `bindery offload orphans` lists them", id)
			})
		},
	}
	c.Flags().StringVar(&passwordFile, "password-file", "", "file with the ledger's password, which objects do not hold")
	return c
}

// inspectBytesMax is what inspect reads at most: more than a manifest with what a folder keeps behind it.
const inspectBytesMax = offload.ManifestMax + 1<<20

func newOffloadInspectCommand() *cobra.Command {
	return &cobra.Command{
		Use: "inspect FILE", Short: "Take a manifest object apart that lies in a file", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			data, err := vfs.ReadSmall(args[0], inspectBytesMax)
			if err != nil {
				return err
			}
			m, err := offload.DecodeManifest(args[0], dir.Body(data)) // of a bucket, or a file of a folder
			if err != nil {
				return exit(exitFindings, fmt.Errorf("%w; only objects named manifest are taken apart", err))
			}
			type shard struct {
				Target     string `json:"target"`
				Generation uint32 `json:"generation"`
				Length     int64  `json:"length_bytes"`
				CRC32C     string `json:"crc32c"`
			}
			shards := []shard{}
			for _, s := range m.Shards {
				shards = append(shards, shard{s.Target, s.Generation, s.Length, fmt.Sprintf("%08x", s.CRC32C)})
			}
			return printJSON(c.OutOrStdout(), struct {
				Ledger   int64   `json:"ledger"`
				Attempt  string  `json:"attempt"`
				Last     int64   `json:"last_entry"`
				Length   int64   `json:"payload_bytes"`
				Geometry string  `json:"geometry"`
				Cell     int     `json:"cell_bytes"`
				Stripes  int     `json:"stripes"`
				Blocks   int     `json:"blocks"`
				Writer   string  `json:"writer"`
				Inline   int     `json:"inline_bytes"`
				Shards   []shard `json:"shards"`
			}{int64(m.Ledger), m.Attempt.String(), int64(m.LastEntry), m.Length, m.Geometry.String(), m.CellBytes, m.Stripes(), m.Blocks(), m.Writer, len(m.Inline), shards})
		},
	}
}
