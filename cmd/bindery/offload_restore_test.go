package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStatement45InPlaceIsRefused with the reason; that bookies take no entries for such an id, the simulated clusters show.
func TestStatement45InPlaceIsRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	code, _, errs := cli("offload", "restore", "7", "--in-place")
	require.Equal(t, exitRefused, code, errs)
	require.Contains(t, errs, "bookies remember a ledger that they dropped")
	require.Contains(t, errs, "a new ledger")
}
