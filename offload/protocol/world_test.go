package protocol

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A world is one ledger, its offload record, the objects of each attempt, and everybody who touches them. It is a plain value: copying
// it forks history, and equal worlds are one state.

const (
	attempts = 8 // ids 1 to 7; 0 is none
	workers  = 2
)

type object struct {
	parts, whole bool
	last         int64 // of the ledger that they were made from
}

type actor struct {
	attempt  Attempt
	pending  Action // what it is about to do
	on       bool
	sending  bool  // an upload is under way
	upLedger int64 // last of the ledger that is uploaded
}

type lateWrite struct {
	on bool
	w  Write
}

type world struct {
	clock    int64 // versions
	ledger   Ledger
	final    int64 // last of the ledger when it was deleted
	deleted  bool  // by somebody who wanted it gone
	record   Record
	garbage  [attempts]bool
	passed   [attempts]bool // a first pass found or removed what there was
	objects  [attempts]object
	actors   [workers]actor
	release  Release
	relDo    Action
	relOn    bool
	late     [2]lateWrite
	nextID   int
	crashes  int
	unclears int
	recloses int
	broken   rule
}

// rule is a rule that a test takes away, to see that its loss is noticed.
type rule uint8

const (
	releaseAtVersion rule = 1 + iota // the release names the ledger's version
	resumedIsNamed                   // a resumed attempt is never named anew
	twoPasses                        // the janitor's second pass, with no request under way, ends an attempt
	sameLedger                       // what is committed is what the ledger's record says
)

func id(n int) AttemptID { return AttemptID{byte(n)} }

func newWorld() world {
	w := world{clock: 1, ledger: Ledger{Version: 1, Closed: true, Last: 10, Length: 100, Release: true}, nextID: 1, crashes: 2, unclears: 3, recloses: 1}
	w.record.Version = None
	return w
}

// worldOf is where a seed begins: at nothing, or at a ledger that was committed.
func worldOf(seed int) world {
	w := newWorld()
	if seed%2 == 1 {
		w.clock, w.nextID = 2, 2
		w.record = Record{Version: 2, State: Complete, Attempt: id(1), Last: w.ledger.Last, Length: w.ledger.Length}
		w.objects[1] = object{parts: true, whole: true, last: w.ledger.Last}
	}
	return w
}

func (w *world) seen() Seen {
	r := w.record
	r.Garbage = 0
	for _, g := range w.garbage {
		if g {
			r.Garbage++
		}
	}
	return Seen{Ledger: w.ledger, Record: r}
}

// apply makes a write if its conditions hold.
func (w *world) apply(x Write) bool {
	free := x.Ledger == LedgerFree || w.broken == releaseAtVersion && x.State == Released
	if x.Record != w.record.Version || !free && x.LedgerVer != w.ledger.Version {
		return false
	}
	w.clock++
	if x.Remove {
		w.record = Record{Version: None}
		return true
	}
	old := w.record
	if x.Discard {
		w.garbage[old.Attempt[0]] = true
		w.passed[old.Attempt[0]] = false
	}
	w.record = Record{Version: w.clock, State: x.State, Attempt: x.Attempt, Idle: x.Idle, Last: old.Last, Length: old.Length}
	if x.State == Uploading {
		w.record.Last, w.record.Length = w.ledger.Last, w.ledger.Length
	}
	if x.Ledger == LedgerDelete {
		w.final = w.ledger.Last
		w.ledger = Ledger{Version: None}
	}
	if x.State == Deleting {
		w.deleted = true
	}
	return true
}

// send makes a write with one of the outcomes that a store has.
func (w *world) send(x Write, how int) Outcome {
	switch how {
	case 1: // happened, nobody is told
		w.unclears--
		w.apply(x)
		return Unknown
	case 2: // did not happen, and will not
		w.unclears--
		return Unknown
	case 3: // lands later
		for i := range w.late {
			if !w.late[i].on {
				w.unclears--
				w.late[i] = lateWrite{true, x}
				return Unknown
			}
		}
	}
	if w.apply(x) {
		return Applied
	}
	return Conflict
}

func (w *world) hows() int {
	if w.unclears > 0 {
		return 4
	}
	return 1
}

// check is what must be true in every state.
func (w *world) check() error {
	r := w.record
	tier := func() bool {
		o := w.objects[r.Attempt[0]]
		return o.whole && o.last == r.Last
	}
	if (r.State == Complete || r.State == Released) && !tier() {
		return fmt.Errorf("record is %s, its objects are %+v", r.State, w.objects[r.Attempt[0]])
	}
	if !w.deleted && !w.ledger.Exists() && (r.State != Released || !tier() || r.Last != w.final) {
		return fmt.Errorf("neither on the bookies nor in the tier: record %+v, closed at %d", r, w.final)
	}
	for a, o := range w.objects {
		if o != (object{}) && !w.named(a) {
			return fmt.Errorf("attempt %d has objects and no name", a)
		}
	}
	return nil
}

func (w *world) named(a int) bool {
	return w.garbage[a] || w.record.State != Absent && w.record.Attempt == id(a)
}

// move is one thing that may happen next.
type move struct {
	name string
	do   func(*world)
}

func (w *world) moves() []move {
	var out []move
	add := func(name string, do func(*world)) { out = append(out, move{name, do}) }
	for i := range w.actors {
		w.workerMoves(i, add)
	}
	w.releaseMoves(add)
	for i := range w.late {
		if w.late[i].on {
			add("late write lands", func(w *world) { x := w.late[i].w; w.late[i].on = false; w.apply(x) })
			add("late write is lost", func(w *world) { w.late[i].on = false })
		}
	}
	w.janitorMoves(add)
	if w.ledger.Exists() && w.recloses > 0 {
		add("re-closed elsewhere", func(w *world) {
			w.recloses--
			w.clock++
			w.ledger.Version, w.ledger.Last, w.ledger.Length = w.clock, w.ledger.Last+1, w.ledger.Length+10
		})
		add("ensemble moved", func(w *world) { w.recloses--; w.clock++; w.ledger.Version = w.clock })
	}
	if w.ledger.Exists() && w.recloses > 0 {
		add("deleted by others", func(w *world) {
			w.recloses--
			w.deleted, w.final, w.ledger = true, w.ledger.Last, Ledger{Version: None}
		})
	}
	if w.record.State != Absent && w.record.State != Deleting && w.recloses > 0 {
		if a := (&Deletion{}).Step(Event{Kind: EventSeen, Seen: w.seen()}); a.Do == Send {
			add("delete", func(w *world) { w.recloses--; w.apply(a.Write) })
		}
	}
	return out
}

func (w *world) workerMoves(i int, add func(string, func(*world))) {
	a := &w.actors[i]
	name := fmt.Sprintf("worker %d: ", i)
	step := func(w *world, e Event) {
		a := &w.actors[i]
		a.pending = a.attempt.Step(e)
		if a.pending.Do == Stop || a.pending.Do == Finish {
			*a = actor{}
		}
	}
	if !a.on {
		if w.nextID < attempts {
			for _, takeOver := range []bool{false, true} {
				add(fmt.Sprintf("%snew attempt %d, take-over %v", name, w.nextID, takeOver), func(w *world) {
					w.actors[i] = actor{on: true, attempt: Attempt{ID: id(w.nextID), TakeOver: takeOver}, pending: Action{Do: Read}}
					w.nextID++
				})
			}
		}
		// A worker that crashed and has the intent of the attempt that the record names goes on with it.
		if n := int(w.record.Attempt[0]); w.record.State == Uploading && !w.record.Idle && !w.inHand(n) {
			add(fmt.Sprintf("%sresumes %d", name, n), func(w *world) {
				w.actors[i] = actor{on: true, attempt: Attempt{ID: id(n), Resumed: w.broken != resumedIsNamed}, pending: Action{Do: Read}}
			})
		}
		return
	}
	if w.crashes > 0 {
		add(name+"crash", func(w *world) { w.crashes--; w.actors[i] = actor{} })
	}
	switch a.pending.Do {
	case Read:
		add(name+"read", func(w *world) {
			w.actors[i].upLedger = w.ledger.Last
			seen := w.seen()
			if w.broken == sameLedger && seen.Record.State == Uploading {
				seen.Ledger.Last, seen.Ledger.Length = seen.Record.Last, seen.Record.Length
			}
			step(w, Event{Kind: EventSeen, Seen: seen})
		})
	case Send:
		for how := range w.hows() {
			add(fmt.Sprintf("%swrite %s, outcome %d", name, a.pending.Write.State, how), func(w *world) {
				step(w, Event{Kind: EventWrote, Outcome: w.send(w.actors[i].pending.Write, how)})
			})
		}
	case Upload:
		n := int(a.attempt.ID[0])
		if !a.sending {
			add(name+"first objects", func(w *world) {
				w.actors[i].sending = true
				if !w.objects[n].whole { // the intents say what is there
					w.objects[n] = object{parts: true, last: w.actors[i].upLedger}
				}
			})
			return
		}
		add(name+"all objects", func(w *world) {
			a := &w.actors[i]
			a.sending = false
			if !w.ledger.Exists() {
				step(w, Event{Kind: EventUploaded})
				return
			}
			w.objects[n] = object{parts: true, whole: true, last: w.objects[n].last}
			step(w, Event{Kind: EventUploaded, OK: true})
		})
	}
}

func (w *world) inHand(n int) bool {
	for i := range w.actors {
		if w.actors[i].on && w.actors[i].attempt.ID == id(n) {
			return true
		}
	}
	return false
}

func (w *world) releaseMoves(add func(string, func(*world))) {
	step := func(w *world, e Event) {
		w.relDo = w.release.Step(e)
		if w.relDo.Do == Stop || w.relDo.Do == Finish || w.relDo.Do == Wait {
			w.relOn, w.release, w.relDo = false, Release{}, Action{}
		}
	}
	if !w.relOn {
		if w.record.State == Complete && w.nextID < attempts {
			add("release: begins", func(w *world) {
				w.relOn, w.release, w.relDo = true, Release{NewID: id(w.nextID)}, Action{Do: Read}
				w.nextID++
			})
		}
		return
	}
	switch w.relDo.Do {
	case Read:
		add("release: read", func(w *world) { step(w, Event{Kind: EventSeen, Seen: w.seen(), LagOver: true}) })
	case Check:
		add("release: look at the objects", func(w *world) {
			step(w, Event{Kind: EventChecked, OK: w.objects[w.release.seen.Record.Attempt[0]].whole})
		})
	case Send:
		for how := range w.hows() {
			add(fmt.Sprintf("release: write %s, outcome %d", w.relDo.Write.State, how), func(w *world) {
				step(w, Event{Kind: EventWrote, Outcome: w.send(w.relDo.Write, how)})
			})
		}
	}
	if w.crashes > 0 {
		add("release: crash", func(w *world) { w.crashes--; w.relOn, w.release, w.relDo = false, Release{}, Action{} })
	}
}

// uploading says that a worker has looked at the record less than the grace ago, saw that it names the attempt, and sends: workers look
// again before that time is over.
func (w *world) uploading(n int) bool {
	for i := range w.actors {
		if a := &w.actors[i]; a.on && a.pending.Do == Upload && a.attempt.ID == id(n) {
			return true
		}
	}
	return false
}

// pass is one pass of the janitor over an attempt: the first removes, a later one that finds nothing, with no request of the
// attempt under way any more, ends it.
func (w *world) pass(n int) (clean bool) {
	if w.objects[n] == (object{}) && w.passed[n] && !w.uploading(n) {
		return true
	}
	if w.broken == twoPasses {
		w.objects[n] = object{}
		return true
	}
	w.objects[n] = object{}
	w.passed[n] = true
	return false
}

func (w *world) janitorMoves(add func(string, func(*world))) {
	if w.record.State == Absent {
		return
	}
	for _, abandoned := range []bool{false, true} {
		l := Left{Abandoned: abandoned, AbsentTwice: true, NewID: id(w.nextID)}
		n := int(w.record.Attempt[0])
		if w.record.State == Deleting {
			l.Cleaned = w.objects[n] == (object{}) && w.passed[n] && !w.uploading(n) && w.seen().Record.Garbage == 0
		}
		a := Janitor(w.seen(), l)
		if a.Do == Send && a.Write.Idle && w.nextID >= attempts {
			continue
		}
		switch a.Do {
		case Send:
			add(fmt.Sprintf("janitor: write %s (remove %v)", a.Write.State, a.Write.Remove), func(w *world) {
				if a.Write.Idle {
					w.nextID++
				}
				w.apply(a.Write)
			})
		case Clean:
			add("janitor: pass", func(w *world) {
				changed := false
				for g := range w.garbage {
					if w.garbage[g] && w.pass(g) {
						w.garbage[g], w.passed[g], changed = false, false, true
					}
				}
				if w.record.State == Deleting {
					w.pass(n)
				}
				if changed {
					w.clock++
					w.record.Version = w.clock
				}
			})
		}
	}
}

// settle lets everybody finish without faults, and says what is left that should not be.
func (w *world) settle() error {
	w.late = [2]lateWrite{}
	w.crashes, w.unclears, w.recloses, w.nextID = 0, 0, 0, attempts
	for range 200 {
		var next *move
		for _, m := range w.moves() {
			// Nobody new begins, and a worker does not take up again and again what it can not finish.
			if !strings.Contains(m.name, "resumes") || w.record.State == Uploading && w.ledger.Exists() && w.seen().same() {
				next = &m
				break
			}
		}
		if next == nil {
			break
		}
		next.do(w)
		if err := w.check(); err != nil {
			return fmt.Errorf("%s: %w", next.name, err)
		}
	}
	for a, o := range w.objects {
		if o != (object{}) && (w.record.State == Absent || w.record.Attempt != id(a)) {
			return fmt.Errorf("attempt %d left objects behind: record %+v, garbage %v", a, w.record, w.garbage)
		}
	}
	return nil
}

func TestLosingARuleIsNoticed(t *testing.T) {
	for broken := releaseAtVersion; broken <= sameLedger; broken++ {
		found := false
		for seed := 0; seed < 40_000 && !found; seed++ {
			rng := rand.New(rand.NewPCG(uint64(seed), 7))
			w := worldOf(seed)
			w.broken = broken
			for range 10 + rng.IntN(60) {
				ms := w.moves()
				if len(ms) == 0 {
					break
				}
				ms[rng.IntN(len(ms))].do(&w)
				if w.check() != nil {
					found = true
					break
				}
			}
			found = found || w.settle() != nil
		}
		require.True(t, found, "rule %d", broken)
	}
}

func TestNoHistoryLosesTheLedger(t *testing.T) {
	seeds := 20_000
	if testing.Short() {
		seeds = 8_000
	}
	reached := map[State]int{}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(uint64(seed), 7))
		w := worldOf(seed)
		var history []string
		for range 10 + rng.IntN(60) {
			ms := w.moves()
			if len(ms) == 0 {
				break
			}
			m := ms[rng.IntN(len(ms))]
			m.do(&w)
			history = append(history, m.name)
			reached[w.record.State]++
			if err := w.check(); err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(history, "\n"))
			}
		}
		if err := w.settle(); err != nil {
			t.Fatalf("seed %d, settling: %v\n%s", seed, err, strings.Join(history, "\n"))
		}
	}
	for _, s := range []State{Absent, Uploading, Complete, Released, Deleting} {
		require.Positive(t, reached[s], "%s was never reached", s)
	}
}

// TestEveryShortHistory visits every state of a small world, breadth first.
func TestEveryShortHistory(t *testing.T) {
	limit := 150_000
	if testing.Short() {
		limit = 60_000
	}
	start := newWorld()
	start.crashes, start.unclears, start.recloses, start.nextID = 1, 1, 1, attempts-4
	type node struct {
		w      world
		parent int
		name   string
	}
	nodes := []node{{start, -1, ""}}
	known := map[world]struct{}{start: {}}
	for at := 0; at < len(nodes) && len(nodes) < limit; at++ {
		for _, m := range nodes[at].w.moves() {
			w := nodes[at].w
			m.do(&w)
			if _, seen := known[w]; seen {
				continue
			}
			known[w] = struct{}{}
			nodes = append(nodes, node{w, at, m.name})
			if err := w.check(); err != nil {
				history := []string{}
				for i := len(nodes) - 1; i > 0; i = nodes[i].parent {
					history = append([]string{nodes[i].name}, history...)
				}
				t.Fatalf("%v\n%s", err, strings.Join(history, "\n"))
			}
		}
	}
	t.Logf("%d states", len(nodes))
}
