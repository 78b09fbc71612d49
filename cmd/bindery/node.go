package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/internal/config"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/driver"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/spf13/cobra"
)

func newNodeCommand() *cobra.Command {
	return group("node", "Prepare and describe the directories of a bookie, make it read-only, empty and retire it",
		newNodeInitCommand(), newNodeInfoCommand(), newNodeReadOnlyCommand(), newNodeDrainCommand(), newNodeDecommissionCommand())
}

// loadBookie loads a configuration and works out the bookie that it describes. printed is true when the problems have been
// printed already.
func loadBookie(c *cobra.Command, o *configOptions) (*config.Loaded, bookiePlan, error) {
	l, err := o.load()
	if err != nil {
		return nil, bookiePlan{}, printProblems(c, exitFailed, err)
	}
	p, err := planRun(l, false)
	if err != nil {
		return nil, bookiePlan{}, exit(exitFailed, err)
	}
	if len(p.bookies) == 0 {
		return nil, bookiePlan{}, exit(exitFailed, errors.New("run.roles does not name bookie: this configuration runs none"))
	}
	b := p.bookies[0]
	if b.id == "" {
		b.id = b.advertised
	}
	return l, b, nil
}

// nodeInit is what `node init` prints.
type nodeInit struct {
	Bookie      string   `json:"bookie"`
	InstanceID  string   `json:"instance_id"`
	Incarnation uint64   `json:"incarnation"`
	New         bool     `json:"new"`
	Created     []string `json:"created"`
	Prepared    []string `json:"prepared"`
	Loss        string   `json:"loss,omitempty"`
	Warnings    []string `json:"warnings"`
	Space       string   `json:"space"`
}

func newNodeInitCommand() *cobra.Command {
	var o configOptions
	var output outputFormat
	var acceptLoss bool
	c := &cobra.Command{
		Use:   "init --config FILE",
		Short: "Make and stamp the directories of a bookie, and write its cookie",
		Long: "Creates the directories that the configuration names, checks the disks under them, stamps them and registers the bookie's\n" +
			"identity (cookie and incarnation) with the cluster. From then on a start on an empty mount point is refused instead of\n" +
			"being taken for a new bookie. It may be run again: what is there is checked, what was cut off is finished.\n\n" +
			"With --accept-loss, empty directories stand in for lost ones. At the next start every ledger that names the bookie is\n" +
			"put into limbo: the bookie answers *unknown* instead of denying entries that it may once have acknowledged.",
		Example: "  bindery node init --config /etc/bindery/bindery.toml",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := initNode(c, &o, acceptLoss)
			if err != nil {
				return err
			}
			if output == outputJSON {
				return printJSON(c.OutOrStdout(), r)
			}
			return printNodeInit(c, r)
		},
	}
	o.addFlags(c)
	c.Flags().BoolVar(&acceptLoss, "accept-loss", false, "let empty directories stand in for lost ones; nothing brings the old data back then")
	addOutputFlag(c, &output)
	return c
}

func initNode(c *cobra.Command, o *configOptions, acceptLoss bool) (*nodeInit, error) {
	l, plan, err := loadBookie(c, o)
	if err != nil {
		return nil, err
	}
	dirs := append(append(append([]string{}, plan.journalDirs...), plan.ledgerDirs...), plan.indexDirs...)
	warnings, err := bookie.CheckDisks(dirs, bookie.DiskPolicy{AllowAnyFS: l.Disk.AllowAnyFS, AllowShared: l.Disk.AllowShared})
	if err != nil {
		return nil, nodeExit(err)
	}
	store, root, err := driver.Open(c.Context(), l.Metadata.URI, driver.Options{Timeout: metadataCallMax})
	if err != nil {
		return nil, exitStore(fmt.Errorf("metadata.uri: %w", err))
	}
	views := metadata.NewViews(store, root)
	if loaded, lerr := metadata.LoadViews(c.Context(), store, root); lerr == nil {
		views = loaded
	} else if errors.Is(lerr, metadata.ErrLayout) {
		return nil, errors.Join(lerr, store.Close())
	}
	report, err := bookie.PrepareNode(c.Context(), bookie.PrepareOptions{
		IdentityOptions: bookie.IdentityOptions{
			FS: vfs.OS(), Views: views, ID: ledger.BookieID(plan.id),
			JournalDirs: plan.journalDirs, LedgerDirs: plan.ledgerDirs, IndexDirs: plan.indexDirs,
			Timeout: l.Metadata.Timeout.D(0),
		},
		AcceptLoss: acceptLoss,
	})
	if cerr := store.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, nodeExit(err)
	}
	return &nodeInit{
		Bookie: plan.id, InstanceID: report.Instance, Incarnation: report.Number, New: report.New,
		Created: orEmpty(report.Created), Prepared: orEmpty(report.Stamped), Loss: report.Loss, Warnings: orEmpty(warnings),
		Space: spaceNeeded(l),
	}, nil
}

// Segments of a journal that is little used: the open one, those in flight or zeroed ahead, and one in reserve.
const journalSegmentsLeast = 5

// spaceNeeded says what a bookie's directories take before it stores much.
func spaceNeeded(l *config.Loaded) string {
	return fmt.Sprintf("each journal directory takes about %s, and each ledger directory %s beside its entries, as a reserve for a full disk",
		journalSegmentsLeast*l.Journal.SegmentSize, 2*l.Expert.EntryLogSize)
}

// orEmpty makes a list that JSON shows as [] and not as null.
func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func printNodeInit(c *cobra.Command, r *nodeInit) error {
	for _, w := range r.Warnings {
		fmt.Fprintf(c.ErrOrStderr(), "bindery: warning: %s\n", w)
	}
	for _, d := range r.Prepared {
		fmt.Fprintf(c.ErrOrStderr(), "prepared %s\n", d)
	}
	if len(r.Prepared) > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "space: %s\n", r.Space)
	}
	if r.Loss != "" {
		fmt.Fprintf(c.ErrOrStderr(), "bindery: warning: %s; at the next start the bookie's ledgers go into limbo\n", r.Loss)
	}
	what := "is prepared"
	if !r.New && len(r.Prepared) == 0 {
		what = "was prepared already"
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "bookie %s %s: incarnation %d in cluster %s\n", r.Bookie, what, r.Incarnation, r.InstanceID)
	return err
}

// nodeDir is one directory in the output of `node info`.
type nodeDir struct {
	Path        string `json:"path"`
	Kinds       string `json:"kinds"`
	State       string `json:"state"`
	Bookie      string `json:"bookie,omitempty"`
	InstanceID  string `json:"instance_id,omitempty"`
	Incarnation uint64 `json:"incarnation,omitempty"`
	Epoch       uint64 `json:"epoch,omitempty"`
	Running     bool   `json:"running"`
	Dirty       bool   `json:"dirty"`

	Disk    bookie.DiskID `json:"disk"`
	Problem string        `json:"problem,omitempty"`
}

func newNodeInfoCommand() *cobra.Command {
	var o configOptions
	var output outputFormat
	c := &cobra.Command{
		Use:   "info --config FILE",
		Short: "Show whose the directories of a bookie are and whether it runs; needs no metadata store",
		Long: "Reads what identifies each directory of the configuration. Exit code 5 if one of them would keep the bookie from\n" +
			"starting.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, plan, err := loadBookie(c, &o)
			if err != nil {
				return err
			}
			list, err := bookie.InspectDirs(vfs.OS(), plan.journalDirs, plan.ledgerDirs, plan.indexDirs)
			if err != nil {
				return nodeExit(err)
			}
			return printNodeInfo(c, output, plan.id, list)
		},
	}
	o.addFlags(c)
	addOutputFlag(c, &output)
	return c
}

func printNodeInfo(c *cobra.Command, output outputFormat, id string, list []bookie.DirInfo) error {
	out := []nodeDir{}
	problems := 0
	for _, d := range list {
		if d.Problem == "" && d.Bookie != "" && string(d.Bookie) != id {
			d.Problem = "it belongs to bookie " + string(d.Bookie)
		}
		if d.Problem != "" {
			problems++
		}
		out = append(out, nodeDir{
			Path: d.Path, Kinds: d.Kinds, State: d.State, Bookie: string(d.Bookie), InstanceID: d.Instance,
			Incarnation: d.Number, Epoch: d.Epoch, Running: d.Running, Dirty: d.Dirty, Disk: d.Disk, Problem: d.Problem,
		})
	}
	var err error
	if output == outputJSON {
		err = printJSON(c.OutOrStdout(), struct {
			Bookie      string    `json:"bookie"`
			Directories []nodeDir `json:"directories"`
		}{id, out})
	} else {
		var rows [][]string
		for _, d := range out {
			state := d.State
			switch {
			case d.Running:
				state += ", running"
			case d.Dirty:
				state += ", not stopped cleanly"
			}
			rows = append(rows, []string{d.Path, d.Kinds, state, d.Bookie, fmt.Sprint(d.Incarnation), fmt.Sprint(d.Epoch), diskName(d.Disk), d.Problem})
		}
		err = printTable(c.OutOrStdout(), []string{"DIRECTORY", "KINDS", "STATE", "BOOKIE", ">INCARNATION", ">EPOCH", "DISK", "PROBLEM"}, rows)
	}
	if err == nil && problems > 0 {
		return exit(exitFindings, nil)
	}
	return err
}

// diskName is how a table names a disk: by its serial number, which stands on it, or else by its device.
func diskName(d bookie.DiskID) string {
	for _, name := range []string{d.Serial, d.Device, d.Type} {
		if name != "" {
			return name
		}
	}
	return "-"
}

func newNodeReadOnlyCommand() *cobra.Command {
	var a adminCall
	c := &cobra.Command{
		Use:   "readonly on|off|status",
		Short: "Make a running bookie read-only, or writable again; it stays so across restarts",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if args[0] != "on" && args[0] != "off" && args[0] != "status" {
				return exit(exitUsage, fmt.Errorf("%q is none of on, off and status", args[0]))
			}
			url, err := a.url("/api/v1/bookie/state/readonly")
			if err != nil {
				return err
			}
			state, err := readOnlyState(c.Context(), &a, url, args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), state)
			return err
		},
	}
	a.addFlags(c, true)
	return c
}

// readOnlyState asks the admin server for the read-only state, changing it first for on and off.
func readOnlyState(ctx context.Context, a *adminCall, url, what string) (string, error) {
	method, body := http.MethodGet, []byte(nil)
	if what != "status" {
		method, body = http.MethodPut, fmt.Appendf(nil, `{"readOnly":%t}`, what == "on")
	}
	data, err := a.do(ctx, method, url, body)
	if err != nil {
		return "", err
	}
	var state struct {
		ReadOnly bool   `json:"readOnly"`
		Reason   string `json:"reason"`
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return "", fmt.Errorf("%s answered something else than a state: %w", url, err)
	}
	switch {
	case !state.ReadOnly:
		return "writable", nil
	case state.Reason != "":
		return "read-only: " + state.Reason, nil
	}
	return "read-only", nil
}
