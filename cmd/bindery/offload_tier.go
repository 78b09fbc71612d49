package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/binderylog/bindery/internal/config"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/ledgerclient"
	"github.com/binderylog/bindery/offload"
	"github.com/binderylog/bindery/offload/objstore/driver"
)

// tierSettings are the settings of the tier that commands need. An empty field is not set.
type tierSettings struct {
	targets    string // file that names the object stores
	keySource  string
	keyID      string
	encryption string // of what is offloaded
}

// complete fills what flags left open from the environment, then from the standalone of this directory unless another cluster is meant.
func (s tierSettings) complete(metadata string) tierSettings {
	var e endpoints
	if metadata == "" && os.Getenv("BINDERY_METADATA__URI") == "" {
		e, _ = readEndpoints(defaultDataDir)
	}
	if strings.HasPrefix(e.OffloadKeySource, "command:") {
		e.OffloadKeySource = "" // no file of the working directory decides what is run
	}
	return tierSettings{
		targets:    cmp.Or(s.targets, os.Getenv("BINDERY_OFFLOAD__TARGETS"), e.OffloadTargets),
		keySource:  cmp.Or(s.keySource, os.Getenv("BINDERY_OFFLOAD__KEY_SOURCE"), e.OffloadKeySource),
		keyID:      cmp.Or(s.keyID, os.Getenv("BINDERY_OFFLOAD__KEY_ID"), e.OffloadKeyID),
		encryption: cmp.Or(s.encryption, os.Getenv("BINDERY_OFFLOAD__ENCRYPTION"), e.OffloadEncryption, "none"),
	}
}

// tierFiles are the object stores and keys that settings name, open. Without settings both are nil.
type tierFiles struct {
	targets    *driver.Targets
	keys       offload.KeySource
	encryption offload.Encryption
}

func (s tierSettings) open() (f tierFiles, err error) {
	if f.encryption, err = offload.ParseEncryption(s.encryption); err != nil {
		return f, exit(exitUsage, err)
	}
	keys, err := driver.OpenKeys(s.keySource, s.keyID, f.encryption != offload.EncryptNone)
	switch {
	case err != nil:
		return f, exit(exitUsage, err)
	case keys != nil:
		f.keys = keys
	}
	if s.targets != "" {
		if f.targets, err = driver.Load(s.targets); err != nil {
			return f, exit(exitUsage, err)
		}
	}
	return f, nil
}

// tierOptions are the flags of the offload commands.
type tierOptions struct {
	cluster  clusterOptions
	settings tierSettings
}

func (o *tierOptions) addFlags(c *cobra.Command) {
	o.cluster.addFlags(c)
	f := c.PersistentFlags()
	f.StringVar(&o.settings.targets, "targets", "", "file that names the object stores\n(default: BINDERY_OFFLOAD__TARGETS, then that of the standalone of ./"+defaultDataDir+")")
	f.StringVar(&o.settings.keySource, "key-source", "", "keys of encrypted ledgers: file:PATH, env:NAME or command:PATH\n(default: BINDERY_OFFLOAD__KEY_SOURCE, then that of the standalone unless it is a command)")
}

// addEncryptionFlags is for commands that write to the tier.
func (o *tierOptions) addEncryptionFlags(c *cobra.Command) {
	c.Flags().StringVar(&o.settings.encryption, "encryption", "", "none or aes-256-gcm (default: BINDERY_OFFLOAD__ENCRYPTION, then the standalone's, then none)")
	c.Flags().StringVar(&o.settings.keyID, "key-id", "", "the key of the source to write under (default: BINDERY_OFFLOAD__KEY_ID, then the standalone's, then the only one)")
}

// open opens the object stores that are meant, and the keys.
func (o *tierOptions) open() (tierFiles, error) {
	f, err := o.settings.complete(o.cluster.metadata).open()
	if err == nil && f.targets == nil {
		err = exit(exitUsage, errors.New("no object stores are named: give --targets FILE, set BINDERY_OFFLOAD__TARGETS, or start `bindery standalone --offload-dir DIR` in this directory"))
	}
	return f, err
}

// tier is what an offload command works with.
type tier struct {
	tierFiles
	client  *ledgerclient.Client
	records *offload.Records
}

// with runs f with the tier of the cluster.
func (o *tierOptions) with(c *cobra.Command, f func(ctx context.Context, t *tier) error) error {
	files, err := o.open()
	if err != nil {
		return err
	}
	o.cluster.tier = files
	err = o.cluster.with(c, func(ctx context.Context, client *ledgerclient.Client) error {
		return f(ctx, &tier{client: client, records: client.OffloadRecords(), tierFiles: files})
	})
	return errors.Join(err, files.targets.Close())
}

// withRecords is with for commands that do without object stores, if none are named: t.targets is nil then.
func (o *tierOptions) withRecords(c *cobra.Command, f func(ctx context.Context, t *tier) error) error {
	if o.settings.complete(o.cluster.metadata).targets != "" {
		return o.with(c, f)
	}
	return o.cluster.with(c, func(ctx context.Context, client *ledgerclient.Client) error {
		return f(ctx, &tier{client: client, records: client.OffloadRecords()})
	})
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
			Logger: o.cluster.logger(c), DeletionLag: commandLag, TakeOver: commandTakeOver, Encryption: t.encryption, Keys: t.keys,
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
	if o.Encryption, err = offload.ParseEncryption(c.Encryption); err != nil {
		return o, fmt.Errorf("offload.encryption: %w", err)
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
