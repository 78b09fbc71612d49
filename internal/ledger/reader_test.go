package ledger

import "testing"

func TestReaderLACIsMonotone(t *testing.T) {
	r := NewReader(record(StateOpen, 0, 10), 5)
	if r.LastAddConfirmed() != 9 {
		t.Errorf("everything before the last fragment is confirmed: LAC %d", r.LastAddConfirmed())
	}
	r.Raise(20)
	r.Raise(15)
	if r.LastAddConfirmed() != 20 || r.Sealed() {
		t.Errorf("LAC %d sealed %v", r.LastAddConfirmed(), r.Sealed())
	}
	closed := record(StateClosed, 0, 10)
	closed.LastEntry = 25
	r.Record(closed, 4)
	if r.Sealed() {
		t.Error("an older version is ignored")
	}
	r.Record(closed, 6)
	r.Raise(99)
	if !r.Sealed() || r.LastAddConfirmed() != 25 {
		t.Errorf("a closed record decides: LAC %d", r.LastAddConfirmed())
	}
}

func TestLACReadNeedsCoverage(t *testing.T) {
	q := Quorum{Ensemble: 3, Write: 3, Ack: 2}
	l := NewLACRead(q)
	if l.Answer(0, AnswerOK, 7) != ReadPending {
		t.Error("one of three is not covered with Qa=2")
	}
	if l.Answer(0, AnswerOK, 9) != ReadPending || l.LAC() != 7 {
		t.Error("a second answer of the same bookie counts for nothing")
	}
	if l.Answer(1, AnswerNegative, 0) != ReadFound || l.LAC() != 7 {
		t.Error("a denial is a valid answer")
	}
	l = NewLACRead(q)
	l.Answer(0, AnswerOK, 7)
	l.Answer(1, AnswerUnknown, 0)
	if l.Answer(2, AnswerUnknown, 0) != ReadFailed {
		t.Error("two unknown members: an ack quorum may lie among them")
	}
}

func TestEntryReadOutcomes(t *testing.T) {
	q := Quorum{Ensemble: 5, Write: 3, Ack: 2}
	read := func(answers ...Answer) ReadOutcome {
		r := NewEntryRead(q, 4, -1)
		var out ReadOutcome
		for _, a := range answers {
			i, ok := r.Next()
			if !ok {
				t.Fatal("nobody left to ask")
			}
			out = r.Answer(i, a)
		}
		return out
	}
	for _, c := range []struct {
		answers []Answer
		want    ReadOutcome
	}{
		{[]Answer{AnswerOK}, ReadFound},
		{[]Answer{AnswerUnknown, AnswerNegative, AnswerOK}, ReadFound},
		{[]Answer{AnswerNegative, AnswerNegative}, ReadPending},
		{[]Answer{AnswerNegative, AnswerNegative, AnswerNegative}, ReadAbsent},
		{[]Answer{AnswerNegative, AnswerBadDigest, AnswerNegative}, ReadFailed},
		{[]Answer{AnswerUnknown, AnswerNegative, AnswerNegative}, ReadFailed},
	} {
		if got := read(c.answers...); got != c.want {
			t.Errorf("%v: %v, want %v", c.answers, got, c.want)
		}
	}
	r := NewEntryRead(q, 4, 0)
	r.Demote(IndexSet(0).With(0))
	var order []int
	for i, ok := r.Next(); ok; i, ok = r.Next() {
		order = append(order, i)
	}
	if len(order) != 3 || order[0] != 4 || order[1] != 1 || order[2] != 0 {
		t.Errorf("order with 0 preferred, then demoted: %v", order)
	}
	r = NewEntryRead(q, 4, 2)
	if i, _ := r.Next(); i != 4 {
		t.Errorf("a preferred index outside the write set is ignored: %d", i)
	}
}

func TestLongPollOutcomes(t *testing.T) {
	q := Quorum{Ensemble: 3, Write: 3, Ack: 2}
	p := NewLongPoll(q, 4)
	if i, ok := p.Next(); !ok || i != 2 {
		t.Errorf("the poll for e5 begins at index 2: %d", i)
	}
	if p.Answer(AnswerOK, true, 5) != ReadFound {
		t.Error("an entry ends it")
	}
	p = NewLongPoll(q, 4)
	if p.Answer(AnswerOK, false, 6) != ReadFound {
		t.Error("a higher LAC ends it")
	}
	p = NewLongPoll(q, 4)
	if p.Answer(AnswerOK, false, 4) != ReadPending || p.Answer(AnswerNegative, false, -1) != ReadEmpty {
		t.Error("E-Qa+1 answers without news end it")
	}
	p = NewLongPoll(q, 4)
	if p.Answer(AnswerUnknown, false, 0) != ReadPending || p.Answer(AnswerUnknown, false, 0) != ReadFailed {
		t.Error("more than E-Qa failures end it")
	}
	p = NewLongPoll(q, 4)
	p.Answer(AnswerUnknown, false, 0)
	p.Answer(AnswerOK, false, 4)
	if p.Answer(AnswerOK, false, 4) != ReadEmpty {
		t.Error("everybody answered")
	}
}
