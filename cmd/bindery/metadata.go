package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/driver"
	"github.com/spf13/cobra"
)

// metadataCallMax bounds one call of a command to the metadata store: a person waits for it.
const metadataCallMax = 10 * time.Second

// withStore runs f with the metadata store of the cluster that the flags name.
func (o *clusterOptions) withStore(c *cobra.Command, f func(ctx context.Context, uri string, v *metadata.Views) error) error {
	uri, err := metadataURI(o.metadata)
	if err != nil {
		return err
	}
	store, root, err := driver.Open(c.Context(), uri, driver.Options{Timeout: metadataCallMax, Logger: o.logger(c)})
	if err != nil {
		return exitStore(err)
	}
	err = f(c.Context(), uri, metadata.NewViews(store, root))
	return errors.Join(err, store.Close())
}

// withCluster is withStore for a cluster that must exist.
func (o *clusterOptions) withCluster(c *cobra.Command, f func(ctx context.Context, uri string, v *metadata.Views) error) error {
	return o.withStore(c, func(ctx context.Context, uri string, v *metadata.Views) error {
		v, err := metadata.LoadViews(ctx, v.Store, v.Root)
		if err != nil {
			return err
		}
		return f(ctx, uri, v)
	})
}

// nodeExit gives a bookie's refusal the exit code that it has in commands other than run and standalone: those of the
// metadata store, identity, locks and formats keep theirs, everything else is a plain failure.
func nodeExit(err error) error {
	var e *bookie.ExitError
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code {
	case bookie.ExitRegistration, bookie.ExitIdentity, bookie.ExitLocked, bookie.ExitFormat:
		return exit(e.Code, err)
	}
	return exit(exitFailed, err)
}

// plural counts things in a sentence.
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
