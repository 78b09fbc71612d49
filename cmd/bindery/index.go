package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/binderylog/bindery/bookie/index"
	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/spf13/cobra"
)

// indexOptions are what the index commands share.
type indexOptions struct {
	indexDir string
	deep     bool
	dryRun   bool
	output   outputFormat
}

func newIndexCommand() *cobra.Command {
	c := group("index", "Check, count and rebuild the index of a stopped bookie",
		newIndexVerifyCommand(),
		newIndexRebuildCommand(),
		newIndexStatsCommand(),
	)
	c.Long = "Works on one ledger directory of a stopped bookie. DIR is the directory that holds current/; the index lies there\n" +
		"too, unless the bookie is configured with index directories: name the one that belongs to DIR with --index-dir."
	return c
}

func (o *indexOptions) addFlags(c *cobra.Command) {
	c.Flags().StringVar(&o.indexDir, "index-dir", "", "the index directory that belongs to DIR, if it is another one")
	addOutputFlag(c, &o.output)
}

// withIndexDirs locks the directories and runs fn with the index's path.
func withIndexDirs(dir string, o *indexOptions, fn func(d *offlineDir, path string) error) error {
	d, err := lockOffline(vfs.OS(), dir)
	if err != nil {
		return err
	}
	if o.indexDir == "" || filepath.Clean(o.indexDir) == filepath.Clean(dir) {
		return errors.Join(fn(d, indexPath(dir, "")), d.close())
	}
	x, err := lockOffline(vfs.OS(), o.indexDir)
	if err != nil {
		return errors.Join(err, d.close())
	}
	return errors.Join(fn(d, indexPath(dir, o.indexDir)), x.close(), d.close())
}

type indexStats struct {
	Path          string  `json:"path"`
	Ledgers       int64   `json:"ledgers"`
	States        int64   `json:"ledger_states"`
	Runs          int64   `json:"runs"`
	Entries       int64   `json:"entries"`
	Logs          int64   `json:"entry_logs"`
	FileBytes     int64   `json:"file_bytes"`
	UsedBytes     int64   `json:"used_bytes"`
	FreeBytes     int64   `json:"free_bytes"`
	BytesPerEntry float64 `json:"used_bytes_per_entry"`
	EntriesPerRun float64 `json:"entries_per_run"`
}

func newIndexStatsCommand() *cobra.Command {
	var o indexOptions
	c := &cobra.Command{
		Use:   "stats DIR",
		Short: "Count what the index holds and what it takes",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return withIndexDirs(args[0], &o, func(_ *offlineDir, path string) error {
				return printIndexStats(c.OutOrStdout(), path, o.output)
			})
		},
	}
	o.addFlags(c)
	return c
}

func printIndexStats(w io.Writer, path string, output outputFormat) error {
	x, err := index.OpenBolt(path, index.Options{ReadOnly: true})
	if err != nil {
		return indexDamage(err)
	}
	st, err := x.Stats()
	if err = errors.Join(err, x.Close()); err != nil {
		return indexDamage(err)
	}
	o := indexStats{Path: path, Ledgers: st.Ledgers, States: st.States, Runs: st.Runs, Entries: st.Entries, Logs: st.Logs, FileBytes: st.FileBytes, UsedBytes: st.UsedBytes, FreeBytes: st.FreeBytes}
	if st.Entries > 0 {
		o.BytesPerEntry = float64(st.UsedBytes) / float64(st.Entries)
		o.EntriesPerRun = float64(st.Entries) / float64(st.Runs)
	}
	if output == outputJSON {
		return printJSON(w, o)
	}
	row := func(name string, v int64) []string { return []string{name, strconv.FormatInt(v, 10)} }
	return printTable(w, []string{"WHAT", ">VALUE"}, [][]string{
		row("ledgers", o.Ledgers), row("ledger states", o.States), row("runs", o.Runs), row("entries", o.Entries), row("entry logs", o.Logs),
		row("file bytes", o.FileBytes), row("used bytes", o.UsedBytes), row("free bytes", o.FreeBytes),
		{"used bytes per entry", fmt.Sprintf("%.2f", o.BytesPerEntry)}, {"entries per run", fmt.Sprintf("%.1f", o.EntriesPerRun)},
	})
}

// indexDamage turns damage into a finding that says what to do.
func indexDamage(err error) error {
	if corrupt.Is(err) {
		return exit(exitFindings, fmt.Errorf("%w; `bindery index rebuild` makes it again from the entry logs", err))
	}
	return err
}

type indexVerified struct {
	Path     string   `json:"path"`
	Entries  int64    `json:"entries_compared"`
	Logs     int      `json:"entry_logs_compared"`
	Findings []string `json:"findings"`
}

func newIndexVerifyCommand() *cobra.Command {
	var o indexOptions
	c := &cobra.Command{
		Use:   "verify DIR",
		Short: "Check the index and compare it with the entry logs (exit 5 if something is wrong)",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return withIndexDirs(args[0], &o, func(d *offlineDir, path string) error {
				return verifyIndex(c.Context(), c.OutOrStdout(), d, path, &o)
			})
		},
	}
	o.addFlags(c)
	c.Flags().BoolVar(&o.deep, "read", false, "also read every entry that the index points to")
	return c
}

func verifyIndex(ctx context.Context, w io.Writer, d *offlineDir, path string, o *indexOptions) (err error) {
	x, err := index.OpenBolt(path, index.Options{ReadOnly: true})
	if err != nil {
		return indexDamage(err)
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	s, _, err := d.openLogs()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	res, err := index.Compare(ctx, x, s, o.deep)
	if err != nil {
		return err
	}
	out := indexVerified{Path: path, Entries: res.Entries, Logs: res.Logs, Findings: []string{}}
	for _, f := range res.Findings {
		out.Findings = append(out.Findings, f.Error())
	}
	if o.output == outputJSON {
		if err := printJSON(w, out); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(w, "compared %d entries with %d entry logs", out.Entries, out.Logs)
		if later := len(s.Logs()) - out.Logs; later > 0 {
			fmt.Fprintf(w, "; %d newer not in the index yet: the bookie finds their entries by their footers and adds them", later)
		}
		fmt.Fprintln(w)
		for _, f := range out.Findings {
			fmt.Fprintln(w, f)
		}
	}
	if len(out.Findings) > 0 {
		more := ""
		if res.More {
			more = " or more"
		}
		return exit(exitFindings, fmt.Errorf("%d findings%s; `bindery index rebuild` makes the index again from the entry logs", len(out.Findings), more))
	}
	return nil
}

type rebuildOutput struct {
	Path    string          `json:"path"`
	Logs    int             `json:"entry_logs"`
	Ledgers int64           `json:"ledgers"`
	States  int64           `json:"ledger_states"`
	Runs    int64           `json:"runs"`
	Entries int64           `json:"entries"`
	Kept    []string        `json:"kept_values"`
	Suspect bool            `json:"suspect"`
	Damage  []damageFinding `json:"damage"`
	DryRun  bool            `json:"dry_run"`
}

func newIndexRebuildCommand() *cobra.Command {
	var o indexOptions
	c := &cobra.Command{
		Use:   "rebuild DIR",
		Short: "Make the index again from the entry logs",
		Long: "Reads the footers and tables of all entry logs of DIR into a new index, and puts it in the place of the old one, which\n" +
			"is kept beside it with the suffix .old. Small values of the bookie (which ledgers were deleted, for example) are taken\n" +
			"over from the old index; where they can not be read, or something in the entry logs can not, the new index is marked,\n" +
			"and the bookie treats every ledger of the directory as fenced and in limbo until that has been repaired.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return withIndexDirs(args[0], &o, func(d *offlineDir, path string) error {
				return rebuildIndex(c.Context(), c.OutOrStdout(), c.ErrOrStderr(), d, path, &o)
			})
		},
	}
	o.addFlags(c)
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "build the new index, report, and throw it away")
	return c
}

func rebuildIndex(ctx context.Context, w, diag io.Writer, d *offlineDir, path string, o *indexOptions) (err error) {
	s, _, err := d.openLogs()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	tmp := path + ".rebuild"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	x, err := index.OpenBolt(tmp, index.Options{})
	if err != nil {
		return err
	}
	out, err := fillIndex(ctx, diag, s, x, path)
	if err = errors.Join(err, x.Close()); err == nil && !o.dryRun {
		err = replaceIndex(d.fs, tmp, path)
	}
	if err != nil || o.dryRun {
		if rerr := os.Remove(tmp); !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	if err != nil {
		return err
	}
	out.Path, out.DryRun = path, o.dryRun
	if o.output == outputJSON {
		err = printJSON(w, out)
	} else {
		_, err = fmt.Fprintf(w, "%d entry logs: %d entries of %d ledgers in %d runs, %d ledger states; %d values kept\n", out.Logs, out.Entries, out.Ledgers, out.Runs, out.States, len(out.Kept))
		for _, f := range out.Damage {
			fmt.Fprintf(w, "damage: %s\n", f.Error)
		}
	}
	if err == nil && out.Suspect {
		err = exit(exitFindings, errors.New("something could not be proven; the bookie will treat every ledger of this directory as fenced and in limbo until it has been repaired"))
	}
	return err
}

// fillIndex rebuilds into x, and takes over the small values of the old index.
func fillIndex(ctx context.Context, diag io.Writer, s *entrylog.Store, x index.Index, old string) (*rebuildOutput, error) {
	report, err := index.Rebuild(ctx, s, x, func(done, total int) {
		if total > 0 && (done == total || done%100 == 0) {
			fmt.Fprintf(diag, "%d of %d entry logs\n", done, total)
		}
	})
	if err != nil {
		return nil, err
	}
	out := &rebuildOutput{Logs: report.Logs, Ledgers: report.Ledgers, States: report.States, Runs: report.Runs, Entries: report.Entries, Kept: []string{}, Damage: []damageFinding{}}
	for _, d := range report.Damage {
		out.Damage = append(out.Damage, describeDamage(d.Log, -1, -1, d.Err))
	}
	values, err := oldValues(old)
	switch {
	case errors.Is(err, fs.ErrNotExist) && report.Logs == 0: // nothing was ever here
	case err != nil:
		out.Suspect = true
		fmt.Fprintf(diag, "the old index can not be read: %v\n", err)
		if err := x.PutMeta(index.MetaValue{Key: index.MetaSuspect, Value: []byte("the small values of the old index could not be read")}); err != nil {
			return nil, err
		}
	default:
		if err := x.PutMeta(values...); err != nil {
			return nil, err
		}
		for _, v := range values {
			out.Kept = append(out.Kept, v.Key)
		}
	}
	if _, suspect, err := x.Meta(index.MetaSuspect); err != nil {
		return nil, err
	} else if suspect {
		out.Suspect = true
	}
	return out, nil
}

// oldValues reads the small values of the index that is replaced.
func oldValues(path string) ([]index.MetaValue, error) {
	x, err := index.OpenBolt(path, index.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	values, err := x.MetaValues()
	return values, errors.Join(err, x.Close())
}

// replaceIndex puts the new file in the old one's place. A crash leaves one of them there, or, between the two renames,
// neither: then the next start makes the index again by itself.
func replaceIndex(fsys vfs.FS, tmp, path string) error {
	if err := fsys.Rename(path, path+".old"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := fsys.Rename(tmp, path); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(path))
}
