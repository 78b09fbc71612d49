package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/binderylog/bindery/internal/autorecovery"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/spf13/cobra"
)

func newNodeDrainCommand() *cobra.Command {
	var o clusterOptions
	var output outputFormat
	var cancel bool
	c := &cobra.Command{
		Use:   "drain BOOKIE",
		Short: "Move everything away from a bookie that still runs",
		Long: "Has the cluster's replication workers copy every ledger that the bookie stores to other bookies, with the bookie itself as\n" +
			"one of the sources, and waits for it. The bookie must be read-only (`bindery node readonly on`), so that nothing new comes.\n" +
			"Open ledgers are closed, as they are when a bookie is lost. It may be interrupted: the workers go on, and the command shows\n" +
			"the progress when it is run again. --cancel takes it back; what has moved stays where it is.\n\n" +
			"Exit codes: 3 no such bookie, it takes adds, or re-replication is switched off; 4 some ledgers can not be moved, and which.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return o.withBookie(c, args[0], func(ctx context.Context, v *metadata.Views, id ledger.BookieID) error {
				if cancel {
					return cancelDrain(ctx, c, v, id)
				}
				return drain(ctx, c, v, id, output)
			})
		},
	}
	c.Flags().BoolVar(&cancel, "cancel", false, "end the draining")
	o.addFlags(c)
	addOutputFlag(c, &output)
	return c
}

// requireBookie refuses an id that nothing in the cluster knows: a mistyped one would have nothing to move, too.
func requireBookie(ctx context.Context, v *metadata.Views, id ledger.BookieID) error {
	if _, _, err := v.Cookies.Get(ctx, id); !errors.Is(err, metadata.ErrNotFound) {
		return err
	}
	up, err := v.Bookies.Registrations(ctx, id)
	if err != nil || len(up) > 0 {
		return err
	}
	for _, err := range v.Ledgers.Naming(ctx, id) {
		return err // one is enough
	}
	return exit(exitRefused, fmt.Errorf("no such bookie: %s (`bindery cluster bookies` lists them)", id))
}

func cancelDrain(ctx context.Context, c *cobra.Command, v *metadata.Views, id ledger.BookieID) error {
	list, err := v.Replication.Draining(ctx)
	if err != nil {
		return err
	}
	if !slices.Contains(list, id) {
		if err := requireBookie(ctx, v, id); err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "bookie %s was not being drained\n", id)
		return err
	}
	if err := v.Replication.SetDraining(ctx, id, false, time.Now()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "bookie %s is not drained any more; what has moved stays where it is\n", id)
	return err
}

func drain(ctx context.Context, c *cobra.Command, v *metadata.Views, id ledger.BookieID, output outputFormat) error {
	if err := requireBookie(ctx, v, id); err != nil {
		return err
	}
	up, err := v.Bookies.Registrations(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case len(up) == 0:
		return exit(exitRefused, fmt.Errorf("bookie %s is not running: `bindery node decommission %s` moves what it had", id, id))
	case len(up) > 1 || !up[0].ReadOnly:
		return exit(exitRefused, fmt.Errorf("bookie %s is writable: make it read-only first (`bindery node readonly on --server ...`)", id))
	}
	if err := v.Replication.SetDraining(ctx, id, true, time.Now()); err != nil {
		return err
	}
	if err := empty(ctx, c, v, id, output); err != nil {
		return err
	}
	if output == outputJSON {
		return nil
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "bookie %s is empty: stop it and run `bindery node decommission %s`\n", id, id)
	return err
}

// empty waits until a bookie stores nothing, and shows how far that is.
func empty(ctx context.Context, c *cobra.Command, v *metadata.Views, id ledger.BookieID, output outputFormat) error {
	last := ""
	err := autorecovery.Empty(ctx, autorecovery.EmptyOptions{Views: v, Bookie: id, Report: func(p autorecovery.Progress) {
		if output == outputJSON {
			_ = printJSON(c.OutOrStdout(), p)
			return
		}
		if line := showProgress(p); line != last {
			fmt.Fprintln(c.ErrOrStderr(), line)
			last = line
		}
	}})
	var stuck *autorecovery.StuckError
	switch {
	case errors.As(err, &stuck):
		return exit(exitPartial, err)
	case errors.Is(err, autorecovery.ErrDisabled):
		return exit(exitRefused, err)
	}
	return err
}

func newNodeDecommissionCommand() *cobra.Command {
	var o clusterOptions
	var output outputFormat
	var keep bool
	c := &cobra.Command{
		Use:   "decommission BOOKIE",
		Short: "Retire a stopped bookie: wait until nothing is stored on it, and remove its cookie",
		Long: "Has the cluster's replication workers make new copies of every ledger that the stopped bookie had, waits for it, and removes\n" +
			"the bookie's cookie. Only then may its id be used again with empty disks. Refused while the bookie is registered: one that\n" +
			"still runs is emptied with `bindery node drain`.\n\n" +
			"Exit codes: 3 no such bookie, it is running, or re-replication is switched off; 4 some ledgers can not be moved, and which.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return o.withBookie(c, args[0], func(ctx context.Context, v *metadata.Views, id ledger.BookieID) error {
				return decommission(ctx, c, v, id, output, keep)
			})
		},
	}
	c.Flags().BoolVar(&keep, "keep-cookie", false, "leave the cookie")
	o.addFlags(c)
	addOutputFlag(c, &output)
	return c
}

func decommission(ctx context.Context, c *cobra.Command, v *metadata.Views, id ledger.BookieID, output outputFormat, keep bool) error {
	if err := requireBookie(ctx, v, id); err != nil {
		return err
	}
	up, err := v.Bookies.Registrations(ctx, id)
	if err != nil {
		return err
	}
	if len(up) > 0 {
		return exit(exitRefused, fmt.Errorf("bookie %s is running: stop it, or empty it first with `bindery node drain %s`", id, id))
	}
	if err := empty(ctx, c, v, id, output); err != nil {
		return err
	}
	if err := v.Replication.SetDraining(ctx, id, false, time.Now()); err != nil {
		return err
	}
	if keep {
		return nil
	}
	_, version, err := v.Cookies.Get(ctx, id)
	if err == nil {
		// It may have come back meanwhile: its cookie goes only if it is not there.
		if up, err = v.Bookies.Registrations(ctx, id); err == nil && len(up) > 0 {
			return exit(exitRefused, fmt.Errorf("bookie %s was started meanwhile; its cookie stays", id))
		}
		if err == nil {
			err = v.Cookies.Delete(ctx, id, version)
		}
	}
	if err != nil && !errors.Is(err, metadata.ErrNotFound) {
		return err
	}
	if output == outputJSON {
		return nil
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "bookie %s is decommissioned\n", id)
	return err
}
