package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/config"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
)

func TestRecoveryCommands(t *testing.T) {
	t.Chdir(t.TempDir())
	store := memmeta.Open("recovery-commands")
	defer store.Close()
	v := metadata.NewViews(store, metadata.DefaultRoot)
	_, err := v.Cluster.Init(t.Context())
	require.NoError(t, err)
	run := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		code, stdout, stderr := cli(append(args, "--metadata", "mem://recovery-commands")...)
		require.Equal(t, want, code, "%v: %s", args, stderr)
		return stdout, stderr
	}

	out, _ := run(0, "recovery", "off")
	require.Equal(t, "re-replication is off\n", out)
	on, err := v.Replication.Enabled(t.Context())
	require.NoError(t, err)
	require.False(t, on)
	out, _ = run(0, "autorecovery", "disable")
	require.Equal(t, "re-replication is off already\n", out)
	out, _ = run(0, "autorecovery", "enable")
	require.Equal(t, "re-replication is on\n", out)

	run(exitFindings, "recovery", "delay")
	run(exitUsage, "recovery", "delay", "1500ms")
	out, _ = run(0, "recovery", "delay", "90s")
	require.Equal(t, "1m30s\n", out)
	run(exitFindings, "recovery", "auditor")
	run(exitRefused, "recovery", "audit")

	_, err = v.Replication.Mark(t.Context(), 7, []ledger.BookieID{"b1:3181", "b2:3181"}, time.UnixMilli(1700000000000))
	require.NoError(t, err)
	_, err = v.Replication.Mark(t.Context(), 9, []ledger.BookieID{"b2:3181"}, time.UnixMilli(1700000000000))
	require.NoError(t, err)
	_, ok, err := v.Replication.Lock(t.Context(), 7, "worker-1")
	require.NoError(t, err)
	require.True(t, ok)
	out, _ = run(0, "recovery", "ls", "--output", "json")
	var rows []markRow
	require.NoError(t, json.Unmarshal([]byte(out), &rows))
	require.Equal(t, []markRow{
		{Ledger: 7, Missing: []string{"b1:3181", "b2:3181"}, Since: "2023-11-14T22:13:20Z", Worker: "worker-1"},
		{Ledger: 9, Missing: []string{"b2:3181"}, Since: "2023-11-14T22:13:20Z"},
	}, rows)
	out, _ = run(0, "recovery", "ls", "--missing", "b1:3181", "--output", "json")
	require.NoError(t, json.Unmarshal([]byte(out), &rows))
	require.Len(t, rows, 1)

	won, err := v.Election.Campaign(t.Context(), "bk1")
	require.NoError(t, err)
	out, _ = run(0, "recovery", "auditor")
	require.Equal(t, "bk1\n", out)
	before, err := store.Get(t.Context(), v.Replication.DelayKey())
	require.NoError(t, err)
	run(0, "recovery", "audit", "--full")
	after, err := store.Get(t.Context(), v.Replication.DelayKey())
	require.NoError(t, err)
	require.Equal(t, before.Value, after.Value)
	require.NotEqual(t, before.Version, after.Version, "the same delay was written again")
	out, _ = run(0, "recovery", "status", "--output", "json")
	var s recoveryStatus
	require.NoError(t, json.Unmarshal([]byte(out), &s))
	require.True(t, s.Enabled)
	require.Equal(t, "bk1", s.Auditor)
	require.Equal(t, "1m30s", s.Delay)
	require.Equal(t, 2, s.Marked)
	require.Equal(t, []string{"worker-1"}, s.Workers)
	require.Nil(t, s.Checked.Ledgers, "forgotten")
	require.NoError(t, won.Resign(t.Context()))
	<-won.Done()

	// What is refused, and says what to do.
	for _, args := range [][]string{{"drain"}, {"drain", "--cancel"}, {"decommission"}} {
		_, stderr := run(exitRefused, append(append([]string{"node"}, args...), "nosuch")...)
		require.Contains(t, stderr, "no such bookie: nosuch (`bindery cluster bookies` lists them)")
	}
	_, err = v.Cookies.Put(t.Context(), "b1:3181", []byte("cookie"), metadata.Absent)
	require.NoError(t, err)
	_, stderr := run(exitRefused, "node", "drain", "b1:3181")
	require.Contains(t, stderr, "node decommission b1:3181")
	run(0, "recovery", "off")
	_, stderr = run(exitRefused, "node", "decommission", "b1:3181")
	require.Contains(t, stderr, "bindery recovery on")
	_, stderr = run(exitRefused, "recovery", "audit")
	require.Contains(t, stderr, "bindery recovery on")
	run(0, "recovery", "on")

	out, _ = run(0, "node", "drain", "b1:3181", "--cancel")
	require.Equal(t, "bookie b1:3181 was not being drained\n", out)
	require.NoError(t, v.Replication.SetDraining(t.Context(), "b1:3181", true, time.Now()))
	out, _ = run(0, "node", "drain", "b1:3181", "--cancel")
	require.Contains(t, out, "is not drained any more")
	list, err := v.Replication.Draining(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)
	require.Equal(t, "none", inHand(recoveryStatus{}))
	require.Equal(t, "2 ledgers by w", inHand(recoveryStatus{Locked: 2, Workers: []string{"w"}}))
}

func TestDecommissionOfABookieThatStoresNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	store := memmeta.Open("decommission-command")
	defer store.Close()
	v := metadata.NewViews(store, metadata.DefaultRoot)
	_, err := v.Cluster.Init(t.Context())
	require.NoError(t, err)
	_, err = v.Cookies.Put(t.Context(), "b1:3181", []byte("cookie"), metadata.Absent)
	require.NoError(t, err)
	s, err := store.Session(t.Context())
	require.NoError(t, err)
	key := v.Bookies.Key("b1:3181", false)
	_, err = store.Txn(t.Context(), metadata.Txn{Puts: []metadata.Put{{Key: key, Version: metadata.Absent, Session: s}}})
	require.NoError(t, err)
	code, _, stderr := cli("node", "decommission", "b1:3181", "--metadata", "mem://decommission-command")
	require.Equal(t, exitRefused, code, stderr)
	require.Contains(t, stderr, "is running")
	code, _, stderr = cli("node", "drain", "b1:3181", "--metadata", "mem://decommission-command")
	require.Equal(t, exitRefused, code, stderr)
	require.Contains(t, stderr, "make it read-only first")
	require.NoError(t, store.Delete(t.Context(), key, metadata.Any))
	code, stdout, stderr := cli("node", "decommission", "b1:3181", "--metadata", "mem://decommission-command")
	require.Equal(t, 0, code, stderr)
	require.Equal(t, "bookie b1:3181 is decommissioned\n", stdout)
	ids, err := v.Cookies.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, ids)
}

func TestZeroIsOff(t *testing.T) {
	require.Negative(t, zeroIsOff(0))
	require.Equal(t, time.Hour, zeroIsOff(config.Duration(time.Hour)))
}
