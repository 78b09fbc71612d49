package bookie

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// home is one bookie's disks and its cluster, for the tests of identity.
type home struct {
	t     *testing.T
	fs    *memfs.FS
	store *memmeta.Store
	o     IdentityOptions
}

func newHome(t *testing.T) *home {
	h := &home{t: t, fs: memfs.New("/data"), store: memmeta.Open("")}
	t.Cleanup(func() { require.NoError(t, h.store.Close()) })
	views := metadata.NewViews(h.store, "/ledgers")
	_, err := views.Cluster.Init(context.Background())
	require.NoError(t, err)
	h.o = IdentityOptions{
		FS: h.fs, Views: views, ID: "b1:3181", BootID: "boot-1", Timeout: time.Second,
		JournalDirs: []string{"/data/j1"}, LedgerDirs: []string{"/data/l1", "/data/l2", "/data/l3"}, IndexDirs: []string{"/data/i1", "/data/i2", "/data/i3"},
	}
	return h
}

func (h *home) allDirs() []string {
	return slices.Concat(h.o.JournalDirs, h.o.LedgerDirs, h.o.IndexDirs)
}

func (h *home) prepare(acceptLoss bool) (*PrepareReport, error) {
	h.o.FS = h.fs
	return PrepareNode(context.Background(), PrepareOptions{IdentityOptions: h.o, AcceptLoss: acceptLoss})
}

func (h *home) mustPrepare() *PrepareReport {
	r, err := h.prepare(false)
	require.NoError(h.t, err)
	return r
}

func (h *home) open() (*Identity, error) {
	h.o.FS = h.fs
	return OpenIdentity(context.Background(), h.o)
}

func (h *home) mustOpen() *Identity {
	i, err := h.open()
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = i.Close() })
	return i
}

// refused checks that the bookie does not start, with which exit code, and that the message says what to do.
func (h *home) refused(code int, says ...string) {
	h.t.Helper()
	i, err := h.open()
	if err == nil {
		_ = i.Close()
		h.t.Fatalf("the bookie started; exit %d was expected", code)
	}
	requireExit(h.t, err, code, says...)
}

func requireExit(t *testing.T, err error, code int, says ...string) {
	t.Helper()
	var exit *ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, code, exit.Code, "%v", err)
	for _, s := range says {
		require.ErrorContains(t, err, s)
	}
}

// run starts and stops the bookie cleanly, with data written in between, as a life of some length would.
func (h *home) run() {
	i := h.mustOpen()
	require.NoError(h.t, i.CloseClean(context.Background()))
}

func (h *home) empty(dir string) {
	h.t.Helper()
	removeTree(h.t, h.fs, dir)
	require.NoError(h.t, h.fs.MkdirAll(dir))
}

func removeTree(t *testing.T, fsys vfs.FS, dir string) {
	names, err := fsys.List(dir)
	require.NoError(t, err)
	for _, n := range names {
		p := filepath.Join(dir, n)
		info, err := fsys.Stat(p)
		require.NoError(t, err)
		if info.Dir {
			removeTree(t, fsys, p)
		} else {
			require.NoError(t, fsys.Remove(p))
		}
	}
	require.NoError(t, fsys.Remove(dir))
}

// snapshot returns the files of a directory; restore puts them back.
func (h *home) snapshot(dir string) map[string][]byte {
	out := map[string][]byte{}
	names, err := h.fs.List(filepath.Join(dir, currentName))
	require.NoError(h.t, err)
	for _, n := range names {
		b, err := vfs.ReadFile(h.fs, filepath.Join(dir, currentName, n))
		require.NoError(h.t, err)
		out[n] = b
	}
	return out
}

func (h *home) restore(dir string, files map[string][]byte) {
	h.empty(dir)
	require.NoError(h.t, h.fs.MkdirAll(filepath.Join(dir, currentName)))
	for n, b := range files {
		require.NoError(h.t, vfs.WriteFileAtomic(h.fs, filepath.Join(dir, currentName, n), b))
	}
}

// name creates a ledger in the given state that names the bookies.
func (h *home) name(id ledger.ID, state ledger.State, bookies ...ledger.BookieID) {
	m := &ledger.Metadata{
		FormatVersion: 3, Ensemble: len(bookies), WriteQuorum: len(bookies), AckQuorum: 1, State: state, LastEntry: -1,
		Fragments: []ledger.Fragment{{Bookies: bookies}}, Digest: ledger.DigestCRC32C, HasPassword: true,
	}
	_, err := h.o.Views.Ledgers.Create(context.Background(), id, m)
	require.NoError(h.t, err)
}

func (h *home) record() *metadata.Incarnation {
	r, _, err := h.o.Views.Incarnations.Get(context.Background(), h.o.ID)
	require.NoError(h.t, err)
	return r
}

func ledgersOf(t *testing.T, i *Identity) []ledger.ID {
	ids := []ledger.ID{}
	for r, err := range i.Ledgers(context.Background()) {
		require.NoError(t, err)
		ids = append(ids, r.ID)
	}
	return ids
}

func TestNewBookieLife(t *testing.T) {
	ctx := context.Background()
	h := newHome(t)
	h.refused(ExitConfig, "/data/j1 does not exist", "node init")
	r := h.mustPrepare()
	require.True(t, r.New)
	require.Equal(t, uint64(1), r.Number)
	require.Equal(t, h.allDirs(), r.Created)
	require.Equal(t, h.allDirs(), r.Stamped)

	// Java's cookie, byte for byte, in every directory and in the store.
	want := "5\n" +
		"bookieHost: \"b1:3181\"\n" +
		"journalDir: \"/data/j1\"\n" +
		"ledgerDirs: \"3\\t/data/l1\\t/data/l2\\t/data/l3\"\n" +
		"instanceId: \"" + r.Instance + "\"\n" +
		"indexDirs: \"3\\t/data/i1\\t/data/i2\\t/data/i3\"\n"
	for _, d := range h.allDirs() {
		b, err := vfs.ReadFile(h.fs, d+"/current/VERSION")
		require.NoError(t, err)
		require.Equal(t, want, string(b))
	}
	b, _, err := h.o.Views.Cookies.Get(ctx, "b1:3181")
	require.NoError(t, err)
	require.Equal(t, want, string(b))

	again := h.mustPrepare()
	require.False(t, again.New)
	require.Empty(t, again.Created)
	require.Empty(t, again.Stamped)
	require.Equal(t, uint64(1), again.Number)

	i := h.mustOpen()
	require.False(t, i.New())
	require.False(t, i.Unclean())
	require.False(t, i.VerifyAdds())
	require.Empty(t, i.Loss())
	require.Equal(t, r.Instance, i.Instance())
	first := i.Epoch()
	require.Greater(t, first, uint64(1))
	info := i.ServiceInfo(metadata.Endpoint{ID: "bookie"})
	inc, epoch, ok := info.Incarnation()
	require.True(t, ok)
	require.Equal(t, h.record().ID, inc)
	require.Equal(t, first, epoch)

	// In use: neither a second start nor a preparation gets in.
	h.refused(ExitLocked, "in use by another process")
	_, err = h.prepare(false)
	requireExit(t, err, ExitLocked)

	require.NoError(t, i.CloseClean(ctx))
	require.NoError(t, i.CloseClean(ctx), "twice")
	for id, d := range h.record().Directories {
		require.Equal(t, first+1, d.Epoch, "directory %s", id)
		require.Equal(t, uint64(1), d.Incarnation)
	}
	i = h.mustOpen()
	require.False(t, i.Unclean())
	require.Equal(t, first+2, i.Epoch())

	// A stop that was none leaves its marker.
	require.NoError(t, i.Close())
	i = h.mustOpen()
	require.True(t, i.Unclean())
	require.True(t, i.SameBoot())
	require.Empty(t, i.Loss(), "with a synced journal nothing is lost by that")
	require.NoError(t, i.Close())
	h.o.BootID = "boot-2"
	i = h.mustOpen()
	require.True(t, i.Unclean())
	require.False(t, i.SameBoot())
}

func TestStandalonePreparesOnce(t *testing.T) {
	h := newHome(t)
	h.o.Prepare = true
	i := h.mustOpen()
	require.True(t, i.New())
	require.NoError(t, i.CloseClean(context.Background()))
	i = h.mustOpen()
	require.False(t, i.New())
	require.NoError(t, i.CloseClean(context.Background()))

	// Not even then is a directory that went missing taken for a new one.
	h.empty("/data/l2")
	h.refused(ExitLocked, "/data/l2", "--accept-loss")
}

// TestStandaloneFinishesItsPreparation cuts the preparation off at each write to the store: the next start goes on.
func TestStandaloneFinishesItsPreparation(t *testing.T) {
	for nth := 1; ; nth++ {
		h := newHome(t)
		h.o.Prepare = true
		hit := storeFaults(h.store, nth, memmeta.Fault{Err: errors.New("unreachable")})
		first, err := h.open()
		h.store.SetFaults(nil)
		if !*hit {
			require.Greater(t, nth, 2)
			require.NoError(t, err)
			require.NoError(t, first.Close())
			return
		}
		require.Nil(t, first, "write %d", nth)
		i := h.mustOpen()
		require.False(t, i.VerifyAdds(), "write %d", nth)
		require.NoError(t, i.CloseClean(context.Background()))
	}
}

func TestC49OneLedgerDiskWiped(t *testing.T) {
	ctx := context.Background()
	h := newHome(t)
	h.mustPrepare()
	h.run()
	h.name(1, ledger.StateOpen, "b1:3181", "b2:3181")
	h.name(2, ledger.StateOpen, "b2:3181", "b3:3181")
	h.name(3, ledger.StateInRecovery, "b3:3181", "b1:3181")
	h.name(1<<40, ledger.StateClosed, "b1:3181", "b3:3181")

	h.empty("/data/l2")
	h.refused(ExitLocked, "ledger directory /data/l2 is not prepared", "mounted", "node init --accept-loss")
	_, err := h.prepare(false)
	requireExit(t, err, ExitLocked, "/data/l2", "--accept-loss")

	r, err := h.prepare(true)
	require.NoError(t, err)
	require.Equal(t, []string{"/data/l2"}, r.Stamped)
	require.Equal(t, uint64(1), r.Number)
	require.NotEmpty(t, r.Loss)

	i := h.mustOpen()
	require.NotEmpty(t, i.Loss())
	require.True(t, i.VerifyAdds())
	require.Equal(t, []ledger.ID{1, 3, 1 << 40}, ledgersOf(t, i))
	// Until the ledgers are in limbo every start says so again.
	require.NoError(t, i.Close())
	i = h.mustOpen()
	require.NotEmpty(t, i.Loss())
	before := i.Epoch()
	require.NoError(t, i.LossHandled(ctx))
	require.Greater(t, i.Epoch(), before)
	require.Empty(t, i.Loss())
	require.NoError(t, i.CloseClean(ctx))

	i = h.mustOpen()
	require.Empty(t, i.Loss())
	require.True(t, i.VerifyAdds(), "for ever")
	require.Equal(t, uint64(1), i.Number())
	require.Len(t, h.record().Directories, len(h.allDirs()), "the lost directory is forgotten")
}

func TestC49AllDisksWiped(t *testing.T) {
	h := newHome(t)
	h.mustPrepare()
	h.run()
	h.name(7, ledger.StateOpen, "b1:3181", "b2:3181")
	for _, d := range h.allDirs() {
		h.empty(d)
	}
	h.refused(ExitLocked, "not prepared", "cluster init", "node init")
	_, err := h.prepare(false)
	requireExit(t, err, ExitLocked, "exists already")

	r, err := h.prepare(true)
	require.NoError(t, err)
	require.Equal(t, uint64(2), r.Number)
	i := h.mustOpen()
	require.NotEmpty(t, i.Loss())
	require.True(t, i.VerifyAdds())
	require.Equal(t, uint64(2), i.Number())
	require.Equal(t, []ledger.ID{7}, ledgersOf(t, i))
}

func TestC49MetadataRecordRemoved(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		what string
		key  func(h *home) string
		says string
	}{
		{"cookie", func(h *home) string { return h.o.Views.Cookies.Key(h.o.ID) }, "no cookie"},
		{"incarnation", func(h *home) string { return h.o.Views.Incarnations.Key(h.o.ID) }, "no incarnation record"},
		{"instance id", func(*home) string { return "/ledgers/INSTANCEID" }, "no cluster"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			h := newHome(t)
			h.mustPrepare()
			h.run()
			require.NoError(t, h.store.Delete(ctx, tc.key(h), metadata.Any))
			h.refused(ExitIdentity, tc.says)
			for _, accept := range []bool{false, true} {
				_, err := h.prepare(accept)
				require.Error(t, err, "preparing does not help either")
			}
			h.refused(ExitIdentity, tc.says)
		})
	}
}

func TestC49OldSnapshotOfADisk(t *testing.T) {
	for _, which := range [][]string{{"/data/l2"}, {"/data/j1"}, nil} {
		t.Run(fmt.Sprint(which), func(t *testing.T) {
			h := newHome(t)
			if which == nil {
				which = h.allDirs()
			}
			h.mustPrepare()
			h.run()
			i := h.mustOpen() // the snapshot is taken of a running bookie
			old := map[string]map[string][]byte{}
			for _, d := range which {
				old[d] = h.snapshot(d)
			}
			require.NoError(t, i.CloseClean(context.Background()))
			for _, d := range which {
				h.restore(d, old[d])
			}
			h.refused(ExitIdentity, which[0], "old copy", "Put the current disk back")
			_, err := h.prepare(true)
			requireExit(t, err, ExitIdentity, "old copy")

			// The way out that the message names.
			for _, d := range which {
				h.empty(d)
			}
			_, err = h.prepare(true)
			require.NoError(t, err)
			require.NotEmpty(t, h.mustOpen().Loss())
		})
	}
}

func TestC49TwoProcessesWithCopiedDisks(t *testing.T) {
	h := newHome(t)
	h.mustPrepare()
	h.run()
	twin := *h
	twin.fs = h.fs.Clone()
	a := h.mustOpen()
	// The copy is older now, whichever of them starts second.
	twin.refused(ExitIdentity, "old copy")
	require.NoError(t, a.Close())

	// Copied after the last start, both pass the look at the epochs; the one that comes second finds the record taken.
	later := *h
	later.fs = h.fs.Clone()
	b := later.mustOpen()
	h.refused(ExitIdentity, "old copy")
	require.NoError(t, b.CloseClean(context.Background()))
}

func TestIdentityRefusals(t *testing.T) {
	ctx := context.Background()
	for name, tc := range map[string]struct {
		do   func(h *home)
		code int
		says string
	}{
		"missing directory": {func(h *home) { removeTree(h.t, h.fs, "/data/l1") }, ExitConfig, "/data/l1 does not exist"},
		"a file":            {func(h *home) { h.o.LedgerDirs[0] = "/data/l1/current/VERSION" }, ExitConfig, "is a file"},
		"twice":             {func(h *home) { h.o.LedgerDirs[0] = "/data/l2" }, ExitConfig, "named twice"},
		"no journal":        {func(h *home) { h.o.JournalDirs = nil }, ExitConfig, "journal_dirs"},
		"bad id":            {func(h *home) { h.o.ID = "a/b" }, ExitConfig, "not allowed"},
		"other id":          {func(h *home) { h.o.ID = "b2:3181" }, ExitIdentity, "belongs to bookie b1:3181"},
		"other cluster": {func(h *home) {
			_, err := h.store.Put(ctx, "/ledgers/INSTANCEID", []byte("6ba7b810-9dad-11d1-80b4-00c04fd430c8"), metadata.Any)
			require.NoError(h.t, err)
		}, ExitIdentity, "6ba7b810"},
		"order of ledgers":  {func(h *home) { slices.Reverse(h.o.LedgerDirs) }, ExitIdentity, "ledger directories are"},
		"journal as ledger": {func(h *home) { h.o.JournalDirs[0], h.o.LedgerDirs[0] = h.o.LedgerDirs[0], h.o.JournalDirs[0] }, ExitIdentity, "was prepared as"},
		"one left out":      {func(h *home) { h.o.LedgerDirs, h.o.IndexDirs = h.o.LedgerDirs[:2], h.o.IndexDirs[:2] }, ExitIdentity, "ledger directories are"},
		"a copy":            {func(h *home) { h.restore("/data/l2", h.snapshot("/data/l1")) }, ExitIdentity, "is a copy of"},
		"foreign cookie": {func(h *home) {
			require.NoError(h.t, vfs.WriteFileAtomic(h.fs, "/data/l1/current/VERSION", []byte("5\nbookieHost: \"x:1\"\njournalDir: \"/a\"\nledgerDirs: \"1\\t/b\"\n")))
		}, ExitIdentity, `bookie id is "x:1"`},
		"damaged cookie": {func(h *home) {
			require.NoError(h.t, vfs.WriteFileAtomic(h.fs, "/data/l1/current/VERSION", []byte("5\nbookie")))
		}, ExitIdentity, "corrupt cookie in /data/l1/current/VERSION"},
		"cookie gone": {func(h *home) { require.NoError(h.t, h.fs.Remove("/data/l1/current/VERSION")) }, ExitLocked, "run `bindery node init` again"},
		"damaged format": {func(h *home) {
			b := h.snapshot("/data/l1")[formatName]
			b[30] ^= 1
			require.NoError(h.t, vfs.WriteFileAtomic(h.fs, "/data/l1/current/FORMAT", b))
		}, ExitIdentity, "corrupt directory format in /data/l1/current/FORMAT"},
		"newer format": {func(h *home) {
			require.NoError(h.t, vfs.WriteFileAtomic(h.fs, "/data/l1/current/FORMAT", []byte("bindery directory format 2\nwhatever\n")))
		}, ExitFormat, "newer version"},
		"apache": {func(h *home) {
			h.empty("/data/l1")
			require.NoError(h.t, h.fs.MkdirAll("/data/l1/current"))
			require.NoError(h.t, vfs.WriteFileAtomic(h.fs, "/data/l1/current/VERSION", []byte("4\n")))
		}, ExitFormat, "bindery migrate"},
		"newer record": {func(h *home) {
			_, err := h.store.Put(ctx, h.o.Views.Incarnations.Key(h.o.ID), []byte(`{"format": 2}`), metadata.Any)
			require.NoError(h.t, err)
		}, ExitFormat, "newer version"},
		"store down": {func(h *home) {
			h.store.SetFaults(func(memmeta.Op) memmeta.Fault { return memmeta.Fault{Err: errors.New("connection refused")} })
		}, ExitRegistration, "unavailable"},
		"created again elsewhere": {func(h *home) {
			r := h.record()
			r.Number, r.ID = 2, "other"
			_, err := h.o.Views.Incarnations.Put(ctx, h.o.ID, r, metadata.Any)
			require.NoError(h.t, err)
		}, ExitIdentity, "created again elsewhere"},
		"directory not in the record": {func(h *home) {
			r := h.record()
			for id, d := range r.Directories {
				if d.Path == "/data/l3" {
					delete(r.Directories, id)
				}
			}
			_, err := h.o.Views.Incarnations.Put(ctx, h.o.ID, r, metadata.Any)
			require.NoError(h.t, err)
		}, ExitIdentity, "not in the incarnation record"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			h.mustPrepare()
			h.run()
			tc.do(h)
			h.refused(tc.code, tc.says)
			h.refused(tc.code, tc.says) // and the refusal itself changed nothing
		})
	}
}

func TestPrepareRefusals(t *testing.T) {
	ctx := context.Background()
	t.Run("no cluster", func(t *testing.T) {
		h := newHome(t)
		require.NoError(t, h.store.Delete(ctx, "/ledgers/INSTANCEID", metadata.Any))
		_, err := h.prepare(false)
		requireExit(t, err, ExitLocked, "cluster init")
		_, err = h.fs.Stat("/data/j1")
		require.Error(t, err, "nothing half made")
	})
	t.Run("not empty", func(t *testing.T) {
		h := newHome(t)
		require.NoError(t, h.fs.MkdirAll("/data/l2/photos"))
		require.NoError(t, h.fs.MkdirAll("/data/l3/lost+found"))
		_, err := h.prepare(true)
		requireExit(t, err, ExitLocked, "/data/l2 is not empty: it holds photos")
		removeTree(t, h.fs, "/data/l2")
		_, err = h.prepare(false)
		require.NoError(t, err)
	})
	t.Run("named by ledgers", func(t *testing.T) {
		h := newHome(t)
		h.name(5, ledger.StateClosed, "b0:3181", "b1:3181")
		_, err := h.prepare(false)
		requireExit(t, err, ExitIdentity, "1 ledgers name bookie b1:3181 (the first is 5)", "--accept-loss")
		r, err := h.prepare(true)
		require.NoError(t, err)
		require.Equal(t, 1, r.Named)
		require.Equal(t, uint64(2), r.Number, "it is not the first of its id")
		i := h.mustOpen()
		require.True(t, i.VerifyAdds())
		require.NotEmpty(t, i.Loss())
		require.Equal(t, []ledger.ID{5}, ledgersOf(t, i))
	})
	t.Run("decommissioned", func(t *testing.T) {
		h := newHome(t)
		h.mustPrepare()
		h.run()
		require.NoError(t, h.store.Delete(ctx, h.o.Views.Cookies.Key(h.o.ID), metadata.Any))
		_, err := h.prepare(false)
		requireExit(t, err, ExitIdentity, "decommissioned", "empty the directories")
		for _, d := range h.allDirs() {
			h.empty(d)
		}
		r, err := h.prepare(false)
		require.NoError(t, err)
		require.Equal(t, uint64(2), r.Number)
		i := h.mustOpen()
		require.True(t, i.VerifyAdds(), "S32: an id that was used before")
		require.Empty(t, i.Loss())
	})
}

// TestPrepareInterrupted cuts the power at every change of the disk, and then lets every answer of the store fail in every
// way. The next run of the same command has to finish the job, as if nothing had happened.
func TestPrepareInterrupted(t *testing.T) {
	for n := int64(1); ; n++ {
		h := newHome(t)
		h.fs.CrashAt(n)
		_, err := h.prepare(false)
		if err == nil {
			require.Greater(t, n, int64(50))
			break
		}
		for _, keep := range []float64{0, 0.5, 1} {
			again := *h
			again.fs = h.fs.CrashClone(uint64(n), keep)
			again.o.Views = h.o.Views
			if keep != 1 {
				again.store = memmeta.Open("") // each disk image gets a cluster of its own that has seen nothing
				again.o.Views = metadata.NewViews(again.store, "/ledgers")
				id, ierr := h.o.Views.Cluster.InstanceID(context.Background())
				require.NoError(t, ierr)
				_, ierr = again.store.Put(context.Background(), "/ledgers/INSTANCEID", []byte(id), metadata.Absent)
				require.NoError(t, ierr)
			}
			r, err := again.prepare(false)
			require.NoError(t, err, "after a crash at change %d", n)
			require.Equal(t, uint64(1), r.Number)
			i := again.mustOpen()
			require.False(t, i.VerifyAdds())
			require.NoError(t, i.CloseClean(context.Background()))
			if keep != 1 {
				require.NoError(t, again.store.Close())
			}
		}
	}
}

// storeFaults makes the nth write to the store fail in one way.
func storeFaults(s *memmeta.Store, nth int, f memmeta.Fault) (hit *bool) {
	hit = new(bool)
	s.SetFaults(func(op memmeta.Op) memmeta.Fault {
		if op.Name != "txn" {
			return memmeta.Fault{}
		}
		if nth--; nth == 0 {
			*hit = true
			return f
		}
		return memmeta.Fault{}
	})
	return hit
}

func TestIdentityStoreAnswersLost(t *testing.T) {
	ctx := context.Background()
	for _, outcome := range []memmeta.Outcome{memmeta.Applied, memmeta.Dropped, memmeta.Late} {
		for nth := 1; ; nth++ {
			h := newHome(t)
			hit := storeFaults(h.store, nth, memmeta.Fault{Outcome: outcome})
			_, err := h.prepare(false)
			if err != nil { // a lost answer may fail the command; the next run finishes
				h.store.Tree().LandLate()
				_, err = h.prepare(false)
			}
			require.NoError(t, err, "outcome %d of write %d", outcome, nth)
			i, err := h.open()
			if err == nil {
				err = i.RecordLoss(ctx, "test")
			}
			if err == nil {
				err = i.LossHandled(ctx)
			}
			if err == nil {
				err = i.CloseClean(ctx)
			}
			require.NoError(t, err, "outcome %d of write %d", outcome, nth)
			h.store.Tree().LandLate() // far too late: at a version that is gone
			h.run()
			if !*hit {
				break
			}
		}
	}
}

// TestIdentityCrashAnywhere cuts the power at every change of a start, of recording a loss and of a clean stop. The bookie
// must start again each time, with a higher epoch, and never forget a loss that was recorded.
func TestIdentityCrashAnywhere(t *testing.T) {
	ctx := context.Background()
	for n := int64(1); ; n++ {
		h := newHome(t)
		h.mustPrepare()
		h.run()
		h.fs.CrashAt(n)
		recorded := false
		var epoch uint64
		i, err := h.open()
		if err == nil {
			epoch = i.Epoch()
			if err = i.RecordLoss(ctx, "a torn journal"); err == nil {
				recorded, epoch = true, i.Epoch()
				err = i.CloseClean(ctx)
			}
		}
		if err == nil {
			require.Greater(t, n, int64(100))
			break
		}
		for seed := range uint64(3) {
			again := *h
			again.fs = h.fs.CrashClone(seed, float64(seed)/2)
			j := again.mustOpen()
			require.Greater(t, j.Epoch(), epoch)
			if recorded {
				require.NotEmpty(t, j.Loss(), "change %d", n)
				require.True(t, j.VerifyAdds())
			}
			require.NoError(t, j.Close())
			// The store has seen this start; the other images are now its past, which is tested elsewhere.
			break
		}
	}
}

func TestRecordLoss(t *testing.T) {
	ctx := context.Background()
	h := newHome(t)
	h.mustPrepare()
	i := h.mustOpen()
	before := i.Epoch()
	check, err := h.o.Views.Incarnations.Check(ctx, h.o.ID)
	require.NoError(t, err)
	require.NoError(t, i.RecordLoss(ctx, "group 17 of journal /data/j1\ncannot be walked"))
	require.Equal(t, []string{"group 17 of journal /data/j1 cannot be walked"}, i.Loss())
	require.Greater(t, i.Epoch(), before)
	require.True(t, i.VerifyAdds())
	// S37: whoever named the bookie in memory before the loss cannot publish it now.
	h.name(9, ledger.StateOpen, "b2:3181")
	m, v, err := h.o.Views.Ledgers.Read(ctx, 9)
	require.NoError(t, err)
	m.Fragments[0].Bookies[0] = h.o.ID
	_, err = h.o.Views.Ledgers.Write(ctx, 9, m, v, check)
	require.ErrorIs(t, err, metadata.ErrVersion)

	require.NoError(t, i.Close())
	i = h.mustOpen()
	require.NotEmpty(t, i.Loss())
	require.NoError(t, i.LossHandled(ctx))
	require.NoError(t, i.CloseClean(ctx))
	i = h.mustOpen()
	require.Empty(t, i.Loss())
	require.True(t, i.VerifyAdds())
}

func TestStopWithoutStore(t *testing.T) {
	ctx := context.Background()
	h := newHome(t)
	h.mustPrepare()
	i := h.mustOpen()
	epoch := i.Epoch()
	h.store.SetFaults(func(memmeta.Op) memmeta.Fault { return memmeta.Fault{Err: errors.New("down")} })
	err := i.CloseClean(ctx)
	requireExit(t, err, ExitRegistration)
	h.store.SetFaults(nil)
	i = h.mustOpen()
	require.False(t, i.Unclean(), "the data was on disk all the same")
	require.Equal(t, epoch+2, i.Epoch())
}

func TestExpansion(t *testing.T) {
	ctx := context.Background()
	h := newHome(t)
	h.mustPrepare()
	h.run()
	require.NoError(t, h.fs.MkdirAll("/data/l4"))
	require.NoError(t, h.fs.MkdirAll("/data/i4"))
	h.o.LedgerDirs = append(h.o.LedgerDirs, "/data/l4")
	h.o.IndexDirs = append(h.o.IndexDirs, "/data/i4")
	h.refused(ExitLocked, "/data/l4", "storage.allow_expansion")

	h.o.AllowExpansion = true
	require.NoError(t, h.fs.MkdirAll("/data/l4/junk"))
	h.refused(ExitLocked, "/data/l4", "not empty")
	require.NoError(t, h.fs.Remove("/data/l4/junk"))
	i := h.mustOpen()
	require.Empty(t, i.Loss())
	require.False(t, i.VerifyAdds())
	require.Len(t, h.record().Directories, 9)
	require.NoError(t, i.CloseClean(ctx))
	h.o.AllowExpansion = false
	h.run()

	h.o.AllowExpansion = true
	h.o.JournalDirs = append(h.o.JournalDirs, "/data/j2")
	require.NoError(t, h.fs.MkdirAll("/data/j2"))
	h.refused(ExitIdentity, "journal directories are")
}

func TestExpansionInterrupted(t *testing.T) {
	for n := int64(1); ; n++ {
		h := newHome(t)
		h.mustPrepare()
		h.run()
		require.NoError(t, h.fs.MkdirAll("/data/l4"))
		require.NoError(t, h.fs.SyncDir("/data"))
		h.o.LedgerDirs, h.o.IndexDirs = append(h.o.LedgerDirs, "/data/l4"), append(h.o.IndexDirs, "/data/i1x")
		require.NoError(t, h.fs.MkdirAll("/data/i1x"))
		require.NoError(t, h.fs.SyncDir("/data"))
		h.o.AllowExpansion = true
		h.fs.CrashAt(n)
		if i, err := h.open(); err == nil {
			require.NoError(t, i.Close())
			require.Greater(t, n, int64(30))
			break
		}
		again := *h
		again.fs = h.fs.CrashClone(uint64(n), 0.5)
		require.Empty(t, again.mustOpen().Loss())
	}
}

func TestOnePathForEverything(t *testing.T) {
	h := newHome(t)
	h.o.JournalDirs, h.o.LedgerDirs, h.o.IndexDirs = []string{"/data/b"}, []string{"/data/b"}, nil
	h.mustPrepare()
	i := h.mustOpen()
	require.Len(t, h.record().Directories, 1)
	for _, d := range h.record().Directories {
		require.Equal(t, "journal,ledger", d.Kinds)
	}
	require.NoError(t, i.CloseClean(context.Background()))
}

func TestGCPass(t *testing.T) {
	ctx := context.Background()
	h := newHome(t)
	h.mustPrepare()
	i := h.mustOpen()
	for want := uint64(1); want <= 3; want++ {
		n, err := i.BeginGCPass(ctx)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	require.NoError(t, i.Close())
	i = h.mustOpen()
	n, err := i.BeginGCPass(ctx)
	require.NoError(t, err)
	require.Equal(t, uint64(4), n)

	// The store comes back from a backup of an earlier day.
	_, err = h.o.Views.Incarnations.SetGCCounter(ctx, h.o.ID, 2, metadata.Any)
	require.NoError(t, err)
	for range 2 {
		_, err = i.BeginGCPass(ctx)
		require.ErrorIs(t, err, ErrStoreRolledBack)
	}
	require.NoError(t, i.AcceptRollback(ctx))
	require.NoError(t, i.AcceptRollback(ctx))
	n, err = i.BeginGCPass(ctx)
	require.NoError(t, err)
	require.Equal(t, uint64(5), n)

	// It has lost the counter whole.
	require.NoError(t, h.store.Delete(ctx, h.o.Views.Incarnations.GCKey(h.o.ID), metadata.Any))
	_, err = i.BeginGCPass(ctx)
	require.ErrorIs(t, err, ErrStoreRolledBack)
	require.NoError(t, i.AcceptRollback(ctx))

	// One damaged mirror is outvoted, all damaged is damage.
	require.NoError(t, vfs.WriteFileAtomic(h.fs, "/data/l1/current/GC", []byte("gc 1 1\n")))
	_, err = i.BeginGCPass(ctx)
	require.NoError(t, err)
	for _, d := range h.allDirs() {
		require.NoError(t, vfs.WriteFileAtomic(h.fs, d+"/current/GC", []byte("gc 1 1\n")))
	}
	_, err = i.BeginGCPass(ctx)
	require.ErrorContains(t, err, "corrupt gc counter")
}

// TestGCPassInterrupted kills the process at every change of the disk: that alone is no rollback.
func TestGCPassInterrupted(t *testing.T) {
	ctx := context.Background()
	for n := int64(1); ; n++ {
		h := newHome(t)
		h.mustPrepare()
		i := h.mustOpen()
		_, err := i.BeginGCPass(ctx)
		require.NoError(t, err)
		h.fs.CrashAt(n)
		_, err = i.BeginGCPass(ctx)
		if err == nil {
			require.Greater(t, n, int64(20))
			break
		}
		again := *h
		again.fs = h.fs.CrashClone(uint64(n), 0.5)
		j := again.mustOpen()
		next, err := j.BeginGCPass(ctx)
		require.NoError(t, err)
		require.GreaterOrEqual(t, next, uint64(2))
	}
	for _, outcome := range []memmeta.Outcome{memmeta.Applied, memmeta.Dropped, memmeta.Late} {
		h := newHome(t)
		h.mustPrepare()
		i := h.mustOpen()
		storeFaults(h.store, 1, memmeta.Fault{Outcome: outcome})
		next, err := i.BeginGCPass(ctx)
		require.NoError(t, err)
		require.Equal(t, uint64(1), next)
	}
}
