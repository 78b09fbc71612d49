package offload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
)

// TestPlanSaysWhatAServiceDoes: what a policy would have done is what a service does with it, and nothing happens before.
func TestPlanSaysWhatAServiceDoes(t *testing.T) {
	w := six(t)
	x := w.worker("w", func(o *Options) { o.DeletionLag = time.Hour })
	defer x.Close()
	mark := func(l *testLedger, key, value string) {
		m, v, err := w.views.Ledgers.Read(t.Context(), l.id)
		require.NoError(t, err)
		m = m.Clone()
		m.Custom[key], m.CTime, m.HasCTime = []byte(value), w.now().UnixMilli(), true
		_, err = w.views.Ledgers.Write(t.Context(), l.id, m, v)
		require.NoError(t, err)
	}
	in := w.add(ledgerSpec{seed: 1, sizes: even(100, 100)})
	kept := w.add(ledgerSpec{seed: 2, sizes: even(100, 100)})
	mark(kept, "bindery.tier", "keep")
	for _, l := range []*testLedger{in, kept} {
		require.NoError(t, x.Offload(t.Context(), l.id))
	}
	completed := time.UnixMilli(w.record(in.id).CompletedAt)
	out := w.add(ledgerSpec{seed: 3, sizes: even(200, 100)})
	small := w.add(ledgerSpec{seed: 4, sizes: even(10, 10)})
	other := w.add(ledgerSpec{seed: 5, sizes: even(200, 100)})
	for _, l := range []*testLedger{out, small} {
		mark(l, "team", "billing")
	}
	mark(other, "team", "other")
	p := Policy{AfterAge: time.Millisecond, MinBytes: 1000, Match: map[string]string{"team": "billing"}}
	w.advance(time.Second)
	release := Planned{Ledger: in.id, Bytes: 10_000, After: completed.Add(time.Hour)}
	got, err := x.Plan(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, []Planned{release, {Ledger: out.id, Offload: true, Bytes: 20_000}}, got, "not %d, which its owner keeps, %d, which is small, and %d, which is another team's", kept.id, small.id, other.id)
	got, err = x.Plan(t.Context(), Policy{})
	require.NoError(t, err)
	require.Equal(t, []Planned{release}, got)
	got, err = x.Plan(t.Context(), Policy{KeepCopy: true})
	require.NoError(t, err)
	require.Empty(t, got)
	_, _, err = w.records.Read(t.Context(), out.id)
	require.ErrorIs(t, err, ErrNoRecord, "nothing happens")

	w.advance(time.Hour)
	s := NewService(x, ServiceOptions{Policy: p})
	defer s.Close()
	require.Zero(t, s.Round())
	s.ledgers(s.wanted())
	require.Zero(t, s.Round())
	for id, want := range map[ledger.ID]State{in.id: StateReleased, kept.id: StateComplete, out.id: StateComplete} {
		require.Equal(t, want, w.record(id).State)
	}
	for _, l := range []*testLedger{small, other} {
		_, _, err = w.records.Read(t.Context(), l.id)
		require.ErrorIs(t, err, ErrNoRecord)
	}
}

// TestRoundTellsHowFarAServiceIs counts what is under way by the bytes that were read, and what is over whole.
func TestRoundTellsHowFarAServiceIs(t *testing.T) {
	w := six(t)
	x := w.worker("w", nil)
	defer x.Close()
	s := NewService(x, ServiceOptions{})
	defer s.Close()
	list := []Planned{{Ledger: 1, Offload: true, Bytes: 1000}, {Ledger: 2, Offload: true, Bytes: 3000}, {Ledger: 3, Bytes: 9000}}
	s.begin(list)
	start := s.Round().Since
	require.Equal(t, Round{Ledgers: 2, Total: 4000, Since: start}, s.Round())
	s.on(list[0], true)
	s.on(list[2], true)
	x.progress.begin(1, w.now())
	x.progress.from(1, 0, 1000)
	x.progress.read(1, 500)
	require.Equal(t, Round{Ledgers: 2, Total: 4000, Done: 500, Since: start}, s.Round())
	require.Equal(t, 70*time.Second, s.Round().Left(start.Add(10*time.Second)))
	x.progress.end(1)
	s.on(list[0], false)
	s.on(list[2], false)
	require.Equal(t, Round{Ledgers: 2, Finished: 1, Total: 4000, Done: 1000, Since: start}, s.Round())
	s.ended()
	require.Zero(t, s.Round())
}
