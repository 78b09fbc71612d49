package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/binderylog/bindery/internal/config"
	"github.com/binderylog/bindery/internal/metadata/driver"
	"github.com/binderylog/bindery/internal/vfs"
)

type importOptions struct {
	out       string
	envPrefix string
	strict    bool
	output    outputFormat
}

func newConfigImportCommand() *cobra.Command {
	var o importOptions
	c := &cobra.Command{
		Use:   "import FILE",
		Short: "Translate Apache BookKeeper's bk_server.conf or Pulsar's bookkeeper.conf into a configuration of bindery",
		Long: "Reads the properties file of a BookKeeper server and writes the TOML that says the same, as far as bindery has it; what\n" +
			"equals bindery's defaults is left out. What became of each key is listed on standard error: mapped, automatic (bindery\n" +
			"works it out), obsolete (of the JVM, Netty or RocksDB), refused (asks for what bindery does not do) or unknown (BookKeeper\n" +
			"has no such key; it ignores misspelt keys in silence). Refused and unknown keys are kept as comments.\n\n" +
			"Exit codes: 0 everything imported, 1 bindery would not take the result, 2 the output file exists, 3 keys were refused, 4 with --strict: keys are\n" +
			"unknown.",
		Example: "  bindery config import /opt/bookkeeper/conf/bk_server.conf -o /etc/bindery/bindery.toml\n" +
			"  bindery config import conf/bookkeeper.conf --env-prefix PULSAR_PREFIX_",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args[0]) },
	}
	f := c.Flags()
	f.StringVarP(&o.out, "out", "o", "", "file to write (default: standard output); an existing one is not overwritten")
	f.StringVar(&o.envPrefix, "env-prefix", "", "take environment variables with this prefix too, as container images do: BK_ or PULSAR_PREFIX_")
	f.BoolVar(&o.strict, "strict", false, "fail if BookKeeper has no such key")
	addOutputFlag(c, &o.output)
	return c
}

func (o *importOptions) run(c *cobra.Command, name string) error {
	data, err := readConf(name)
	if err != nil {
		return err
	}
	if err := refuseOtherSyntax(name, data); err != nil {
		return err
	}
	props, err := config.ParseProperties(name, data)
	if err != nil {
		return err
	}
	props = config.OverrideProperties(props, config.EnvironmentProperties(o.envPrefix, os.Environ()))
	im := config.Import(props, config.ImportOptions{
		HostName: fullHostName,
		CheckURI: func(uri string) error { _, err := driver.Parse(uri); return err },
	})
	problems, err := checkImported(im.TOML)
	if err != nil {
		return err
	}
	if o.out != "" {
		if err := writeNew(o.out, im.TOML); err != nil {
			return err
		}
	}
	if o.output == outputJSON {
		err = o.printJSON(c, im, problems)
	} else {
		err = o.print(c, im, problems)
	}
	switch {
	case err != nil:
		return err
	case len(problems) > 0:
		return exit(exitFailed, nil)
	case im.Count(config.ImportRefused) > 0:
		return exit(exitRefused, nil)
	case o.strict && im.Count(config.ImportUnknown) > 0:
		return exit(exitPartial, nil)
	}
	return nil
}

// readConf reads a foreign file with a bound.
func readConf(name string) ([]byte, error) {
	return vfs.ReadSmall(name, 1<<20)
}

// refuseOtherSyntax refuses what is no properties file. The syntax admits nearly every line, so that a wrong file would come
// out as a long list of unknown keys.
func refuseOtherSyntax(name string, data []byte) error {
	if bytes.IndexByte(data, 0) >= 0 {
		return fmt.Errorf("%s is no text file; give BookKeeper's bk_server.conf or Pulsar's bookkeeper.conf", name)
	}
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(line)
		if len(line) > 2 && line[0] == '[' && line[len(line)-1] == ']' {
			return fmt.Errorf("%s has a section %s: this is bindery's own kind of file, which needs no import (`bindery config check %s`)", name, line, name)
		}
	}
	return nil
}

// writeNew writes a file that does not exist yet.
func writeNew(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if errors.Is(err, os.ErrExist) {
		return exit(exitUsage, fmt.Errorf("%s exists already: remove it, or choose another name", name))
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// checkImported says what `bindery config check` would find.
func checkImported(toml []byte) (config.ProblemsError, error) {
	_, err := config.LoadText(toml)
	var problems config.ProblemsError
	if err != nil && !errors.As(err, &problems) {
		return nil, err
	}
	return problems, nil
}

func (o *importOptions) printJSON(c *cobra.Command, im *config.Imported, problems config.ProblemsError) error {
	lines := []string{}
	for _, p := range problems {
		lines = append(lines, p.String())
	}
	return printJSON(c.OutOrStdout(), struct {
		Keys     []config.ImportedKey `json:"keys"`
		TOML     string               `json:"toml"`
		Problems []string             `json:"problems"`
	}{im.Keys, string(im.TOML), lines})
}

// importOrder is the order of the classes in the table: what needs a look comes last, where it is seen.
var importOrder = []string{config.ImportMapped, config.ImportAutomatic, config.ImportObsolete, config.ImportUnknown, config.ImportRefused}

func (o *importOptions) print(c *cobra.Command, im *config.Imported, problems config.ProblemsError) error {
	if o.out == "" {
		if _, err := c.OutOrStdout().Write(im.TOML); err != nil {
			return err
		}
	}
	keys := slices.Clone(im.Keys)
	slices.SortStableFunc(keys, func(a, b config.ImportedKey) int {
		return slices.Index(importOrder, a.Class) - slices.Index(importOrder, b.Class)
	})
	rows := [][]string{}
	for _, k := range keys {
		rows = append(rows, []string{k.Class, k.Key, clip(k.Value, 40), strings.Join(nonEmpty(k.To, k.Note), "; ")})
	}
	if err := printTable(c.ErrOrStderr(), []string{"CLASS", "KEY", "VALUE", "BECAME"}, rows); err != nil {
		return err
	}
	var counts []string
	for _, class := range importOrder {
		counts = append(counts, fmt.Sprintf("%d %s", im.Count(class), class))
	}
	fmt.Fprintf(c.ErrOrStderr(), "%d keys: %s\n", len(keys), strings.Join(counts, ", "))
	for _, dir := range foreignDirs(im.TOML) {
		fmt.Fprintf(c.ErrOrStderr(), "bindery: warning: %s holds data of BookKeeper, which bindery does not open: decommission that bookie, or give bindery new directories\n", dir)
	}
	for _, p := range problems {
		fmt.Fprintf(c.ErrOrStderr(), "bindery: the result is not complete: %s\n", p)
	}
	return nil
}

// foreignDirs lists the imported directories that an Apache bookie has stamped.
func foreignDirs(toml []byte) (out []string) {
	l, err := config.LoadText(toml)
	if err != nil {
		return nil
	}
	fsys := vfs.OS()
	for _, dir := range slices.Concat(l.Storage.JournalDirs, l.Storage.LedgerDirs, l.Storage.IndexDirs) {
		_, version := fsys.Stat(filepath.Join(dir, "current", "VERSION"))
		_, format := fsys.Stat(filepath.Join(dir, "current", "FORMAT"))
		if version == nil && format != nil && !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	return out
}

func nonEmpty(parts ...string) (out []string) {
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return out
}

func clip(s string, n int) string {
	r := []rune(strings.Join(strings.Fields(s), " "))
	if len(r) <= n {
		return string(r)
	}
	return string(r[:n-1]) + "…"
}

// fullHostName is what Java calls the canonical name of this host.
func fullHostName() (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", err
	}
	if strings.Contains(name, ".") {
		return name, nil
	}
	addrs, err := net.LookupHost(name) //nolint:noctx // a command waits for its resolver
	if err != nil {
		return name, nil //nolint:nilerr // a name that does not resolve is still the name
	}
	for _, a := range addrs {
		names, err := net.LookupAddr(a) //nolint:noctx // as above
		if err == nil && len(names) > 0 && strings.Contains(names[0], ".") {
			return strings.TrimSuffix(names[0], "."), nil
		}
	}
	return name, nil
}
