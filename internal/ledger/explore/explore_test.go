package explore

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/binderylog/bindery/internal/ledger"
)

// TestShortWorlds explores the worlds that take seconds; make modelcheck explores them all.
func TestShortWorlds(t *testing.T) {
	names := []string{"closed-replicator", "faults", "two-fragments", "unknown", "recoverers", "collector", "forced", "forced-unmarked", "split-readd", "tier-recovery", "tier-replicator"}
	if !testing.Short() && !raceEnabled {
		names = append(names, "ahead", "deleted", "verify", "wipe-2", "live-replicator", "tier-deleted", "tier-damage")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			spec := world(t, name)
			r, err := Search(context.Background(), &spec, Options{Workers: 1})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(r.String())
			if r.Broken != nil {
				t.Fatalf("%s\n%s", r.Broken.Invariant, Script(&spec, r.Broken.History))
			}
			if r.Bound != "" {
				t.Errorf("not complete: %s", r.Bound)
			}
			if r.States < 30 || r.Depth < 10 {
				t.Errorf("%d states, depth %d: next to nothing happens here", r.States, r.Depth)
			}
			if r.Closed == 0 && spec.Recoverers > 0 {
				t.Error("no recovery ever ends")
			}
			if r.Acked == 0 && !spec.NoWriter {
				t.Error("nothing is ever acknowledged")
			}
		})
	}
}

func world(t *testing.T, name string) Spec {
	t.Helper()
	spec, ok := World(name)
	if !ok {
		t.Fatalf("there is no world %q", name)
	}
	return spec
}

func TestWorldsAreValid(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range append(Worlds(), Large()...) {
		if seen[s.Name] {
			t.Errorf("two worlds are called %s", s.Name)
		}
		seen[s.Name] = true
		if _, err := newSpace(&s); err != nil {
			t.Error(err)
		}
	}
	for _, p := range Mutants() {
		if !seen[p.World] {
			t.Errorf("%q is looked for in world %q, which does not exist", p.Name, p.World)
		}
	}
	if n := len(Mutants()); n != int(ledger.MutantModelled)-1 {
		t.Errorf("%d planted bugs are looked for, there are %d", n, int(ledger.MutantModelled)-1)
	}
	bad := Spec{Name: "bad", Quorum: q332, Bookies: 2}
	if _, err := Search(context.Background(), &bad, Options{}); err == nil || !strings.Contains(err.Error(), "at least one ensemble") {
		t.Errorf("a world without an ensemble: %v", err)
	}
}

// reach lists everything that a world reaches: the fingerprints of all states and of those where nothing can happen, up to
// symmetry, found without the help of symmetry.
func reach(t *testing.T, spec Spec) (all, ends map[fingerprint]bool) {
	t.Helper()
	x, err := newSpace(&spec)
	if err != nil {
		t.Fatal(err)
	}
	sc := &scratch{}
	all, ends = map[fingerprint]bool{}, map[fingerprint]bool{}
	seen := map[fingerprint]bool{}
	var todo []state
	visit := func(s state) {
		x.vector(&s, 0, sc)
		if f := hash(sc.words); !seen[f] {
			seen[f] = true
			todo = append(todo, s)
		}
	}
	first := x.start
	x.settle(&first)
	x.noteServed(&first)
	visit(first)
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		all[x.fingerprint(&s, sc)] = true
		moves := x.moves(&s, nil)
		if len(moves) == 0 {
			ends[x.fingerprint(&s, sc)] = true
		}
		for _, m := range moves {
			next := s
			if why := x.apply(&next, m); why != "" {
				t.Fatal(why)
			}
			visit(next)
		}
	}
	return all, ends
}

// TestSymmetryLosesNothing counts a world's states with and without the use of symmetry.
func TestSymmetryLosesNothing(t *testing.T) {
	for _, name := range []string{"faults", "two-fragments", "collector"} {
		spec := world(t, name)
		all, _ := reach(t, spec)
		r, err := Search(context.Background(), &spec, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(all)) != r.States {
			t.Errorf("%s: %d states up to symmetry, the search finds %d", name, len(all), r.States)
		}
	}
}

// TestPreferredMovesLoseNoEnd compares the states in which a world ends with and without the preference of moves that
// commute with the others.
func TestPreferredMovesLoseNoEnd(t *testing.T) {
	saved := 0
	for _, name := range []string{"faults", "recoverers"} {
		spec := world(t, name)
		spec.unordered = true
		// Fingerprints count parts in the order in which they were met, so only numbers can be compared.
		all, ends := reach(t, spec)
		spec.unordered = false
		fewer, same := reach(t, spec)
		if len(ends) != len(same) || len(ends) == 0 {
			t.Errorf("%s: %d ends, %d with preferred moves", name, len(ends), len(same))
		}
		saved += len(all) - len(fewer)
	}
	if saved == 0 {
		t.Error("preferred moves save nothing")
	}
}

// TestRememberedStepsAreTheSteps explores a world with every step made on the cores, and with steps remembered.
func TestRememberedStepsAreTheSteps(t *testing.T) {
	for _, name := range []string{"faults", "two-fragments", "collector", "closed-replicator"} {
		spec := world(t, name)
		with, err := Search(context.Background(), &spec, Options{})
		if err != nil {
			t.Fatal(err)
		}
		spec.exact = true
		without, err := Search(context.Background(), &spec, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if with.States != without.States || with.Transitions != without.Transitions || with.Depth != without.Depth {
			t.Errorf("%s: %v\nwithout memory: %v", name, with.String(), without.String())
		}
	}
}

// TestWalksRepeat makes the same walks twice and plays one of them as a script.
func TestWalksRepeat(t *testing.T) {
	for _, spec := range append(Large(), world(t, "wipe"), world(t, "collector")) {
		a, _, err := Walk(context.Background(), &spec, 7, 40)
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := Walk(context.Background(), &spec, 7, 40)
		if err != nil {
			t.Fatal(err)
		}
		if a.Broken != nil || a.States != b.States || a.Depth != b.Depth || a.States < 400 {
			t.Errorf("%s: %v, then %v", spec.Name, a.String(), b.String())
		}
	}
}

// TestScriptsReplay plays a history that loses and replaces a bookie, in the form in which violations are printed.
func TestScriptsReplay(t *testing.T) {
	spec := world(t, "wipe-2")
	history := []string{"append W", "timeout W>A add e0", "pick W C", "store W", "told W", "deliver W>B add e0", "reply B>W add e0 ok", "deliver W>C add e0",
		"reply C>W add e0 ok", "erase B", "start B", "recover R1", "store R1", "told R1", "deliver R1>C fence"}
	script := Script(&spec, history)
	for _, l := range []string{"# world wipe-2: ", "> bookies A B C\n", "> create W 2 2 2 A B\n", "> meta W ok\n", "> wipe B\n"} {
		if !strings.Contains(script, l) {
			t.Errorf("no %q in\n%s", l, script)
		}
	}
	out, broken, err := Replay(script)
	if err != nil || broken != "" {
		t.Fatalf("%v, %q\n%s", err, broken, out)
	}
	for _, l := range []string{"  record v2: OPEN 0:CB\n", "  e0 is acknowledged\n", "  B: fenced limbo\n", "  R1 writes IN_RECOVERY 0:CB at v2\n"} {
		if !strings.Contains(out, l) {
			t.Errorf("no %q in\n%s", l, out)
		}
	}
	if _, _, err := Replay(script + "> wipe A\n"); err == nil {
		t.Error("a second wipe is beyond the budget")
	}
	if _, _, err := Replay("# world nowhere\n"); err == nil {
		t.Error("there is no such world")
	}
}

// TestTheBoundIsSaid: a search that is cut short says so.
func TestTheBoundIsSaid(t *testing.T) {
	spec := world(t, "wipe")
	r, err := Search(context.Background(), &spec, Options{StatesMax: 1000})
	if err != nil || r.Bound != "1000 states" || r.States < 1000 || r.States > 100000 {
		t.Errorf("%v, %v", r.String(), err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r, err = Search(ctx, &spec, Options{}); err != nil || r.Bound != "context canceled" {
		t.Errorf("%v, %v", r.String(), err)
	}
}

func TestVisited(t *testing.T) {
	var v visited
	for n := range uint32(20000) {
		if !v.add(hash([]uint32{n, n >> 3})) {
			t.Fatalf("%d is new", n)
		}
	}
	for n := range uint32(20000) {
		if v.add(hash([]uint32{n, n >> 3})) {
			t.Fatalf("%d was there", n)
		}
	}
	if hash([]uint32{1}) == hash([]uint32{1, 0}) || hash(nil) == hash([]uint32{0}) {
		t.Error("the length is part of a fingerprint")
	}
	if v.bytes() < 20000*16 {
		t.Errorf("%d bytes", v.bytes())
	}
}

func TestPermutations(t *testing.T) {
	for n, want := range []int{1, 1, 2, 6, 24} {
		got := permutations(n)
		if len(got) != want {
			t.Errorf("%d permutations of %d", len(got), n)
		}
		for _, p := range got {
			q := slices.Clone(p)
			slices.Sort(q)
			if !slices.Equal(q, identity(n)) {
				t.Errorf("%v is none", p)
			}
		}
	}
}
