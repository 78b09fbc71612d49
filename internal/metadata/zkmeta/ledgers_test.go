package zkmeta

import (
	"context"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/metadatatest"
)

// TestC57ManyLedgers lists 100,000 ledgers (10,000 in short runs; BINDERY_TEST_LEDGERS: any number) by pages and finds those of one bookie: a
// million takes less than a minute.
func TestC57ManyLedgers(t *testing.T) {
	z := startServer(t, 2000)
	s := z.openFor(t, Options{SessionTTL: 30 * time.Second})
	ctx := context.Background()
	l := metadata.NewLedgers(s, "/ledgers")
	total := 100_000
	if testing.Short() {
		total = 10_000
	}
	if n, err := strconv.Atoi(os.Getenv("BINDERY_TEST_LEDGERS")); err == nil {
		total = n
	}
	mine, err := metadata.EncodeLedger(metadatatest.Record("b1:3181", "b2:3181", "b3:3181"))
	require.NoError(t, err)
	others, err := metadata.EncodeLedger(metadatatest.Record("b4:3181", "b2:3181", "b3:3181"))
	require.NoError(t, err)
	id := func(i int) ledger.ID {
		if i >= total/2 {
			return ledger.ID(i) + 1<<40
		}
		return ledger.ID(i)
	}
	begun := time.Now()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w * metadata.TxnMax; i < total; i += 4 * metadata.TxnMax {
				var x metadata.Txn
				for j := i; j < min(total, i+metadata.TxnMax); j++ {
					v := others
					if j%100 == 0 {
						v = mine
					}
					x.Puts = append(x.Puts, metadata.Put{Key: l.Key(id(j)), Value: v, Version: metadata.Absent})
				}
				if _, err := s.Txn(ctx, x); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	require.False(t, t.Failed())
	t.Logf("made %d ledgers in %v", total, time.Since(begun))
	begun = time.Now()
	n, last := 0, ledger.ID(-1)
	for {
		ids, err := l.List(ctx, last, 1000)
		require.NoError(t, err)
		if len(ids) == 0 {
			break
		}
		for _, got := range ids {
			require.Equal(t, id(n), got)
			n++
		}
		last = ids[len(ids)-1]
	}
	require.Equal(t, total, n)
	listed := time.Since(begun)
	require.Less(t, listed, time.Minute*time.Duration(total)/1_000_000+5*time.Second)
	named := 0
	for _, err := range l.Naming(ctx, "b1:3181") {
		require.NoError(t, err)
		named++
	}
	require.Equal(t, (total+99)/100, named)
	t.Logf("listed %d ledgers in %v, with records in %v", total, listed, time.Since(begun)-listed)
}

// TestIDsAtTheBorder draws across the end of the short generator, as clients of one ZooKeeper do: it counts its parent's
// children, so the border is set by hand with the long generator's directory.
func TestIDsAtTheBorder(t *testing.T) {
	z := startServer(t, 2000)
	s := z.openFor(t, Options{})
	ctx := context.Background()
	l := metadata.NewLedgers(s, "/ledgers")
	for _, id := range []ledger.ID{2147483646, 2147483647, 1<<63 - 1} {
		_, err := l.Create(ctx, id, metadatatest.Record())
		require.NoError(t, err)
	}
	ids, err := l.List(ctx, -1, 10)
	require.NoError(t, err)
	require.Equal(t, []ledger.ID{2147483646, 2147483647, 1<<63 - 1}, ids)
	_, err = s.Put(ctx, "/ledgers/idgen-long/HOB-2147483647", nil, metadata.Absent)
	require.NoError(t, err)
	id, err := l.NewID(ctx)
	require.NoError(t, err)
	require.Equal(t, ledger.ID(2147483647)<<32, id, "the highest directory gives ids up to 2^63-2")

	// A deleted ledger takes its empty directories along, and only those.
	require.NoError(t, l.Delete(ctx, 2147483646, metadata.Any))
	require.Eventually(t, func() bool {
		keys, err := s.Keys(ctx, "/ledgers/21", "", 1)
		return err == nil && len(keys) == 0
	}, 30*time.Second, 10*time.Millisecond)
	ids, err = l.List(ctx, -1, 10)
	require.NoError(t, err)
	require.Equal(t, []ledger.ID{2147483647, 1<<63 - 1}, ids)
}

func TestShapes(t *testing.T) {
	for path, want := range map[string]int{
		"/ledgers/00/0000/L0042":                                                2,
		"/ledgers/000/0000/0021/4748/L3647":                                     4,
		"/a/b/922/3372/0368/5477/L5807":                                         4,
		"/ledgers/underreplication/ledgers/0000/0000/0000/002a/urL0000000042":   4,
		"/ledgers/underreplication/ledgers/7fff/ffff/ffff/ffff/urL922337203685": 4,
		"/ledgers/underreplication/locks/urL0000000042":                         0,
		"/ledgers/LAYOUT":        0,
		"/ledgers/00/0000/L004":  0,
		"/ledgers/0/0000/L0042":  0,
		"/ledgers/x0/0000/L0042": 0,
		"/L0042":                 0,
		"/0000/L0042":            0,
		"/ledgers/cookies/b1":    0,
	} {
		require.Equal(t, want, emptyLevels(path), path)
	}
	require.True(t, isLeaf("/ledgers/L0000000042"))
	require.False(t, isLeaf("/ledgers/available"))
	for _, bad := range []string{"", "a", "/", "/a/", "//a", "/a/.", "/a/../b", "/a\x01", "/\xff", "/\u0085", "/\uffff"} {
		require.ErrorIs(t, checkPath(bad), metadata.ErrBadTxn, "%q", bad)
	}
	for _, good := range []string{"/a", "/a/b.c", "/ledgers/available/b1:3181", "/ä/...", "/a b"} {
		require.NoError(t, checkPath(good), good)
	}
}

// FuzzShapes feeds names to what reads them.
func FuzzShapes(f *testing.F) {
	for _, s := range []string{"/ledgers/00/0000/L0042", "/urL1", "/a/0000/0000/0000/0000/urL1", "/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if checkPath(path) != nil {
			return
		}
		if n := emptyLevels(path); n != 0 && n != 2 && n != 4 {
			t.Fatalf("%q: %d levels", path, n)
		}
	})
}
