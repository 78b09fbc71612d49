package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/spf13/cobra"
)

func newClusterCommand() *cobra.Command {
	var o clusterOptions
	c := group("cluster", "Make, describe and format a cluster",
		newClusterInitCommand(&o),
		newClusterInfoCommand(&o),
		newClusterBookiesCommand(&o),
		newClusterIDCommand(&o),
		newClusterFormatCommand(&o),
	)
	o.addFlags(c)
	return c
}

// clusterInit is what `cluster init` prints.
type clusterInit struct {
	Metadata   string `json:"metadata"`
	InstanceID string `json:"instance_id"`
	Created    bool   `json:"created"`
}

func newClusterInitCommand(o *clusterOptions) *cobra.Command {
	var output outputFormat
	c := &cobra.Command{
		Use:   "init",
		Short: "Make a cluster in a metadata store; one that is there is left as it is",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.withStore(c, func(ctx context.Context, uri string, v *metadata.Views) error {
				id, err := v.Cluster.Init(ctx)
				if err != nil && !errors.Is(err, metadata.ErrInitialized) {
					return err
				}
				r := clusterInit{Metadata: uri, InstanceID: id, Created: err == nil}
				if output == outputJSON {
					return printJSON(c.OutOrStdout(), r)
				}
				what := "made"
				if !r.Created {
					what = "exists already:"
				}
				_, err = fmt.Fprintf(c.OutOrStdout(), "cluster %s %s at %s\n", what, r.InstanceID, r.Metadata)
				return err
			})
		},
	}
	addOutputFlag(c, &output)
	return c
}

func newClusterIDCommand(o *clusterOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "id",
		Short: "Print the cluster's instance id",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.withStore(c, func(ctx context.Context, _ string, v *metadata.Views) error {
				id, err := v.Cluster.InstanceID(ctx)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(c.OutOrStdout(), id)
				return err
			})
		},
	}
}

// clusterInfo is what `cluster info` prints.
type clusterInfo struct {
	Metadata   string `json:"metadata"`
	InstanceID string `json:"instance_id"`
	Layout     string `json:"layout"`
	Writable   int    `json:"writable_bookies"`
	ReadOnly   int    `json:"readonly_bookies"`
	Known      int    `json:"known_bookies"`
	Ledgers    *int   `json:"ledgers,omitempty"`
}

func newClusterInfoCommand(o *clusterOptions) *cobra.Command {
	var output outputFormat
	var count bool
	c := &cobra.Command{
		Use:   "info",
		Short: "Show a cluster's identity and how many bookies and ledgers it has",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.withCluster(c, func(ctx context.Context, uri string, v *metadata.Views) error {
				info, err := describeCluster(ctx, uri, v, count)
				if err != nil {
					return err
				}
				if output == outputJSON {
					return printJSON(c.OutOrStdout(), info)
				}
				rows := [][]string{
					{"metadata", info.Metadata},
					{"instance id", info.InstanceID},
					{"layout", info.Layout},
					{"bookies", fmt.Sprintf("%d writable, %d read-only, %d known", info.Writable, info.ReadOnly, info.Known)},
				}
				if info.Ledgers != nil {
					rows = append(rows, []string{"ledgers", fmt.Sprint(*info.Ledgers)})
				}
				return printTable(c.OutOrStdout(), []string{"CLUSTER", ""}, rows)
			})
		},
	}
	c.Flags().BoolVar(&count, "ledgers", false, "count the ledgers too, which reads the name of every one")
	addOutputFlag(c, &output)
	return c
}

func describeCluster(ctx context.Context, uri string, v *metadata.Views, count bool) (clusterInfo, error) {
	info := clusterInfo{Metadata: uri}
	var err error
	if info.InstanceID, err = v.Cluster.InstanceID(ctx); err != nil {
		return info, err
	}
	layout, err := v.Cluster.Layout(ctx)
	if err != nil {
		return info, err
	}
	info.Layout = layout.Class[strings.LastIndexByte(layout.Class, '.')+1:]
	bookies, err := v.Bookies.List(ctx, metadata.AnyKind)
	if err != nil {
		return info, err
	}
	for _, b := range bookies {
		if b.ReadOnly {
			info.ReadOnly++
		} else {
			info.Writable++
		}
	}
	known, err := v.Cookies.List(ctx)
	if err != nil {
		return info, err
	}
	info.Known = len(known)
	if !count {
		return info, nil
	}
	n := 0
	for _, err := range v.Ledgers.All(ctx) {
		if err != nil {
			return info, err
		}
		n++
	}
	info.Ledgers = &n
	return info, nil
}

// bookieRow is one bookie in the output of `cluster bookies`.
type bookieRow struct {
	ID          string `json:"id"`
	State       string `json:"state"` // writable, readonly, down
	Address     string `json:"address,omitempty"`
	HTTP        string `json:"http,omitempty"`
	Domain      string `json:"domain,omitempty"`
	Incarnation uint64 `json:"incarnation,omitempty"`
	Problem     string `json:"problem,omitempty"`
}

func newClusterBookiesCommand(o *clusterOptions) *cobra.Command {
	var output outputFormat
	var states []string
	c := &cobra.Command{
		Use:   "bookies",
		Short: "List the bookies: those that are up, and those that have a cookie and are not",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, s := range states {
				if s != "writable" && s != "readonly" && s != "down" {
					return exit(exitUsage, fmt.Errorf("--state %q: must be writable, readonly or down", s))
				}
			}
			return o.withCluster(c, func(ctx context.Context, _ string, v *metadata.Views) error {
				rows, err := listBookies(ctx, v, states)
				if err != nil {
					return err
				}
				if output == outputJSON {
					return printJSON(c.OutOrStdout(), rows)
				}
				var cells [][]string
				for _, r := range rows {
					incarnation := ""
					if r.Incarnation > 0 {
						incarnation = fmt.Sprint(r.Incarnation)
					}
					cells = append(cells, []string{r.ID, r.State, r.Address, r.HTTP, r.Domain, incarnation, r.Problem})
				}
				return printTable(c.OutOrStdout(), []string{"BOOKIE", "STATE", "ADDRESS", "HTTP", "DOMAIN", ">INCARNATION", "PROBLEM"}, cells)
			})
		},
	}
	c.Flags().StringSliceVar(&states, "state", nil, "only these: writable, readonly, down")
	addOutputFlag(c, &output)
	return c
}

func listBookies(ctx context.Context, v *metadata.Views, states []string) ([]bookieRow, error) {
	up, err := v.Bookies.List(ctx, metadata.AnyKind)
	if err != nil {
		return nil, err
	}
	known, err := v.Cookies.List(ctx)
	if err != nil {
		return nil, err
	}
	rows := []bookieRow{}
	seen := map[string]bool{}
	for _, b := range up {
		seen[string(b.ID)] = true
		rows = append(rows, upRow(b))
	}
	for _, id := range known {
		if !seen[string(id)] {
			rows = append(rows, bookieRow{ID: string(id), State: "down"})
		}
	}
	kept := rows[:0]
	for _, r := range rows {
		if len(states) > 0 && !slices.Contains(states, r.State) {
			continue
		}
		inc, _, err := v.Incarnations.Get(ctx, ledger.BookieID(r.ID))
		switch {
		case err == nil:
			r.Incarnation = inc.Number
			if inc.Loss != "" {
				r.Problem = strings.TrimPrefix(r.Problem+"; ledgers in limbo pending: "+inc.Loss, "; ")
			}
		case !errors.Is(err, metadata.ErrNotFound):
			r.Problem = strings.TrimPrefix(r.Problem+"; "+oneLine(err), "; ")
		}
		kept = append(kept, r)
	}
	return kept, nil
}

func upRow(b metadata.Bookie) bookieRow {
	r := bookieRow{ID: string(b.ID), State: "writable"}
	if b.ReadOnly {
		r.State = "readonly"
	}
	var err error
	if b.Damaged != nil {
		err = b.Damaged
	} else {
		r.Address, err = b.Address()
	}
	if err != nil {
		r.Problem = oneLine(err)
	}
	r.Domain = b.Info.Properties[metadata.PropertyDomain]
	for _, e := range b.Info.Endpoints {
		if e.Protocol == metadata.ProtocolHTTP {
			r.HTTP = fmt.Sprintf("%s:%d", e.Host, e.Port)
		}
	}
	return r
}

func newClusterFormatCommand(o *clusterOptions) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "format INSTANCE-ID",
		Short: "Wipe a cluster: its ledgers, cookies and repair marks, and give it a new instance id",
		Long: "Deletes the records of all ledgers, all cookies and all repair marks, and gives the cluster a new instance id, so that no\n" +
			"bookie's directories belong to it any more. The data on the bookies' disks stays until the disks are emptied.\n\n" +
			"All bookies must be stopped. The instance id that is to be formatted has to be given (`bindery cluster id` prints it),\n" +
			"and is asked for again on a terminal; otherwise --yes is needed.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return o.withCluster(c, func(ctx context.Context, uri string, v *metadata.Views) error {
				id, err := v.Cluster.InstanceID(ctx)
				if err != nil {
					return err
				}
				if args[0] != id {
					return exit(exitRefused, fmt.Errorf("the cluster at %s is %s, not %s; nothing was changed", uri, id, args[0]))
				}
				if !yes {
					if err := confirmFormat(c, uri, id); err != nil {
						return err
					}
				}
				up, err := v.Bookies.List(ctx, metadata.AnyKind)
				if err != nil {
					return err
				}
				if len(up) > 0 {
					return exit(exitRefused, fmt.Errorf("%s up (the first is %s): stop them first", plural(len(up), "bookie"), up[0].ID))
				}
				fresh, err := v.Cluster.Format(ctx)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(c.OutOrStdout(), "formatted; the cluster is now %s\n", fresh)
				return err
			})
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

// confirmFormat has the person at the terminal type the instance id again.
func confirmFormat(c *cobra.Command, uri, id string) error {
	if !isTerminal(c.InOrStdin()) {
		return exit(exitRefused, errors.New("formatting a cluster can not be undone: give --yes, or run it on a terminal"))
	}
	fmt.Fprintf(c.ErrOrStderr(), "Type the instance id to wipe every ledger of the cluster at %s: ", uri)
	line, err := answers(c).ReadString('\n')
	if errors.Is(err, errInterrupted) {
		return fmt.Errorf("%w; nothing was changed", err)
	}
	if err != nil || strings.TrimSpace(line) != id {
		return exit(exitRefused, errors.New("not confirmed; nothing was changed"))
	}
	return nil
}
