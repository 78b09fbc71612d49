package offload

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/offload/objstore"
	"github.com/binderylog/bindery/offload/protocol"
)

func TestLedgersGoOutAndComeBackWithAnyTwoTargetsWiped(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for name, spec := range map[string]ledgerSpec{
		"inline":      {sizes: even(10, 100)},
		"one stripe":  {sizes: even(3000, 1024), skew: true},
		"two stripes": {sizes: sizes(40, func(int) int { return 500_000 + rng.IntN(400_000) })},
	} {
		t.Run(name, func(t *testing.T) {
			w := six(t)
			l := w.add(spec)
			x := w.worker("w", func(o *Options) { o.DeletionLag = time.Hour })
			defer x.Close()
			require.NoError(t, x.Offload(t.Context(), l.id))
			require.NoError(t, x.Offload(t.Context(), l.id), "again is no error")
			w.requireReadable(l)
			w.requireClean()
			require.Empty(t, x.Unfinished())

			require.ErrorIs(t, x.Release(t.Context(), l.id, false), ErrNotYet)
			w.advance(2 * time.Hour)
			require.NoError(t, x.Release(t.Context(), l.id, false))
			_, _, err := w.views.Ledgers.Read(t.Context(), l.id)
			require.ErrorIs(t, err, metadata.ErrNoLedger)
			require.Equal(t, StateReleased, w.record(l.id).State)
			require.NoError(t, x.Release(t.Context(), l.id, false))
			findings, err := x.Verify(t.Context(), l.id, VerifyFull)
			require.NoError(t, err)
			require.Empty(t, findings)
			if name == "two stripes" {
				require.Nil(t, w.record(l.id).Garbage)
			}
			a, b := "t2", "t5"
			w.stores[a].Wipe()
			w.stores[b].Wipe()
			w.requireReadable(l)
		})
	}
}

func TestDeleteRemovesEverything(t *testing.T) {
	w := six(t)
	x := w.worker("w", nil)
	defer x.Close()
	for i, prepare := range []func(l *testLedger){
		func(*testLedger) {},
		func(l *testLedger) { require.NoError(t, x.Release(t.Context(), l.id, true)) },
	} {
		l := w.add(ledgerSpec{seed: uint64(i), sizes: even(2000, 1000)})
		require.NoError(t, x.Offload(t.Context(), l.id))
		prepare(l)
		require.NoError(t, x.Delete(t.Context(), l.id))
		require.NoError(t, x.Delete(t.Context(), l.id), "twice")
		_, err := w.reader(nil).Open(t.Context(), l.id)
		require.ErrorIs(t, err, metadata.ErrNoLedger)
		w.janitor(x)
		w.requireClean()
		require.ErrorIs(t, x.Delete(t.Context(), l.id), ErrNoRecord)
		_, _, err = w.views.Ledgers.Read(t.Context(), l.id)
		require.ErrorIs(t, err, metadata.ErrNoLedger)
	}
}

func TestReleaseNeedsTheOwner(t *testing.T) {
	w := six(t)
	x := w.worker("w", nil)
	defer x.Close()
	l := w.add(ledgerSpec{sizes: even(10, 10)})
	m, v, err := w.views.Ledgers.Read(t.Context(), l.id)
	require.NoError(t, err)
	m.Custom = map[string][]byte{"application": []byte("pulsar")}
	_, err = w.views.Ledgers.Write(t.Context(), l.id, m, v)
	require.NoError(t, err)
	require.NoError(t, x.Offload(t.Context(), l.id))
	var s *StoppedError
	require.ErrorAs(t, x.Release(t.Context(), l.id, true), &s)
	require.Equal(t, protocol.NotOptedIn, s.Reason)
	require.ErrorContains(t, s, "bindery.tier=release")
	require.Equal(t, StateComplete, w.record(l.id).State)
}

func TestStatement21And22WhatChangedBeforeTheReleaseIsNoticed(t *testing.T) {
	w := six(t)
	x := w.worker("w", nil)
	defer x.Close()
	l := w.add(ledgerSpec{sizes: even(10, 10)})
	require.NoError(t, x.Offload(t.Context(), l.id))
	// A replica moved: the release goes by the new version.
	m, v, err := w.views.Ledgers.Read(t.Context(), l.id)
	require.NoError(t, err)
	m.Fragments[0].Bookies[0] = "z:1"
	_, err = w.views.Ledgers.Write(t.Context(), l.id, m, v)
	require.NoError(t, err)
	// Closed elsewhere at another entry: the copy is garbage, the bookies keep theirs.
	l2 := w.add(ledgerSpec{seed: 2, sizes: even(10, 10)})
	require.NoError(t, x.Offload(t.Context(), l2.id))
	m, v, err = w.views.Ledgers.Read(t.Context(), l2.id)
	require.NoError(t, err)
	m.LastEntry, m.Length = 8, 90
	_, err = w.views.Ledgers.Write(t.Context(), l2.id, m, v)
	require.NoError(t, err)

	require.NoError(t, x.Release(t.Context(), l.id, true))
	var s *StoppedError
	require.ErrorAs(t, x.Release(t.Context(), l2.id, true), &s)
	require.Equal(t, protocol.NotComplete, s.Reason)
	_, _, err = w.views.Ledgers.Read(t.Context(), l2.id)
	require.NoError(t, err, "the bookies keep it")
	require.NoError(t, x.Offload(t.Context(), l2.id))
	w.janitor(x)
	w.requireClean()
	l2.bodies = l2.bodies[:9]
	w.requireReadable(l2)
}

func TestMemoryTooSmallForOneUploadIsRefusedAtStart(t *testing.T) {
	w := six(t)
	o := w.options()
	o.MemoryBytes = 1 << 20
	_, err := NewWorker(o)
	require.ErrorContains(t, err, "needs 62914560 bytes of memory, 1048576 are allowed")
	o = w.options()
	o.Geometry = Geometry{10, 4}
	o.Tolerated = 2
	o.MemoryBytes = 1 << 30
	_, err = NewWorker(o)
	require.ErrorIs(t, err, ErrGeometry)
}

func TestEncryptedLedgers(t *testing.T) {
	w := six(t)
	keys := &Keys{Current: "k1", ByID: map[string][]byte{"k1": make([]byte, 32)}}
	x := w.worker("w", func(o *Options) { o.Keys, o.Encryption, o.Compression = keys, EncryptAESGCM, CompressZstd })
	defer x.Close()
	l := w.add(ledgerSpec{sizes: even(5000, 1000), text: true})
	require.NoError(t, x.Offload(t.Context(), l.id))
	_, err := w.reader(nil).Open(t.Context(), l.id)
	require.ErrorIs(t, err, ErrNoKey)
	require.ErrorContains(t, err, "k1")
	_, err = w.reader(func(o *ReaderOptions) { o.Keys = &Keys{ByID: map[string][]byte{"k2": make([]byte, 32)}} }).Open(t.Context(), l.id)
	require.ErrorContains(t, err, `no key with id "k1"`)
	h, err := w.reader(func(o *ReaderOptions) { o.Keys = keys }).Open(t.Context(), l.id)
	require.NoError(t, err)
	e, err := h.Entry(t.Context(), 4999)
	require.NoError(t, err)
	require.Equal(t, l.bodies[4999], e.AppendBody(nil, l.id))
}

func TestStatement42AWrongOrMissingKeyIsOneClearError(t *testing.T) {
	w := six(t)
	right := &Keys{Current: "k1", ByID: map[string][]byte{"k1": make([]byte, 32)}}
	x := w.worker("w", func(o *Options) { o.Keys, o.Encryption = right, EncryptAESGCM })
	defer x.Close()
	a, b := w.add(ledgerSpec{sizes: even(300, 1000)}), w.add(ledgerSpec{seed: 1, sizes: even(300, 1000)})
	require.NoError(t, x.Offload(t.Context(), a.id))
	require.NoError(t, x.Offload(t.Context(), b.id))
	require.Equal(t, "k1", w.record(a.id).Key.KeyID)
	for name, c := range map[string]struct {
		keys KeySource
		says string
	}{
		"none":  {nil, `the ledger is encrypted; set the key source that it was written with (key id "k1")`},
		"other": {&Keys{ByID: map[string][]byte{"k2": make([]byte, 32)}}, `no key with id "k1"; add it to the key source`},
		"wrong": {&Keys{ByID: map[string][]byte{"k1": bytes.Repeat([]byte{1}, 32)}}, `key "k1" is not the one that the ledger was written under`},
	} {
		y := w.worker("y"+name, func(o *Options) { o.Keys = c.keys })
		_, err := y.Verify(t.Context(), a.id, VerifyFull)
		require.ErrorContains(t, err, c.says)
		var key *KeyError
		require.ErrorAs(t, err, &key)
		require.Equal(t, "k1", key.KeyID)
		_, err = y.Repair(t.Context(), a.id, RepairOptions{})
		require.ErrorContains(t, err, c.says)
		done, err := y.Scrub(t.Context(), ScrubOptions{Level: VerifyHead, Repair: true})
		require.NoError(t, err)
		require.Len(t, done.Problems, 1, "one for both ledgers")
		require.ErrorContains(t, done.Problems[0], "2 ledgers could not be looked at")
		require.ErrorContains(t, done.Problems[0], c.says)
		require.Zero(t, done.Findings)
		require.Error(t, y.Release(t.Context(), a.id, true), "what can not be read is not given up")
		require.Equal(t, StateComplete, w.record(a.id).State)
		require.NoError(t, y.Close())
	}
	plain := w.worker("plain", func(o *Options) { o.Keys = right })
	defer plain.Close()
	l := w.add(ledgerSpec{seed: 2, sizes: even(300, 1000)})
	require.NoError(t, plain.Offload(t.Context(), l.id))
	require.Nil(t, w.record(l.id).Key, "keys alone encrypt nothing")
	w.requireReadable(l)
	_, err := plain.Verify(t.Context(), a.id, VerifyFull)
	require.NoError(t, err)
	o := w.options()
	o.Encryption = EncryptAESGCM
	_, err = NewWorker(o)
	require.ErrorContains(t, err, "no key source")
}

func TestStatement14TwoWorkersAtOnce(t *testing.T) {
	w := six(t)
	l := w.add(ledgerSpec{sizes: even(3000, 2000)})
	a, b := w.worker("a", nil), w.worker("b", func(o *Options) { o.Name = "w2" })
	defer a.Close()
	defer b.Close()
	done := make(chan error, 2)
	for _, x := range []*Worker{a, b} {
		go func() { done <- x.Offload(context.Background(), l.id) }()
	}
	committed := 0
	for range 2 {
		if err := <-done; err == nil {
			committed++
		}
	}
	require.Positive(t, committed)
	w.janitor(a)
	w.requireReadable(l)
	w.requireClean()
}

func TestStatement28HealthyReadsTakeTheRequestsThatTheyMust(t *testing.T) {
	w := six(t)
	x := w.worker("w", nil)
	defer x.Close()
	l := w.add(ledgerSpec{sizes: even(30_000, 1024)})
	require.NoError(t, x.Offload(t.Context(), l.id))
	r := w.reader(func(o *ReaderOptions) { o.NoHedge = true })
	before := w.requests(objstore.OpGet)
	h, err := r.Open(t.Context(), l.id)
	require.NoError(t, err)
	e, err := h.Entry(t.Context(), 15_000)
	require.NoError(t, err)
	require.Equal(t, l.bodies[15_000], e.AppendBody(nil, l.id))
	require.Equal(t, 2, w.requests(objstore.OpGet)-before, "cold: manifest and block")
	before = w.requests(objstore.OpGet)
	_, err = h.Entry(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, 1, w.requests(objstore.OpGet)-before, "warm: the block")
	_, err = h.Entry(t.Context(), 4)
	require.NoError(t, err)
	require.Equal(t, 1, w.requests(objstore.OpGet)-before, "cached")
	before = w.requests(objstore.OpGet)
	n := 0
	for _, err := range h.Entries(t.Context(), 0, h.LastEntry()) {
		require.NoError(t, err)
		n++
	}
	require.Equal(t, 30_000, n)
	cells := len(h.c.manifest.stripes) * 4
	require.LessOrEqual(t, w.requests(objstore.OpGet)-before, cells+1)
	_, err = h.Entry(t.Context(), 30_000)
	require.ErrorIs(t, err, ErrNoEntry)
}
