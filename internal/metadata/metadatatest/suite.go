package metadatatest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/metadata"
)

// Cluster is one store as its tests need it.
type Cluster struct {
	// Open returns a new client. The suite closes it.
	Open func(t *testing.T) metadata.Store
	// Directories says that the store keeps keys in directories: a key's parents exist, and one with keys below stays.
	Directories bool
	// EndSession makes the store forget a session, as if its owner had been silent for too long.
	EndSession func(t *testing.T, s metadata.Store, session metadata.Session)
}

// patience bounds every wait of the suite.
const patience = 3 * time.Minute

var dirs atomic.Int64

// freshDir returns a key prefix that no other test uses, since one store serves them all; nor is it another one's with digits added.
func freshDir() string { return fmt.Sprintf("/test-%d-", dirs.Add(1)) }

func contextOf(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func open(t *testing.T, c Cluster) metadata.Store {
	s := c.Open(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// Run runs the whole suite.
func Run(t *testing.T, c Cluster) {
	for name, fn := range map[string]func(*testing.T, Cluster){
		"Get":                 testGet,
		"PutConditions":       testPutConditions,
		"DeleteConditions":    testDeleteConditions,
		"Txn":                 testTxn,
		"TxnConflictNamesKey": testTxnConflict,
		"TxnOneWinner":        testTxnOneWinner,
		"Limits":              testLimits,
		"Directories":         testDirectories,
		"List":                testList,
		"ListBounds":          testListBounds,
		"Sequence":            testSequence,
		"Ephemeral":           testEphemeral,
		"EphemeralClose":      testEphemeralClose,
		"EphemeralMoves":      testEphemeralMoves,
		"SessionLost":         testSessionLost,
		"Watch":               testWatch,
		"WatchSlowReader":     testWatchSlowReader,
		"WatchEnds":           testWatchEnds,
		"Closed":              testClosed,
		"Cancelled":           testCancelled,
		"Cluster":             testCluster,
		"ClusterFormat":       testClusterFormat,
		"Ledgers":             testLedgers,
		"LedgerListing":       testLedgerListing,
		"LedgerWatch":         testLedgerWatch,
		"LedgerIDs":           testLedgerIDs,
		"LongLedgerIDs":       testLongLedgerIDs,
		"Bookies":             testBookies,
		"RegisterConflict":    testRegisterConflict,
		"Cookies":             testCookies,
		"Incarnations":        testIncarnations,
		"ReplicationMarks":    testReplicationMarks,
		"ReplicationLocks":    testReplicationLocks,
		"ReplicationSettings": testReplicationSettings,
		"Election":            testElection,
	} {
		t.Run(name, func(t *testing.T) { fn(t, c) })
	}
}

func testGet(t *testing.T, c Cluster) {
	ctx, s, d := contextOf(t), open(t, c), freshDir()
	_, err := s.Get(ctx, d+"/a")
	require.ErrorIs(t, err, metadata.ErrNotFound)

	for _, value := range []string{"", "x", "\x00\xff", strings.Repeat("v", metadata.ValueMax)} {
		v, err := s.Put(ctx, d+"/a", []byte(value), metadata.Any)
		require.NoError(t, err)
		kv, err := s.Get(ctx, d+"/a")
		require.NoError(t, err)
		require.Equal(t, d+"/a", kv.Key)
		require.Equal(t, value, string(kv.Value))
		require.Equal(t, v, kv.Version)
		require.Empty(t, kv.Session)
	}
	// Another client sees it at once.
	kv, err := open(t, c).Get(ctx, d+"/a")
	require.NoError(t, err)
	require.Len(t, kv.Value, metadata.ValueMax)
}

func testPutConditions(t *testing.T, c Cluster) {
	ctx, s, k := contextOf(t), open(t, c), freshDir()+"/k"

	_, err := s.Put(ctx, k, []byte("x"), 77)
	require.ErrorIs(t, err, metadata.ErrVersion)
	require.ErrorIs(t, err, metadata.ErrNotFound)

	v1, err := s.Put(ctx, k, []byte("1"), metadata.Absent)
	require.NoError(t, err)
	_, err = s.Put(ctx, k, []byte("2"), metadata.Absent)
	require.ErrorIs(t, err, metadata.ErrExists)
	require.ErrorIs(t, err, metadata.ErrVersion)
	require.NotErrorIs(t, err, metadata.ErrNotFound)

	v2, err := s.Put(ctx, k, []byte("2"), v1)
	require.NoError(t, err)
	require.NotEqual(t, v1, v2)
	_, err = s.Put(ctx, k, []byte("3"), v1)
	require.ErrorIs(t, err, metadata.ErrVersion)
	require.NotErrorIs(t, err, metadata.ErrExists)
	require.NotErrorIs(t, err, metadata.ErrNotFound)
	var conflict *metadata.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, metadata.ConflictError{Key: k, Want: v1, Have: v2}, *conflict)

	// The same value again is a new version.
	v3, err := s.Put(ctx, k, []byte("2"), v2)
	require.NoError(t, err)
	require.NotEqual(t, v2, v3)
	kv, err := s.Get(ctx, k)
	require.NoError(t, err)
	require.Equal(t, "2", string(kv.Value))
	require.Equal(t, v3, kv.Version)
}

func testDeleteConditions(t *testing.T, c Cluster) {
	ctx, s, k := contextOf(t), open(t, c), freshDir()+"/k"
	require.NoError(t, s.Delete(ctx, k, metadata.Any))
	require.ErrorIs(t, s.Delete(ctx, k, 5), metadata.ErrNotFound)

	v1, err := s.Put(ctx, k, nil, metadata.Absent)
	require.NoError(t, err)
	v2, err := s.Put(ctx, k, nil, v1)
	require.NoError(t, err)
	require.ErrorIs(t, s.Delete(ctx, k, v1), metadata.ErrVersion)
	require.NoError(t, s.Delete(ctx, k, v2))
	_, err = s.Get(ctx, k)
	require.ErrorIs(t, err, metadata.ErrNotFound)
	_, err = s.Put(ctx, k, nil, v2)
	require.ErrorIs(t, err, metadata.ErrNotFound)
	_, err = s.Put(ctx, k, nil, metadata.Absent)
	require.NoError(t, err)
	require.NoError(t, s.Delete(ctx, k, metadata.Any))
}

func testTxn(t *testing.T, c Cluster) {
	ctx, s, d := contextOf(t), open(t, c), freshDir()
	va, err := s.Put(ctx, d+"/a", []byte("a"), metadata.Absent)
	require.NoError(t, err)
	vb, err := s.Put(ctx, d+"/b", []byte("b"), metadata.Absent)
	require.NoError(t, err)

	r, err := s.Txn(ctx, metadata.Txn{
		Checks:  []metadata.Check{{Key: d + "/a", Version: va}, {Key: d + "/none", Version: metadata.Absent}},
		Puts:    []metadata.Put{{Key: d + "/c", Value: []byte("c"), Version: metadata.Absent}, {Key: d + "/d", Value: []byte("d"), Version: metadata.Any}},
		Deletes: []metadata.Delete{{Key: d + "/b", Version: vb}, {Key: d + "/gone", Version: metadata.Any}},
	})
	require.NoError(t, err)
	require.Len(t, r.Versions, 2)
	kvs, err := s.List(ctx, d+"/", "", 10)
	require.NoError(t, err)
	require.Equal(t, []string{d + "/a", d + "/c", d + "/d"}, keysOf(kvs))
	require.Equal(t, va, kvs[0].Version, "a check does not write")
	require.Equal(t, r.Versions, []metadata.Version{kvs[1].Version, kvs[2].Version})
}

func testTxnConflict(t *testing.T, c Cluster) {
	ctx, s, d := contextOf(t), open(t, c), freshDir()
	v := map[string]metadata.Version{}
	for _, k := range []string{"a", "b", "c"} {
		var err error
		v[k], err = s.Put(ctx, d+"/"+k, []byte("old"), metadata.Absent)
		require.NoError(t, err)
	}
	good := metadata.Txn{
		Checks:  []metadata.Check{{Key: d + "/a", Version: v["a"]}},
		Puts:    []metadata.Put{{Key: d + "/b", Value: []byte("new"), Version: v["b"]}},
		Deletes: []metadata.Delete{{Key: d + "/c", Version: v["c"]}},
	}
	for bad, x := range map[string]metadata.Txn{
		"a": {Checks: []metadata.Check{{Key: d + "/a", Version: v["a"] + 100}}, Puts: good.Puts, Deletes: good.Deletes},
		"b": {Checks: good.Checks, Puts: []metadata.Put{{Key: d + "/b", Version: v["b"] + 100}}, Deletes: good.Deletes},
		"c": {Checks: good.Checks, Puts: good.Puts, Deletes: []metadata.Delete{{Key: d + "/c", Version: v["c"] + 100}}},
	} {
		_, err := s.Txn(ctx, x)
		var conflict *metadata.ConflictError
		require.ErrorAs(t, err, &conflict)
		require.Equal(t, d+"/"+bad, conflict.Key)
		require.Equal(t, v[bad], conflict.Have)
	}
	kvs, err := s.List(ctx, d+"/", "", 10)
	require.NoError(t, err)
	require.Len(t, kvs, 3)
	for _, kv := range kvs {
		require.Equal(t, "old", string(kv.Value), "a refused transaction wrote %s", kv.Key)
	}
	_, err = s.Txn(ctx, good)
	require.NoError(t, err)
}

// testTxnOneWinner lets clients race to replace the same version: exactly one of each round may win.
func testTxnOneWinner(t *testing.T, c Cluster) {
	ctx, k := contextOf(t), freshDir()+"/counter"
	const clients, rounds = 4, 25
	seed := open(t, c)
	_, err := seed.Put(ctx, k, []byte{0}, metadata.Absent)
	require.NoError(t, err)
	errs := make(chan error, clients)
	for range clients {
		s := open(t, c)
		go func() {
			for won := 0; won < rounds; {
				kv, err := s.Get(ctx, k)
				if err != nil {
					errs <- err
					return
				}
				if _, err = s.Put(ctx, k, []byte{kv.Value[0] + 1}, kv.Version); err == nil {
					won++
				}
			}
			errs <- nil
		}()
	}
	for range clients {
		require.NoError(t, <-errs)
	}
	kv, err := seed.Get(ctx, k)
	require.NoError(t, err)
	require.Equal(t, byte(clients*rounds), kv.Value[0])
}

func testLimits(t *testing.T, c Cluster) {
	ctx, s, d := contextOf(t), open(t, c), freshDir()
	_, err := s.Put(ctx, d+"/v", make([]byte, metadata.ValueMax+1), metadata.Any)
	require.ErrorIs(t, err, metadata.ErrTooLarge)
	_, err = s.Put(ctx, d+"/"+strings.Repeat("k", metadata.KeyMax), nil, metadata.Any)
	require.ErrorIs(t, err, metadata.ErrTooLarge)
	_, err = s.Put(ctx, "", nil, metadata.Any)
	require.ErrorIs(t, err, metadata.ErrTooLarge)
	_, err = s.Txn(ctx, metadata.Txn{})
	require.ErrorIs(t, err, metadata.ErrTooLarge)
	_, err = s.Txn(ctx, metadata.Txn{Puts: []metadata.Put{{Key: d, Version: metadata.Any}}, Deletes: []metadata.Delete{{Key: d, Version: metadata.Any}}})
	require.ErrorIs(t, err, metadata.ErrBadTxn)

	var big metadata.Txn
	for i := range metadata.TxnMax {
		big.Puts = append(big.Puts, metadata.Put{Key: fmt.Sprintf("%s/%03d", d, i), Version: metadata.Absent})
	}
	_, err = s.Txn(ctx, big)
	require.NoError(t, err)
	big.Checks = append(big.Checks, metadata.Check{Key: d + "/x", Version: metadata.Absent})
	_, err = s.Txn(ctx, big)
	require.ErrorIs(t, err, metadata.ErrTooLarge)
}

func keysOf(kvs []metadata.KV) []string {
	out := make([]string, len(kvs))
	for i, kv := range kvs {
		out[i] = kv.Key
	}
	return out
}

func testList(t *testing.T, c Cluster) {
	ctx, s, d := contextOf(t), open(t, c), freshDir()
	var want []string
	for _, k := range []string{"/a", "/a/b", "/a0", "/b-c", "/b/c", "/b0", "/ÿ", "/ÿÿ"} {
		want = append(want, d+k)
		_, err := s.Put(ctx, d+k, []byte(k), metadata.Absent)
		require.NoError(t, err)
	}
	if c.Directories {
		want = slices.Insert(want, 3, d+"/b")
	}
	_, err := s.Put(ctx, d+"0", nil, metadata.Absent) // a neighbour of the prefix
	require.NoError(t, err)
	for page := 1; page <= len(want)+1; page++ {
		var got, gotKeys []string
		for after := ""; ; {
			kvs, err := s.List(ctx, d+"/", after, page)
			require.NoError(t, err)
			keys, err := s.Keys(ctx, d+"/", after, page)
			require.NoError(t, err)
			require.Equal(t, keysOf(kvs), append([]string{}, keys...))
			if len(kvs) == 0 {
				break
			}
			require.LessOrEqual(t, len(kvs), page)
			for _, kv := range kvs {
				if kv.Key != d+"/b" {
					require.Equal(t, kv.Key, d+string(kv.Value))
				}
				require.GreaterOrEqual(t, kv.Version, metadata.Version(0))
			}
			got, gotKeys = append(got, keysOf(kvs)...), append(gotKeys, keys...)
			after = got[len(got)-1]
		}
		require.Equal(t, want, got)
		require.Equal(t, want, gotKeys)
	}
}

func testListBounds(t *testing.T, c Cluster) {
	ctx, s, d := contextOf(t), open(t, c), freshDir()
	for _, k := range []string{"/m1", "/m2"} {
		_, err := s.Put(ctx, d+k, nil, metadata.Absent)
		require.NoError(t, err)
	}
	for _, tc := range []struct {
		prefix, after string
		limit, want   int
	}{
		{d + "/m", "", 10, 2},
		{d + "/m", d, 10, 2},             // a cursor before the prefix
		{d + "/m", d + "/m1", 10, 1},     // on a key
		{d + "/m", d + "/m1\x00", 10, 1}, // between keys
		{d + "/m", d + "/m2", 10, 0},     // on the last
		{d + "/m", d + "/n", 10, 0},      // beyond the prefix
		{d + "/x", "", 10, 0},
		{d + "/m", "", 0, 0},
	} {
		kvs, err := s.List(ctx, tc.prefix, tc.after, tc.limit)
		require.NoError(t, err)
		require.Len(t, kvs, tc.want, "prefix %s after %q", tc.prefix, tc.after)
	}
}

func testSequence(t *testing.T, c Cluster) {
	ctx, d := contextOf(t), freshDir()
	const clients, draws = 4, 20
	type result struct {
		ns  []int64
		err error
	}
	results := make(chan result, clients)
	watcher := open(t, c)
	next, err := watcher.NextInSequence(ctx, d+"/idgen/ID-")
	require.NoError(t, err)
	require.Zero(t, next, "nothing is drawn yet")
	for range clients {
		s := open(t, c)
		go func() {
			var r result
			for range draws {
				n, err := s.Sequence(ctx, d+"/idgen/ID-")
				if err == nil { // whoever looks now sees that this one is drawn
					var next int64
					if next, err = s.NextInSequence(ctx, d+"/idgen/ID-"); err == nil && next <= n {
						err = fmt.Errorf("%d is drawn, and the next is %d", n, next)
					}
				}
				if r.ns = append(r.ns, n); err != nil {
					r.err = err
					break
				}
			}
			results <- r
		}()
	}
	seen := map[int64]bool{}
	for range clients {
		r := <-results
		require.NoError(t, r.err)
		last := int64(-1)
		for _, n := range r.ns {
			require.Greater(t, n, last, "numbers of one client rise")
			require.False(t, seen[n], "%d drawn twice", n)
			seen[n], last = true, n
		}
	}
	s := open(t, c)
	for range 3 {
		next, err := watcher.NextInSequence(ctx, d+"/idgen/ID-")
		require.NoError(t, err)
		n, err := s.Sequence(ctx, d+"/idgen/ID-")
		require.NoError(t, err)
		require.Equal(t, next, n, "nobody else draws")
	}
	n, err := s.Sequence(ctx, d+"/other/ID-")
	require.NoError(t, err)
	require.Zero(t, n, "another parent has its own numbers, from 0")
	for _, bad := range []string{"", "x", "/x"} {
		_, err = s.Sequence(ctx, bad)
		require.ErrorIs(t, err, metadata.ErrBadTxn)
		_, err = s.NextInSequence(ctx, bad)
		require.ErrorIs(t, err, metadata.ErrBadTxn)
	}
}

// testDirectories checks what becomes of parents, on engines that have them and on those that do not.
func testDirectories(t *testing.T, c Cluster) {
	ctx, s, d := contextOf(t), open(t, c), freshDir()
	_, err := s.Put(ctx, d+"/a/b/c", []byte("x"), metadata.Absent)
	require.NoError(t, err)
	kv, err := s.Get(ctx, d+"/a/b")
	if !c.Directories {
		require.ErrorIs(t, err, metadata.ErrNotFound)
		return
	}
	require.NoError(t, err)
	require.Empty(t, kv.Value)
	require.ErrorIs(t, s.Delete(ctx, d+"/a", metadata.Any), metadata.ErrNotEmpty)
	_, err = s.Put(ctx, d+"/a/b", nil, metadata.Absent)
	require.ErrorIs(t, err, metadata.ErrExists)
	// One transaction may take a whole branch away, or make one, in any order.
	_, err = s.Txn(ctx, metadata.Txn{Deletes: []metadata.Delete{
		{Key: d + "/a", Version: metadata.Any}, {Key: d + "/a/b/c", Version: metadata.Any}, {Key: d + "/a/b", Version: kv.Version},
	}})
	require.NoError(t, err)
	_, err = s.Txn(ctx, metadata.Txn{Puts: []metadata.Put{
		{Key: d + "/n/o/p", Version: metadata.Absent}, {Key: d + "/n", Version: metadata.Absent}, {Key: d + "/n/o", Version: metadata.Absent},
	}})
	require.NoError(t, err)
	keys, err := s.Keys(ctx, d+"/", "", 10)
	require.NoError(t, err)
	require.Equal(t, []string{d + "/n", d + "/n/o", d + "/n/o/p"}, keys)
	for _, bad := range []string{"x", "/", "/x/", "/x//y", "/x/../y", "/x/./y", "/x\x00"} {
		_, err = s.Put(ctx, bad, nil, metadata.Any)
		require.ErrorIs(t, err, metadata.ErrBadTxn, "%q", bad)
	}
}
