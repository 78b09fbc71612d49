package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
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
	"github.com/binderylog/bindery/internal/vfs"
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

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// clusterCount makes names of memory stores unique.
var clusterCount atomic.Int64

// cluster is a metadata store and bookies.
type cluster struct {
	t       testing.TB
	uri     string
	name    string
	views   *metadata.Views
	members []*member
}

// member is one bookie: a disk that survives its processes, and the process that runs now.
type member struct {
	c     *cluster
	id    string
	fs    *memfs.FS
	addr  string
	b     *bookie.Bookie
	store *memmeta.Store
}

func newCluster(t testing.TB, n int) *cluster {
	t.Helper()
	name := fmt.Sprintf("integration-%d", clusterCount.Add(1))
	admin := memmeta.Open(name)
	c := &cluster{t: t, name: name, uri: "mem://" + name, views: metadata.NewViews(admin, metadata.DefaultRoot)}
	_, err := c.views.Cluster.Init(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, m := range c.members {
			m.stop()
		}
		_ = admin.Close()
	})
	for i := range n {
		m := &member{c: c, id: "bk" + strconv.Itoa(i), fs: emptyDisk(), addr: "127.0.0.1:0"}
		c.members = append(c.members, m)
		m.start()
	}
	return c
}

func emptyDisk() *memfs.FS { return memfs.New("/journal", "/ledgers") }

// start runs a bookie on the member's disk, at the address that it had.
func (m *member) start() {
	t := m.c.t
	t.Helper()
	m.store = memmeta.Open(m.c.name)
	o := bookie.Options{
		ID: ledger.BookieID(m.id), Listen: m.addr, JournalDirs: []string{"/journal"}, LedgerDirs: []string{"/ledgers"}, FS: m.fs, Prepare: true,
		Metadata: metadata.NewViews(m.store, metadata.DefaultRoot), InFlightBytes: 16 << 20, ReadWorkers: 4, Logger: logger().With("bookie", m.id),
	}
	o.Journal.SegmentSize = 4 << 20
	o.Journal.IO = journal.IODSync
	o.Storage.WriteCacheBytes = 4 << 20
	o.Storage.ReadCacheBytes = 4 << 20
	o.Storage.Log.LogSize = 4 << 20
	o.Storage.ReserveBytes = 1 << 20
	o.Storage.OpenIndex = func(path string, io index.Options) (index.Index, error) { return index.OpenMem(m.fs, path, io) }
	o.Storage.OpenIntents = func(dir string, io intent.Options) (intent.Log, error) { return intent.OpenVFS(m.fs, dir, io) }
	b, err := bookie.New(o)
	require.NoError(t, err)
	err = b.Start(testContext(t))
	for end := time.Now().Add(time.Minute); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // another process has got the port while nobody listened
		b, err = bookie.New(o)
		require.NoError(t, err)
		err = b.Start(testContext(t))
	}
	require.NoError(t, err)
	m.b, m.addr = b, b.Addr().String()
}

// loseDisk gives a stopped bookie an empty disk, with the consent of its operator.
func (m *member) loseDisk() {
	t := m.c.t
	t.Helper()
	m.fs = emptyDisk()
	_, err := bookie.PrepareNode(testContext(t), bookie.PrepareOptions{AcceptLoss: true, IdentityOptions: bookie.IdentityOptions{
		FS: m.fs, Views: m.c.views, ID: ledger.BookieID(m.id), JournalDirs: []string{"/journal"}, LedgerDirs: []string{"/ledgers"}}})
	require.NoError(t, err)
}

// stop ends the process gracefully.
func (m *member) stop() {
	if m.b == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_ = m.b.Stop(ctx)
	_ = m.store.Close()
	m.b = nil
}

// powerLoss takes the state that the disk would have if the power went now, keeping a share of what was not synced, and
// leaves the old process nothing that it could still say: neither to the disk nor to the metadata store nor to clients.
func (m *member) powerLoss(seed uint64, keep float64) {
	disk := m.fs.CrashClone(seed, keep)
	m.store.SetFaults(func(memmeta.Op) memmeta.Fault { return memmeta.Fault{Err: errors.New("the power is off")} })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.b.Stop(ctx)
	m.store.SetFaults(nil)
	m.store.ExpireSession()
	_ = m.store.Close()
	m.b, m.fs = nil, disk
}

var _ vfs.FS = (*memfs.FS)(nil)

func (c *cluster) client(change ...func(o *ledgerclient.Options)) *ledgerclient.Client {
	c.t.Helper()
	o := &ledgerclient.Options{Logger: logger(), ExplicitLACInterval: 100 * time.Millisecond, LongPollTimeout: 2 * time.Second, AddTimeout: 20 * time.Second, ReadTimeout: 20 * time.Second}
	for _, fn := range change {
		fn(o)
	}
	client, err := ledgerclient.Dial(testContext(c.t), c.uri, o)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

func (c *cluster) record(id ledgerclient.LedgerID) *ledgerclient.Metadata {
	c.t.Helper()
	m, _, err := c.views.Ledgers.Read(context.Background(), id)
	require.NoError(c.t, err)
	return m
}

func quorum(e, w, a int) ledgerclient.Quorum {
	return ledgerclient.Quorum{Ensemble: e, Write: w, Ack: a}
}

// payload is the content of an entry; now and then it is empty or large.
func payload(e ledgerclient.EntryID) []byte {
	n := int(e*131) % 900
	switch e % 97 {
	case 5:
		n = 0
	case 50:
		n = 20000
	}
	b := bytes.Repeat([]byte{byte(e), byte(e >> 8), byte(e >> 16), '.'}, n/4+1)
	return b[:n]
}

// load appends entries with a window until stop is closed or an append fails, and records what was acknowledged.
type load struct {
	acked atomic.Int64 // id of the last entry acknowledged, -1: none
	err   error
	done  chan struct{}
}

func startLoad(w *ledgerclient.Writer, first ledgerclient.EntryID, window int, stop <-chan struct{}) *load {
	l := &load{done: make(chan struct{})}
	l.acked.Store(int64(first) - 1)
	go func() {
		defer close(l.done)
		room := make(chan struct{}, window)
		failed := make(chan error, 1)
		for e := first; ; e++ {
			select {
			case <-stop:
				for range window {
					room <- struct{}{}
				}
				return
			case l.err = <-failed:
				for range window {
					room <- struct{}{}
				}
				return
			case room <- struct{}{}:
			}
			w.AppendAsync(payload(e), func(id ledgerclient.EntryID, err error) {
				if err != nil {
					select {
					case failed <- err:
					default:
					}
				} else {
					l.acked.Store(int64(id))
				}
				<-room
			})
		}
	}()
	return l
}

// readAll reads a range and checks every byte.
func readAll(t testing.TB, r *ledgerclient.Reader, first, last ledgerclient.EntryID) {
	t.Helper()
	next := first
	for e, err := range r.Entries(testContext(t), first, last) {
		require.NoError(t, err)
		require.Equal(t, next, e.ID)
		if !bytes.Equal(payload(e.ID), e.Data) {
			t.Fatalf("entry %d is not what was written", e.ID)
		}
		next++
	}
	require.Equal(t, last+1, next)
}
