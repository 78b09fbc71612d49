package autorecovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/bookie/index"
	"github.com/binderylog/bindery/internal/intent"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/internal/vfs/memfs"
	"github.com/binderylog/bindery/journal"
	"github.com/binderylog/bindery/ledgerclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func logger() *slog.Logger {
	if os.Getenv("BINDERY_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}

var clusters atomic.Int64

// kit is a metadata store in memory and real bookies on disks in memory.
type kit struct {
	t       testing.TB
	name    string
	store   *memmeta.Store
	views   *metadata.Views
	members []*member
	client  *ledgerclient.Client
}

// member is one bookie: a disk that outlives its processes, and the process that runs now.
type member struct {
	k      *kit
	id     ledger.BookieID
	fs     *memfs.FS
	addr   string
	b      *bookie.Bookie
	store  *memmeta.Store
	change func(*bookie.Options)
}

func newKit(t testing.TB, n int, change ...func(*bookie.Options)) *kit {
	t.Helper()
	name := fmt.Sprintf("autorecovery-%d", clusters.Add(1))
	store := memmeta.Open(name)
	k := &kit{t: t, name: name, store: store, views: metadata.NewViews(store, metadata.DefaultRoot)}
	_, err := k.views.Cluster.Init(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, m := range k.members {
			m.stop()
		}
		_ = store.Close()
	})
	for range n {
		k.add(change...)
	}
	k.client = k.newClient()
	return k
}

// add starts one more bookie.
func (k *kit) add(change ...func(*bookie.Options)) *member {
	m := &member{k: k, id: ledger.BookieID("bk" + strconv.Itoa(len(k.members))), fs: memfs.New("/journal", "/ledgers"), addr: "127.0.0.1:0"}
	m.change = func(o *bookie.Options) {
		for _, fn := range change {
			fn(o)
		}
	}
	k.members = append(k.members, m)
	require.NoError(k.t, m.start())
	return m
}

func (m *member) start() error {
	m.store = memmeta.Open(m.k.name)
	o := bookie.Options{
		ID: m.id, Listen: m.addr, JournalDirs: []string{"/journal"}, LedgerDirs: []string{"/ledgers"}, FS: m.fs, Prepare: true,
		Metadata: metadata.NewViews(m.store, metadata.DefaultRoot), InFlightBytes: 8 << 20, ReadWorkers: 2, Logger: logger().With("bookie", m.id),
	}
	o.Journal.SegmentSize = 4 << 20
	o.Journal.IO = journal.IODSync
	o.Storage.WriteCacheBytes = 4 << 20
	o.Storage.ReadCacheBytes = 1 << 20
	o.Storage.Log.LogSize = 4 << 20
	o.Storage.ReserveBytes = 1 << 20
	o.Storage.OpenIndex = func(path string, io index.Options) (index.Index, error) { return index.OpenMem(m.fs, path, io) }
	o.Storage.OpenIntents = func(dir string, io intent.Options) (intent.Log, error) { return intent.OpenVFS(m.fs, dir, io) }
	m.change(&o)
	b, err := bookie.New(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.Start(ctx); err != nil {
		_ = b.Stop(ctx)
		_ = m.store.Close()
		return err
	}
	m.b, m.addr = b, b.Addr().String()
	return nil
}

func (m *member) stop() {
	if m.b == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = m.b.Stop(ctx)
	_ = m.store.Close()
	m.b = nil
}

// wipe gives a stopped bookie an empty disk, with the consent of its operator.
func (m *member) wipe() {
	m.fs = memfs.New("/journal", "/ledgers")
	_, err := bookie.PrepareNode(context.Background(), bookie.PrepareOptions{AcceptLoss: true, IdentityOptions: bookie.IdentityOptions{
		FS: m.fs, Views: m.k.views, ID: m.id, JournalDirs: []string{"/journal"}, LedgerDirs: []string{"/ledgers"}}})
	require.NoError(m.k.t, err)
}

func (k *kit) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	k.t.Cleanup(cancel)
	return ctx
}

func (k *kit) newClient() *ledgerclient.Client {
	k.t.Helper()
	c, err := ledgerclient.Dial(k.ctx(), "mem://"+k.name, &ledgerclient.Options{Logger: logger(), Quarantine: time.Second})
	require.NoError(k.t, err)
	k.t.Cleanup(func() { _ = c.Close() })
	return c
}

// node is a service with a store and a client of its own, as a process has them.
type node struct {
	*Service
	store  *memmeta.Store
	client *ledgerclient.Client
	closed bool
}

func (k *kit) node(name string, change ...func(*Options)) *node {
	k.t.Helper()
	store := memmeta.Open(k.name)
	n := &node{store: store, client: k.newClient()}
	o := Options{Name: name, Client: n.client, Views: metadata.NewViews(store, metadata.DefaultRoot), LostBookieDelay: -1, OpenGrace: 300 * time.Millisecond,
		FailedHold: 3 * time.Second, Backoff: 50 * time.Millisecond, LocalEvery: 50 * time.Millisecond, ScrubEvery: -1, Logger: logger().With("node", name)}
	for _, fn := range change {
		fn(&o)
	}
	var err error
	n.Service, err = New(o)
	require.NoError(k.t, err)
	n.Start()
	k.t.Cleanup(n.stop)
	return n
}

// stop ends the node's process.
func (n *node) stop() {
	if n.closed {
		return
	}
	n.closed = true
	n.Close()
	_ = n.client.Close()
	_ = n.store.Close()
}

func auditorOnly(o *Options) { o.private.noWorker = true }
func workerOnly(o *Options)  { o.private.noAuditor = true }

func payload(e int64) []byte {
	return bytes.Repeat([]byte{byte(e), byte(e >> 8), '.'}, 100+int(e%40))
}

// create makes a ledger on the given bookies, in this order, with n entries.
func (k *kit) create(q ledgerclient.Quorum, n int, ensemble ...ledger.BookieID) *ledgerclient.Writer {
	k.t.Helper()
	var w *ledgerclient.Writer
	for range 200 {
		var err error
		w, err = k.client.Create(k.ctx(), ledgerclient.CreateOptions{Quorum: q})
		require.NoError(k.t, err)
		m := k.record(w.ID())
		if containsAll(m.Fragments[0].Bookies, ensemble) {
			break
		}
		require.NoError(k.t, w.Close(k.ctx()))
		require.NoError(k.t, k.client.Delete(k.ctx(), w.ID()))
		w = nil
	}
	require.NotNil(k.t, w, "no ledger on %v came up", ensemble)
	k.append(w, 0, n)
	return w
}

func containsAll(have, want []ledger.BookieID) bool {
	for _, b := range want {
		if !slices.Contains(have, b) {
			return false
		}
	}
	return true
}

func (k *kit) append(w *ledgerclient.Writer, from, to int) {
	k.t.Helper()
	for e := from; e < to; e++ {
		id, err := w.Append(k.ctx(), payload(int64(e)))
		require.NoError(k.t, err)
		require.Equal(k.t, ledger.EntryID(e), id)
	}
}

// closed makes a closed ledger.
func (k *kit) closed(q ledgerclient.Quorum, n int, ensemble ...ledger.BookieID) ledger.ID {
	k.t.Helper()
	w := k.create(q, n, ensemble...)
	require.NoError(k.t, w.Close(k.ctx()))
	return w.ID()
}

func (k *kit) record(id ledger.ID) *ledger.Metadata {
	k.t.Helper()
	m, _, err := k.views.Ledgers.Read(k.ctx(), id)
	require.NoError(k.t, err)
	return m
}

// check reads every replica of every entry of a closed ledger from the bookies that the record names.
func (k *kit) check(id ledger.ID, n int) {
	k.t.Helper()
	m := k.record(id)
	require.Equal(k.t, ledger.StateClosed, m.State)
	require.Equal(k.t, ledger.EntryID(n-1), m.LastEntry)
	copies, err := k.client.Copies(id, m)
	require.NoError(k.t, err)
	for e := range ledger.EntryID(n) {
		f := m.Fragments[m.FragmentOf(e)]
		for i := range m.WriteQuorum {
			b := f.Bookies[m.Quorum().Index(e, i)]
			_, answer, err := copies.Read(k.ctx(), b, e)
			require.Equal(k.t, ledger.AnswerOK, answer, "P1: ledger %d entry %d on %s: %v", id, e, b, err)
		}
	}
	r, err := k.client.Open(k.ctx(), id, ledgerclient.OpenOptions{})
	require.NoError(k.t, err)
	defer r.Close()
	next := int64(0)
	for e, err := range r.Entries(k.ctx(), 0, r.LastAddConfirmed()) {
		require.NoError(k.t, err)
		require.Equal(k.t, payload(next), e.Data)
		next++
	}
	require.Equal(k.t, int64(n), next)
}

// marks returns the marked ledgers with their bookies.
func (k *kit) marks() map[ledger.ID][]ledger.BookieID {
	k.t.Helper()
	out := map[ledger.ID][]ledger.BookieID{}
	for m, err := range k.views.Replication.All(k.ctx(), -1) {
		require.NoError(k.t, err)
		slices.Sort(m.Replicas)
		out[m.Ledger] = m.Replicas
	}
	return out
}

func (k *kit) mark(id ledger.ID, bookies ...ledger.BookieID) {
	k.t.Helper()
	_, err := k.views.Replication.Mark(k.ctx(), id, bookies, time.Now())
	require.NoError(k.t, err)
}

// eventually waits until ok.
func (k *kit) eventually(what string, ok func() bool) {
	k.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			k.t.Fatalf("never: %s; marks %v", what, k.marks())
		}
	}
}

// counted waits until a metric has a value: what it counts shows before it is counted.
func (k *kit) counted(n *node, name string, want float64) {
	k.t.Helper()
	k.eventually(fmt.Sprintf("%s is %v", name, want), func() bool { return n.metric(name) == want })
}

// unmarked waits until no ledger is marked and no lock is held.
func (k *kit) unmarked() {
	k.t.Helper()
	k.eventually("all marks cleared", func() bool {
		held, err := k.views.Replication.Locked(k.ctx())
		require.NoError(k.t, err)
		return len(k.marks()) == 0 && len(held) == 0
	})
}

// metric returns the value of a metric of a node, 0 if it is not there.
func (n *node) metric(name string) float64 {
	var b bytes.Buffer
	n.WritePrometheus(&b)
	for line := range strings.Lines(b.String()) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, _ := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			return v
		}
	}
	return 0
}

func (n *node) outcomes(o Outcome) float64 {
	return n.metric(fmt.Sprintf("bindery_replication_outcomes_total{outcome=%q}", string(o)))
}

func quorum(e, w, a int) ledgerclient.Quorum {
	return ledgerclient.Quorum{Ensemble: e, Write: w, Ack: a}
}

var errInjected = errors.New("injected")
