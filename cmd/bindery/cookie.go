package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/spf13/cobra"
)

func newCookieCommand() *cobra.Command {
	var o clusterOptions
	c := group("cookie", "Read and repair the bookies' identities in the metadata store",
		newCookieListCommand(&o),
		newCookieGetCommand(&o),
		newCookiePutCommand(&o),
		newCookieRemoveCommand(&o),
		newCookieGenerateCommand(&o),
	)
	c.Long = "A cookie says which bookie, with which directories, belongs to the cluster. The metadata store has one per bookie, each\n" +
		"directory a copy (current/VERSION), in Apache BookKeeper's own format."
	o.addFlags(c)
	return c
}

// bookieID checks an id given on the command line.
func bookieID(s string) (ledger.BookieID, error) {
	id := ledger.BookieID(s)
	if err := metadata.CheckBookieID(id); err != nil {
		return "", exit(exitUsage, err)
	}
	return id, nil
}

// withBookie is withCluster for a command about one bookie, whose id it checks first.
func (o *clusterOptions) withBookie(c *cobra.Command, arg string, f func(ctx context.Context, v *metadata.Views, id ledger.BookieID) error) error {
	id, err := bookieID(arg)
	if err != nil {
		return err
	}
	return o.withCluster(c, func(ctx context.Context, _ string, v *metadata.Views) error { return f(ctx, v, id) })
}

func newCookieListCommand(o *clusterOptions) *cobra.Command {
	var output outputFormat
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the bookies that have a cookie",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.withCluster(c, func(ctx context.Context, _ string, v *metadata.Views) error {
				ids, err := v.Cookies.List(ctx)
				if err != nil {
					return err
				}
				if output == outputJSON {
					return printJSON(c.OutOrStdout(), append([]ledger.BookieID{}, ids...))
				}
				for _, id := range ids {
					if _, err := fmt.Fprintln(c.OutOrStdout(), id); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	addOutputFlag(c, &output)
	return c
}

// cookieView is a cookie in JSON.
type cookieView struct {
	Layout      int      `json:"layout"`
	Bookie      string   `json:"bookie"`
	JournalDirs []string `json:"journal_dirs"`
	LedgerDirs  []string `json:"ledger_dirs"`
	IndexDirs   []string `json:"index_dirs"`
	InstanceID  string   `json:"instance_id,omitempty"`
	Version     int64    `json:"version"`
}

func newCookieGetCommand(o *clusterOptions) *cobra.Command {
	var output outputFormat
	c := &cobra.Command{
		Use:   "get BOOKIE",
		Short: "Print a bookie's cookie, byte for byte (table) or its fields (json)",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return o.withBookie(c, args[0], func(ctx context.Context, v *metadata.Views, id ledger.BookieID) error {
				text, version, err := v.Cookies.Get(ctx, id)
				if err != nil {
					return err
				}
				if output != outputJSON {
					_, err = c.OutOrStdout().Write(text)
					return err
				}
				k, err := metadata.DecodeCookie(v.Cookies.Key(id), text)
				if err != nil {
					return err
				}
				return printJSON(c.OutOrStdout(), cookieView{
					Layout: k.Version, Bookie: k.BookieHost, InstanceID: k.InstanceID, Version: int64(version),
					JournalDirs: orEmpty(k.JournalDirs), LedgerDirs: orEmpty(k.LedgerDirs), IndexDirs: orEmpty(k.IndexDirs),
				})
			})
		},
	}
	addOutputFlag(c, &output)
	return c
}

func newCookiePutCommand(o *clusterOptions) *cobra.Command {
	var replace, force bool
	c := &cobra.Command{
		Use:   "put BOOKIE FILE",
		Short: "Store a cookie, such as a current/VERSION file; an existing one only with --replace",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := bookieID(args[0])
			if err != nil {
				return err
			}
			text, err := vfs.ReadFile(vfs.OS(), args[1])
			if err != nil {
				return err
			}
			k, err := metadata.DecodeCookie(args[1], text)
			if err != nil {
				return err
			}
			if k.BookieHost != string(id) && !force {
				return exit(exitRefused, fmt.Errorf("%s is the cookie of bookie %s, not of %s (--force stores it all the same)", args[1], k.BookieHost, id))
			}
			return o.withCluster(c, func(ctx context.Context, _ string, v *metadata.Views) error {
				instance, err := v.Cluster.InstanceID(ctx)
				if err != nil {
					return err
				}
				if k.InstanceID != instance && !force {
					return exit(exitRefused, fmt.Errorf("%s is of the cluster %q, this one is %s (--force stores it all the same)", args[1], k.InstanceID, instance))
				}
				return putCookie(ctx, c, v, id, text, replace)
			})
		},
	}
	c.Flags().BoolVar(&replace, "replace", false, "replace the cookie that is there")
	c.Flags().BoolVar(&force, "force", false, "store it although it names another bookie or cluster")
	return c
}

func putCookie(ctx context.Context, c *cobra.Command, v *metadata.Views, id ledger.BookieID, text []byte, replace bool) error {
	version := metadata.Absent
	if replace {
		_, have, err := v.Cookies.Get(ctx, id)
		if err == nil {
			version = have
		} else if !errors.Is(err, metadata.ErrNotFound) {
			return err
		}
	}
	_, err := v.Cookies.Put(ctx, id, text, version)
	if errors.Is(err, metadata.ErrExists) {
		return exit(exitRefused, fmt.Errorf("bookie %s has a cookie already; --replace replaces it", id))
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "stored the cookie of %s\n", id)
	return err
}

func newCookieRemoveCommand(o *clusterOptions) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "rm BOOKIE",
		Short: "Remove the cookie of a bookie that has been decommissioned",
		Long: "Removes a bookie's cookie, after which its directories can not be started any more. Refused while the bookie is\n" +
			"registered, and while a ledger names it: without its entries, acknowledged data may be lost. --yes skips the search for\n" +
			"such ledgers.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return o.withBookie(c, args[0], func(ctx context.Context, v *metadata.Views, id ledger.BookieID) error {
				return removeCookie(ctx, c, v, id, yes)
			})
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not look for ledgers that name the bookie")
	return c
}

func removeCookie(ctx context.Context, c *cobra.Command, v *metadata.Views, id ledger.BookieID, yes bool) error {
	_, version, err := v.Cookies.Get(ctx, id)
	if errors.Is(err, metadata.ErrNotFound) {
		return fmt.Errorf("bookie %s has no cookie", id)
	}
	if err != nil {
		return err
	}
	up, err := v.Bookies.Registrations(ctx, id)
	if err != nil {
		return err
	}
	if len(up) > 0 {
		return exit(exitRefused, fmt.Errorf("bookie %s is running: stop it first", id))
	}
	if !yes {
		for r, err := range v.Ledgers.Naming(ctx, id) {
			if err != nil {
				return err
			}
			return exit(exitRefused, fmt.Errorf("ledger %d, and maybe others, are stored on bookie %s: move them first, or give its data up with --yes", r.ID, id))
		}
	}
	if err := v.Cookies.Delete(ctx, id, version); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "removed the cookie of %s\n", id)
	return err
}

func newCookieGenerateCommand(o *clusterOptions) *cobra.Command {
	var conf configOptions
	var out, instance string
	c := &cobra.Command{
		Use:   "generate --config FILE",
		Short: "Print the cookie that a configuration makes, without storing it anywhere",
		Long: "Prints the cookie of the bookie that the configuration describes, for comparison or for `cookie put`. The instance id is\n" +
			"that of the cluster that metadata.uri, or --metadata, names, or the one given with --instance-id.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			l, plan, err := loadBookie(c, &conf)
			if err != nil {
				return err
			}
			if instance == "" {
				if o.metadata == "" {
					o.metadata = l.Metadata.URI
				}
				err := o.withCluster(c, func(ctx context.Context, _ string, v *metadata.Views) error {
					instance, err = v.Cluster.InstanceID(ctx)
					return err
				})
				if err != nil {
					return err
				}
			}
			text, err := metadata.EncodeCookie(metadata.Cookie{
				BookieHost: plan.id, JournalDirs: plan.journalDirs, LedgerDirs: plan.ledgerDirs, IndexDirs: plan.indexDirs, InstanceID: instance,
			})
			if err != nil {
				return err
			}
			if out != "" {
				return os.WriteFile(out, text, 0o640)
			}
			_, err = c.OutOrStdout().Write(text)
			return err
		},
	}
	conf.addFlags(c)
	c.Flags().StringVarP(&out, "out", "o", "", "write to this file instead of standard output")
	c.Flags().StringVar(&instance, "instance-id", "", "instance id to put in, instead of asking the cluster")
	return c
}
