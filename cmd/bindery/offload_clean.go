package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/binderylog/bindery/offload"
)

// commandGrace is above the longest request of a worker with all its retries.
const commandGrace = time.Hour

func newOffloadCleanCommand(o *tierOptions) *cobra.Command {
	var grace time.Duration
	c := &cobra.Command{
		Use: "clean", Short: "Remove what interrupted attempts, repairs and deleted ledgers left: one round of what workers do by themselves", Args: cobra.NoArgs,
		Long: "Goes over all records once. What an attempt left that was given up, and the objects of deleted ledgers, go at once; they are looked for\n" +
			"again after the grace, in a later round, since a request may still have been on its way. Shards that a repair replaced go after the grace.\n" +
			"Where workers run, they do this every ten minutes. Exit 4 if something could not be removed.",
		RunE: func(c *cobra.Command, _ []string) error {
			if grace <= 0 {
				return exit(exitUsage, fmt.Errorf("--grace %s: it has to be longer than the longest request to a target", grace))
			}
			return o.withWorker(c, func(wo *offload.Options) { wo.Grace = grace }, func(ctx context.Context, _ *tier, w *offload.Worker) error {
				s, err := w.Clean(ctx)
				if err != nil {
					return err
				}
				for _, p := range s.Problems {
					fmt.Fprintln(c.ErrOrStderr(), p)
				}
				fmt.Fprintf(c.OutOrStdout(), "%s looked at: %s removed, %s to be looked for again, %s gone\n",
					plural(s.Records, "ledger"), plural(s.Removed, "object"), plural(s.Garbage, "attempt"), plural(s.Gone, "ledger"))
				if len(s.Problems) > 0 {
					return exit(exitPartial, nil)
				}
				return nil
			})
		},
	}
	c.Flags().DurationVar(&grace, "grace", commandGrace, "how long a request may be on its way; less only while no worker runs")
	return c
}
