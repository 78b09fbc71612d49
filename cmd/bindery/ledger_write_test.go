package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/ledgerclient"
)

// TestSplitSizes: a bare number means bytes, and every usual way to write a unit works.
func TestSplitSizes(t *testing.T) {
	for split, want := range map[string]int{
		"4096": 4096, "1": 1, " 512 ": 512, "4194304": 4 << 20,
		"4B": 4, "4K": 4096, "4k": 4096, "4KiB": 4096, "1M": 1 << 20, "1m": 1 << 20, "4MiB": 4 << 20, "1.5K": 1536,
		"4kB": 4000, "4KB": 4000, "1MB": 1_000_000,
	} {
		s, err := newSplitter(strings.NewReader(""), split)
		require.NoError(t, err, split)
		require.Equal(t, want, s.(*sizeSplitter).size, split)
	}
	require.Equal(t, []string{"abcd", "efgh", "ij"}, collect(t, "4", "abcdefghij"))
	t.Chdir(t.TempDir())
	t.Setenv("BINDERY_METADATA__URI", "")
	for split, want := range map[string]string{"words": "neither", "5M": "outside", "0": "outside", "-3": "outside"} {
		code, stdout, stderr := cli("ledger", "write", "--split="+split, "/dev/null")
		require.Equal(t, exitUsage, code, stderr)
		require.Empty(t, stdout)
		require.Contains(t, stderr, want, split)
	}
}

func TestPairs(t *testing.T) {
	got, err := parsePairs("custom", []string{"team=billing", "note=a=b", "empty=", "team=billing"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"team": "billing", "note": "a=b", "empty": ""}, got)
	t.Chdir(t.TempDir())
	fails(t, exitUsage, `--custom "billing" is not KEY=VALUE`, "ledger", "write", "--custom", "billing", "/dev/null")
	fails(t, exitUsage, `--custom "=billing" is not KEY=VALUE`, "ledger", "write", "--custom", "=billing", "/dev/null")
	fails(t, exitUsage, `--custom gives team two values, "a" and "b"`, "ledger", "write", "--custom", "team=a", "--custom", "team=b", "/dev/null")
	fails(t, exitUsage, `--match "billing" is not KEY=VALUE`, "offload", "run", "--match", "billing")
}

func TestQuorumsFitTheEnsemble(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want ledgerclient.Quorum
	}{
		{nil, ledgerclient.Quorum{Ensemble: 3, Write: 3, Ack: 2}},
		{[]string{"--ensemble=1"}, ledgerclient.Quorum{Ensemble: 1, Write: 1, Ack: 1}},
		{[]string{"--ensemble=2"}, ledgerclient.Quorum{Ensemble: 2, Write: 2, Ack: 2}},
		{[]string{"--write-quorum=1"}, ledgerclient.Quorum{Ensemble: 3, Write: 1, Ack: 1}},
		{[]string{"--ensemble=1", "--write-quorum=2"}, ledgerclient.Quorum{Ensemble: 1, Write: 2, Ack: 2}}, // refused as it was asked for
	} {
		o := ledgerWriteOptions{quorum: ledgerclient.Quorum{Ensemble: 3, Write: 3, Ack: 2}}
		c := &cobra.Command{}
		c.Flags().IntVar(&o.quorum.Ensemble, "ensemble", 3, "")
		c.Flags().IntVar(&o.quorum.Write, "write-quorum", 3, "")
		c.Flags().IntVar(&o.quorum.Ack, "ack-quorum", 2, "")
		require.NoError(t, c.ParseFlags(tc.args))
		o.fitQuorums(c)
		require.Equal(t, tc.want, o.quorum, "%v", tc.args)
	}
}
