package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/binderylog/bindery/internal/config"
	"github.com/binderylog/bindery/tools/iobench/device"
	"github.com/binderylog/bindery/tools/iobench/result"
	"github.com/spf13/cobra"
)

// applyOptions are the flags of `iobench apply`.
type applyOptions struct {
	config string
	dryRun bool
	force  bool
	run    int
}

func newApplyCommand() *cobra.Command {
	var o applyOptions
	c := &cobra.Command{
		Use:   "apply RUN.json --config FILE",
		Short: "Put the recommended settings into a configuration file",
		Long: "Merges the settings that a run recommends into a TOML file, each with its evidence as a comment. Comments, order and\n" +
			"whatever else the file holds stay as they are; the old file is kept beside it; what changes is shown. Results of\n" +
			"another machine or disk, and those that do not represent a disk, are refused.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return o.apply(c, args[0]) },
	}
	f := c.Flags()
	f.StringVar(&o.config, "config", "", "configuration file, /etc/bindery/bindery.toml")
	f.BoolVar(&o.dryRun, "dry-run", false, "show what would change, write nothing")
	f.BoolVar(&o.force, "force", false, "take results of another machine or disk, and of a run that was ended early")
	f.IntVar(&o.run, "run", 0, "the run with this number, counted from 1, of a file with several")
	return c
}

func (o *applyOptions) apply(c *cobra.Command, file string) error {
	if o.config == "" {
		return missing(c, "--config FILE", "which file to change")
	}
	runs, err := result.ReadFile(file)
	if err != nil {
		return err
	}
	if runs, err = pickRun(runs, o.run); err != nil {
		return err
	}
	path, err := filepath.EvalSymlinks(o.config) // the file is replaced, not the link to it
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	text, info, err := readConfig(path)
	if err != nil {
		return err
	}
	load := config.Options{File: path, Lenient: true, Incomplete: true}
	before, err := config.LoadTextAs(load, text)
	if err != nil {
		return fmt.Errorf("the file is not valid as it is, mend it first: %w", err)
	}
	here := thisMachine()
	run, err := chooseRun(runs, here, before.Storage.JournalDirs)
	if err != nil {
		return err
	}
	refused, warnings := judgeRun(run, here, before.Storage.JournalDirs, time.Now())
	for _, w := range warnings {
		fmt.Fprintln(c.ErrOrStderr(), "warning: "+w)
	}
	for _, r := range refused {
		if r.final {
			return exit(exitRefused, errors.New(r.text))
		}
		if !o.force {
			return exit(exitRefused, fmt.Errorf("%s; --force applies it all the same", r.text))
		}
		fmt.Fprintln(c.ErrOrStderr(), "forced: "+r.text)
	}
	edits, kept := editsOf(run, before)
	for _, k := range kept {
		fmt.Fprintln(c.ErrOrStderr(), "left as it is: "+k)
	}
	merged, err := config.Merge(text, "iobench", edits)
	if err != nil {
		return err
	}
	w := c.OutOrStdout()
	if bytes.Equal(merged, text) {
		_, err := fmt.Fprintf(w, "%s: nothing to change\n", path)
		return err
	}
	after, err := config.LoadTextAs(load, merged)
	if err != nil {
		return fmt.Errorf("the settings do not go with the others of the file, nothing was changed: %w", err)
	}
	if err := writeDiff(w, path, text, merged); err != nil {
		return err
	}
	if o.dryRun {
		_, err := fmt.Fprintln(w, "nothing was written (--dry-run)")
		return err
	}
	backup, err := replaceConfig(path, text, merged, info, time.Now())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s is written; as it was: %s\n%s", path, backup, inForce(edits, before, after))
	return err
}

// editsOf are the run's settings, each with its date and evidence, but for those that the configuration has already and that the
// run has nothing firm to say against.
func editsOf(run *result.Run, have *config.Loaded) (edits []config.Edit, kept []string) {
	day := run.StartedAt.UTC().Format("2006-01-02")
	for _, s := range run.Recommendation.Settings {
		key := s.Table + "." + s.Key
		if s.WithinSpread && have.Origin(key).Kind == "file" {
			kept = append(kept, fmt.Sprintf("%s, for no other value is better than the spread of the rounds (%s)", key, s.Evidence))
			continue
		}
		edits = append(edits, config.Edit{Key: key, Value: s.Value, Comment: day + ": " + s.Evidence})
	}
	return edits, kept
}

// inForce says what it takes for the new values to count.
func inForce(edits []config.Edit, before, after *config.Loaded) string {
	var reload, restart []string
	for _, e := range edits {
		s, ok := config.Lookup(e.Key)
		if !ok || s.Format(&before.Config) == s.Format(&after.Config) {
			continue
		}
		if s.Reload {
			reload = append(reload, e.Key)
		} else {
			restart = append(restart, e.Key)
		}
	}
	var b strings.Builder
	if len(reload) > 0 {
		fmt.Fprintf(&b, "in force after `bindery config reload`: %s\n", strings.Join(reload, ", "))
	}
	if len(restart) > 0 {
		fmt.Fprintf(&b, "in force after a restart: %s\n", strings.Join(restart, ", "))
	}
	return b.String()
}

// machine is what a run is held against.
type machine struct {
	host    string
	kernel  string
	inspect func(dir string) (*result.Device, error)
}

func thisMachine() machine {
	env := device.System{}.Environment()
	return machine{host: env.Host, kernel: env.Kernel, inspect: func(dir string) (*result.Device, error) {
		f, err := device.System{}.Inspect(dir, "journal")
		if err != nil {
			return nil, err
		}
		return &f.Device, nil
	}}
}

// onDisk reports whether a run was made on the disk of one of the directories. One that is not there yet is known by its path.
func (m *machine) onDisk(run *result.Run, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		d, err := m.inspect(dir)
		if errors.Is(err, os.ErrNotExist) {
			return filepath.Clean(dir) == run.Device.Dir
		}
		return err == nil && d.Key() == run.Device.Key()
	})
}

// chooseRun picks the run on a disk of the journal, if the file has several.
func chooseRun(runs []*result.Run, here machine, journals []string) (*result.Run, error) {
	if len(runs) == 1 {
		return runs[0], nil
	}
	var fit []*result.Run
	var names []string
	for i, r := range runs {
		names = append(names, fmt.Sprintf("%d %s:%s", i+1, r.Environment.Host, r.Device.Dir))
		if r.Environment.Host == here.host && here.onDisk(r, journals) {
			fit = append(fit, r)
		}
	}
	if len(fit) == 1 {
		return fit[0], nil
	}
	return nil, exit(exitUsage, fmt.Errorf("%d of the %d runs of the file are of a disk of the journal here; --run says which one: %s", len(fit), len(runs), strings.Join(names, ", ")))
}
