package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// closedAt is the record of a closed ledger of two fragments, 0..9 on a b c and 10..last on a b d.
func closedAt(last EntryID) *Metadata {
	return &Metadata{Ensemble: 3, WriteQuorum: 2, AckQuorum: 2, State: StateClosed, LastEntry: last,
		Fragments: []Fragment{{First: 0, Bookies: []BookieID{"a", "b", "c"}}, {First: 10, Bookies: []BookieID{"a", "b", "d"}}}}
}

func TestCopyIsJudgedOnTheRecordThatItReplaces(t *testing.T) {
	m := closedAt(14)
	c, v := PlanCopy(m, 1, 2, "e", 7)
	require.Equal(t, CopyReady, v)
	require.Equal(t, EntryID(10), c.First)
	require.Equal(t, EntryID(14), c.Last)
	var need []EntryID
	for e := range EntryID(20) {
		if c.Needs(m.Quorum(), e) {
			need = append(need, e)
		}
	}
	require.Equal(t, []EntryID{10, 11, 13, 14}, need, "entries that stripe to index 2, of this fragment only")
	next, checks, v := c.Publish(m)
	require.Equal(t, CopyReady, v)
	require.Equal(t, []IncarnationCheck{{Bookie: "e", Version: 7}}, checks)
	require.Equal(t, []BookieID{"a", "b", "e"}, next.Fragments[1].Bookies)
	require.Equal(t, []BookieID{"a", "b", "d"}, m.Fragments[1].Bookies, "records are not changed in place")
	require.NoError(t, next.Validate())

	for name, change := range map[string]func(m *Metadata){
		"another end": func(m *Metadata) { m.LastEntry = 15 },
		"open again":  func(m *Metadata) { m.State = StateOpen },
		"followed by another": func(m *Metadata) {
			m.Fragments = append(m.Fragments, Fragment{First: 15, Bookies: []BookieID{"a", "b", "e"}})
		},
		"the fragment is gone":     func(m *Metadata) { m.Fragments = m.Fragments[:1] },
		"somebody else was placed": func(m *Metadata) { m.Fragments[1].Bookies = []BookieID{"a", "b", "f"} },
	} {
		other := m.Clone()
		change(other)
		_, _, v := c.Publish(other)
		require.Equal(t, CopyObsolete, v, name)
	}
	other := m.Clone()
	other.Fragments[1].Bookies = []BookieID{"e", "b", "d"}
	_, _, v = c.Publish(other)
	require.Equal(t, CopyInside, v, "the target came to hold another place")

	first, v := PlanCopy(m, 0, 0, "e", 1)
	require.Equal(t, CopyReady, v)
	open := m.Clone()
	open.State = StateOpen
	_, _, v = first.Publish(open)
	require.Equal(t, CopyReady, v, "a fragment with a successor is final whatever the state")
	open.Fragments[1].First = 9
	_, _, v = first.Publish(open)
	require.Equal(t, CopyObsolete, v)
	_, v = PlanCopy(open, 1, 0, "e", 1)
	require.Equal(t, CopyNotFinal, v)
	_, v = PlanCopy(m, 0, 0, "b", 1)
	require.Equal(t, CopyInside, v)
	back, v := PlanCopy(m, 0, 0, "a", 1)
	require.Equal(t, CopyReady, v, "an emptied member is a target for its own place")
	next, checks, v = back.Publish(m)
	require.Equal(t, CopyReady, v)
	require.Nil(t, next)
	require.Nil(t, checks)
	for _, v := range []CopyVerdict{CopyReady, CopyNotFinal, CopyInside, CopyObsolete} {
		require.NotEmpty(t, v.String())
	}
}

func TestCollectProof(t *testing.T) {
	closed, open := closedAt(14), closedAt(14)
	open.State = StateOpen
	for _, tc := range []struct {
		name string
		p    CollectProof
		self BookieID
		want bool
	}{
		{"gone by both", CollectProof{Listing: true, Read: true}, "x", true},
		{"listed, then gone", CollectProof{Listing: true, Listed: true, Read: true}, "x", false},
		{"the listing failed", CollectProof{Read: true}, "x", false},
		{"the read failed", CollectProof{Listing: true}, "x", false},
		{"closed, elsewhere", CollectProof{Listing: true, Listed: true, Read: true, Record: closed}, "x", true},
		{"closed, here", CollectProof{Listing: true, Listed: true, Read: true, Record: closed}, "d", false},
		{"open, elsewhere", CollectProof{Listing: true, Listed: true, Read: true, Record: open}, "x", false},
		{"the listing lacks it, the read finds it", CollectProof{Listing: true, Read: true, Record: closed}, "a", false},
	} {
		require.Equal(t, tc.want, tc.p.Holds(tc.self), tc.name)
	}
}

func TestTailAtRisk(t *testing.T) {
	m := closedAt(14)
	missing := func(names ...BookieID) func(BookieID) bool {
		return func(b BookieID) bool { return holds(names, b) }
	}
	require.False(t, m.TailAtRisk(missing("a")), "closed")
	m.State = StateOpen
	require.True(t, m.TailAtRisk(missing("d")))
	require.False(t, m.TailAtRisk(missing("c")), "only in an earlier fragment")
	m.State = StateInRecovery
	require.True(t, m.TailAtRisk(missing("a")))
}
