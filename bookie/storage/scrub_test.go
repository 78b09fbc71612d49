package storage

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestScrubListsEntriesOfALogThatIsGone: entries whose log somebody deleted are counted and listed, and the others are read.
func TestScrubListsEntriesOfALogThatIsGone(t *testing.T) {
	e := newEnv(t, 1, 1, nil).open()
	for entry := range int64(20) {
		e.mustAdd(1, entry, 300)
	}
	e.roll()
	e.mustAdd(2, 0, 300)
	e.roll()
	e.close()
	names, err := e.mem.List("/ledgers0/current")
	require.NoError(t, err)
	for _, n := range names {
		if strings.HasSuffix(n, ".log") { // the first one has the first ledger
			require.NoError(t, e.mem.Remove(filepath.Join("/ledgers0/current", n)))
			break
		}
	}
	e.open()
	done, err := e.s.Scrub(t.Context(), nil)
	require.NoError(t, err)
	require.EqualValues(t, 20, done.Damaged)
	require.EqualValues(t, 1, done.Entries)
	require.EqualValues(t, 300, done.Bytes)
	listed, _ := e.s.Damaged()
	require.Len(t, listed, 20)
	for _, d := range listed {
		require.EqualValues(t, 1, d.Ledger)
	}
	e.close()
}
