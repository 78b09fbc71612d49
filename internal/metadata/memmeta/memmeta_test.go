package memmeta_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/internal/metadata/metadatatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	tree := memmeta.NewTree()
	metadatatest.Run(t, metadatatest.Cluster{
		Open: func(*testing.T) metadata.Store { return tree.Open() },
		EndSession: func(t *testing.T, s metadata.Store, _ metadata.Session) {
			require.True(t, s.(*memmeta.Store).ExpireSession())
		},
	})
}

func TestFaults(t *testing.T) {
	ctx := context.Background()
	tree := memmeta.NewTree()
	s, other := tree.Open(), tree.Open()
	defer s.Close()
	defer other.Close()
	var seen []memmeta.Op
	fault := memmeta.Fault{}
	s.SetFaults(func(op memmeta.Op) memmeta.Fault { seen = append(seen, op); return fault })

	fault = memmeta.Fault{Err: errors.New("down")}
	_, err := s.Get(ctx, "/k")
	require.ErrorIs(t, err, metadata.ErrUnavailable)
	require.ErrorIs(t, err, fault.Err)
	_, err = s.Put(ctx, "/k", nil, metadata.Absent)
	require.ErrorIs(t, err, metadata.ErrUnavailable)
	require.Equal(t, []memmeta.Op{{Name: "get", Keys: []string{"/k"}}, {Name: "txn", Keys: []string{"/k"}}}, seen)

	fault = memmeta.Fault{Outcome: memmeta.Applied}
	_, err = s.Put(ctx, "/applied", []byte("1"), metadata.Absent)
	require.ErrorIs(t, err, metadata.ErrUnknownOutcome)
	_, err = other.Get(ctx, "/applied")
	require.NoError(t, err)

	fault = memmeta.Fault{Outcome: memmeta.Dropped}
	_, err = s.Put(ctx, "/dropped", []byte("1"), metadata.Absent)
	require.ErrorIs(t, err, metadata.ErrUnknownOutcome)
	_, err = s.Sequence(ctx, "/seq/ID-")
	require.ErrorIs(t, err, metadata.ErrUnknownOutcome)

	// A late write lands under its conditions as they are then: the first of these two loses, the second wins.
	fault = memmeta.Fault{Outcome: memmeta.Late}
	value := []byte("late")
	_, err = s.Put(ctx, "/late-a", value, metadata.Absent)
	require.ErrorIs(t, err, metadata.ErrUnknownOutcome)
	_, err = s.Put(ctx, "/late-b", value, metadata.Absent)
	require.ErrorIs(t, err, metadata.ErrUnknownOutcome)
	copy(value, "xxxx") // the caller may reuse its buffer
	_, err = other.Get(ctx, "/late-b")
	require.ErrorIs(t, err, metadata.ErrNotFound)
	_, err = other.Put(ctx, "/late-a", []byte("first"), metadata.Absent)
	require.NoError(t, err)
	require.Equal(t, 2, tree.Late())
	require.Equal(t, 1, tree.LandLate())
	require.Zero(t, tree.Late())
	for key, want := range map[string]string{"/late-a": "first", "/late-b": "late", "/applied": "1"} {
		kv, err := other.Get(ctx, key)
		require.NoError(t, err)
		require.Equal(t, want, string(kv.Value))
	}
	_, err = other.Get(ctx, "/dropped")
	require.ErrorIs(t, err, metadata.ErrNotFound)
}

func TestDelayIsFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memmeta.Open("")
		defer s.Close()
		s.SetFaults(func(memmeta.Op) memmeta.Fault { return memmeta.Fault{Delay: time.Hour} })
		begun := time.Now()
		_, err := s.Put(context.Background(), "/k", nil, metadata.Any)
		require.NoError(t, err)
		require.Equal(t, time.Hour, time.Since(begun))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err = s.Put(ctx, "/k2", nil, metadata.Any)
		require.ErrorIs(t, err, metadata.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		s.SetFaults(nil)
		_, err = s.Get(context.Background(), "/k2")
		require.ErrorIs(t, err, metadata.ErrNotFound)
	})
}

// TestCreateOutcomes lets every answer to a creation get lost in every way. The creator ends with its ledger, or with an
// error that leaves open whether it exists; never with "exists" about its own record. What is deleted stays deleted, though
// everything that was sent lands at last.
func TestCreateOutcomes(t *testing.T) {
	all := []memmeta.Outcome{memmeta.Known, memmeta.Applied, memmeta.Dropped, memmeta.Late}
	const depth = 5 // token, record, its calling off, and once more
	cases := 1
	for range depth {
		cases *= len(all)
	}
	synctest.Test(t, func(t *testing.T) {
		for n := range cases {
			for _, landing := range []int{0, 1, 2, 3, depth} { // everything late lands before this write
				var outcomes []memmeta.Outcome
				for i, k := 0, n; i < depth; i, k = i+1, k/len(all) {
					outcomes = append(outcomes, all[k%len(all)])
				}
				ctx, tree := t.Context(), memmeta.NewTree()
				s := tree.Open()
				i := 0
				s.SetFaults(func(op memmeta.Op) memmeta.Fault {
					if op.Name != "txn" || i >= depth {
						return memmeta.Fault{}
					}
					if i++; i > landing {
						tree.LandLate()
					}
					return memmeta.Fault{Outcome: outcomes[i-1]}
				})
				l := metadata.NewLedgers(s, "/ledgers")
				v, err := l.Create(ctx, 5, metadatatest.Record())
				require.NoError(t, err, "outcomes %v, landing %d", outcomes, landing)
				_, have, err := l.Read(ctx, 5)
				require.NoError(t, err)
				require.Equal(t, have, v)
				s.SetFaults(nil)
				_, err = l.Create(ctx, 5, metadatatest.Record())
				require.ErrorIs(t, err, metadata.ErrExists)
				require.NoError(t, l.Delete(ctx, 5, v))
				tree.LandLate()
				_, _, err = l.Read(ctx, 5)
				require.ErrorIs(t, err, metadata.ErrNoLedger, "outcomes %v, landing %d: a ledger came back", outcomes, landing)
				require.NoError(t, s.Close())
			}
		}
	})
	// Out of time with an unknown outcome: it says so.
	s := memmeta.Open("")
	defer s.Close()
	l := metadata.NewLedgers(s, "/ledgers")
	_, err := l.Create(context.Background(), 4, metadatatest.Record())
	require.NoError(t, err)
	s.SetFaults(func(op memmeta.Op) memmeta.Fault { return memmeta.Fault{Outcome: memmeta.Late} })
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err = l.Create(ctx, 5, metadatatest.Record())
	require.ErrorIs(t, err, metadata.ErrUnknownOutcome)
}

// TestCreateSessions: creates at once share a token, one that is lost with its session is replaced, and one that is called off
// takes down no create but its own.
func TestCreateSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, tree := t.Context(), memmeta.NewTree()
		s := tree.Open()
		l := metadata.NewLedgers(s, "/ledgers")
		tokens := func() int {
			keys, err := s.Keys(ctx, "/bindery/ledgers/creators/", "", 10)
			require.NoError(t, err)
			return len(keys)
		}
		for id := range ledger.ID(3) {
			_, err := l.Create(ctx, id, metadatatest.Record())
			require.NoError(t, err)
		}
		require.Equal(t, 1, tokens())
		require.True(t, s.ExpireSession())
		require.Zero(t, tokens())
		_, err := l.Create(ctx, 3, metadatatest.Record())
		require.NoError(t, err)
		var unlucky atomic.Bool
		s.SetFaults(func(op memmeta.Op) memmeta.Fault {
			if slices.Contains(op.Keys, l.Key(10)) && op.Name == "txn" && !unlucky.Swap(true) {
				return memmeta.Fault{Delay: time.Second, Outcome: memmeta.Late}
			}
			return memmeta.Fault{Delay: 600 * time.Millisecond}
		})
		var wg sync.WaitGroup
		for id := ledger.ID(10); id < 20; id++ {
			wg.Go(func() {
				_, err := l.Create(ctx, id, metadatatest.Record())
				if err != nil {
					t.Errorf("ledger %d: %v", id, err)
				}
			})
		}
		wg.Wait()
		s.SetFaults(nil)
		require.Equal(t, 1, tree.Late())
		require.Zero(t, tree.LandLate(), "it was called off")
		ids, err := l.List(ctx, -1, 100)
		require.NoError(t, err)
		require.Len(t, ids, 14)
		require.Equal(t, 1, tokens())
		require.NoError(t, s.Close())
	})
}

// TestOrderedAgainstMap compares the tree with a plain map under random writes.
func TestOrderedAgainstMap(t *testing.T) {
	ctx := context.Background()
	s := memmeta.Open("")
	defer s.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	model := map[string]bool{}
	for range 30_000 {
		k := fmt.Sprintf("/%05d", rng.IntN(4000))
		if rng.IntN(5) < 2 {
			require.NoError(t, s.Delete(ctx, k, metadata.Any))
			delete(model, k)
		} else {
			_, err := s.Put(ctx, k, nil, metadata.Any)
			require.NoError(t, err)
			model[k] = true
		}
	}
	keys, err := s.Keys(ctx, "/", "", 1<<20)
	require.NoError(t, err)
	require.Equal(t, slices.Sorted(maps.Keys(model)), keys)
	for _, after := range []string{"/00000", "/02000", "/03999", "/0200"} {
		got, err := s.Keys(ctx, "/", after, 7)
		require.NoError(t, err)
		i, found := slices.BinarySearch(keys, after)
		if found {
			i++
		}
		require.Equal(t, keys[i:min(i+7, len(keys))], append([]string{}, got...))
	}
}

func TestNamedTreesAreShared(t *testing.T) {
	a, b, c := memmeta.Open("shared-test"), memmeta.Open("shared-test"), memmeta.Open("other-test")
	defer a.Close()
	defer b.Close()
	defer c.Close()
	_, err := a.Put(context.Background(), "/k", nil, metadata.Any)
	require.NoError(t, err)
	_, err = b.Get(context.Background(), "/k")
	require.NoError(t, err)
	_, err = c.Get(context.Background(), "/k")
	require.ErrorIs(t, err, metadata.ErrNotFound)
}
