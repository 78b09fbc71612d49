package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	metadriver "github.com/binderylog/bindery/internal/metadata/driver"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/ledgerclient"
)

func newLedgerCommand() *cobra.Command {
	var o clusterOptions
	c := group("ledger", "Write, read, follow, list and delete ledgers",
		newLedgerWriteCommand(&o),
		newLedgerReadCommand(&o),
		newLedgerTailCommand(&o),
		newLedgerListCommand(&o),
		newLedgerShowCommand(&o),
		newLedgerRecoverCommand(&o),
		newLedgerRemoveCommand(&o),
	)
	o.addFlags(c)
	return c
}

// clusterOptions says which cluster a command talks to.
type clusterOptions struct {
	metadata string
	verbose  bool
	tier     tierFiles // open; without targets with opens those that are configured, if any are
}

func (o *clusterOptions) addFlags(c *cobra.Command) {
	c.PersistentFlags().StringVar(&o.metadata, "metadata", "", "metadata store of the cluster, such as etcd://127.0.0.1:2379/ledgers\n(default: BINDERY_METADATA__URI, then the standalone of ./"+defaultDataDir+")")
	c.PersistentFlags().BoolVarP(&o.verbose, "verbose", "v", false, "log what the client does to standard error")
}

// dial connects to the cluster.
func (o *clusterOptions) dial(c *cobra.Command) (*ledgerclient.Client, error) {
	uri, err := metadataURI(o.metadata)
	if err != nil {
		return nil, err
	}
	lo := &ledgerclient.Options{Logger: o.logger(c), DialTimeout: dialMax, MetadataTimeout: metadataCallMax}
	if o.tier.targets != nil {
		lo.Offload, lo.OffloadKeys = o.tier.targets.Targets, o.tier.keys
	}
	client, err := ledgerclient.Dial(c.Context(), uri, lo)
	switch {
	case err == nil:
		return client, nil
	case errors.Is(err, ledgerclient.ErrMetadata):
		return nil, exit(exitMetadata, fmt.Errorf("%w; is the cluster running?", err))
	case errors.Is(err, metadriver.ErrURI):
		return nil, exit(exitUsage, err)
	}
	return nil, err
}

// dialMax bounds the search for a cluster's metadata store: a person waits, and a store that runs answers at once or after
// the second or two that it takes to elect a leader.
const dialMax = 4 * time.Second

func (o *clusterOptions) logger(c *cobra.Command) *slog.Logger {
	level := slog.LevelError
	if o.verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
}

// with runs f with a client and closes it.
func (o *clusterOptions) with(c *cobra.Command, f func(ctx context.Context, client *ledgerclient.Client) error) error {
	if o.tier.targets == nil {
		files, err := tierSettings{}.complete(o.metadata).open()
		if err != nil {
			return err
		}
		if files.targets != nil {
			defer files.targets.Close() //nolint:errcheck // idle connections
			o.tier = files
			defer func() { o.tier = tierFiles{} }()
		}
	}
	client, err := o.dial(c)
	if err != nil {
		return err
	}
	err = f(c.Context(), client)
	if cerr := client.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("close the client: %w", cerr)
	}
	return err
}

// parseLedgerID reads a ledger id in decimal or, with 0x, in hexadecimal.
func parseLedgerID(s string) (ledgerclient.LedgerID, error) {
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil || n < 0 || strings.HasPrefix(s, "0b") || strings.HasPrefix(s, "0o") {
		return 0, exit(exitUsage, fmt.Errorf("%q is no ledger id: give a decimal number, or a hexadecimal one with 0x", s))
	}
	return ledgerclient.LedgerID(n), nil
}

// readPassword reads a ledger's password from a file, without the line end that editors add.
func readPassword(name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	data, err := vfs.ReadSmall(name, 4096)
	if err != nil {
		return nil, fmt.Errorf("read the password: %w", err)
	}
	return []byte(strings.TrimRight(string(data), "\r\n")), nil
}

// openOptions opens with a password if one is given, and as an administrator otherwise: whoever reaches the metadata
// store can read the password there.
func openOptions(passwordFile string, seal bool) (ledgerclient.OpenOptions, error) {
	pw, err := readPassword(passwordFile)
	return ledgerclient.OpenOptions{Recover: seal, Password: pw, Admin: passwordFile == ""}, err
}

// closeReader closes a reader that has been read to its end; a failure then changes nothing that was printed.
func closeReader(r *ledgerclient.Reader) { _ = r.Close() }

// describe adds the id to a client's error unless the error already says what is wrong with which ledger.
func describe(id ledgerclient.LedgerID, err error) error {
	if err == nil {
		return nil
	}
	var q *ledgerclient.QuorumError
	if errors.As(err, &q) {
		return err
	}
	if strings.Contains(err.Error(), fmt.Sprintf("ledger %d", id)) {
		return err
	}
	return fmt.Errorf("ledger %d: %w", id, err)
}
