package bktest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
)

// TestAwaited: a bookie that is gone is to be decommissioned, unless a ledger that only an operator can end still names it.
func TestAwaited(t *testing.T) {
	ctx := context.Background()
	store := memmeta.NewTree().Open()
	defer func() { require.NoError(t, store.Close()) }()
	v := metadata.NewViews(store, metadata.DefaultRoot)
	_, err := v.Cluster.Init(ctx)
	require.NoError(t, err)
	for id, b := range []ledger.BookieID{"bk0", "bk1"} {
		_, err := v.Ledgers.Create(ctx, ledger.ID(id), &ledger.Metadata{FormatVersion: 3, Ensemble: 1, WriteQuorum: 1, AckQuorum: 1, State: ledger.StateInRecovery,
			LastEntry: -1, Fragments: []ledger.Fragment{{Bookies: []ledger.BookieID{b}}}, Digest: ledger.DigestCRC32C, HasPassword: true})
		require.NoError(t, err)
	}
	began := time.Now()
	require.NoError(t, v.Replication.SetChecked(ctx, metadata.CheckLedgers, began.Add(time.Minute)))

	c := &Cluster{ctx: ctx, members: []*member{{name: "bk0", gone: true}, {name: "bk1"}}}
	only := func(stuck ledger.ID) func(ledger.ID) bool { return func(id ledger.ID) bool { return id == stuck } }
	require.Equal(t, "bk0 is not decommissioned", c.unmended(v, only(-1), began))
	require.Equal(t, "bk0 is not decommissioned", c.unmended(v, only(1), began), "another bookie's ledger is no excuse")
	require.Empty(t, c.unmended(v, only(0), began))
	c.members[0].retired.Store(true)
	require.Empty(t, c.unmended(v, only(-1), began))
}
