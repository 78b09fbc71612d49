package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStoredAt(t *testing.T) {
	m := closedAt(14)
	for i, f := range m.Fragments {
		last, final := m.FinalFragment(i)
		require.True(t, final)
		for index := range m.Ensemble {
			want := []EntryID{}
			for e := f.First; e <= last; e++ {
				if m.Quorum().Stores(e, index) {
					want = append(want, e)
				}
			}
			first, end, some := m.StoredAt(i, index, last)
			require.True(t, some)
			require.Equal(t, want[0], first)
			require.Equal(t, want[len(want)-1], end)
		}
	}
	m.LastEntry = 9 // the last fragment is empty
	_, _, some := m.StoredAt(1, 0, 9)
	require.False(t, some)
	require.False(t, m.StoresOn("d"), "named, and nothing stripes to it")
	require.True(t, m.StoresOn("c"))
	require.False(t, m.StoresOn("x"))
	m.LastEntry = 10 // 10 stripes to indices 1 and 2
	require.True(t, m.StoresOn("d"))
	m.State = StateOpen
	require.True(t, m.StoresOn("d"), "an open tail may come to hold something")
}

func TestNextRepair(t *testing.T) {
	gone := func(names ...BookieID) func(BookieID) bool {
		return func(b BookieID) bool { return holds(names, b) }
	}
	closed, open := closedAt(14), closedAt(14)
	open.State = StateOpen
	require.Equal(t, RepairClear, NextRepair(nil, 3, gone("a"), false))
	require.Equal(t, RepairClear, NextRepair(closed, 0, gone("a"), false))
	require.Equal(t, RepairCopy, NextRepair(closed, 1, gone("a"), true))
	require.Equal(t, RepairCopy, NextRepair(open, 1, gone("a"), false), "what is final goes first")
	require.Equal(t, RepairAwait, NextRepair(open, 0, gone("a"), false))
	require.Equal(t, RepairRecover, NextRepair(open, 0, gone("a"), true))
	require.Equal(t, RepairClear, NextRepair(open, 0, gone("c"), false), "only in an earlier fragment")
}

func TestLossWatch(t *testing.T) {
	all := []BookieID{"a", "b", "c"}
	w := NewLossWatch(all, 300)
	require.Equal(t, LossNone, w.Available(all))
	require.Equal(t, LossSchedule, w.Available([]BookieID{"a", "b"}))
	require.True(t, w.Pending())
	require.Equal(t, LossNone, w.Available([]BookieID{"a", "b"}))
	require.Equal(t, LossCancel, w.Available(all), "R1: it came back in time")
	require.False(t, w.Pending())

	require.Equal(t, LossSchedule, w.Available([]BookieID{"a", "b"}))
	require.Equal(t, LossAudit, w.Available([]BookieID{"a"}), "R2: the second one does not wait")
	require.Equal(t, []BookieID{"c", "b"}, w.Missing())
	w.Audited()
	require.Equal(t, LossNone, w.Available([]BookieID{"a"}), "lost ones are audited once")
	require.Equal(t, LossNone, w.Available(all))

	require.Equal(t, LossSchedule, w.Available([]BookieID{"a", "b"}))
	require.Equal(t, LossAudit, w.Delay(300), "R3: the same delay again")
	w.Audited()
	require.Equal(t, LossNone, w.Delay(60), "nothing is pending")
	require.Equal(t, LossNone, w.Available(all))
	require.Equal(t, LossSchedule, w.Available([]BookieID{"a", "b"}))
	require.Equal(t, LossSchedule, w.Delay(600), "pending: with the new delay")
	require.Equal(t, LossAudit, w.Delay(0))

	w = NewLossWatch([]BookieID{"a", "gone"}, 0)
	require.Equal(t, LossAudit, w.Available([]BookieID{"a"}), "a cookie without a bookie counts as a loss")
	w = NewLossWatch([]BookieID{"a", "b", "c"}, 60)
	require.Equal(t, LossSchedule, w.Available([]BookieID{"a"}), "a fleet that starts is no double loss")
	require.Equal(t, LossCancel, w.Available([]BookieID{"a", "b", "c"}))
	require.Equal(t, LossAudit, w.Available([]BookieID{"a"}))
	for _, s := range []string{LossNone.String(), LossAudit.String(), LossSchedule.String(), LossCancel.String(), RepairRecover.String()} {
		require.NotEmpty(t, s)
	}
}
