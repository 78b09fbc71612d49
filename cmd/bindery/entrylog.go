package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/binderylog/bindery/bookie/index"
	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/spf13/cobra"
)

func newEntrylogCommand() *cobra.Command {
	c := group("entrylog", "Look into the entry logs of a stopped bookie",
		newEntrylogListCommand(),
		newEntrylogDumpCommand(),
		newEntrylogInfoCommand(),
		newEntrylogVerifyCommand(),
	)
	c.Aliases = []string{"log"}
	c.Long = "Reads the entry logs of a ledger directory without changing anything. DIR is the directory that holds current/;\n" +
		"a bookie that runs on it is found by the lock. LOG is the hexadecimal id that file names carry."
	return c
}

// offlineDir is a directory of a stopped bookie, locked for this process.
type offlineDir struct {
	fs      vfs.FS
	path    string
	current string
	lock    io.Closer
}

// lockOffline takes a directory's lock; a running bookie holds it.
func lockOffline(fs vfs.FS, dir string) (*offlineDir, error) {
	d := &offlineDir{fs: fs, path: dir, current: filepath.Join(dir, "current")}
	if _, err := fs.Stat(d.current); err != nil {
		return nil, fmt.Errorf("%s is not a directory of a bookie (it has no current/): %w", dir, err)
	}
	lock, err := vfs.LockTemporarily(fs, filepath.Join(d.current, "LOCK")) // nothing stays behind in what may be another program's
	if errors.Is(err, vfs.ErrLocked) {
		return nil, exit(exitRefused, fmt.Errorf("%s is in use by a running bookie; stop it first", dir))
	}
	if err != nil {
		return nil, err
	}
	d.lock = lock
	return d, nil
}

func (d *offlineDir) close() error { return d.lock.Close() }

// openLogs opens the entry logs for inspection. What it finds damaged is in the second result.
func (d *offlineDir) openLogs() (*entrylog.Store, *entrylog.Recovered, error) {
	return entrylog.Open(d.fs, d.current, entrylog.Options{ReadOnly: true, Logger: slog.New(slog.DiscardHandler)})
}

// withLogs runs fn on the opened logs of a directory.
func withLogs(dir string, fn func(*entrylog.Store, *entrylog.Recovered) error) error {
	if err := requireKind(vfs.OS(), dir, "ledger", ".log"); err != nil {
		return err
	}
	d, err := lockOffline(vfs.OS(), dir)
	if err != nil {
		return err
	}
	s, r, err := d.openLogs()
	if err != nil {
		return errors.Join(err, d.close())
	}
	return errors.Join(fn(s, r), s.Close(), d.close())
}

// parseLogID reads a log id as file names carry it, with or without 0x and suffix.
func parseLogID(s string) (entrylog.LogID, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSuffix(filepath.Base(s), ".log"), "0x"), 16, 32)
	if err != nil || n == 0 {
		return 0, exit(exitUsage, fmt.Errorf("%q is not the id of an entry log (hexadecimal, as in file names)", s))
	}
	return entrylog.LogID(n), nil
}

// logRow is a log in listings.
type logRow struct {
	Log        string    `json:"log"`
	Dir        string    `json:"dir"`
	SizeBytes  int64     `json:"size_bytes"`
	State      string    `json:"state"`
	Created    time.Time `json:"created"`
	Compaction bool      `json:"compaction"`
	Precedence string    `json:"precedence"`
}

func describeLog(dir string, i entrylog.LogInfo) logRow {
	state := "unsealed"
	switch {
	case i.Unreadable:
		state = "unreadable"
	case i.Sealed:
		state = "sealed"
	}
	return logRow{Log: i.ID.String(), Dir: dir, SizeBytes: i.Size, State: state, Created: i.Created.UTC(), Compaction: i.Compaction, Precedence: i.Precedence.String()}
}

func newEntrylogListCommand() *cobra.Command {
	var output outputFormat
	c := &cobra.Command{
		Use:   "ls DIR...",
		Short: "List entry logs",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, dirs []string) error {
			return listLogs(c.OutOrStdout(), dirs, output)
		},
	}
	addOutputFlag(c, &output)
	return c
}

func listLogs(w io.Writer, dirs []string, output outputFormat) error {
	rows := []logRow{}
	for _, dir := range dirs {
		if err := withLogs(dir, func(s *entrylog.Store, _ *entrylog.Recovered) error {
			for _, i := range s.Logs() {
				rows = append(rows, describeLog(dir, i))
			}
			return nil
		}); err != nil {
			return err
		}
	}
	if output == outputJSON {
		return printJSON(w, rows)
	}
	var cells [][]string
	for _, r := range rows {
		from := ""
		if r.Compaction {
			from = "compaction up to log " + r.Precedence
		}
		cells = append(cells, []string{r.Dir, r.Log, r.State, r.Created.Format(time.RFC3339), strconv.FormatInt(r.SizeBytes, 10), from})
	}
	return printTable(w, []string{"DIR", "LOG", "STATE", "CREATED", ">SIZE", "WRITTEN BY"}, cells)
}

// logInfoOutput is what info prints as JSON.
type logInfoOutput struct {
	logRow
	Source  string          `json:"source"`
	Entries int64           `json:"entries"`
	Runs    int64           `json:"runs"`
	States  int             `json:"ledger_states"`
	Ledgers []ledgerInLog   `json:"ledgers"`
	Damage  []damageFinding `json:"damage"`
}

type ledgerInLog struct {
	Ledger int64 `json:"ledger"`
	Bytes  int64 `json:"bytes"`
}

type damageFinding struct {
	Log    string `json:"log"`
	Path   string `json:"path"`
	Offset int64  `json:"offset_bytes"`
	Ledger *int64 `json:"ledger,omitempty"`
	Entry  *int64 `json:"entry,omitempty"`
	Error  string `json:"error"`
}

func describeDamage(log entrylog.LogID, ledger, entry int64, err *corrupt.Error) damageFinding {
	f := damageFinding{Log: log.String(), Path: err.Path, Offset: err.Offset, Error: err.Error()}
	if ledger >= 0 {
		f.Ledger, f.Entry = &ledger, &entry
	}
	return f
}

func newEntrylogInfoCommand() *cobra.Command {
	var output outputFormat
	c := &cobra.Command{
		Use:   "info DIR LOG",
		Short: "Show what an entry log holds: its ledgers with their bytes, its states, its damage",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := parseLogID(args[1])
			if err != nil {
				return err
			}
			return withLogs(args[0], func(s *entrylog.Store, _ *entrylog.Recovered) error {
				return showLog(c.OutOrStdout(), s, args[0], id, output)
			})
		},
	}
	addOutputFlag(c, &output)
	return c
}

func showLog(w io.Writer, s *entrylog.Store, dir string, id entrylog.LogID, output outputFormat) error {
	f, err := s.Footer(id)
	if err != nil {
		return err
	}
	o := logInfoOutput{logRow: describeLog(dir, f.Info), Source: f.Source.String(), Entries: f.Entries, States: len(f.States), Ledgers: []ledgerInLog{}, Damage: []damageFinding{}}
	for _, err := range f.Runs() {
		if err != nil {
			return err
		}
		o.Runs++
	}
	for _, l := range slices.Sorted(maps.Keys(f.Ledgers)) {
		o.Ledgers = append(o.Ledgers, ledgerInLog{l, f.Ledgers[l]})
	}
	for _, d := range f.Damage {
		o.Damage = append(o.Damage, describeDamage(d.Log, -1, -1, d.Err))
	}
	if output == outputJSON {
		return printJSON(w, o)
	}
	fmt.Fprintf(w, "log %s  %s  %d bytes  created %s\n", o.Log, o.State, o.SizeBytes, o.Created.Format(time.RFC3339))
	fmt.Fprintf(w, "%d entries of %d ledgers in %d runs, %d ledger states, read from the %s\n", o.Entries, len(o.Ledgers), o.Runs, o.States, o.Source)
	for _, d := range o.Damage {
		fmt.Fprintf(w, "damage: %s\n", d.Error)
	}
	var rows [][]string
	for _, l := range o.Ledgers {
		rows = append(rows, []string{strconv.FormatInt(l.Ledger, 10), strconv.FormatInt(l.Bytes, 10)})
	}
	return printTable(w, []string{">LEDGER", ">BYTES"}, rows)
}

// dumpOptions choose entries.
type dumpOptions struct {
	ledger, entry int64 // -1: all
	from, to      int64 // offsets
	body          bool
	output        outputFormat
}

type dumpedEntry struct {
	Offset    int64  `json:"offset_bytes"`
	Ledger    int64  `json:"ledger"`
	Entry     int64  `json:"entry"`
	LAC       int64  `json:"lac"`
	SizeBytes int    `json:"size_bytes"`
	Body      string `json:"body_hex,omitempty"`
	Error     string `json:"error,omitempty"`
}

func newEntrylogDumpCommand() *cobra.Command {
	o := dumpOptions{ledger: -1, entry: -1}
	c := &cobra.Command{
		Use:   "dump DIR LOG",
		Short: "Print the entries of a log in the order in which they lie there, one a line",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := parseLogID(args[1])
			if err != nil {
				return err
			}
			return withLogs(args[0], func(s *entrylog.Store, _ *entrylog.Recovered) error {
				return dumpLog(c.Context(), c.OutOrStdout(), s, id, o)
			})
		},
	}
	f := c.Flags()
	f.Int64Var(&o.ledger, "ledger", -1, "only entries of this ledger")
	f.Int64Var(&o.entry, "entry", -1, "only entries with this id")
	f.Int64Var(&o.from, "from", 0, "only records from this offset in `bytes` on")
	f.Int64Var(&o.to, "to", 0, "only records before this offset in `bytes` (0: to the end)")
	f.BoolVar(&o.body, "body", false, "print the bodies in hexadecimal")
	addOutputFlag(c, &o.output)
	return c
}

// errDumped ends a scan early.
var errDumped = errors.New("enough")

func dumpLog(ctx context.Context, w io.Writer, s *entrylog.Store, id entrylog.LogID, o dumpOptions) error {
	damaged := 0
	line := json.NewEncoder(w)
	err := s.Scan(ctx, id, func(r entrylog.Record, err error) error {
		switch {
		case o.to > 0 && r.Location.Offset >= o.to:
			return errDumped
		case r.Location.Offset < o.from, o.ledger >= 0 && r.Ledger != o.ledger, o.entry >= 0 && r.Entry != o.entry:
			return nil
		}
		e := dumpedEntry{Offset: r.Location.Offset, Ledger: r.Ledger, Entry: r.Entry, LAC: -1, SizeBytes: int(r.Location.Size)}
		if err != nil {
			damaged++
			e.Error = err.Error()
		} else {
			e.LAC = int64(binary.BigEndian.Uint64(r.Body[16:]))
			if o.body {
				e.Body = hex.EncodeToString(r.Body)
			}
		}
		if o.output == outputJSON {
			return line.Encode(e)
		}
		_, werr := fmt.Fprintf(w, "%12d  ledger %d  entry %d  lac %d  %d bytes", e.Offset, e.Ledger, e.Entry, e.LAC, e.SizeBytes)
		if e.Body != "" {
			_, werr = fmt.Fprintf(w, "  %s", e.Body)
		}
		if e.Error != "" {
			_, werr = fmt.Fprintf(w, "  DAMAGED: %s", e.Error)
		}
		if werr == nil {
			_, werr = fmt.Fprintln(w)
		}
		return werr
	})
	if err != nil && !errors.Is(err, errDumped) {
		return err
	}
	if damaged > 0 {
		return exit(exitFindings, fmt.Errorf("%d records are damaged", damaged))
	}
	return nil
}

// verifiedLog is a log that was verified.
type verifiedLog struct {
	logRow
	Entries     int64           `json:"entries"`
	EntryBytes  int64           `json:"entry_bytes"`
	Checkpoints int             `json:"checkpoints"`
	Ledgers     int             `json:"ledgers"`
	Findings    []damageFinding `json:"findings"`
}

func newEntrylogVerifyCommand() *cobra.Command {
	var output outputFormat
	c := &cobra.Command{
		Use:   "verify DIR [LOG...]",
		Short: "Check every record and every table of entry logs (exit 5 if something is wrong)",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var ids []entrylog.LogID
			for _, a := range args[1:] {
				id, err := parseLogID(a)
				if err != nil {
					return err
				}
				ids = append(ids, id)
			}
			return withLogs(args[0], func(s *entrylog.Store, r *entrylog.Recovered) error {
				return verifyLogs(c.Context(), c.OutOrStdout(), s, r, args[0], ids, output)
			})
		},
	}
	addOutputFlag(c, &output)
	return c
}

func verifyLogs(ctx context.Context, w io.Writer, s *entrylog.Store, r *entrylog.Recovered, dir string, ids []entrylog.LogID, output outputFormat) error {
	if len(ids) == 0 {
		for _, i := range s.Logs() {
			ids = append(ids, i.ID)
		}
	}
	logs := []verifiedLog{}
	findings := 0
	for _, id := range ids {
		info, err := s.Log(id)
		if err != nil {
			return err
		}
		v := verifiedLog{logRow: describeLog(dir, info), Findings: []damageFinding{}}
		res, err := s.Verify(ctx, id, func(f entrylog.Finding) {
			v.Findings = append(v.Findings, describeDamage(f.Log, f.Ledger, f.Entry, f.Err))
		})
		if err != nil {
			return err
		}
		v.Entries, v.EntryBytes, v.Checkpoints, v.Ledgers = res.Entries, res.Bytes, res.Checkpoints, res.Ledgers
		findings += len(v.Findings)
		logs = append(logs, v)
	}
	for _, d := range r.Damage { // of logs that are not there
		if _, err := s.Log(d.Log); err != nil {
			findings++
			logs = append(logs, verifiedLog{logRow: logRow{Log: d.Log.String(), Dir: dir, State: "missing"}, Findings: []damageFinding{describeDamage(d.Log, -1, -1, d.Err)}})
		}
	}
	if err := printVerified(w, logs, output); err != nil {
		return err
	}
	if findings > 0 {
		return exit(exitFindings, fmt.Errorf("%d findings in %d entry logs", findings, len(logs)))
	}
	return nil
}

func printVerified(w io.Writer, logs []verifiedLog, output outputFormat) error {
	if output == outputJSON {
		return printJSON(w, logs)
	}
	var rows [][]string
	for _, v := range logs {
		verdict := "ok"
		if n := len(v.Findings); n > 0 {
			verdict = strconv.Itoa(n) + " findings"
		}
		rows = append(rows, []string{v.Log, v.State, strconv.Itoa(v.Ledgers), strconv.FormatInt(v.Entries, 10), strconv.FormatInt(v.EntryBytes, 10), verdict})
	}
	if err := printTable(w, []string{"LOG", "STATE", ">LEDGERS", ">ENTRIES", ">BYTES", "VERDICT"}, rows); err != nil {
		return err
	}
	for _, v := range logs {
		for _, f := range v.Findings {
			which := ""
			if f.Ledger != nil {
				which = fmt.Sprintf("ledger %d, entry %d: ", *f.Ledger, *f.Entry)
			}
			if _, err := fmt.Fprintf(w, "%s%s\n", which, f.Error); err != nil {
				return err
			}
		}
	}
	return nil
}

// indexPath is where a ledger directory's index lies.
func indexPath(ledgerDir, indexDir string) string {
	if indexDir == "" {
		indexDir = ledgerDir
	}
	return filepath.Join(indexDir, "current", index.FileName)
}
