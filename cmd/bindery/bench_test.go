package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDeadClusterIsNoticed: nobody listens at the metadata store. Commands say so within seconds, and where they looked.
func TestDeadClusterIsNoticed(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, args := range [][]string{{"bench", "cluster"}, {"ledger", "ls"}} {
		start := time.Now()
		code, stdout, stderr := cli(append(args, "--metadata", "etcd://127.0.0.1:1/ledgers")...)
		require.Less(t, time.Since(start), 8*time.Second)
		require.Equal(t, exitMetadata, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "127.0.0.1:1: no member answered in time")
		require.Contains(t, stderr, "is the cluster running?")
	}
}
