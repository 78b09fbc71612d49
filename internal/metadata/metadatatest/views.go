package metadatatest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
)

// Record returns a valid open record.
func Record(bookies ...ledger.BookieID) *ledger.Metadata {
	if len(bookies) == 0 {
		bookies = []ledger.BookieID{"b1:3181", "b2:3181", "b3:3181"}
	}
	return &ledger.Metadata{
		FormatVersion: 3, Ensemble: len(bookies), WriteQuorum: len(bookies), AckQuorum: (len(bookies) + 1) / 2,
		State: ledger.StateOpen, LastEntry: ledger.InvalidEntry,
		Fragments: []ledger.Fragment{{First: 0, Bookies: bookies}},
		Digest:    ledger.DigestCRC32C, Password: []byte("pw"), HasPassword: true,
	}
}

func testCluster(t *testing.T, c Cluster) {
	ctx, s, root := contextOf(t), open(t, c), freshDir()
	_, err := metadata.LoadViews(ctx, s, root)
	require.ErrorIs(t, err, metadata.ErrNotInitialized)

	// However many call at once, one cluster results and all agree on it.
	const clients = 4
	type result struct {
		id  string
		err error
	}
	results := make(chan result, clients)
	for range clients {
		other := open(t, c)
		go func() {
			id, err := metadata.NewCluster(other, root).Init(ctx)
			results <- result{id, err}
		}()
	}
	won, ids := 0, map[string]bool{}
	for range clients {
		r := <-results
		if r.err == nil {
			won++
		} else {
			require.ErrorIs(t, r.err, metadata.ErrInitialized)
		}
		ids[r.id] = true
	}
	require.Equal(t, 1, won)
	require.Len(t, ids, 1)

	v, err := metadata.LoadViews(ctx, s, root)
	require.NoError(t, err)
	id, err := v.Cluster.InstanceID(ctx)
	require.NoError(t, err)
	require.True(t, ids[id])
	layout, err := v.Cluster.Layout(ctx)
	require.NoError(t, err)
	require.Equal(t, metadata.DefaultLayout, layout)
	kv, err := s.Get(ctx, root+"/LAYOUT")
	require.NoError(t, err)
	require.Equal(t, "2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1", string(kv.Value))

	_, err = s.Put(ctx, root+"/LAYOUT", []byte("2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1"), kv.Version)
	require.NoError(t, err)
	_, err = metadata.LoadViews(ctx, s, root)
	require.ErrorIs(t, err, metadata.ErrLayout)
}

func testClusterFormat(t *testing.T, c Cluster) {
	ctx, s, root := contextOf(t), open(t, c), freshDir()
	v := metadata.NewViews(s, root)
	first, err := v.Cluster.Init(ctx)
	require.NoError(t, err)
	const ledgers = 250
	for range ledgers {
		id, err := v.Ledgers.NewID(ctx)
		require.NoError(t, err)
		_, err = v.Ledgers.Create(ctx, id, Record())
		require.NoError(t, err)
	}
	_, err = v.Ledgers.Create(ctx, 1<<40, Record())
	require.NoError(t, err)
	_, err = v.Cookies.Put(ctx, "b1:3181", []byte("5\n"), metadata.Absent)
	require.NoError(t, err)
	_, err = v.Incarnations.Put(ctx, "b1:3181", &metadata.Incarnation{Number: 1, ID: "x", Instance: first}, metadata.Absent)
	require.NoError(t, err)
	_, err = v.Bookies.Register(ctx, "b1:3181", metadata.ServiceInfo{}, false, time.Second)
	require.NoError(t, err)

	_, err = v.Cluster.Format(ctx)
	require.ErrorContains(t, err, "b1:3181")
	require.NoError(t, v.Bookies.Unregister(ctx, "b1:3181", session(t, s)))
	second, err := v.Cluster.Format(ctx)
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	ids, err := v.Ledgers.List(ctx, -1, 10)
	require.NoError(t, err)
	require.Empty(t, ids)
	cookies, err := v.Cookies.List(ctx)
	require.NoError(t, err)
	require.Empty(t, cookies)
	_, _, err = v.Incarnations.Get(ctx, "b1:3181")
	require.NoError(t, err, "an incarnation is never forgotten")
	id, err := v.Ledgers.NewID(ctx)
	require.NoError(t, err)
	require.GreaterOrEqual(t, id, ledger.ID(ledgers), "ids are never used twice")
}

func testLedgers(t *testing.T, c Cluster) {
	ctx, s := contextOf(t), open(t, c)
	l := metadata.NewLedgers(s, freshDir())
	_, _, err := l.Read(ctx, 7)
	require.ErrorIs(t, err, metadata.ErrNoLedger)
	require.NoError(t, l.Delete(ctx, 7, metadata.Any))

	m := Record()
	m.Custom = map[string][]byte{"application": []byte("test"), "empty": {}}
	v, err := l.Create(ctx, 7, m)
	require.NoError(t, err)
	require.True(t, m.HasCToken)
	got, gv, err := l.Read(ctx, 7)
	require.NoError(t, err)
	require.Equal(t, v, gv)
	require.Equal(t, m, got)
	_, err = l.Create(ctx, 7, Record())
	require.ErrorIs(t, err, metadata.ErrExists)

	got.State, got.LastEntry, got.Length = ledger.StateClosed, 41, 4200
	v2, err := l.Write(ctx, 7, got, v)
	require.NoError(t, err)
	_, err = l.Write(ctx, 7, got, v)
	require.ErrorIs(t, err, metadata.ErrVersion)
	require.NotErrorIs(t, err, metadata.ErrNoLedger)
	_, err = l.Write(ctx, 8, got, v)
	require.ErrorIs(t, err, metadata.ErrNoLedger)
	_, err = l.Write(ctx, 7, got, metadata.Any)
	require.Error(t, err, "a record is never overwritten blindly")

	// An extra condition guards the write and is told apart from the record's own version.
	_, err = l.Write(ctx, 7, got, v2, metadata.Check{Key: "/bindery/other", Version: 12345})
	var conflict *metadata.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, "/bindery/other", conflict.Key)
	require.NotErrorIs(t, err, metadata.ErrNoLedger)
	v3, err := l.Write(ctx, 7, got, v2, metadata.Check{Key: "/bindery/other", Version: metadata.Absent})
	require.NoError(t, err)

	// A record that no client can have written is refused before it is sent.
	bad := got.Clone()
	bad.Fragments[0].Bookies[0] = bad.Fragments[0].Bookies[1]
	_, err = l.Write(ctx, 7, bad, v3)
	require.ErrorIs(t, err, ledger.ErrBadMetadata)

	// Damage is damage, not absence.
	_, err = s.Put(ctx, l.Key(9), []byte("BookieMetadataFormatVersion\t3\ngarbage"), metadata.Absent)
	require.NoError(t, err)
	_, _, err = l.Read(ctx, 9)
	var damage *corrupt.Error
	require.ErrorAs(t, err, &damage)
	require.Equal(t, l.Key(9), damage.Path)

	require.ErrorIs(t, l.Delete(ctx, 7, v2), metadata.ErrVersion)
	require.NoError(t, l.Delete(ctx, 7, v3))
	require.NoError(t, l.Delete(ctx, 7, v3), "deleting twice")
	_, _, err = l.Read(ctx, 7)
	require.ErrorIs(t, err, metadata.ErrNoLedger)
}

func testLedgerListing(t *testing.T, c Cluster) {
	ctx, s, root := contextOf(t), open(t, c), freshDir()
	l := metadata.NewLedgers(s, root)
	ids, err := l.List(ctx, -1, 5)
	require.NoError(t, err)
	require.Empty(t, ids)

	// Both path shapes, their borders, and neighbours of theirs in the tree.
	want := []ledger.ID{0, 1, 42, 9999, 10000, 99999999, 100000000, 123456789, 2000000000, 2147483645, 2147483646,
		2147483647, 2147483648, 2199999999, 4294967301, 1000000000000000, 999999999999999999, 1000000000000000000, 9223372036854775807}
	for _, id := range want {
		bookie := ledger.BookieID("even:1")
		if id%2 != 0 {
			bookie = "odd:1"
		}
		_, err := l.Create(ctx, id, Record(bookie))
		require.NoError(t, err)
	}
	for _, k := range []string{"/LAYOUT", "/available", "/available/b", "/cookies/1", "/idgen", "/underreplication/ledgers/0000/x", "/00", "/00/0000", "/000/0000/0021"} {
		_, err := s.Put(ctx, root+k, nil, metadata.Any)
		require.NoError(t, err)
	}
	for page := 1; page <= len(want)+1; page += 3 {
		var got []ledger.ID
		for after := ledger.ID(-1); ; after = got[len(got)-1] {
			ids, err := l.List(ctx, after, page)
			require.NoError(t, err)
			if len(ids) == 0 {
				break
			}
			require.LessOrEqual(t, len(ids), page)
			got = append(got, ids...)
		}
		require.Equal(t, want, got, "page %d", page)
	}
	for i, after := range want {
		ids, err := l.List(ctx, after, len(want))
		require.NoError(t, err)
		require.Equal(t, append([]ledger.ID{}, want[i+1:]...), append([]ledger.ID{}, ids...), "after %d", after)
		ids, err = l.List(ctx, after-1, 1)
		require.NoError(t, err)
		require.Equal(t, want[i:i+1], ids)
	}
	var odd []ledger.ID
	for r, err := range l.Naming(ctx, "odd:1") {
		require.NoError(t, err)
		require.Equal(t, ledger.BookieID("odd:1"), r.Metadata.Fragments[0].Bookies[0])
		odd = append(odd, r.ID)
	}
	require.Equal(t, []ledger.ID{1, 9999, 99999999, 123456789, 2147483645, 2147483647, 2199999999, 4294967301, 999999999999999999, 9223372036854775807}, odd)

	// Anything that looks like a ledger and is none stops the listing: leaving it out would delete data.
	for _, bad := range []string{"/00/0000/L042", "/00/0000/x0042", "/22/0000/L0000", "/0x/0000/L0000", "/5", "/000/0000/0000/0000/L0007", "/00/0000/L0042/x"} {
		if c.Directories && bad == "/00/0000/L0042/x" {
			continue // nothing below a ledger's node is listed
		}
		_, err := s.Put(ctx, root+bad, nil, metadata.Absent)
		require.NoError(t, err)
		var failed error
		for _, err := range l.All(ctx) {
			failed = err
		}
		require.True(t, corrupt.Is(failed), "%s: %v", bad, failed)
		require.NoError(t, s.Delete(ctx, root+bad, metadata.Any))
	}
	_, err = s.Put(ctx, l.Key(43), []byte("junk"), metadata.Absent)
	require.NoError(t, err)
	var failed error
	for _, err := range l.Naming(ctx, "odd:1") {
		failed = err
	}
	require.True(t, corrupt.Is(failed), "a damaged record stops a listing that needs it: %v", failed)
}

func testLedgerWatch(t *testing.T, c Cluster) {
	ctx, s := contextOf(t), open(t, c)
	l := metadata.NewLedgers(s, freshDir())
	wctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ch := l.Watch(wctx, 3)
	take := func() metadata.LedgerEvent {
		select {
		case e := <-ch:
			return e
		case <-time.After(patience):
			t.Fatal("no event")
		}
		return metadata.LedgerEvent{}
	}
	require.Nil(t, take().Metadata, "absent at first")
	v, err := l.Create(ctx, 3, Record())
	require.NoError(t, err)
	e := take()
	require.Equal(t, v, e.Version)
	require.Equal(t, ledger.StateOpen, e.Metadata.State)
	m := e.Metadata
	m.State = ledger.StateInRecovery
	v, err = l.Write(ctx, 3, m, v)
	require.NoError(t, err)
	require.Equal(t, ledger.StateInRecovery, take().Metadata.State)
	v, err = s.Put(ctx, l.Key(3), []byte("junk"), v)
	require.NoError(t, err)
	require.True(t, corrupt.Is(take().Err))
	require.NoError(t, l.Delete(ctx, 3, v))
	require.Equal(t, metadata.LedgerEvent{}, take())
	cancel()
	for range ch {
	}
}

func testLedgerIDs(t *testing.T, c Cluster) {
	ctx, root := contextOf(t), freshDir()
	a, b := metadata.NewLedgers(open(t, c), root), metadata.NewLedgers(open(t, c), root)
	seen := map[ledger.ID]bool{}
	for i := range 20 {
		l := a
		if i%2 == 1 {
			l = b
		}
		id, err := l.NewID(ctx)
		require.NoError(t, err)
		require.False(t, seen[id])
		require.Less(t, id, ledger.ID(1000))
		seen[id] = true
		next, err := a.NextID(ctx)
		require.NoError(t, err)
		require.Greater(t, next, id)
	}
	next, err := b.NextID(ctx)
	require.NoError(t, err)
	require.NoError(t, a.AdvanceIDs(ctx, next-5), "it never goes back")
	require.NoError(t, a.AdvanceIDs(ctx, next+40))
	id, err := b.NewID(ctx)
	require.NoError(t, err)
	require.Equal(t, next+40, id, "not one more than it takes is drawn")

	// Too far to draw one by one: the long generator takes over, and its directories.
	require.NoError(t, a.AdvanceIDs(ctx, 1<<31-2))
	id, err = b.NewID(ctx)
	require.NoError(t, err)
	require.Less(t, id-1<<32, ledger.ID(2))
	for _, to := range []ledger.ID{1<<32 + 30, 3 << 32, 3<<32 + 7, 5<<32 + 1<<30} {
		require.NoError(t, b.AdvanceIDs(ctx, to))
		next, err := a.NextID(ctx)
		require.NoError(t, err)
		require.GreaterOrEqual(t, next, to)
		id, err := a.NewID(ctx)
		require.NoError(t, err)
		require.Equal(t, next, id)
	}
	require.Equal(t, int64(6), int64(must(t, a.NextID))>>32)
	require.Error(t, a.AdvanceIDs(ctx, 1<<63-1), "there is nothing beyond")
}

func must[T any](t *testing.T, f func(context.Context) (T, error)) T {
	t.Helper()
	v, err := f(contextOf(t))
	require.NoError(t, err)
	return v
}

// testLongLedgerIDs checks the generator that takes over when 31 bits are used up: its first id is 2^32 and up, and every
// client follows once its directory exists.
func testLongLedgerIDs(t *testing.T, c Cluster) {
	ctx, s, root := contextOf(t), open(t, c), freshDir()
	l := metadata.NewLedgers(s, root)
	id, err := l.NewID(ctx)
	require.NoError(t, err)
	require.Less(t, id, ledger.ID(10))
	_, err = s.Put(ctx, root+"/idgen-long", nil, metadata.Absent)
	require.NoError(t, err)
	last := ledger.ID(0)
	for range 5 {
		id, err := l.NewID(ctx)
		require.NoError(t, err)
		require.GreaterOrEqual(t, id, ledger.ID(1)<<32)
		require.Less(t, id, ledger.ID(2)<<32)
		require.Greater(t, id, last)
		last = id
	}
	// The largest directory counts.
	_, err = s.Put(ctx, root+"/idgen-long/HOB-0000000007", nil, metadata.Absent)
	require.NoError(t, err)
	id, err = metadata.NewLedgers(s, root).NewID(ctx)
	require.NoError(t, err)
	require.Equal(t, int64(7), int64(id)>>32)
	_, err = s.Put(ctx, root+"/idgen-long/HOB-x", nil, metadata.Absent)
	require.NoError(t, err)
	_, err = l.NewID(ctx)
	require.Error(t, err, "a directory that is none may hide a larger one")
}

func info(port int32) metadata.ServiceInfo {
	return metadata.ServiceInfo{Endpoints: []metadata.Endpoint{{ID: "bookie", Port: port, Host: "b1", Protocol: "bookie-rpc"}}}
}

func testBookies(t *testing.T, c Cluster) {
	ctx, root := contextOf(t), freshDir()
	s := open(t, c)
	b := metadata.NewBookies(s, root)
	wctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ch := metadata.NewBookies(open(t, c), root).Watch(wctx)
	// await takes sets from the watch until one looks as wanted; intermediate ones may be skipped or seen.
	await := func(want string) {
		deadline := time.After(patience)
		got := ""
		for {
			select {
			case set := <-ch:
				got = ""
				for _, bk := range set {
					got += fmt.Sprintf("%s:%v ", bk.ID, bk.ReadOnly)
				}
				if got == want {
					return
				}
			case <-deadline:
				t.Fatalf("bookies are %q, not %q", got, want)
			}
		}
	}
	await("")
	_, err := b.Resolve(ctx, "b1:3181")
	require.ErrorIs(t, err, metadata.ErrNotFound)

	reg, err := b.Register(ctx, "b1:3181", info(3181), false, time.Second)
	require.NoError(t, err)
	require.False(t, reg.ReadOnly)
	await("b1:3181:false ")
	got, err := b.Resolve(ctx, "b1:3181")
	require.NoError(t, err)
	require.Equal(t, info(3181), got.Info)
	require.Equal(t, reg.Session.ID(), got.Session)
	addr, err := got.Address()
	require.NoError(t, err)
	require.Equal(t, "b1:3181", addr)

	// A Java bookie of old registers with nothing in it.
	old := open(t, c)
	putEphemeral(t, old, root+"/available/b0:3182", "", session(t, old), metadata.Absent)
	await("b0:3182:false b1:3181:false ")
	got, err = b.Resolve(ctx, "b0:3182")
	require.NoError(t, err)
	addr, err = got.Address()
	require.NoError(t, err)
	require.Equal(t, "b0:3182", addr)

	// Over to read-only and back, with new info; registering again is harmless.
	_, err = b.Register(ctx, "b1:3181", info(4000), true, time.Second)
	require.NoError(t, err)
	_, err = b.Register(ctx, "b1:3181", info(4000), true, time.Second)
	require.NoError(t, err)
	await("b0:3182:false b1:3181:true ")
	for kind, want := range map[metadata.Kind][]ledger.BookieID{
		metadata.Writable: {"b0:3182"}, metadata.ReadOnly: {"b1:3181"}, metadata.AnyKind: {"b0:3182", "b1:3181"},
	} {
		list, err := b.List(ctx, kind)
		require.NoError(t, err)
		var ids []ledger.BookieID
		for _, bk := range list {
			ids = append(ids, bk.ID)
		}
		require.Equal(t, want, ids)
	}
	reg, err = b.Register(ctx, "b1:3181", info(4000), false, time.Second)
	require.NoError(t, err)
	await("b0:3182:false b1:3181:false ")

	// The end of the session ends the registration, and a new one restores it.
	c.EndSession(t, s, reg.Session)
	ended(t, reg.Session)
	await("b0:3182:false ")
	reg, err = b.Register(ctx, "b1:3181", info(4000), false, time.Second)
	require.NoError(t, err)
	await("b0:3182:false b1:3181:false ")
	require.NoError(t, b.Unregister(ctx, "b1:3181", reg.Session))
	require.NoError(t, b.Unregister(ctx, "b1:3181", reg.Session))
	await("b0:3182:false ")

	for _, id := range []ledger.BookieID{"", "a/b", "readonly", "READONLY", "b 1", "ü"} {
		_, err = b.Register(ctx, id, info(1), false, time.Second)
		require.Error(t, err, "id %q", id)
	}
	cancel()
	for range ch {
	}
}

func testRegisterConflict(t *testing.T, c Cluster) {
	ctx, root := contextOf(t), freshDir()
	s1, s2 := open(t, c), open(t, c)
	one, two := metadata.NewBookies(s1, root), metadata.NewBookies(s2, root)
	reg, err := one.Register(ctx, "b1:3181", info(1), true, time.Second)
	require.NoError(t, err)

	// A second live process under the same id is refused, whichever way it registers.
	for _, ro := range []bool{false, true} {
		_, err = two.Register(ctx, "b1:3181", info(2), ro, 200*time.Millisecond)
		require.ErrorIs(t, err, metadata.ErrRegistered)
	}
	require.NoError(t, two.Unregister(ctx, "b1:3181", session(t, s2)))
	_, err = one.Resolve(ctx, "b1:3181")
	require.NoError(t, err, "a foreign registration is left alone")

	// It waits for one that is about to go.
	done := make(chan error, 1)
	go func() {
		_, err := two.Register(ctx, "b1:3181", info(2), false, patience)
		done <- err
	}()
	c.EndSession(t, s1, reg.Session)
	require.NoError(t, <-done)
	got, err := one.Resolve(ctx, "b1:3181")
	require.NoError(t, err)
	require.Equal(t, session(t, s2).ID(), got.Session)

	// A process that raised the epoch of the same directories replaces its predecessor at once; the reverse does not work.
	start := func(epoch string) metadata.ServiceInfo {
		i := info(3)
		i.Properties = map[string]string{metadata.PropertyIncarnation: "inc", metadata.PropertyEpoch: epoch}
		return i
	}
	_, err = two.Register(ctx, "b2:3181", start("7"), false, time.Second)
	require.NoError(t, err)
	_, err = one.Register(ctx, "b2:3181", start("6"), false, 100*time.Millisecond)
	require.ErrorIs(t, err, metadata.ErrRegistered)
	_, err = one.Register(ctx, "b2:3181", start("8"), false, 0)
	require.NoError(t, err)
}

func testCookies(t *testing.T, c Cluster) {
	ctx, s := contextOf(t), open(t, c)
	ck := metadata.NewCookies(s, freshDir())
	_, _, err := ck.Get(ctx, "b1:3181")
	require.ErrorIs(t, err, metadata.ErrNotFound)
	v, err := ck.Put(ctx, "b1:3181", []byte("text"), metadata.Absent)
	require.NoError(t, err)
	_, err = ck.Put(ctx, "b1:3181", []byte("other"), metadata.Absent)
	require.ErrorIs(t, err, metadata.ErrExists)
	_, err = ck.Put(ctx, "b0:3181", nil, metadata.Absent)
	require.NoError(t, err)
	ids, err := ck.List(ctx)
	require.NoError(t, err)
	require.Equal(t, []ledger.BookieID{"b0:3181", "b1:3181"}, ids)
	text, gv, err := ck.Get(ctx, "b1:3181")
	require.NoError(t, err)
	require.Equal(t, "text", string(text))
	require.Equal(t, v, gv)
	require.ErrorIs(t, ck.Delete(ctx, "b1:3181", v+1), metadata.ErrVersion)
	require.NoError(t, ck.Delete(ctx, "b1:3181", v))
	require.ErrorIs(t, ck.Delete(ctx, "b1:3181", v), metadata.ErrNotFound)
}

func testIncarnations(t *testing.T, c Cluster) {
	ctx, s := contextOf(t), open(t, c)
	root := freshDir()
	inc, l := metadata.NewIncarnations(s, root), metadata.NewLedgers(s, root)
	require.Equal(t, "/bindery"+root+"/incarnations/b1:3181", inc.Key("b1:3181"))
	none, err := inc.Check(ctx, "b1:3181")
	require.NoError(t, err)
	r := &metadata.Incarnation{
		Number: 2, ID: "id", Instance: "inst", EverLost: true, Start: "s",
		Directories: map[string]metadata.Directory{"d1": {Incarnation: 1, Epoch: 9, Path: "/data/a b", Kinds: "journal"}},
	}
	v, err := inc.Put(ctx, "b1:3181", r, metadata.Absent)
	require.NoError(t, err)
	got, gv, err := inc.Get(ctx, "b1:3181")
	require.NoError(t, err)
	require.Equal(t, v, gv)
	require.Equal(t, r, got)

	// A publish that names the bookie fails if the bookie has changed since the condition was read.
	lv, err := l.Create(ctx, 1, Record())
	require.NoError(t, err)
	_, err = l.Write(ctx, 1, Record(), lv, none)
	require.ErrorIs(t, err, metadata.ErrVersion)
	now, err := inc.Check(ctx, "b1:3181")
	require.NoError(t, err)
	// A pass of garbage collection is no change of the bookie.
	n, gcv, err := inc.GCCounter(ctx, "b1:3181")
	require.NoError(t, err)
	require.Zero(t, n)
	gcv, err = inc.SetGCCounter(ctx, "b1:3181", 1, gcv)
	require.NoError(t, err)
	lv, err = l.Write(ctx, 1, Record(), lv, now)
	require.NoError(t, err)
	_, err = inc.Put(ctx, "b1:3181", r, v)
	require.NoError(t, err)
	_, err = l.Write(ctx, 1, Record(), lv, now)
	require.ErrorIs(t, err, metadata.ErrVersion)

	_, err = inc.SetGCCounter(ctx, "b1:3181", 5, gcv+1)
	require.ErrorIs(t, err, metadata.ErrVersion)
	_, err = inc.SetGCCounter(ctx, "b1:3181", 2, gcv)
	require.NoError(t, err)
	n, _, err = inc.GCCounter(ctx, "b1:3181")
	require.NoError(t, err)
	require.Equal(t, uint64(2), n)
}
