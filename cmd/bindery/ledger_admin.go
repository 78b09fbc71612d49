package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/binderylog/bindery/ledgerclient"
	"github.com/binderylog/bindery/offload"
	"github.com/spf13/cobra"
)

// ledgerJSON is a ledger as `ls --long` and `show` print it. The password never leaves the metadata store.
type ledgerJSON struct {
	ID           int64             `json:"ledger_id"`
	State        string            `json:"state"`
	Ensemble     int               `json:"ensemble_size"`
	WriteQuorum  int               `json:"write_quorum"`
	AckQuorum    int               `json:"ack_quorum"`
	LastEntry    *int64            `json:"last_entry"` // null while the ledger is open
	LengthBytes  *int64            `json:"length_bytes"`
	Digest       string            `json:"digest"`
	HasPassword  bool              `json:"has_password"`
	Created      string            `json:"created,omitempty"`
	Fragments    []fragmentJSON    `json:"fragments,omitempty"`
	Custom       map[string]string `json:"custom,omitempty"`
	Tier         string            `json:"tier,omitempty"` // state there; RELEASED: bookies have it no longer
	RecordFormat int               `json:"record_format"`
}

type fragmentJSON struct {
	FirstEntry int64    `json:"first_entry"`
	Bookies    []string `json:"bookies"`
}

func toLedgerJSON(id ledgerclient.LedgerID, m *ledgerclient.Metadata, long bool) ledgerJSON {
	out := ledgerJSON{
		ID: int64(id), State: m.State.String(), Ensemble: m.Ensemble, WriteQuorum: m.WriteQuorum, AckQuorum: m.AckQuorum,
		Digest: m.Digest.String(), HasPassword: len(m.Password) > 0, RecordFormat: m.FormatVersion,
	}
	if m.State == ledgerclient.StateClosed {
		last, length := int64(m.LastEntry), m.Length
		out.LastEntry, out.LengthBytes = &last, &length
	}
	if m.HasCTime {
		out.Created = time.UnixMilli(m.CTime).UTC().Format(time.RFC3339)
	}
	if !long {
		return out
	}
	for _, f := range m.Fragments {
		bookies := make([]string, len(f.Bookies))
		for i, b := range f.Bookies {
			bookies[i] = string(b)
		}
		out.Fragments = append(out.Fragments, fragmentJSON{int64(f.First), bookies})
	}
	if len(m.Custom) > 0 {
		out.Custom = map[string]string{}
		for k, v := range m.Custom {
			out.Custom[k] = string(v)
		}
	}
	return out
}

func newLedgerListCommand(cluster *clusterOptions) *cobra.Command {
	var output outputFormat
	var long bool
	c := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the cluster's ledgers, those that only the tier has with the word RELEASED",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return cluster.with(c, func(ctx context.Context, client *ledgerclient.Client) error {
				return listLedgers(ctx, c, client, output, long)
			})
		},
	}
	addOutputFlag(c, &output)
	c.Flags().BoolVarP(&long, "long", "l", false, "read each ledger's record and show it")
	return c
}

// tierStates lists the ledgers that the tier knows, and in order those that it alone has: bookies gave them up.
func tierStates(ctx context.Context, client *ledgerclient.Client) (states map[ledgerclient.LedgerID]string, alone []ledgerclient.LedgerID, err error) {
	states = map[ledgerclient.LedgerID]string{}
	for l, err := range client.OffloadRecords().All(ctx) {
		if err != nil {
			return nil, nil, err
		}
		if l.Err != nil || l.Record.State == offload.StateDeleting {
			continue // what is damaged is listed by `bindery offload ls`
		}
		states[l.Ledger] = l.Record.State.String()
		if l.Record.State == offload.StateReleased {
			alone = append(alone, l.Ledger)
		}
	}
	slices.Sort(alone)
	return states, alone, nil
}

// everyLedger yields the ledgers of the bookies and those that only the tier has, in the order of their ids as far as the listing of the
// former has it.
func everyLedger(ctx context.Context, client *ledgerclient.Client, alone []ledgerclient.LedgerID) iter.Seq2[ledgerclient.LedgerID, error] {
	return func(yield func(ledgerclient.LedgerID, error) bool) {
		next := func(before ledgerclient.LedgerID) bool {
			for ; len(alone) > 0 && alone[0] <= before; alone = alone[1:] {
				if alone[0] != before && !yield(alone[0], nil) {
					return false
				}
			}
			return true
		}
		for id, err := range client.Ledgers(ctx) {
			if err != nil {
				yield(0, err)
				return
			}
			if !next(id) || !yield(id, nil) {
				return
			}
		}
		next(math.MaxInt64)
	}
}

func listLedgers(ctx context.Context, c *cobra.Command, client *ledgerclient.Client, output outputFormat, long bool) error {
	list := []ledgerJSON{}
	ids := []int64{}
	states, alone, err := tierStates(ctx, client)
	if err != nil {
		return err
	}
	released := offload.StateReleased.String()
	for id, err := range everyLedger(ctx, client, alone) {
		if err != nil {
			return fmt.Errorf("list ledgers: %w", err)
		}
		if !long {
			switch {
			case output != outputTable:
			case states[id] == released:
				fmt.Fprintln(c.OutOrStdout(), id, released)
			default:
				fmt.Fprintln(c.OutOrStdout(), id)
			}
			ids = append(ids, int64(id))
			continue
		}
		m, err := ledgerMetadata(ctx, client, id)
		if errors.Is(err, ledgerclient.ErrNoSuchLedger) {
			continue // deleted since it was listed
		}
		if err != nil {
			return describe(id, err)
		}
		l := toLedgerJSON(id, m, false)
		l.Tier = states[id]
		list = append(list, l)
	}
	switch {
	case output == outputJSON && long:
		return printJSON(c.OutOrStdout(), list)
	case output == outputJSON:
		return printJSON(c.OutOrStdout(), ids)
	case !long:
		return nil
	}
	rows := make([][]string, 0, len(list))
	for _, l := range list {
		entries, length := "-", "-"
		if l.LastEntry != nil {
			entries, length = strconv.FormatInt(*l.LastEntry+1, 10), humanBytes(*l.LengthBytes)
		}
		rows = append(rows, []string{strconv.FormatInt(l.ID, 10), l.State, entries, length, fmt.Sprintf("%d/%d/%d", l.Ensemble, l.WriteQuorum, l.AckQuorum), cmp.Or(l.Tier, "-"), l.Created})
	}
	return printTable(c.OutOrStdout(), []string{">LEDGER", "STATE", ">ENTRIES", ">LENGTH", "E/QW/QA", "TIER", "CREATED"}, rows)
}

// ledgerMetadata reads a ledger's record; where only the tier has the ledger the offload record has it, and no object store is asked.
func ledgerMetadata(ctx context.Context, client *ledgerclient.Client, id ledgerclient.LedgerID) (*ledgerclient.Metadata, error) {
	m, err := client.Metadata(ctx, id)
	if !errors.Is(err, ledgerclient.ErrNoSuchLedger) {
		return m, err
	}
	if released, terr := client.OffloadRecords().Offloaded(ctx, id); terr == nil {
		return released, nil
	}
	return nil, err
}

func newLedgerShowCommand(cluster *clusterOptions) *cobra.Command {
	var output outputFormat
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show a ledger's record: state, end, fragments and bookies",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := parseLedgerID(args[0])
			if err != nil {
				return err
			}
			return cluster.with(c, func(ctx context.Context, client *ledgerclient.Client) error {
				m, err := ledgerMetadata(ctx, client, id)
				if err != nil {
					return describe(id, err)
				}
				l := toLedgerJSON(id, m, true)
				switch r, _, err := client.OffloadRecords().Read(ctx, id); {
				case err == nil:
					l.Tier = r.State.String()
				case !errors.Is(err, offload.ErrNoRecord):
					return err
				}
				if output == outputJSON {
					return printJSON(c.OutOrStdout(), l)
				}
				return showLedger(c, l)
			})
		},
	}
	addOutputFlag(c, &output)
	return c
}

func showLedger(c *cobra.Command, l ledgerJSON) error {
	w := c.OutOrStdout()
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("ledger", "%d (0x%x)", l.ID, l.ID)
	row("state", "%s", l.State)
	if l.LastEntry != nil {
		row("entries", "%d", *l.LastEntry+1)
		row("length", "%d bytes (%s)", *l.LengthBytes, humanBytes(*l.LengthBytes))
	}
	row("quorum", "ensemble %d, write %d, ack %d", l.Ensemble, l.WriteQuorum, l.AckQuorum)
	password := ""
	if l.HasPassword {
		password = ", with a password"
	}
	row("digest", "%s%s", l.Digest, password)
	if l.Created != "" {
		row("created", "%s", l.Created)
	}
	if l.Tier != "" {
		row("tier", "%s", l.Tier)
	}
	for _, f := range l.Fragments {
		row("fragment", "from entry %d on %s", f.FirstEntry, strings.Join(f.Bookies, ", "))
	}
	keys := make([]string, 0, len(l.Custom))
	for k := range l.Custom {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		row("custom", "%s = %q", k, l.Custom[k])
	}
	return nil
}

func newLedgerRemoveCommand(cluster *clusterOptions) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:     "rm ID...",
		Aliases: []string{"delete"},
		Short:   "Delete ledgers",
		Long:    "Deletes ledgers. Their bookies give the space back some time later. Asks for each id on a terminal, otherwise needs --yes.",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ids := make([]ledgerclient.LedgerID, len(args))
			for i, a := range args {
				id, err := parseLedgerID(a)
				if err != nil {
					return err
				}
				ids[i] = id
			}
			if !yes {
				if err := confirm(c, ids); err != nil {
					return err
				}
			}
			return cluster.with(c, func(ctx context.Context, client *ledgerclient.Client) error {
				return removeLedgers(ctx, c, client, ids)
			})
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

// confirm has the person at the terminal type each id again.
func confirm(c *cobra.Command, ids []ledgerclient.LedgerID) error {
	if !isTerminal(c.InOrStdin()) {
		return exit(exitRefused, errors.New("deleting a ledger can not be undone: give --yes, or run it on a terminal"))
	}
	in := answers(c)
	for _, id := range ids {
		fmt.Fprintf(c.ErrOrStderr(), "Type %d to delete ledger %d for good: ", id, id)
		line, err := in.ReadString('\n')
		if errors.Is(err, errInterrupted) {
			return fmt.Errorf("%w; nothing is deleted", err)
		}
		if err != nil || strings.TrimSpace(line) != strconv.FormatInt(int64(id), 10) {
			return exit(exitRefused, fmt.Errorf("ledger %d was not confirmed; nothing is deleted", id))
		}
	}
	return nil
}

// removeLedgers deletes each and goes on after a failure, so that one bad id does not keep the others.
func removeLedgers(ctx context.Context, c *cobra.Command, client *ledgerclient.Client, ids []ledgerclient.LedgerID) error {
	failed := 0
	var last error
	for _, id := range ids {
		if err := client.Delete(ctx, id); err != nil {
			failed++
			last = describe(id, err)
			if len(ids) > 1 {
				fmt.Fprintf(c.ErrOrStderr(), "bindery: %s\n", oneLine(last))
			}
		}
	}
	switch {
	case failed == 0:
		return nil
	case len(ids) == 1:
		return last
	case failed < len(ids):
		return exit(exitPartial, fmt.Errorf("%d of %d ledgers were not deleted", failed, len(ids)))
	}
	return fmt.Errorf("none of %d ledgers was deleted", len(ids))
}
