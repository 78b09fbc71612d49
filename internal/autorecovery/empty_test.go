package autorecovery

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
)

// slowMarks is a store in which a new mark takes a second.
type slowMarks struct{ *memmeta.Store }

// Put implements metadata.Store.
func (s slowMarks) Put(ctx context.Context, key string, value []byte, v metadata.Version) (metadata.Version, error) {
	if strings.Contains(key, "/underreplication/ledgers/") {
		time.Sleep(time.Second)
	}
	return s.Store.Put(ctx, key, value, v)
}

// TestEmptyAfterManyMarks: the time that marking took does not make the next look late.
func TestEmptyAfterManyMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ledgers = 60
		ctx := t.Context()
		store := slowMarks{memmeta.Open(t.Name())}
		defer func() { require.NoError(t, store.Close()) }()
		v := metadata.NewViews(store, metadata.DefaultRoot)
		_, err := v.Cluster.Init(ctx)
		require.NoError(t, err)
		for _, b := range []ledger.BookieID{"b2", "b3", "b4"} {
			_, err := v.Bookies.Register(ctx, b, metadata.ServiceInfo{}, false, time.Second)
			require.NoError(t, err)
		}
		m := ledger.Metadata{
			FormatVersion: 3, Ensemble: 3, WriteQuorum: 3, AckQuorum: 2, State: ledger.StateClosed, LastEntry: 9, Length: 100,
			Fragments: []ledger.Fragment{{Bookies: []ledger.BookieID{"b1", "b2", "b3"}}}, Digest: ledger.DigestCRC32C, HasPassword: true,
		}
		for id := range ledger.ID(ledgers) {
			c := m
			_, err := v.Ledgers.Create(ctx, id, &c)
			require.NoError(t, err)
		}
		moved := func() { // what the workers do once everything is marked
			time.Sleep((ledgers + 1) * time.Second)
			for id := range ledger.ID(ledgers) {
				c, version, err := v.Ledgers.Read(ctx, id)
				require.NoError(t, err)
				c.Fragments[0].Bookies[0] = "b4"
				_, err = v.Ledgers.Write(ctx, id, c, version)
				require.NoError(t, err)
				require.NoError(t, store.Delete(ctx, v.Replication.MarkKey(id), metadata.Any))
			}
		}
		go moved()
		looks := 0
		started := time.Now()
		require.NoError(t, Empty(ctx, EmptyOptions{Views: v, Bookie: "b1", Report: func(Progress) { looks++ }}))
		require.Less(t, time.Since(started), (ledgers+10)*time.Second)
		require.Equal(t, 2, looks)
	})
}

func TestStuckInWords(t *testing.T) {
	for others, want := range []string{"it needs 3 bookies, and no other is writable", "it needs 3 bookies, and 1 other is writable", "it needs 3 bookies, and 2 others are writable"} {
		require.Equal(t, want, tooFew(3, others))
	}
	require.Equal(t, "it needs 1 bookie, and no other is writable", tooFew(1, 0))
	e := &StuckError{Bookie: "b1", Stuck: []Stuck{{7, "x"}}}
	require.EqualError(t, e, "1 ledger on b1 can not be moved: ledger 7 (x)")
	e.Stuck = append(e.Stuck, Stuck{8, "y"})
	require.EqualError(t, e, "2 ledgers on b1 can not be moved: ledger 7 (x); ledger 8 (y)")
}
