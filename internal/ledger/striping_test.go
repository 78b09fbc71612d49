package ledger

import (
	"math"
	"math/big"
	"testing"
	"testing/quick"
)

// quorum maps random numbers to possible sizes.
func quorum(a, b, c uint8) Quorum {
	e := 1 + int(a)%12
	w := 1 + int(b)%e
	return Quorum{Ensemble: e, Write: w, Ack: 1 + int(c)%w}
}

// slowWriteSet is the definition, in unlimited integers.
func slowWriteSet(q Quorum, e EntryID) []int {
	var set []int
	for i := range q.Write {
		n := new(big.Int).Add(big.NewInt(int64(e)), big.NewInt(int64(i)))
		set = append(set, int(n.Mod(n, big.NewInt(int64(q.Ensemble))).Int64()))
	}
	return set
}

func TestStripingAgainstDefinition(t *testing.T) {
	check := func(a, b, c uint8, raw uint64) bool {
		q := quorum(a, b, c)
		for _, e := range []EntryID{EntryID(raw >> 1), EntryID(raw % 1000), math.MaxInt64, math.MaxInt32, math.MaxInt32 + 1, 1 << 32} {
			want := slowWriteSet(q, e)
			var set IndexSet
			for i, idx := range want {
				if q.Index(e, i) != idx {
					t.Logf("%+v e=%d: index %d is %d, want %d", q, e, i, q.Index(e, i), idx)
					return false
				}
				set = set.With(idx)
			}
			if q.WriteSet(e) != set || set.Len() != q.Write {
				return false
			}
			for i := range q.Ensemble {
				if q.Stores(e, i) != set.Has(i) {
					return false
				}
			}
		}
		return true
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 2000}); err != nil {
		t.Fatal(err)
	}
}

func TestStripingWorkedExample(t *testing.T) {
	q := Quorum{Ensemble: 5, Write: 3, Ack: 2}
	for e, want := range map[EntryID][3]int{0: {0, 1, 2}, 3: {3, 4, 0}, 4: {4, 0, 1}, 7: {2, 3, 4}} {
		if got := [3]int{q.Index(e, 0), q.Index(e, 1), q.Index(e, 2)}; got != want {
			t.Errorf("write set of e%d is %v, want %v", e, got, want)
		}
	}
}

// TestCoverageAgainstBruteForce compares Covered with its meaning: no choice of Qa members of any entry's write set lies
// within the unknown indices.
func TestCoverageAgainstBruteForce(t *testing.T) {
	check := func(a, b, c uint8, raw uint16) bool {
		q := quorum(a, b, c)
		unknown := IndexSet(raw) & AllIndices(q.Ensemble)
		covered := true
		for e := range EntryID(q.Ensemble) {
			n := 0
			for _, i := range slowWriteSet(q, e) {
				if unknown.Has(i) {
					n++
				}
			}
			covered = covered && n < q.Ack
		}
		reachable := true
		for e := range EntryID(q.Ensemble) {
			alive := 0
			for _, i := range slowWriteSet(q, e) {
				if !unknown.Has(i) {
					alive++
				}
			}
			reachable = reachable && alive >= q.Ack
		}
		return q.Covered(unknown) == covered && q.Reachable(unknown) == reachable
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 5000}); err != nil {
		t.Fatal(err)
	}
}

func TestCoverageOfStripedEnsemble(t *testing.T) {
	q := Quorum{Ensemble: 6, Write: 3, Ack: 2}
	if !q.Covered(IndexSet(0).With(0).With(3)) {
		t.Error("E6 Qw3 Qa2 with 0 and 3 unknown is covered: no write set holds both")
	}
	if q.Covered(IndexSet(0).With(0).With(2)) {
		t.Error("E6 Qw3 Qa2 with 0 and 2 unknown is not covered: they are an ack quorum of e0")
	}
}

// TestAckTrackerAgainstMap compares the ring with a plain model under random operations.
func TestAckTrackerAgainstMap(t *testing.T) {
	check := func(ops []uint16, start uint32) bool {
		const qa = 2
		var tr AckTracker
		first := EntryID(start)
		tr.Reset(first)
		model := map[EntryID]IndexSet{}
		next := first
		for _, op := range ops {
			switch op % 4 {
			case 0, 1:
				if tr.push(first-1, int64(next)) != next {
					return false
				}
				model[next] = 0
				next++
			case 2:
				e := first + EntryID(op>>4)%8
				i := int(op>>8) % 3
				_, pending := model[e]
				if tr.Ack(e, i) != pending {
					return false
				}
				if pending {
					model[e] = model[e].With(i)
				}
			case 3:
				length, ok := tr.popComplete(qa)
				want := next > first && model[first].Len() >= qa
				if ok != want || ok && length != int64(first) {
					return false
				}
				if ok {
					delete(model, first)
					first++
				}
			}
			if tr.First() != first || tr.Next() != next || tr.Len() != int(next-first) {
				return false
			}
			c := tr.clone()
			if c.First() != first || c.Len() != tr.Len() {
				return false
			}
		}
		return true
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 1000}); err != nil {
		t.Fatal(err)
	}
}
