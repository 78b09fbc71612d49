package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/binderylog/bindery/internal/config"
	"github.com/binderylog/bindery/internal/usage"
	"github.com/spf13/cobra"
)

// configOptions are the flags of every command that loads a configuration.
type configOptions struct {
	file    string
	set     []string
	lenient bool
}

func (o *configOptions) addFlags(c *cobra.Command) {
	c.Flags().StringVar(&o.file, "config", "", "configuration file (TOML)")
	c.Flags().StringArrayVar(&o.set, "set", nil, "override one setting, such as gc.interval=10m (repeatable)")
	c.Flags().BoolVar(&o.lenient, "lenient", false, "warn about unknown settings instead of refusing them")
}

func (o *configOptions) load() (*config.Loaded, error) {
	return config.Load(config.Options{File: o.file, Environ: os.Environ(), Set: o.set, Lenient: o.lenient})
}

// loadForShow loads for a command that can do with the defaults: only syntax and unknown keys are errors then, a missing
// metadata.uri is not.
func (o *configOptions) loadForShow() (*config.Loaded, error) {
	return config.Load(config.Options{File: o.file, Environ: os.Environ(), Set: o.set, Lenient: o.lenient, Incomplete: true})
}

func newConfigCommand() *cobra.Command {
	return group("config", "Check, show, explain, compare, import and reload configurations",
		newConfigCheckCommand(), newConfigShowCommand(), newConfigExplainCommand(), newConfigDiffCommand(), newConfigReloadCommand(), newConfigImportCommand())
}

// printProblems writes one line per problem and returns an error that ends the process with code and no further word.
func printProblems(c *cobra.Command, code int, err error) error {
	var problems config.ProblemsError
	if !errors.As(err, &problems) {
		return exit(code, err)
	}
	for _, p := range problems {
		fmt.Fprintf(c.ErrOrStderr(), "bindery: %s\n", p)
	}
	return exit(code, nil)
}

func newConfigCheckCommand() *cobra.Command {
	var o configOptions
	var output outputFormat
	c := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration without starting anything; exit 0 if `bindery run` would take it",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.file = args[0]
			}
			l, err := o.load()
			if output == outputJSON {
				return checkJSON(c, l, err)
			}
			if err != nil {
				return printProblems(c, exitFailed, err)
			}
			for _, w := range l.Warnings {
				fmt.Fprintf(c.ErrOrStderr(), "bindery: warning: %s\n", w)
			}
			empty := ""
			if l.Empty() {
				empty = fmt.Sprintf(", but %s sets nothing: every value is a default, or comes from the environment or --set", o.file)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "ok, %s%s\n", plural(len(l.Warnings), "warning"), empty)
			return err
		},
	}
	o.addFlags(c)
	addOutputFlag(c, &output)
	return c
}

func checkJSON(c *cobra.Command, l *config.Loaded, err error) error {
	type problem struct {
		Where   string `json:"where,omitempty"`
		Key     string `json:"key,omitempty"`
		Message string `json:"message"`
	}
	out := struct {
		OK       bool      `json:"ok"`
		Problems []problem `json:"problems"`
		Warnings []problem `json:"warnings"`
	}{err == nil, []problem{}, []problem{}}
	var problems config.ProblemsError
	if err != nil && !errors.As(err, &problems) {
		return err
	}
	for _, p := range problems {
		out.Problems = append(out.Problems, problem{p.Where, p.Key, p.Msg})
	}
	if l != nil {
		for _, p := range l.Warnings {
			out.Warnings = append(out.Warnings, problem{p.Where, p.Key, p.Msg})
		}
	}
	if perr := printJSON(c.OutOrStdout(), out); perr != nil {
		return perr
	}
	if err != nil {
		return exit(exitFailed, nil)
	}
	return nil
}

func newConfigShowCommand() *cobra.Command {
	var o configOptions
	var effective, all bool
	c := &cobra.Command{
		Use:   "show [FILE]",
		Short: "Print the configuration in force, with where each value comes from",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.file = args[0]
			}
			l, err := o.loadForShow()
			if err != nil {
				return printProblems(c, exitFailed, err)
			}
			if !effective {
				return l.WriteTOML(c.OutOrStdout(), nil, all)
			}
			e := l.Resolve(config.ThisMachine(), 1)
			return l.WriteTOML(c.OutOrStdout(), &e, all)
		},
	}
	o.addFlags(c)
	c.Flags().BoolVar(&effective, "effective", false, "replace \"auto\" by the figures it comes to on this machine")
	c.Flags().BoolVar(&all, "all", false, "show expert settings too")
	return c
}

func newConfigExplainCommand() *cobra.Command {
	var o configOptions
	var all bool
	c := &cobra.Command{
		Use:   "explain KEY...",
		Short: "Say what a setting does, its default and why, its value in force and where that comes from",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && !all {
				return exit(exitUsage, usage.Missing("KEY", "name a setting, such as storage.memory, or use --all", c.UseLine()))
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return config.Keys(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			l, err := o.loadForShow()
			if err != nil {
				return printProblems(c, exitFailed, err)
			}
			settings, err := selectSettings(args, all)
			if err != nil {
				return err
			}
			e := l.Resolve(config.ThisMachine(), 1)
			for i, s := range settings {
				if i > 0 {
					fmt.Fprintln(c.OutOrStdout())
				}
				if err := l.Explain(c.OutOrStdout(), s, e); err != nil {
					return err
				}
			}
			return nil
		},
	}
	o.addFlags(c)
	c.Flags().BoolVar(&all, "all", false, "explain every setting")
	return c
}

// selectSettings finds the settings that are named; the name of a section stands for all of its settings.
func selectSettings(names []string, all bool) ([]*config.Setting, error) {
	if all {
		return config.Settings(), nil
	}
	var out []*config.Setting
	for _, name := range names {
		if s, ok := config.Lookup(name); ok {
			out = append(out, s)
			continue
		}
		n := len(out)
		for _, s := range config.Settings() {
			if strings.HasPrefix(s.Key, name+".") {
				out = append(out, s)
			}
		}
		if len(out) > n {
			continue
		}
		if old := config.LookupOld(name); len(old) > 0 { // BookKeeper's word for it
			out = append(out, old...)
			continue
		}
		msg := fmt.Sprintf("%s: no such setting", name)
		if near := config.Nearest(name); near != "" {
			msg += "; did you mean " + near + "?"
		} else {
			msg += "; the sections are " + strings.Join(config.Sections(), ", ")
		}
		return nil, exit(exitUsage, errors.New(msg))
	}
	return out, nil
}

func newConfigDiffCommand() *cobra.Command {
	var output outputFormat
	c := &cobra.Command{
		Use:   "diff A B",
		Short: "List the settings in which two files differ, defaults included; exit 5 if there are any",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			var loaded [2]*config.Loaded
			for i, name := range args {
				l, err := config.Load(config.Options{File: name, Incomplete: true})
				if err != nil {
					return printProblems(c, exitFailed, err)
				}
				loaded[i] = l
			}
			diff := config.Diff(loaded[0], loaded[1])
			if output == outputJSON {
				if err := printJSON(c.OutOrStdout(), diff); err != nil {
					return err
				}
			} else {
				for _, d := range diff {
					fmt.Fprintf(c.OutOrStdout(), "%s: %s -> %s\n", d.Key, d.A, d.B)
				}
			}
			if len(diff) > 0 {
				return exit(exitFindings, nil)
			}
			return nil
		},
	}
	addOutputFlag(c, &output)
	return c
}
