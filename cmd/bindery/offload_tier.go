package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"

	"github.com/spf13/cobra"

	"github.com/binderylog/bindery/internal/config"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/ledgerclient"
	"github.com/binderylog/bindery/offload"
	"github.com/binderylog/bindery/offload/objstore/driver"
)

// targetsFile finds the file that names the object stores: the flag, the environment, the standalone of this directory unless
// another cluster is meant. "" means that there are none.
func targetsFile(flag, metadata string) string {
	if flag != "" {
		return flag
	}
	if name := os.Getenv("BINDERY_OFFLOAD__TARGETS"); name != "" {
		return name
	}
	if metadata != "" || os.Getenv("BINDERY_METADATA__URI") != "" {
		return ""
	}
	if e, err := readEndpoints(defaultDataDir); err == nil {
		return e.OffloadTargets
	}
	return ""
}

// tierOptions are the flags of the offload commands.
type tierOptions struct {
	cluster clusterOptions
	targets string
}

func (o *tierOptions) addFlags(c *cobra.Command) {
	o.cluster.addFlags(c)
	c.PersistentFlags().StringVar(&o.targets, "targets", "", "file that names the object stores\n(default: BINDERY_OFFLOAD__TARGETS, then that of the standalone of ./"+defaultDataDir+")")
}

// open opens the targets that are meant.
func (o *tierOptions) open() (*driver.Targets, error) {
	name := targetsFile(o.targets, o.cluster.metadata)
	if name == "" {
		return nil, exit(exitUsage, errors.New("no object stores are named: give --targets FILE, set BINDERY_OFFLOAD__TARGETS, or start `bindery standalone --offload-dir DIR` in this directory"))
	}
	t, err := driver.Load(name)
	if err != nil {
		return nil, exit(exitUsage, err)
	}
	return t, nil
}

// tier is what an offload command works with.
type tier struct {
	client  *ledgerclient.Client
	records *offload.Records
	targets *driver.Targets
}

// with runs f with the tier of the cluster.
func (o *tierOptions) with(c *cobra.Command, f func(ctx context.Context, t *tier) error) error {
	targets, err := o.open()
	if err != nil {
		return err
	}
	o.cluster.targets = targets
	err = o.cluster.with(c, func(ctx context.Context, client *ledgerclient.Client) error {
		return f(ctx, &tier{client: client, records: client.OffloadRecords(), targets: targets})
	})
	return errors.Join(err, targets.Close())
}

// withWorker runs f with a worker whose notes lie in a directory that goes afterwards: what a command leaves unfinished a
// janitor cleans up.
func (o *tierOptions) withWorker(c *cobra.Command, change func(*offload.Options), f func(ctx context.Context, t *tier, w *offload.Worker) error) error {
	return o.with(c, func(ctx context.Context, t *tier) error {
		dir, err := os.MkdirTemp("", "bindery-offload-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		wo := offload.Options{
			Records: t.records, Targets: t.targets.Targets, Entries: entriesOf(t.client), Dir: dir, Name: fmt.Sprintf("%s:%d", host, os.Getpid()),
			Logger: o.cluster.logger(c), DeletionLag: commandLag, TakeOver: commandTakeOver,
		}
		if change != nil {
			change(&wo)
		}
		w, err := offload.NewWorker(wo)
		if err != nil {
			return exit(exitUsage, err)
		}
		return errors.Join(f(ctx, t, w), w.Close())
	})
}

// entriesOf lets a worker read ledgers through a client.
func entriesOf(client *ledgerclient.Client) offload.EntrySource {
	return func(ctx context.Context, id ledger.ID, m *ledger.Metadata, first, last ledger.EntryID) iter.Seq2[offload.Entry, error] {
		return func(yield func(offload.Entry, error) bool) {
			r, err := client.Open(ctx, id, ledgerclient.OpenOptions{Admin: true})
			if err != nil {
				yield(offload.Entry{}, err)
				return
			}
			defer closeReader(r)
			for body, err := range r.Bodies(ctx, first, last) {
				var e offload.Entry
				if err == nil {
					e, err = offload.ParseEntry(body, m.Digest)
				}
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
}

// workerOptions turns the [offload] section into a worker's options.
func workerOptions(l *config.Loaded, o offload.Options) (offload.Options, error) {
	c := &l.Offload
	var err error
	if c.Geometry != "auto" {
		if o.Geometry, err = offload.ParseGeometry(c.Geometry); err != nil {
			return o, fmt.Errorf("offload.geometry: %w", err)
		}
	}
	if o.Verify, err = offload.ParseVerifyLevel(c.Verify); err != nil {
		return o, fmt.Errorf("offload.verify: %w", err)
	}
	if o.Compression, err = offload.ParseCompression(c.Compression); err != nil {
		return o, fmt.Errorf("offload.compression: %w", err)
	}
	o.DeletionLag, o.MemoryBytes, o.UploadRate, o.ReadRate = c.DeletionLag.D(0), int64(c.Memory), int64(c.UploadRate), int64(c.Rate)
	if !c.Release {
		o.DeletionLag = -1
	}
	if o.ReadRate == 0 {
		o.ReadRate = -1
	}
	return o, nil
}
