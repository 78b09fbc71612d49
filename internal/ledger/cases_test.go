package ledger

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// playCase plays a scenario and checks that certain lines are among the output.
func playCase(t *testing.T, file string, lines ...string) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	out, broken := play(string(text))
	if len(broken) > 0 {
		t.Errorf("invariants: %v", broken)
	}
	for _, l := range lines {
		if !strings.Contains(out, l+"\n") {
			t.Errorf("%s: no line %q in\n%s", file, l, out)
		}
	}
}

func TestC31RecoveryReadsFence(t *testing.T) {
	playCase(t, "S01-recovery-reads-fence.txt", "  W fails e0..e0: fenced", "  C: fenced")
}

func TestC34NoTruncationByALosingBookie(t *testing.T) {
	playCase(t, "S28-a-losing-bookie-does-not-vote.txt", "  R aborted: entry neither readable nor absent", "  R2 recovered: CLOSED 0:ABC last e0 length 10")
}

func TestC37NoAckBeforeTheChangeIsStored(t *testing.T) {
	playCase(t, "S03-no-ack-before-the-change-is-stored.txt", "  W fails e1..e2: fenced")
	// Three bookies fail one after the other while metadata writes hang: no ack until the store is back.
	w := newWorld("A", "B", "C", "D", "F", "G")
	c := w.create("W", Quorum{3, 3, 2}, false, "A", "B", "C")
	for n, b := range []string{"A", "B", "C"} {
		w.appendEntry(c)
		w.command([]string{"timeout", "W>" + b, "add", fmt.Sprintf("e%d", n)})
		w.command([]string{"do", "W>*"})
	}
	if len(w.acked) != 0 || c.w.LastAddConfirmed() != InvalidEntry || !c.w.Changing() {
		t.Fatalf("acked %v while the store hangs", w.acked)
	}
	w.pickFor(c, []BookieID{"D"})
	w.run()
	w.pickFor(c, []BookieID{"F", "G"})
	w.run()
	w.check()
	if len(w.broken) > 0 || len(w.acked) != 3 {
		t.Errorf("after the store is back: %d acked, %v", len(w.acked), w.broken)
	}
	if got := describe(w.record); got != "OPEN 0:DFG" {
		t.Errorf("record %s", got)
	}
}

func TestC38SecondFailureWhileTheFirstChangeIsInFlight(t *testing.T) {
	playCase(t, "C38-second-failure-during-a-change.txt", "  record v3: OPEN 0:ABC 1:AFD", "  W acks e1..e1")
}

func TestC41RecoveryStartsAtTheLastFragment(t *testing.T) {
	playCase(t, "S02-start-at-the-last-fragment.txt", "  R recovered: CLOSED 0:AB 2:CB 3:DF last e2 length 33")
}

// TestClonesDoNotShare drives a writer and a recovery through a scenario, cloning at every step: the clone of before must
// keep its encoding while the original goes on, and then do the same as the original did.
func TestClonesDoNotShare(t *testing.T) {
	w := newWorld("A", "B", "C", "D")
	c := w.create("W", Quorum{3, 3, 2}, false, "A", "B", "C")
	events := []Event{
		{Kind: EvAppend, Size: 3}, {Kind: EvAppend, Size: 4},
		{Kind: EvAnswer, Answer: AnswerOK, Index: 0, Bookie: "A", Entry: 0}, {Kind: EvAnswer, Answer: AnswerUnknown, Index: 2, Bookie: "C", Entry: 0},
		{Kind: EvPicked, Picks: []Pick{{Index: 2, Bookie: "D"}}}, {Kind: EvMetaUnknown}, {Kind: EvRead, Record: w.record, Version: 1},
		{Kind: EvPicked, Picks: []Pick{{Index: 2, Bookie: "D"}}}, {Kind: EvWritten, Version: 2},
		{Kind: EvAnswer, Answer: AnswerOK, Index: 1, Bookie: "B", Entry: 0}, {Kind: EvForce},
		{Kind: EvForceAnswer, Answer: AnswerOK, Index: 0, Bookie: "A", Entry: 0}, {Kind: EvClose}, {Kind: EvConflict}, {Kind: EvGone},
	}
	for i, ev := range events {
		before := string(c.w.AppendState(nil))
		clone := c.w.Clone()
		first := c.w.Step(ev, nil)
		if string(clone.AppendState(nil)) != before {
			t.Fatalf("event %d changed the clone", i)
		}
		second := clone.Step(ev, nil)
		if len(first) != len(second) || string(clone.AppendState(nil)) != string(c.w.AppendState(nil)) {
			t.Fatalf("event %d: the clone goes another way", i)
		}
	}
	r := NewRecovery(record(StateOpen, 0), 1, RecoveryConfig{ReadAhead: 2})
	r.Start(nil)
	for i, ev := range []Event{{Kind: EvWritten, Version: 2}, {Kind: EvFenceAnswer, Round: 1, Answer: AnswerOK, Index: 0, Bookie: "a", Entry: 1, LAC: 0, Length: 9},
		{Kind: EvFenceAnswer, Round: 1, Answer: AnswerNegative, Index: 1, Bookie: "b"},
		{Kind: EvReadAnswer, Round: 1, Answer: AnswerOK, Index: 0, Bookie: "a", Entry: 1, LAC: 0, Length: 9},
		{Kind: EvAnswer, Round: 1, Answer: AnswerUnknown, Index: 2, Bookie: "c", Entry: 1},
		{Kind: EvPicked, Picks: []Pick{{Index: 2, Bookie: "d", Incarnation: 3}}},
		{Kind: EvAnswer, Round: 1, Answer: AnswerOK, Index: 2, Bookie: "d", Entry: 1}} {
		before := string(r.AppendState(nil))
		clone := r.Clone()
		r.Step(ev, nil)
		if string(clone.AppendState(nil)) != before {
			t.Fatalf("recovery event %d changed the clone", i)
		}
		clone.Step(ev, nil)
		if string(clone.AppendState(nil)) != string(r.AppendState(nil)) {
			t.Fatalf("recovery event %d: the clone goes another way", i)
		}
	}
}

func TestD34AcceptedLoss(t *testing.T) {
	playCase(t, "D34-accepted-loss.txt",
		"  R aborted: ensemble not covered",
		"  X gave up: cut in front of entry 1, which A, B could not deny; not known to be fenced: A, B; a writer that still reaches 2 of them can go on (by hand)",
		"  record v3: CLOSED 0:DBC 1:DFC last e0 length 10",
		"  X recovered: CLOSED 0:ABC last e0 length 10")
}
