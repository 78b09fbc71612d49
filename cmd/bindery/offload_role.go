package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/internal/config"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/ledgerclient"
	"github.com/binderylog/bindery/offload"
	"github.com/binderylog/bindery/offload/objstore/driver"
)

// offloader is the role offload of a process.
type offloader struct {
	service *offload.Service
	worker  *offload.Worker
	client  *ledgerclient.Client
	targets *driver.Targets
}

// startOffload starts the role offload, if the process has it.
func (p *process) startOffload(ctx context.Context) (err error) {
	if !p.plan.offload {
		return nil
	}
	views, err := p.loadViews(ctx)
	if err != nil {
		return err
	}
	x := &offloader{}
	defer func() {
		if err != nil {
			code := bookie.ExitConfig
			if errors.Is(err, vfs.ErrLocked) {
				code = bookie.ExitLocked
			}
			err = exit(code, errors.Join(err, x.close()))
		}
	}()
	log := p.log.With("part", "offload")
	if x.targets, err = driver.Load(p.config.Offload.Targets); err != nil {
		return err
	}
	for _, err := range x.targets.Down {
		log.Warn("a target can not be used now", "error", err)
	}
	keys, err := roleKeys(ctx, p.config)
	if err != nil {
		return err
	}
	x.client, err = ledgerclient.Attach(sharedStore{p.store}, views, &ledgerclient.Options{
		MaxFrameBytes: int(p.config.Expert.MaxFrame), MetadataTimeout: p.config.Metadata.Timeout.D(0), Logger: log, Offload: x.targets.Targets, OffloadKeys: keys,
	}, nil)
	if err != nil {
		return err
	}
	cluster, err := metadata.NewCluster(p.store, views.Root).InstanceID(ctx)
	if err != nil && !errors.Is(err, metadata.ErrNotInitialized) {
		return err
	}
	o, err := workerOptions(p.config, offload.Options{
		Records: x.client.OffloadRecords(), Targets: x.targets.Targets, Entries: entriesOf(x.client), Dir: p.config.Offload.Dir, Name: p.workerName(), Cluster: cluster, Logger: log, Keys: keys,
	})
	if err != nil {
		return err
	}
	if x.worker, err = offload.NewWorker(o); err != nil {
		return err
	}
	x.service = offload.NewService(x.worker, serviceOptions(p.config))
	x.service.Start()
	p.offload.Store(x)
	return nil
}

// workerName is what locks and records say of the worker. Without a bookie several workers of a host would have one name.
func (p *process) workerName() string {
	if len(p.bookies) > 0 {
		return p.recoveryName()
	}
	return fmt.Sprintf("%s:%d", p.recoveryName(), os.Getpid())
}

// roleKeys reads the keys of the [offload] section, so that what is wrong with them is said at the start.
func roleKeys(ctx context.Context, l *config.Loaded) (offload.KeySource, error) {
	c := &l.Offload
	keys, err := driver.OpenKeys(c.KeySource, c.KeyID, c.Encryption != "none")
	if keys == nil || err != nil {
		return nil, err
	}
	_, err = keys.Load(ctx)
	return keys, err
}

// serviceOptions turns the [offload] section into a service's options.
func serviceOptions(l *config.Loaded) offload.ServiceOptions {
	c := &l.Offload
	match := map[string]string{}
	for _, m := range c.Match {
		k, v, _ := strings.Cut(m, "=")
		match[k] = v
	}
	return offload.ServiceOptions{
		Policy: offload.Policy{AfterAge: c.AfterAge.D(0), MinBytes: int64(c.AfterBytes), Match: match, KeepCopy: !c.Release}, Ledgers: c.Ledgers, FullEvery: zeroIsOff(c.ScrubEvery),
	}
}

// stopOffload ends it, before the bookies.
func (p *process) stopOffload() error {
	if x := p.offload.Swap(nil); x != nil {
		return x.close()
	}
	return nil
}

func (x *offloader) close() (err error) {
	if x.service != nil {
		x.service.Close()
	}
	if x.worker != nil {
		err = x.worker.Close()
	}
	if x.client != nil {
		err = errors.Join(err, x.client.Close())
	}
	if x.targets != nil {
		err = errors.Join(err, x.targets.Close())
	}
	return err
}

// writeMetrics prints the metrics of the role.
func (x *offloader) writeMetrics(w io.Writer) {
	x.worker.WriteMetrics(w)
	for _, s := range x.targets.Stores {
		s.WritePrometheus(w)
	}
}

// offloadTargetsName is the file in a standalone's data directory that names the folders of --offload-dir.
const offloadTargetsName = "offload-targets.toml"

// folders is how many targets --offload-dir makes: enough for geometry 4+2.
const folders = 6

// prepareFolders makes the targets of --offload-dir and the file that names them, and returns it.
func prepareFolders(dataDir, dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# The folders of --offload-dir. On one disk they protect from the loss of folders and from nothing else.\n")
	for _, o := range driver.FoldersOf(dir, folders) {
		fmt.Fprintf(&b, "\n[[target]]\nid = %q\ndir = %q\ncreate = true\n", o.Target.ID, o.Dir)
	}
	name := filepath.Join(dataDir, offloadTargetsName)
	return name, vfs.WriteFileAtomic(vfs.OS(), name, []byte(b.String()))
}

// countEntries tells how many payload bytes were read.
func countEntries(source offload.EntrySource, read func(n int)) offload.EntrySource {
	return func(ctx context.Context, id ledger.ID, m *ledger.Metadata, first, last ledger.EntryID) iter.Seq2[offload.Entry, error] {
		return func(yield func(offload.Entry, error) bool) {
			for e, err := range source(ctx, id, m, first, last) {
				read(len(e.Payload))
				if !yield(e, err) {
					return
				}
			}
		}
	}
}
