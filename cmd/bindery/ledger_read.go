package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"runtime/debug"

	"github.com/binderylog/bindery/ledgerclient"
	"github.com/spf13/cobra"
)

type ledgerReadOptions struct {
	cluster      *clusterOptions
	from, to     int64
	format       string
	passwordFile string
	noProgress   bool
}

func newLedgerReadCommand(cluster *clusterOptions) *cobra.Command {
	o := ledgerReadOptions{cluster: cluster}
	c := &cobra.Command{
		Use:   "read ID",
		Short: "Write the entries of a ledger to standard output",
		Long: "Writes the payloads of a ledger's entries to standard output: with --format raw one after another, which gives back\n" +
			"what `ledger write` took; with --format json one object per entry and line, the payload in base64.\n\n" +
			"A ledger whose writer has gone without closing it can be read up to the last confirmed entry; `ledger recover`\n" +
			"seals it.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args[0]) },
	}
	f := c.Flags()
	f.Int64Var(&o.from, "from", 0, "first entry")
	f.Int64Var(&o.to, "to", -1, "last entry; -1 = the last one there is")
	f.StringVar(&o.format, "format", "raw", "raw or json")
	f.StringVar(&o.passwordFile, "password-file", "", "file with the ledger's password")
	f.BoolVar(&o.noProgress, "no-progress", false, "show no progress on a terminal")
	return c
}

// entryWriter prints entries in one of the formats.
type entryWriter struct {
	w    *bufio.Writer
	json *json.Encoder // nil = raw
	p    *progress
}

func newEntryWriter(w io.Writer, format string) (*entryWriter, error) {
	e := &entryWriter{w: bufio.NewWriterSize(w, 1<<20)}
	switch format {
	case "raw":
	case "json":
		e.json = json.NewEncoder(e.w)
	default:
		return nil, exit(exitUsage, fmt.Errorf("--format %q is neither raw nor json", format))
	}
	return e, nil
}

// entryJSON is one line of --format json.
type entryJSON struct {
	Entry       int64  `json:"entry"`
	LengthBytes int    `json:"length_bytes"`
	Data        []byte `json:"data"` // base64
}

func (e *entryWriter) write(entry ledgerclient.Entry) error {
	if e.p != nil {
		e.p.add(len(entry.Data))
	}
	if e.json != nil {
		return e.json.Encode(entryJSON{int64(entry.ID), len(entry.Data), entry.Data})
	}
	_, err := e.w.Write(entry.Data)
	return err
}

func (o *ledgerReadOptions) run(c *cobra.Command, arg string) error {
	id, err := parseLedgerID(arg)
	if err != nil {
		return err
	}
	out, err := newEntryWriter(c.OutOrStdout(), o.format)
	if err != nil {
		return err
	}
	if o.from < 0 || o.to < -1 || (o.to >= 0 && o.to < o.from) {
		return exit(exitUsage, fmt.Errorf("--from %d --to %d is no range of entries", o.from, o.to))
	}
	open, err := openOptions(o.passwordFile, false)
	if err != nil {
		return err
	}
	defer relaxCollector()()
	return o.cluster.with(c, func(ctx context.Context, client *ledgerclient.Client) error {
		r, err := client.Open(ctx, id, open)
		if err != nil {
			return describeRead(ctx, client, id, err)
		}
		defer closeReader(r)
		first, last := ledgerclient.EntryID(o.from), ledgerclient.EntryID(o.to)
		lac := r.LastAddConfirmed()
		if o.to < 0 {
			last = lac
		}
		if o.to < 0 && o.from > 0 && first > lac {
			return fmt.Errorf("ledger %d: --from %d is beyond the last entry, %d", id, first, lac)
		}
		if last > lac || (o.from > 0 && first > lac) {
			return fmt.Errorf("ledger %d: the last confirmed entry is %d; entries %d to %d are not all there", id, lac, first, last)
		}
		if last < first {
			return nil // an empty ledger
		}
		total := int64(0)
		if m := r.Metadata(); m != nil && m.State == ledgerclient.StateClosed && first == 0 && last == m.LastEntry {
			total = m.Length
		}
		// Progress would be overwritten by data that goes to the same terminal.
		out.p = startProgress(c.ErrOrStderr(), total, o.noProgress || isTerminal(c.OutOrStdout()))
		err = writeEntries(r.Entries(ctx, first, last), out)
		out.p.finish()
		if err != nil {
			return describeRead(ctx, client, id, err)
		}
		return nil
	})
}

// relaxCollector lets the collector wait longer, up to readMemory, unless the environment says how long. Nearly nothing of what is
// read stays alive, so that it would run at every few MiB.
func relaxCollector() (restore func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	percent, limit := debug.SetGCPercent(400), debug.SetMemoryLimit(readMemory)
	return func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}

// readMemory is where the collector works harder again.
const readMemory = 192 << 20

// writeEntries prints a sequence and flushes, also before an error: what came before it is right.
func writeEntries(seq iter.Seq2[ledgerclient.Entry, error], out *entryWriter) error {
	for e, err := range seq {
		if err == nil {
			err = out.write(e)
		}
		if err != nil {
			return errors.Join(err, out.w.Flush())
		}
	}
	return out.w.Flush()
}

type ledgerTailOptions struct {
	cluster      *clusterOptions
	from         int64
	last         int64
	format       string
	passwordFile string
}

func newLedgerTailCommand(cluster *clusterOptions) *cobra.Command {
	o := ledgerTailOptions{cluster: cluster}
	c := &cobra.Command{
		Use:   "tail ID",
		Short: "Follow a ledger while it is being written",
		Long:  "Prints the last entries of a ledger and then each new one as it is confirmed, until the ledger is sealed.",
		Args:  cobra.ExactArgs(1),
		RunE:  func(c *cobra.Command, args []string) error { return o.run(c, args[0]) },
	}
	f := c.Flags()
	f.Int64VarP(&o.last, "last", "n", 10, "begin this many entries before the end")
	f.Int64Var(&o.from, "from", -1, "begin at this entry instead")
	f.StringVar(&o.format, "format", "raw", "raw or json")
	f.StringVar(&o.passwordFile, "password-file", "", "file with the ledger's password")
	return c
}

func (o *ledgerTailOptions) run(c *cobra.Command, arg string) error {
	id, err := parseLedgerID(arg)
	if err != nil {
		return err
	}
	switch {
	case o.last < 0:
		return exit(exitUsage, fmt.Errorf("--last %d: must be 0 or more entries", o.last))
	case c.Flags().Changed("from") && o.from < 0:
		return exit(exitUsage, fmt.Errorf("--from %d: entries count from 0", o.from))
	}
	out, err := newEntryWriter(c.OutOrStdout(), o.format)
	if err != nil {
		return err
	}
	open, err := openOptions(o.passwordFile, false)
	if err != nil {
		return err
	}
	return o.cluster.with(c, func(ctx context.Context, client *ledgerclient.Client) error {
		r, err := client.Open(ctx, id, open)
		if err != nil {
			return describe(id, err)
		}
		defer closeReader(r)
		from := ledgerclient.EntryID(o.from)
		if from < 0 {
			from = max(r.LastAddConfirmed()+1-ledgerclient.EntryID(o.last), 0)
		}
		for e, err := range r.Tail(ctx, from) {
			if err != nil {
				if ctx.Err() != nil {
					return nil // Ctrl-C is how following ends
				}
				return describe(id, err)
			}
			if err := out.write(e); err != nil {
				return err
			}
			if err := out.w.Flush(); err != nil { // whoever follows wants to see it now
				return err
			}
		}
		return nil
	})
}
