package placement

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func source(seed uint64) func() float64 { return rand.New(rand.NewPCG(seed, 1)).Float64 }

func view(n, domains int) []Bookie {
	var v []Bookie
	for i := range n {
		b := Bookie{ID: ledger.BookieID(fmt.Sprintf("b%02d", i))}
		if domains > 0 {
			b.Domain = fmt.Sprintf("rack%d", i%domains)
		}
		v = append(v, b)
	}
	return v
}

func TestChooseIsDistinctAndUsable(t *testing.T) {
	v := view(8, 0)
	v[1].ReadOnly, v[2].Quarantined = true, true
	for seed := range uint64(200) {
		got, err := Choose(v, 5, source(seed))
		if err != nil {
			t.Fatal(err)
		}
		seen := map[ledger.BookieID]bool{}
		for _, b := range got {
			if seen[b] {
				t.Fatalf("%v names %s twice", got, b)
			}
			seen[b] = true
		}
		if len(got) != 5 || seen["b01"] {
			t.Fatalf("read-only chosen: %v", got)
		}
		if seen["b02"] {
			t.Fatalf("a quarantined one although six others are left: %v", got)
		}
	}
	if got, err := Choose(v, 7, source(1)); err != nil || !slices.Contains(got, "b02") {
		t.Errorf("with nothing else left the quarantined one is taken: %v %v", got, err)
	}
	if _, err := Choose(v, 8, source(1)); !errors.Is(err, ErrNotEnoughBookies) {
		t.Errorf("seven can be used: %v", err)
	}
	if _, err := Choose(nil, 1, source(1)); !errors.Is(err, ErrNotEnoughBookies) {
		t.Errorf("empty view: %v", err)
	}
}

func TestChooseSpreadsOverDomains(t *testing.T) {
	for seed := range uint64(100) {
		v := view(9, 3)
		got, err := Choose(v, 6, source(seed))
		if err != nil {
			t.Fatal(err)
		}
		count := map[string]int{}
		for _, id := range got {
			i := slices.IndexFunc(v, func(b Bookie) bool { return b.ID == id })
			count[v[i].Domain]++
		}
		for d, n := range count {
			if n != 2 {
				t.Fatalf("%s holds %d of 6 members: %v", d, n, got)
			}
		}
	}
	// The replacement comes from the domain that has lost its member.
	v := view(6, 3)
	got, ok := Replace(v, []ledger.BookieID{"b00", "b01"}, []ledger.BookieID{"b00", "b01", "b02"}, source(3))
	if !ok || got != "b05" {
		t.Errorf("replacement %s, want b05 of rack2", got)
	}
	// Without one there, the rule gives way.
	got, ok = Replace(v[:5], []ledger.BookieID{"b00", "b01"}, []ledger.BookieID{"b00", "b01", "b02"}, source(3))
	if !ok || got != "b03" && got != "b04" {
		t.Errorf("replacement %s %v", got, ok)
	}
}

func TestChooseIsFairAndWeighted(t *testing.T) {
	v := view(4, 0)
	v[3].Weight = 3
	random := source(9)
	count := map[ledger.BookieID]int{}
	const n = 60000
	for range n {
		b, _ := Replace(v, nil, nil, random)
		count[b]++
	}
	for id, want := range map[ledger.BookieID]float64{"b00": 1. / 6, "b01": 1. / 6, "b02": 1. / 6, "b03": 3. / 6} {
		if got := float64(count[id]) / n; got < want*0.95 || got > want*1.05 {
			t.Errorf("%s chosen %.3f of the time, want %.3f", id, got, want)
		}
	}
}

func TestReplaceNone(t *testing.T) {
	v := view(3, 0)
	if b, ok := Replace(v, []ledger.BookieID{"b00"}, []ledger.BookieID{"b01", "b02"}, source(1)); ok {
		t.Errorf("got %s", b)
	}
}

func TestRegionsComeBeforeRacks(t *testing.T) {
	view := []Bookie{{ID: "a1", Domain: "/A/1"}, {ID: "a2", Domain: "/A/2"}, {ID: "b1", Domain: "/B/1"}, {ID: "b2", Domain: "/B/2"}, {ID: "b3", Domain: "/B/2"}}
	half := func() float64 { return 0 }
	got, ok := Replace(view, []ledger.BookieID{"b1", "b2"}, nil, half)
	if !ok || got[0] != 'a' {
		t.Fatalf("%s: the third copy belongs to the other region", got)
	}
	got, ok = Replace(view, []ledger.BookieID{"a1", "b2"}, []ledger.BookieID{"a2"}, half)
	if !ok || got != "b1" {
		t.Fatalf("%s: in the same region another rack comes first", got)
	}
}

func TestAdheres(t *testing.T) {
	view := []Bookie{{ID: "a", Domain: "/r1"}, {ID: "b", Domain: "/r1"}, {ID: "c", Domain: "/r2"}, {ID: "d", Domain: "/r3"}, {ID: "x"}, {ID: "y"}}
	for _, tc := range []struct {
		ensemble []ledger.BookieID
		qw, min  int
		want     bool
	}{
		{[]ledger.BookieID{"a", "b"}, 2, 2, false},
		{[]ledger.BookieID{"a", "c"}, 2, 2, true},
		{[]ledger.BookieID{"a", "b", "c"}, 2, 2, false}, // the window a b
		{[]ledger.BookieID{"a", "b", "c"}, 3, 2, true},
		{[]ledger.BookieID{"a", "b", "c"}, 3, 3, false},
		{[]ledger.BookieID{"x", "y"}, 2, 2, true}, // without domains each is its own
		{[]ledger.BookieID{"a", "gone"}, 2, 2, false},
		{[]ledger.BookieID{"a"}, 1, 2, true},
	} {
		if got := Adheres(view, tc.ensemble, tc.qw, tc.min); got != tc.want {
			t.Errorf("%v Qw=%d min=%d: %v", tc.ensemble, tc.qw, tc.min, got)
		}
	}
	index, to, ok := Misplaced(view, []ledger.BookieID{"a", "b"}, 2, 2, func() float64 { return 0 })
	if !ok || index != 0 || (to != "c" && to != "d" && to != "x" && to != "y") {
		t.Fatalf("%d %s %v", index, to, ok)
	}
	if _, _, ok := Misplaced(view[:2], []ledger.BookieID{"a", "b"}, 2, 2, func() float64 { return 0 }); ok {
		t.Fatal("nobody else is there")
	}
}
