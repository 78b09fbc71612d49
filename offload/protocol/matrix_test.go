package protocol

import (
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	closedLedger = Ledger{Version: 7, Closed: true, Last: 10, Length: 100, Release: true}
	noLedger     = Ledger{Version: None}
	noRecord     = Record{Version: None}
)

func recordOf(s State, attempt int) Record {
	return Record{Version: 3, State: s, Attempt: id(attempt), Last: 10, Length: 100}
}

// TestCrashMatrix is the table of crashes: what is found, who comes, and what that one does next.
func TestCrashMatrix(t *testing.T) {
	resumed := func(n int) func(Seen) Action {
		return func(s Seen) Action {
			return (&Attempt{ID: id(n), Resumed: true}).Step(Event{Kind: EventSeen, Seen: s})
		}
	}
	fresh := func(takeOver bool) func(Seen) Action {
		return func(s Seen) Action {
			return (&Attempt{ID: id(9), TakeOver: takeOver}).Step(Event{Kind: EventSeen, Seen: s})
		}
	}
	uploaded := func(n int) func(Seen) Action {
		return func(s Seen) Action {
			a := &Attempt{ID: id(n), Resumed: true}
			a.Step(Event{Kind: EventSeen, Seen: Seen{closedLedger, recordOf(Uploading, n)}})
			a.Step(Event{Kind: EventUploaded, OK: true})
			return a.Step(Event{Kind: EventSeen, Seen: s})
		}
	}
	release := func(s Seen) Action {
		return (&Release{NewID: id(8)}).Step(Event{Kind: EventSeen, Seen: s, LagOver: true})
	}
	janitor := func(l Left) func(Seen) Action { return func(s Seen) Action { return Janitor(s, l) } }
	takeOver := Write{Record: 3, State: Uploading, Attempt: id(9), Discard: true, Ledger: LedgerAt, LedgerVer: 7}
	commit := Write{Record: 3, State: Complete, Attempt: id(1), Ledger: LedgerAt, LedgerVer: 7}
	deleting := Write{Record: 3, State: Deleting, Attempt: id(1), Ledger: LedgerAt, LedgerVer: None}
	garbage := recordOf(Uploading, 2)
	garbage.Garbage = 1
	stale := recordOf(Complete, 1)
	stale.Stale = 1
	other := closedLedger
	other.Last, other.Length, other.Version = 12, 120, 8
	moved := closedLedger
	moved.Version = 8

	for _, c := range []struct {
		name string
		seen Seen
		who  func(Seen) Action
		want Action
	}{
		{"K1 intent only: the record does not name it, the intent is dropped", Seen{closedLedger, noRecord}, resumed(1), Action{Do: Stop, Reason: Displaced}},
		{"K2 record, no object: the same worker goes on", Seen{closedLedger, recordOf(Uploading, 1)}, resumed(1), Action{Do: Upload}},
		{"K2 another one waits for the lock", Seen{closedLedger, recordOf(Uploading, 1)}, fresh(false), Action{Do: Stop, Reason: Busy}},
		{"K2 and takes over", Seen{closedLedger, recordOf(Uploading, 1)}, fresh(true), Action{Do: Send, Write: takeOver}},
		{"K3 parts: the same worker goes on", Seen{closedLedger, recordOf(Uploading, 1)}, resumed(1), Action{Do: Upload}},
		{"K3 the janitor aborts what was taken over", Seen{closedLedger, garbage}, janitor(Left{}), Action{Do: Clean}},
		{"K4, K5, K6 some shards or manifests: go on", Seen{closedLedger, recordOf(Uploading, 1)}, resumed(1), Action{Do: Upload}},
		{"K7 all objects: commit", Seen{closedLedger, recordOf(Uploading, 1)}, uploaded(1), Action{Do: Send, Write: commit}},
		{"K7 nobody comes back: the janitor makes it garbage", Seen{closedLedger, recordOf(Uploading, 1)}, janitor(Left{Abandoned: true, NewID: id(9)}),
			Action{Do: Send, Write: Write{Record: 3, State: Uploading, Attempt: id(9), Idle: true, Discard: true, Ledger: LedgerAt, LedgerVer: 7}}},
		{"K8 commit unclear, it happened", Seen{closedLedger, recordOf(Complete, 1)}, uploaded(1), Action{Do: Finish}},
		{"K8 commit unclear, it did not", Seen{closedLedger, recordOf(Uploading, 1)}, uploaded(1), Action{Do: Send, Write: commit}},
		{"K8 commit unclear, somebody else is there", Seen{closedLedger, recordOf(Uploading, 2)}, uploaded(1), Action{Do: Stop, Reason: Displaced}},
		{"K9 COMPLETE, intent open: it is closed", Seen{closedLedger, recordOf(Complete, 1)}, resumed(1), Action{Do: Finish}},
		{"K10, K11 release unclear, it happened", Seen{noLedger, recordOf(Released, 1)}, release, Action{Do: Finish}},
		{"K10, K11 release unclear, it did not: the objects are looked at again", Seen{closedLedger, recordOf(Complete, 1)}, release, Action{Do: Check}},
		{"K12 intents lost: take-over", Seen{closedLedger, recordOf(Uploading, 1)}, fresh(true), Action{Do: Send, Write: takeOver}},
		{"K13 zombie: its commit has no chance", Seen{closedLedger, recordOf(Uploading, 2)}, uploaded(1), Action{Do: Stop, Reason: Displaced}},
		{"K15 DELETING, some objects gone: again", Seen{noLedger, recordOf(Deleting, 1)}, janitor(Left{}), Action{Do: Clean}},
		{"K15 all gone, twice: the record goes", Seen{noLedger, recordOf(Deleting, 1)}, janitor(Left{Cleaned: true}), Action{Do: Send, Write: Write{Record: 3, Remove: true}}},
		{"K15 an id used again is not the one that was deleted", Seen{closedLedger, recordOf(Deleting, 1)}, janitor(Left{}), Action{Do: Clean}},
		{"K16 a repair's old object", Seen{closedLedger, stale}, janitor(Left{}), Action{Do: Clean}},
		{"21 re-closed elsewhere before the release", Seen{other, recordOf(Complete, 1)}, release,
			Action{Do: Send, Write: Write{Record: 3, State: Uploading, Attempt: id(8), Idle: true, Discard: true, Ledger: LedgerAt, LedgerVer: 8}}},
		{"21 re-closed elsewhere before the commit", Seen{other, recordOf(Uploading, 1)}, uploaded(1), Action{Do: Stop, Reason: Displaced}},
		{"22 a replica moved: only the version differs", Seen{moved, recordOf(Complete, 1)}, release, Action{Do: Check}},
		{"deleted by others while UPLOADING, seen once", Seen{noLedger, recordOf(Uploading, 1)}, janitor(Left{}), Action{Do: Finish}},
		{"deleted by others while UPLOADING, seen twice", Seen{noLedger, recordOf(Uploading, 1)}, janitor(Left{AbsentTwice: true}), Action{Do: Send, Write: deleting}},
		{"deleted by others while COMPLETE, seen twice", Seen{noLedger, recordOf(Complete, 1)}, janitor(Left{AbsentTwice: true}), Action{Do: Send, Write: deleting}},
		{"absent with RELEASED is the tier's", Seen{noLedger, recordOf(Released, 1)}, janitor(Left{AbsentTwice: true}), Action{Do: Finish}},
		{"present with RELEASED is not touched", Seen{closedLedger, recordOf(Released, 1)}, release, Action{Do: Stop, Reason: Contradicts}},
	} {
		require.Equal(t, c.want, c.who(c.seen), c.name)
	}
}

// TestAnAttemptThatWentAndCameBackIsLookedAtAgain: the write that began it, of unknown outcome and sent twice, lands once more after the
// janitor gave the attempt up, cleaned it and removed the record. The model check found it.
func TestAnAttemptThatWentAndCameBackIsLookedAtAgain(t *testing.T) {
	a := &Attempt{ID: id(1)}
	seen := func(r Record) Action { return a.Step(Event{Kind: EventSeen, Seen: Seen{closedLedger, r}}) }
	begin := seen(noRecord)
	require.Equal(t, Send, begin.Do)
	require.Equal(t, Action{Do: Read}, a.Step(Event{Kind: EventWrote, Outcome: Unknown}))
	require.Equal(t, begin, seen(noRecord), "the very same write again")
	a.Step(Event{Kind: EventWrote, Outcome: Applied})
	first := recordOf(Uploading, 1)
	require.Equal(t, Action{Do: Upload}, seen(first))
	a.Step(Event{Kind: EventUploaded, OK: true})
	again := first
	again.Version++ // the first of the two writes lands
	require.Equal(t, Action{Do: Upload}, seen(again), "the objects may be gone")
	a.Step(Event{Kind: EventUploaded, OK: true})
	commit := seen(again)
	require.Equal(t, Complete, commit.Write.State)
	require.Equal(t, again.Version, commit.Write.Record)
}

func TestReleaseNeedsTheOwnersWord(t *testing.T) {
	l := closedLedger
	l.Release = false
	r := &Release{}
	require.Equal(t, Action{Do: Stop, Reason: NotOptedIn}, r.Step(Event{Kind: EventSeen, Seen: Seen{l, recordOf(Complete, 1)}, LagOver: true}))
	require.Contains(t, NotOptedIn.String(), "bindery.tier=release")
	whole := recordOf(Complete, 1)
	missing := whole
	missing.Missing = 1
	require.Equal(t, Action{Do: Stop, Reason: NotWhole}, r.Step(Event{Kind: EventSeen, Seen: Seen{closedLedger, missing}, LagOver: true}))
	require.Equal(t, Action{Do: Wait}, r.Step(Event{Kind: EventSeen, Seen: Seen{closedLedger, whole}}))
	require.Equal(t, Action{Do: Check}, r.Step(Event{Kind: EventSeen, Seen: Seen{closedLedger, whole}, LagOver: true}))
	require.Equal(t, Action{Do: Stop, Reason: TierDoubt}, r.Step(Event{Kind: EventChecked}))
	require.Equal(t, Write{Record: 3, State: Released, Attempt: id(1), Ledger: LedgerDelete, LedgerVer: 7}, r.Step(Event{Kind: EventChecked, OK: true}).Write)
}

func TestWhatMayNotBeOffloaded(t *testing.T) {
	open, empty := closedLedger, closedLedger
	open.Closed = false
	empty.Last = -1
	full := recordOf(Uploading, 1)
	full.Garbage = GarbageMax
	for _, c := range []struct {
		seen Seen
		want Reason
	}{
		{Seen{noLedger, noRecord}, NoLedger}, {Seen{open, noRecord}, NotClosed}, {Seen{empty, noRecord}, NotClosed},
		{Seen{closedLedger, recordOf(Complete, 1)}, InTier}, {Seen{noLedger, recordOf(Released, 1)}, InTier}, {Seen{noLedger, recordOf(Deleting, 1)}, BeingDeleted},
		{Seen{closedLedger, full}, GarbageFull},
	} {
		a := &Attempt{ID: id(2), TakeOver: true}
		require.Equal(t, Action{Do: Stop, Reason: c.want}, a.Step(Event{Kind: EventSeen, Seen: c.seen}), c.want.String())
	}
}

func TestDeletion(t *testing.T) {
	d := &Deletion{}
	for _, s := range []State{Uploading, Complete} {
		a := d.Step(Event{Kind: EventSeen, Seen: Seen{closedLedger, recordOf(s, 1)}})
		require.Equal(t, Write{Record: 3, State: Deleting, Attempt: id(1), Ledger: LedgerDelete, LedgerVer: 7}, a.Write, s)
	}
	a := d.Step(Event{Kind: EventSeen, Seen: Seen{noLedger, recordOf(Released, 1)}})
	require.Equal(t, Write{Record: 3, State: Deleting, Attempt: id(1), Ledger: LedgerAt, LedgerVer: None}, a.Write)
	require.Equal(t, Action{Do: Read}, d.Step(Event{Kind: EventWrote, Outcome: Unknown}))
	require.Equal(t, Action{Do: Finish}, d.Step(Event{Kind: EventSeen, Seen: Seen{noLedger, recordOf(Deleting, 1)}}))
	d = &Deletion{}
	require.Equal(t, Action{Do: Stop, Reason: NotComplete}, d.Step(Event{Kind: EventSeen, Seen: Seen{closedLedger, noRecord}}))
}

// TestDeletionOfWhatTheTierDoesNotKnow: in the same transaction the tier must still not know it.
func TestDeletionOfWhatTheTierDoesNotKnow(t *testing.T) {
	d := &Deletion{All: true}
	want := Action{Do: Send, Write: Write{Record: None, LedgerOnly: true, Ledger: LedgerDelete, LedgerVer: 7}}
	require.Equal(t, want, d.Step(Event{Kind: EventSeen, Seen: Seen{closedLedger, noRecord}}))
	require.Equal(t, Action{Do: Read}, d.Step(Event{Kind: EventWrote, Outcome: Conflict}))
	a := d.Step(Event{Kind: EventSeen, Seen: Seen{closedLedger, recordOf(Uploading, 1)}})
	require.Equal(t, Deleting, a.Write.State, "somebody began to offload it")
	require.Equal(t, LedgerDelete, a.Write.Ledger)

	anew := Write{Record: 3, LedgerOnly: true, Ledger: LedgerDelete, LedgerVer: 7}
	require.Equal(t, anew, (&Deletion{All: true}).Step(Event{Kind: EventSeen, Seen: Seen{closedLedger, recordOf(Deleting, 1)}}).Write, "an id used again")
	require.Equal(t, Action{Do: Finish}, (&Deletion{}).Step(Event{Kind: EventSeen, Seen: Seen{closedLedger, recordOf(Deleting, 1)}}))

	d = &Deletion{All: true}
	require.Equal(t, Action{Do: Stop, Reason: NoLedger}, d.Step(Event{Kind: EventSeen, Seen: Seen{noLedger, noRecord}}))
	d.Step(Event{Kind: EventSeen, Seen: Seen{closedLedger, noRecord}})
	d.Step(Event{Kind: EventWrote, Outcome: Unknown})
	require.Equal(t, Action{Do: Finish}, d.Step(Event{Kind: EventSeen, Seen: Seen{noLedger, noRecord}}))
}

func TestIDs(t *testing.T) {
	a := AttemptID{0x3f, 15: 1}
	got, err := ParseAttemptID(a.String())
	require.NoError(t, err)
	require.Equal(t, a, got)
	require.True(t, AttemptID{}.Zero())
	for _, s := range []string{"", "3f", a.String() + "0", "zz" + a.String()[2:]} {
		_, err := ParseAttemptID(s)
		require.Error(t, err, s)
	}
	require.Equal(t, "State(9)", State(9).String())
}
