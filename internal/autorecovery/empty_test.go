package autorecovery

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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
