package ledger

import (
	"errors"
	"math"
	"reflect"
	"testing"
)

func record(state State, firsts ...EntryID) *Metadata {
	m := &Metadata{FormatVersion: 3, Ensemble: 3, WriteQuorum: 3, AckQuorum: 2, State: state, LastEntry: InvalidEntry}
	for i, f := range firsts {
		m.Fragments = append(m.Fragments, Fragment{First: f, Bookies: []BookieID{"a", "b", BookieID(rune('c' + i))}})
	}
	return m
}

func TestMetadataValidate(t *testing.T) {
	good := func(change func(m *Metadata)) *Metadata {
		m := record(StateOpen, 0, 10)
		change(m)
		return m
	}
	for name, m := range map[string]*Metadata{
		"open":                 good(func(*Metadata) {}),
		"closed, empty last":   good(func(m *Metadata) { m.State, m.LastEntry = StateClosed, 9 }),
		"closed":               good(func(m *Metadata) { m.State, m.LastEntry = StateClosed, 30 }),
		"closed and empty":     good(func(m *Metadata) { m.Fragments = m.Fragments[:1]; m.State, m.LastEntry = StateClosed, -1 }),
		"open, last entry set": good(func(m *Metadata) { m.LastEntry = -1; m.Length = -1 }),
	} {
		if err := m.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, m := range map[string]*Metadata{
		"no fragment":         good(func(m *Metadata) { m.Fragments = nil }),
		"starts late":         good(func(m *Metadata) { m.Fragments[0].First = 1 }),
		"not increasing":      good(func(m *Metadata) { m.Fragments[1].First = 0 }),
		"wrong size":          good(func(m *Metadata) { m.Fragments[1].Bookies = m.Fragments[1].Bookies[:2] }),
		"twice":               good(func(m *Metadata) { m.Fragments[1].Bookies[2] = "a" }),
		"empty id":            good(func(m *Metadata) { m.Fragments[1].Bookies[2] = "" }),
		"quorum":              good(func(m *Metadata) { m.AckQuorum = 4 }),
		"no ack quorum":       good(func(m *Metadata) { m.AckQuorum = 0 }),
		"state":               good(func(m *Metadata) { m.State = 0 }),
		"ends before it does": good(func(m *Metadata) { m.State, m.LastEntry = StateClosed, 8 }),
		"negative length":     good(func(m *Metadata) { m.State, m.LastEntry, m.Length = StateClosed, 10, -1 }),
	} {
		if err := m.Validate(); !errors.Is(err, ErrBadMetadata) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMetadataFragmentOf(t *testing.T) {
	m := record(StateOpen, 0, 10, 11, 1<<40)
	for e, want := range map[EntryID]int{0: 0, 9: 0, 10: 1, 11: 2, 12: 2, 1<<40 - 1: 2, 1 << 40: 3, math.MaxInt64: 3} {
		if got := m.FragmentOf(e); got != want {
			t.Errorf("e%d is in fragment %d, want %d", e, got, want)
		}
	}
	if !m.Names("d") || m.Names("z") {
		t.Error("Names")
	}
}

func TestMetadataCloneSharesNothing(t *testing.T) {
	m := record(StateOpen, 0, 10)
	m.Password, m.Unknown, m.Custom = []byte("p"), []byte("u"), map[string][]byte{"k": []byte("v")}
	c := m.Clone()
	if !reflect.DeepEqual(m, c) {
		t.Fatalf("%+v != %+v", m, c)
	}
	c.Fragments[1].Bookies[0], c.Password[0], c.Unknown[0], c.Custom["k"][0] = "x", 'x', 'x', 'x'
	if m.Fragments[1].Bookies[0] != "a" || m.Password[0] != 'p' || m.Unknown[0] != 'u' || m.Custom["k"][0] != 'v' {
		t.Error("the clone shares memory")
	}
	if (*Metadata)(nil).Clone() != nil {
		t.Error("clone of nil")
	}
}
