package bookie

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
	"github.com/binderylog/bindery/internal/wire"
)

// site is a cluster in memory and the disks of one bookie.
type site struct {
	t     testing.TB
	store *memmeta.Store
	views *metadata.Views
	fs    vfs.FS
	logs  *logBuffer
	mod   func(*Options)
}

func newSite(t testing.TB) *site {
	s := &site{t: t, store: memmeta.Open(""), fs: memfs.New("/"), logs: &logBuffer{}}
	t.Cleanup(func() { require.NoError(t, s.store.Close()) })
	s.views = metadata.NewViews(s.store, "/ledgers")
	_, err := s.views.Cluster.Init(context.Background())
	require.NoError(t, err)
	return s
}

func (s *site) options() Options {
	o := testOptions(s.fs, "/")
	o.ID, o.Prepare, o.Metadata = "b1", true, s.views
	o.RegistrationWait, o.MetadataTimeout = time.Second, time.Second
	o.DiskCheckInterval = 10 * time.Millisecond
	o.Logger = slog.New(slog.NewTextHandler(s.logs, nil))
	onVFS(&o, s.fs)
	if s.mod != nil {
		s.mod(&o)
	}
	return o
}

func (s *site) tryStart() (*Bookie, error) {
	b, err := New(s.options())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.Start(ctx); err != nil {
		require.NoError(s.t, b.Stop(ctx), "stopping what did not start is nothing")
		return b, err
	}
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = b.Stop(ctx)
	})
	return b, nil
}

func (s *site) start() *Bookie {
	s.t.Helper()
	b, err := s.tryStart()
	require.NoError(s.t, err, "%s", s.logs)
	return b
}

func (s *site) stop(b *Bookie) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(s.t, b.Stop(ctx), "%s", s.logs)
}

func (s *site) dial(b *Bookie) *client {
	s.t.Helper()
	c, err := net.Dial("tcp", b.Addr().String())
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	return &client{t: s.t, c: c, r: bufio.NewReaderSize(c, 1<<20)}
}

// registered returns the bookie's registration, nil if there is none.
func (s *site) registered() *metadata.Bookie {
	s.t.Helper()
	bk, err := s.views.Bookies.Resolve(context.Background(), "b1")
	if errors.Is(err, metadata.ErrNotFound) {
		return nil
	}
	require.NoError(s.t, err)
	return &bk
}

func (s *site) eventuallyRegistered(readOnly bool) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		bk := s.registered()
		return bk != nil && bk.ReadOnly == readOnly
	}, 30*time.Second, 5*time.Millisecond, "%s", s.logs)
}

func TestStartServesRegistersAndStops(t *testing.T) {
	s := newSite(t)
	s.mod = func(o *Options) { o.AdminAddress = "admin.example.org:8000" }
	b := s.start()
	bk := s.registered()
	require.NotNil(t, bk)
	require.False(t, bk.ReadOnly)
	addr, err := bk.Address()
	require.NoError(t, err)
	require.Equal(t, b.Addr().String(), addr)
	require.Equal(t, []metadata.Endpoint{
		{ID: "bookie", Host: "127.0.0.1", Port: int32(b.Addr().(*net.TCPAddr).Port), Protocol: "bookie-rpc"},
		{ID: "httpserver", Host: "admin.example.org", Port: 8000, Protocol: "http"},
	}, bk.Info.Endpoints)
	st := b.State()
	require.Equal(t, "serving", st.Phase)
	require.True(t, st.Running)
	require.Equal(t, "b1", st.ID)

	c := s.dial(b)
	for e := range int64(50) {
		c.add(1, e, "x")
	}
	var metrics bytes.Buffer
	b.WritePrometheus(&metrics)
	for _, line := range []string{
		"bookie_SERVER_STATUS 1\n", "bindery_ready 1\n", `bookkeeper_server_ADD_ENTRY_count{success="true"} 50` + "\n",
		`bookkeeper_server_ADD_ENTRY{success="true",quantile="1.0"} NaN` + "\n", "bindery_add_seconds_count 50\n",
		"bookie_ledger_writable_dirs 1\n", "bookie_ledger_dir__ledgers_usage ", "bookie_DELETED_LEDGER_TOTAL 0\n", "bookie_journal_JOURNAL_SYNC",
	} {
		require.Contains(t, metrics.String(), line)
	}
	require.NotEmpty(t, b.Disks())
	require.Len(t, b.Marks(), 1)
	files, err := b.Files("journal")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	require.NoError(t, b.Flush(context.Background()))

	s.stop(b)
	require.Nil(t, s.registered())
	require.Equal(t, "stopped", b.State().Phase)
	c.closed()
	_, err = s.fs.Stat("/ledgers/current/DIRTY")
	require.ErrorIs(t, err, os.ErrNotExist)

	b = s.start()
	require.Zero(t, b.State().Replay.DoneBytes, "nothing to replay after a clean stop")
	require.Equal(t, body(1, 49, 48, "x"), s.dial(b).read(wire.V2, 1, -1).Body)
}

func TestStartAfterKill(t *testing.T) {
	s := newSite(t)
	b := s.start()
	c := s.dial(b)
	for e := range int64(50) {
		c.add(1, e, "x")
	}
	clone := s.fs.(*memfs.FS).CrashClone(7, 0.5)
	s.fs.(*memfs.FS).CrashNow()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	require.Error(t, b.Stop(ctx))
	s.fs = clone
	b = s.start()
	require.Positive(t, b.State().Replay.DoneBytes)
	require.False(t, b.state.get().ReadOnly)
	require.Equal(t, body(1, 49, 48, "x"), s.dial(b).read(wire.V2, 1, -1).Body)
	s.dial(b).add(1, 50, "not in limbo")
}

func TestPortInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	s := newSite(t)
	s.mod = func(o *Options) { o.Listen = ln.Addr().String() }
	_, err = s.tryStart()
	requireExit(t, err, ExitIO, "another process has this port")
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	names, err := s.fs.List("/")
	require.NoError(t, err)
	require.Empty(t, names, "nothing was touched")
}

func TestStartRefusals(t *testing.T) {
	for _, c := range []struct {
		name string
		mod  func(s *site, o *Options)
		code int
		says string
	}{
		{"no listener", func(_ *site, o *Options) { o.Listen = "" }, ExitConfig, "bookie.listen"},
		{"no journal", func(_ *site, o *Options) { o.JournalDirs = nil }, ExitConfig, "journal_dirs"},
		{"relaxed", func(_ *site, o *Options) { o.Durability = DurabilityRelaxed }, ExitConfig, "buffered"},
		{"not prepared", func(_ *site, o *Options) { o.Prepare = false }, ExitConfig, "node init"},
		{"no address", func(_ *site, o *Options) { o.Listen = "0.0.0.0:0" }, ExitConfig, "advertised_address"},
		{"bad address", func(_ *site, o *Options) { o.Listen = "nowhere:x" }, ExitIO, "nowhere"},
		{"store down", func(s *site, _ *Options) {
			s.store.SetFaults(func(memmeta.Op) memmeta.Fault { return memmeta.Fault{Err: metadata.ErrUnavailable} })
		}, ExitRegistration, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t)
			s.mod = func(o *Options) { c.mod(s, o) }
			_, err := s.tryStart()
			requireExit(t, err, c.code, c.says)
			s.store.SetFaults(nil)
			require.Nil(t, s.registered())
		})
	}
}

func TestConnectionsAreTurnedAwayUntilTheBookieServes(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := newGate(ln)
	for range 3 {
		c, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		_, err = c.Read(make([]byte, 1))
		require.True(t, errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET), "%v", err)
		require.NoError(t, c.Close())
	}
	opened := g.open()
	for range 3 {
		c, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		got, err := opened.Accept()
		require.NoError(t, err)
		require.Equal(t, c.LocalAddr().String(), got.RemoteAddr().String())
		require.NoError(t, got.Close())
		require.NoError(t, c.Close())
	}
	require.NoError(t, opened.Close())
	_, err = opened.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

// TestC29ForcedReadOnly: an operator's order outlives a disk's recovery and a restart; one that the configuration gives
// can not be taken back by the switch.
func TestC29ForcedReadOnly(t *testing.T) {
	s := newSite(t)
	b := s.start()
	s.dial(b).add(1, 0, "x")
	require.NoError(t, b.SetReadOnly(context.Background(), true))
	require.Equal(t, wire.ReadOnly, s.dial(b).do(addReq(wire.V2, 1, 1, 0, "y")).Code)
	s.eventuallyRegistered(true)
	b.state.set(ReasonDisk, true, "test")
	b.state.set(ReasonDisk, false, "")
	require.True(t, b.State().ReadOnly)
	s.stop(b)

	b = s.start()
	require.True(t, b.State().ReadOnly)
	require.Contains(t, b.State().Reason, "by an operator")
	require.True(t, s.registered().ReadOnly)
	require.Equal(t, wire.OK, s.dial(b).read(wire.V2, 1, 0).Code)
	require.NoError(t, b.SetReadOnly(context.Background(), false))
	s.eventuallyRegistered(false)
	s.dial(b).add(1, 1, "y")
	s.stop(b)

	b = s.start()
	require.False(t, b.State().ReadOnly)
	s.stop(b)

	s.mod = func(o *Options) { o.ReadOnly = true }
	b = s.start()
	require.ErrorIs(t, b.SetReadOnly(context.Background(), false), ErrForcedReadOnly)
	require.True(t, b.State().ReadOnly)
	require.Equal(t, "serving", b.State().Phase)
}

// TestJournalFailure: its pending and later adds, fences, explicit LACs and forces get EIO, connections stay open, the
// bookie registers read-only, reads go on; a restart loses nothing that was acknowledged.
func TestJournalFailure(t *testing.T) {
	s := newSite(t)
	inner := s.fs
	var fail atomic.Bool
	s.fs = errorfs.Wrap(inner, errorfs.Func("the journal's disk dies", func(op errorfs.Op) errorfs.Fault {
		if fail.Load() && strings.HasPrefix(op.Path, "/journal/") && op.Kind&(errorfs.Write|errorfs.Sync) != 0 {
			return errorfs.Fault{Err: syscall.EIO}
		}
		return errorfs.Fault{}
	}))
	b := s.start()
	c, c3 := s.dial(b), s.dial(b)
	c.add(1, 0, "x")
	fail.Store(true)
	require.Equal(t, wire.IO, c.do(addReq(wire.V2, 1, 1, 0, "y")).Code)
	require.Equal(t, wire.ReadOnly, c.do(addReq(wire.V2, 1, 1, 0, "y")).Code, "known by now")
	r := addReq(wire.V2, 1, 1, 0, "y")
	r.Flags = wire.HighPriority | wire.RecoveryAdd
	require.Equal(t, wire.ReadOnly, c.do(r).Code, "no room for anybody")
	require.Equal(t, wire.IO, c.fence(wire.V2, 1, keyK).Code)
	require.Equal(t, wire.IO, c.fence(wire.V2, 1, keyK).Code, "set, but not durable")
	require.Equal(t, wire.IO, c.fence(wire.V2, 404, keyK).Code)
	require.Equal(t, wire.IO, c3.do(wire.Request{Proto: wire.V3, Op: wire.OpForce, Ledger: 1}).Code)
	require.Equal(t, wire.ReadOnly, c3.do(writeLAC(1, 0)).Code)
	require.Equal(t, body(1, 0, -1, "x"), c.read(wire.V2, 1, 0).Body)
	s.eventuallyRegistered(true)
	require.Contains(t, b.State().Reason, "journal")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = b.Stop(ctx)

	s.fs = inner
	b = s.start()
	require.False(t, b.State().ReadOnly)
	require.Equal(t, body(1, 0, -1, "x"), s.dial(b).read(wire.V2, 1, 0).Body)
}

// TestStopOrder: the registration goes first, then nothing new is read, what was read is answered, and the disks end in
// the state of a clean stop, marker last.
func TestStopOrder(t *testing.T) {
	s := newSite(t)
	fs := newStallFS(s.fs, "/journal/")
	s.fs = fs
	b := s.start()
	c, idle := s.dial(b), s.dial(b)
	c.add(1, 0, "x")
	idle.add(2, 0, "x")
	fs.stall(true)
	defer fs.stall(false)
	c.write(encode(t, addReq(wire.V2, 1, 1, 0, "being made durable")))
	require.Eventually(t, func() bool { return b.srv.addsInProgress.Load() == 1 }, 30*time.Second, time.Millisecond)
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		stopped <- b.Stop(ctx)
	}()
	require.Eventually(t, func() bool { return s.registered() == nil }, 30*time.Second, time.Millisecond)
	idle.closed()
	require.Eventually(t, func() bool {
		n, err := net.Dial("tcp", b.Addr().String())
		if err != nil {
			return true
		}
		_ = n.Close()
		return false
	}, 30*time.Second, time.Millisecond)
	require.Equal(t, "stopping", b.State().Phase)
	_, err := s.fs.Stat("/ledgers/current/DIRTY")
	require.NoError(t, err, "not clean yet")
	c.silent(50 * time.Millisecond)
	fs.stall(false)
	require.Equal(t, wire.OK, c.recv(wire.V2).Code)
	c.closed()
	require.NoError(t, <-stopped)
	_, err = s.fs.Stat("/ledgers/current/DIRTY")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestStopDrains: while it drains, a bookie is read-only to those who look for one, and takes what its writers send; the drain
// ends by itself.
func TestStopDrains(t *testing.T) {
	s := newSite(t)
	s.mod = func(o *Options) { o.Drain = time.Hour }
	b := s.start()
	stopped := make(chan error, 1)
	go func() { stopped <- b.Stop(context.Background()) }()
	s.eventuallyRegistered(true)
	s.dial(b).add(1, 0, "a writer that is about to move")
	b.EndDrain()
	require.NoError(t, <-stopped)
	require.Nil(t, s.registered())

	s.mod = func(o *Options) { o.Drain = 300 * time.Millisecond }
	b = s.start()
	start := time.Now()
	require.NoError(t, b.Stop(context.Background()))
	require.GreaterOrEqual(t, time.Since(start), 300*time.Millisecond)
	require.Nil(t, s.registered())
}

// TestDrainCanBeCutShort: by EndDrain, by the caller's context, and when the bookie can not serve any more.
func TestDrainCanBeCutShort(t *testing.T) {
	for name, cut := range map[string]func(*Bookie, context.CancelFunc){
		"EndDrain": func(b *Bookie, _ context.CancelFunc) { b.EndDrain(); b.EndDrain() },
		"context":  func(_ *Bookie, cancel context.CancelFunc) { cancel() },
		"failure":  func(b *Bookie, _ context.CancelFunc) { b.fail(errors.New("made up")) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.mod = func(o *Options) { o.Drain = time.Hour }
			b := s.start()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			stopped := make(chan error, 1)
			go func() { stopped <- b.Stop(ctx) }()
			s.eventuallyRegistered(true)
			cut(b, cancel)
			select {
			case err := <-stopped:
				require.NoError(t, err)
			case <-time.After(patience):
				t.Fatal("the drain goes on")
			}
			require.Nil(t, s.registered())
		})
	}
}

// A journal that hangs does not make a stop hang for ever on its clients.
func TestStopIsBounded(t *testing.T) {
	s := newSite(t)
	fs := newStallFS(s.fs, "/journal/")
	s.fs = fs
	b := s.start()
	c := s.dial(b)
	fs.stall(true)
	defer fs.stall(false)
	c.write(encode(t, addReq(wire.V2, 1, 0, -1, "never")))
	require.Eventually(t, func() bool { return b.srv.addsInProgress.Load() == 1 }, 30*time.Second, time.Millisecond)
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		stopped <- b.Stop(ctx)
	}()
	c.closed()
	fs.stall(false)
	require.NoError(t, <-stopped)
}

// TestLossPutsLedgersInLimbo: an unclean stop with durability off may have lost anything, so every ledger that names this
// bookie is unknown and fenced before the first answer.
func TestLossPutsLedgersInLimbo(t *testing.T) {
	s := newSite(t)
	s.mod = func(o *Options) { o.Durability = DurabilityOff }
	ctx := context.Background()
	recordOf := func(id ledger.ID, on ledger.BookieID) {
		_, err := s.views.Ledgers.Create(ctx, id, &ledger.Metadata{
			FormatVersion: 3, Ensemble: 1, WriteQuorum: 1, AckQuorum: 1, State: ledger.StateOpen, LastEntry: -1,
			Fragments: []ledger.Fragment{{First: 0, Bookies: []ledger.BookieID{on}}}, Digest: ledger.DigestCRC32C, HasPassword: true,
		})
		require.NoError(t, err)
	}
	record := func(id ledger.ID) { recordOf(id, "b1") }
	b := s.start()
	record(1)
	record(2)         // named here, never seen here
	recordOf(3, "b2") // seen here, and named elsewhere: this bookie was replaced
	c := s.dial(b)
	c.add(3, 0, "a copy that no record speaks of")
	c.add(4, 0, "and one whose record is gone")
	c.add(1, 0, "x")
	require.NoError(t, b.Flush(ctx))
	c.add(1, 1, "in memory only")
	clone := s.fs.(*memfs.FS).CrashClone(3, 0)
	s.fs.(*memfs.FS).CrashNow()
	stop, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = b.Stop(stop)

	check := func(b *Bookie) {
		c2, c3 := s.dial(b), s.dial(b)
		for l := int64(1); l <= 2; l++ {
			require.Equal(t, wire.UnknownState, c3.read(wire.V3, l, 1).Code)
			require.Equal(t, wire.IO, c2.read(wire.V2, l, 1).Code, "never 107 on V2")
			require.Equal(t, wire.UnknownState, c3.read(wire.V3, l, -1).Code)
			require.Equal(t, wire.IO, c2.do(addReq(wire.V2, l, 2, 1, "late")).Code)
			require.Equal(t, wire.UnknownState, c3.do(wire.Request{Proto: wire.V3, Op: wire.OpReadLAC, Ledger: l}).Code)
			require.Equal(t, wire.UnknownState, c3.do(wire.Request{Proto: wire.V3, Op: wire.OpListEntries, Ledger: l}).Code)
			require.Equal(t, wire.UnknownState, c3.do(poll3(l, 0, 10_000)).Code)
			require.Equal(t, wire.IO, c3.do(wire.Request{Proto: wire.V3, Op: wire.OpForce, Ledger: l}).Code)
			require.Equal(t, wire.UnknownState, c3.fence(wire.V3, l, keyK).Code)
		}
		require.Equal(t, body(1, 0, -1, "x"), c3.read(wire.V3, 1, 0).Body, "what is there is served")
		require.Equal(t, wire.NoLedger, c3.read(wire.V3, 404, 0).Code)
		for l := int64(3); l <= 4; l++ {
			require.Equal(t, wire.NoEntry, c3.read(wire.V3, l, 9).Code, "none of what may have been lost is missed here")
		}
		require.Equal(t, wire.Fenced, c2.do(addReq(wire.V2, 4, 1, 0, "late")).Code, "but its writer is asked for its record first")
		// A ledger that nobody has verified since: its record decides.
		require.Equal(t, wire.Fenced, c2.do(addReq(wire.V2, 77, 0, -1, "x")).Code, "no record")
	}
	s.fs = clone
	b = s.start()
	check(b)
	record(5)
	s.dial(b).add(5, 0, "open, and verified")
	epoch := b.lossEpoch
	require.NotZero(t, epoch)
	s.stop(b)
	b = s.start()
	require.Equal(t, epoch, b.lossEpoch, "a restart is no loss")
	check(b)
	require.Equal(t, wire.OK, s.dial(b).do(wire.Request{Proto: wire.V3, Op: wire.OpForce, Ledger: 5}).Code, "verified before the restart")
	s.stop(b)
	require.NoError(t, vfs.WriteFileAtomic(s.fs, lossEpochPath("/ledgers"), []byte("loss epoch 1\ncrc32c 00000000\n")))
	b = s.start()
	require.Greater(t, b.lossEpoch, epoch, "damage verifies more, not less")
}

func TestLossEpochFile(t *testing.T) {
	fs := memfs.New("/a/current", "/b/current")
	dirs := []string{"/a", "/b"}
	e, err := readLossEpoch(fs, dirs)
	require.NoError(t, err)
	require.Zero(t, e)
	require.NoError(t, writeLossEpoch(fs, dirs, 17))
	require.NoError(t, writeLossEpoch(fs, dirs[:1], 19))
	e, err = readLossEpoch(fs.CrashClone(1, 0), dirs)
	require.NoError(t, err)
	require.Equal(t, uint64(19), e)
	require.NoError(t, fs.Remove(lossEpochPath("/b")))
	e, err = readLossEpoch(fs, dirs)
	require.NoError(t, err)
	require.Zero(t, e)
	good := encodeLossEpoch(17)
	for i := range good {
		for bit := range 8 {
			bad := append([]byte(nil), good...)
			bad[i] ^= 1 << bit
			require.Zero(t, decodeLossEpoch(bad))
		}
	}
}
