package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/binderylog/bindery/ledgerclient"
	"github.com/spf13/cobra"
)

type ledgerRecoverOptions struct {
	cluster      *clusterOptions
	output       outputFormat
	passwordFile string
	acceptLoss   bool
	reason       string
}

// recoveredJSON is what `recover --output json` prints: the ledger, and what it cost.
type recoveredJSON struct {
	ledgerJSON
	Loss *lossJSON `json:"loss,omitempty"`
}

type lossJSON struct {
	CutAtEntry    *int64   `json:"cut_at_entry"` // null: the end is the true one
	SilentBookies []string `json:"silent_bookies,omitempty"`
	Unfenced      []string `json:"unfenced_bookies,omitempty"`
	ThinFromEntry *int64   `json:"thin_from_entry"` // null: every entry kept is on an ack quorum
	HighestSeen   *int64   `json:"highest_entry_seen"`
	Note          string   `json:"note"`
	Answers       []string `json:"answers,omitempty"`
}

func newLedgerRecoverCommand(cluster *clusterOptions) *cobra.Command {
	o := ledgerRecoverOptions{cluster: cluster}
	c := &cobra.Command{
		Use:   "recover ID",
		Short: "Fence a ledger's writer, agree the end of the ledger and seal it",
		Long: "Seals a ledger whose writer has gone. A writer that is still there loses the ledger: its next add fails as fenced.\n" +
			"A ledger that is closed already is left as it is.\n\n" +
			"A recovery that can not hear enough of the ledger's bookies gives up and leaves the ledger for the next attempt: what\n" +
			"they hold may have been acknowledged. With --accept-loss it ends the ledger even then, in front of the first entry that\n" +
			"can be neither read nor proven absent. Use it for one ledger at a time and only when those bookies will never come back,\n" +
			"or when several bookies in limbo wait for each other. What was given up is printed, and kept in the ledger's record\n" +
			"(custom " + ledgerclient.LossKey + " in `bindery ledger show`), with who did it and --reason.",
		Example: "  bindery ledger recover 17\n  bindery ledger recover 17 --accept-loss --reason \"rack 4 burnt down\"",
		Args:    cobra.ExactArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return o.run(c, args[0]) },
	}
	addOutputFlag(c, &o.output)
	c.Flags().StringVar(&o.passwordFile, "password-file", "", "file with the ledger's password")
	c.Flags().BoolVar(&o.acceptLoss, "accept-loss", false, "if nothing else helps, end the ledger at the risk of losing acknowledged entries")
	c.Flags().StringVar(&o.reason, "reason", "", "with --accept-loss: why, for the ledger's record")
	return c
}

func (o *ledgerRecoverOptions) run(c *cobra.Command, arg string) error {
	id, err := parseLedgerID(arg)
	if err != nil {
		return err
	}
	if o.reason != "" && !o.acceptLoss {
		return exit(exitUsage, errors.New("--reason says why a loss is accepted: it needs --accept-loss"))
	}
	if len(o.reason) > 1024 {
		return exit(exitUsage, fmt.Errorf("--reason has %d bytes, more than 1024", len(o.reason)))
	}
	open, err := openOptions(o.passwordFile, true)
	if err != nil {
		return err
	}
	return o.cluster.with(c, func(ctx context.Context, client *ledgerclient.Client) error {
		m, loss, err := o.recover(ctx, c.ErrOrStderr(), client, id, open)
		if err != nil {
			return describe(id, err)
		}
		if o.output == outputJSON {
			return printJSON(c.OutOrStdout(), recoveredJSON{toLedgerJSON(id, m, true), toLossJSON(loss)})
		}
		fmt.Fprintf(c.OutOrStdout(), "ledger %d is %s with %d entries, %s\n", id, m.State, m.LastEntry+1, humanBytes(m.Length))
		reportLoss(c.OutOrStdout(), loss)
		return nil
	})
}

// recover ends the ledger, in the ordinary way if it can.
func (o *ledgerRecoverOptions) recover(ctx context.Context, warnings io.Writer, client *ledgerclient.Client, id ledgerclient.LedgerID, open ledgerclient.OpenOptions) (*ledgerclient.Metadata, *ledgerclient.Loss, error) {
	if o.acceptLoss {
		fmt.Fprintf(warnings, "bindery: warning: ledger %d will be ended even if that loses entries that were acknowledged; this can not be undone\n", id)
		return client.RecoverAcceptingLoss(ctx, id, open, lossNote(o.reason, time.Now()))
	}
	r, err := client.Open(ctx, id, open)
	if errors.Is(err, ledgerclient.ErrNotEnoughBookies) {
		return nil, nil, fmt.Errorf("%w (if those bookies will never come back, see --accept-loss)", err)
	}
	if err != nil {
		return nil, nil, err
	}
	defer closeReader(r)
	return r.Metadata(), nil, nil
}

// lossNote says who accepted a loss, when and why.
func lossNote(reason string, now time.Time) string {
	who := "unknown user"
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		who += "@" + host
	}
	note := "accepted by " + who + " at " + now.UTC().Format(time.RFC3339)
	if reason != "" {
		note += ": " + oneLine(errors.New(reason))
	}
	return note
}

func toLossJSON(l *ledgerclient.Loss) *lossJSON {
	if l == nil {
		return nil
	}
	entry := func(e ledgerclient.EntryID) *int64 {
		if e < 0 {
			return nil
		}
		n := int64(e)
		return &n
	}
	out := &lossJSON{CutAtEntry: entry(l.Cut), ThinFromEntry: entry(l.Thin), HighestSeen: entry(l.Seen), Note: l.Text, SilentBookies: bookieNames(l.Silent), Unfenced: bookieNames(l.Unfenced)}
	for _, err := range l.Causes {
		out.Answers = append(out.Answers, oneLine(err))
	}
	return out
}

func bookieNames(ids []ledgerclient.BookieID) []string {
	var names []string
	for _, b := range ids {
		names = append(names, string(b))
	}
	return names
}

// reportLoss says in full what was given up.
func reportLoss(w io.Writer, l *ledgerclient.Loss) {
	if l == nil {
		return
	}
	fmt.Fprintln(w, "LOSS ACCEPTED:")
	if l.Cut >= 0 {
		fmt.Fprintf(w, "  the ledger ends in front of entry %d: %s could neither return nor deny it\n", l.Cut, strings.Join(bookieNames(l.Silent), ", "))
		if l.Seen >= l.Cut {
			fmt.Fprintf(w, "  some bookie holds entries up to %d: they are lost, and may have been acknowledged\n", l.Seen)
		} else {
			fmt.Fprintf(w, "  no bookie that answered holds entry %d or a later one; if one was acknowledged, it is lost\n", l.Cut)
		}
	}
	if len(l.Unfenced) > 0 {
		fmt.Fprintf(w, "  not known to be fenced: %s. A writer that still reaches them may have further entries acknowledged: stop it\n", strings.Join(bookieNames(l.Unfenced), ", "))
	}
	if l.Thin >= 0 {
		fmt.Fprintf(w, "  entries from %d on have fewer copies than the ack quorum: no bookie was left to write them to\n", l.Thin)
	}
	fmt.Fprintf(w, "  noted in the ledger's record (%s)\n", ledgerclient.LossKey)
}
