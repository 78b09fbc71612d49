package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/loadgen"
)

// TestDeadClusterIsNoticed: nobody listens at the metadata store. Commands say so within seconds, and where they looked.
func TestDeadClusterIsNoticed(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, args := range [][]string{{"bench", "cluster"}, {"ledger", "ls"}} {
		start := time.Now()
		code, stdout, stderr := cli(append(args, "--metadata", "etcd://127.0.0.1:1/ledgers")...)
		require.Less(t, time.Since(start), 25*time.Second)
		require.Equal(t, exitMetadata, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "127.0.0.1:1: no member answered in time")
		require.Contains(t, stderr, "is the cluster running?")
	}
}

// TestBenchTail: readers that follow see every add that was measured, at some positive time after its acknowledgement.
func TestBenchTail(t *testing.T) {
	r := newRunning(t, anyDisk)
	r.start()
	defer r.stop()
	for _, load := range [][]string{{"--outstanding", "1"}, {"--rate", "200"}} {
		out := succeeds(t, append([]string{
			"bench", "cluster", "--metadata", r.uri, "--tail", "--ledgers", "2", "--ensemble", "1", "--write-quorum", "1", "--ack-quorum", "1",
			"--warmup", "100ms", "--duration", "500ms", "--output", "json",
		}, load...)...)
		var res loadgen.Result
		require.NoError(t, json.Unmarshal([]byte(out), &res))
		require.NotNil(t, res.Tail)
		require.Positive(t, res.Tail.Reads)
		require.Zero(t, res.Tail.Missing)
		require.InDelta(t, res.Adds, res.Tail.Reads, 4, "what is acknowledged at the very ends may count on one side only")
		require.Positive(t, res.Tail.LatencyUs["p50"])
	}
	code, _, stderr := cli("bench", "cluster", "--raw", "127.0.0.1:1", "--tail")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "does not go with --raw")
}
