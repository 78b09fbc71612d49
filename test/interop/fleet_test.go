//go:build interop

package interop

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/freeport"
	"github.com/binderylog/bindery/internal/jvmtest"
	"github.com/binderylog/bindery/internal/metadata/etcdmeta"
	"github.com/binderylog/bindery/ledgerclient"
)

// metadataStore gives each fleet a place for its metadata.
type metadataStore interface {
	// uri returns the service URI of the fleet with this name, as ours and Apache's take it.
	uri(t testing.TB, name string) string
}

// zooKeeper is one server for all fleets of a test; each has a root of its own.
type zooKeeper struct{ *jvmtest.ZooKeeper }

// startZooKeeper starts the ZooKeeper of a test.
func startZooKeeper(t testing.TB) zooKeeper {
	dir, err := os.MkdirTemp(work, "zookeeper-")
	require.NoError(t, err)
	return zooKeeper{jvmtest.StartZooKeeper(t, dir, 2000)}
}

// A name that begins with "long" asks for the long hierarchical layout.
func (z zooKeeper) uri(_ testing.TB, name string) string {
	manager := "hierarchical"
	if strings.HasPrefix(name, "long") {
		manager = "longhierarchical"
	}
	return "zk+" + manager + "://" + z.Addr + "/" + name
}

// pulsarZooKeeper is the same as Pulsar's drivers see it: each fleet has a chroot, in which the root is always /ledgers.
type pulsarZooKeeper struct{ zooKeeper }

func (z pulsarZooKeeper) uri(_ testing.TB, name string) string {
	return "metadata-store:zk:" + z.Addr + "/" + name
}

// etcd starts a server of its own for each fleet, since in Pulsar's layout the root is always the same.
type etcd struct{}

func (etcd) uri(t testing.TB, _ string) string {
	return "metadata-store:etcd:http://" + startEtcd(t)
}

func startEtcd(t testing.TB) (addr string) {
	dir, err := os.MkdirTemp(work, "etcd-")
	require.NoError(t, err)
	e, err := etcdmeta.StartEmbedded(context.Background(), etcdmeta.EmbeddedOptions{Dir: dir, UnsafeNoSync: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e.Endpoints()[0]
}

// fleet is a cluster of bookies under a root of its own.
type fleet struct {
	t       testing.TB
	name    string
	uri     string // as Go and Java take it
	bookies []*member
	made    int // bookies so far, also those that are gone
	client  *ledgerclient.Client
}

// member is one bookie.
type member struct {
	*process
	f    *fleet
	kind string // "bindery" or a version of Apache's
	id   string
	conf string
	http string // admin server of one of ours
}

// kinds of bookies.
const ours = "bindery"

// startFleet makes a cluster and starts bookies of the given kinds. formatter makes the cluster: ours or a version.
func startFleet(t testing.TB, at metadataStore, name, formatter string, kinds ...string) *fleet {
	f := &fleet{t: t, name: name, uri: at.uri(t, name)}
	if formatter == ours {
		out, err := exec.Command(bindery, "cluster", "init", "--metadata", f.uri).CombinedOutput()
		require.NoError(t, err, "%s", out)
	} else {
		out, err := shell(t, formatter, f.uri, "initnewcluster")
		require.NoError(t, err, "%s", out)
	}
	for _, k := range kinds {
		f.add(k)
	}
	var err error
	f.client, err = ledgerclient.Dial(context.Background(), f.uri, &ledgerclient.Options{Logger: quiet, Quarantine: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.client.Close()) })
	f.ready()
	return f
}

func (f *fleet) add(kind string) *member {
	port := freeport.Test(f.t)
	m := &member{f: f, kind: kind, id: fmt.Sprintf("127.0.0.1:%d", port), http: fmt.Sprintf("127.0.0.1:%d", freeport.Test(f.t))}
	dir := filepath.Join(work, fmt.Sprintf("%s-%d", f.name, f.made))
	f.made++
	f.t.Cleanup(func() { // fleets come one after the other: what the next one needs is given back
		if !keep {
			_ = os.RemoveAll(dir)
		}
	})
	for _, d := range []string{"journal", "ledgers"} {
		require.NoError(f.t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	m.conf = filepath.Join(dir, "bookie.conf")
	if kind == ours {
		require.NoError(f.t, os.WriteFile(m.conf, fmt.Appendf(nil, `
[bookie]
id = %q
listen = %q
advertised_address = "127.0.0.1"
[metadata]
uri = %q
timeout = "6s"
[storage]
journal_dirs = [%q]
ledger_dirs = [%q]
memory = "128MiB"
[journal]
segment_size = "16MiB"
[expert]
entry_log_size = "32MiB"
[http]
listen = %q
[disk]
allow_shared = true
allow_any_fs = true
`, m.id, m.id, f.uri, dir+"/journal", dir+"/ledgers", m.http), 0o644))
		out, err := exec.Command(bindery, "node", "init", "--config", m.conf).CombinedOutput()
		require.NoError(f.t, err, "%s", out)
	} else {
		require.NoError(f.t, os.WriteFile(m.conf, fmt.Appendf(nil, `
bookiePort=%d
advertisedAddress=127.0.0.1
allowLoopback=true
journalDirectory=%s/journal
ledgerDirectories=%s/ledgers
indexDirectories=%s/ledgers
metadataServiceUri=%s
ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage
dbStorage_writeCacheMaxSizeMb=32
dbStorage_readAheadCacheMaxSizeMb=32
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.98
zkTimeout=30000
`, port, dir, dir, dir, f.uri), 0o644))
	}
	f.bookies = append(f.bookies, m)
	m.start()
	return m
}

// start starts the bookie, again if it had been killed.
func (m *member) start() {
	name := filepath.Base(filepath.Dir(m.conf)) + "-" + m.kind
	var cmd *exec.Cmd
	if m.kind == ours {
		cmd = exec.Command(bindery, "run", "--config", m.conf)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	} else {
		cmd = jvm("384m", []string{bookkeeperJars(m.f.t, m.kind)}, "org.apache.bookkeeper.server.Main", "-c", m.conf)
	}
	m.process = start(m.f.t, name, cmd, work)
}

// ready waits until every bookie is registered and takes entries.
func (f *fleet) ready() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var last error
	for ctx.Err() == nil {
		last = f.tryAll(ctx)
		if last == nil {
			return
		}
		time.Sleep(300 * time.Millisecond)
	}
	for _, m := range f.bookies {
		f.t.Logf("%s %s:\n%s", m.kind, m.id, m.tail())
	}
	require.NoError(f.t, last, "fleet %s does not become ready", f.name)
}

// tryAll writes one entry to a ledger that stripes over all bookies with a copy on each.
func (f *fleet) tryAll(ctx context.Context) error {
	up, err := f.client.Bookies(ctx)
	if err != nil {
		return err
	}
	if len(up) != len(f.bookies) {
		return fmt.Errorf("%d of %d bookies are registered", len(up), len(f.bookies))
	}
	n := len(f.bookies)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	w, err := f.client.Create(ctx, ledgerclient.CreateOptions{Quorum: ledgerclient.Quorum{Ensemble: n, Write: n, Ack: n}})
	if err != nil {
		return err
	}
	_, err = w.Append(ctx, []byte("ready?"))
	cerr := w.Close(ctx)
	_ = f.client.Delete(ctx, w.ID())
	if err != nil {
		return err
	}
	return cerr
}

// gone waits until a bookie that was stopped is not registered any more.
func (f *fleet) gone(t *testing.T, m *member) {
	t.Helper()
	require.Eventually(t, func() bool {
		up, err := f.client.Bookies(t.Context())
		return err == nil && !slices.ContainsFunc(up, func(b ledgerclient.Bookie) bool { return string(b.ID) == m.id })
	}, patience, 200*time.Millisecond, "%s stays registered", m.id)
}

// forget takes a bookie off the list.
func (f *fleet) forget(m *member) {
	f.bookies = slices.DeleteFunc(f.bookies, func(x *member) bool { return x == m })
}

// bindery runs a command of ours on the cluster.
func (f *fleet) bindery(t *testing.T, args ...string) {
	t.Helper()
	runOurs(t, append(args, "--metadata", f.uri)...)
}

// runOurs runs a command of ours and returns what it printed.
func runOurs(t *testing.T, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var report bytes.Buffer
	cmd := exec.CommandContext(ctx, bindery, args...)
	cmd.Stderr = &report
	out, err := cmd.Output()
	require.NoError(t, err, "bindery %s:\n%s%s", strings.Join(args, " "), out, &report)
	return out
}

// instance returns the cluster's instance id.
func (f *fleet) instance(t testing.TB) string {
	out, err := exec.Command(bindery, "cluster", "id", "--metadata", f.uri).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// apache reports whether a bookie of Apache's is among them.
func (f *fleet) apache() bool {
	for _, m := range f.bookies {
		if m.kind != ours {
			return true
		}
	}
	return false
}

// of returns the bookie with an id.
func (f *fleet) of(id string) *member {
	for _, m := range f.bookies {
		if m.id == id {
			return m
		}
	}
	return nil
}
