package storage

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEntriesAreReadFromEveryPlace(t *testing.T) {
	e := newEnv(t, 1, 1, nil).open()
	for entry := range int64(50) {
		e.mustAdd(7, entry, 100)
		e.mustAdd(9, entry, 1000)
	}
	check := func(place string) {
		t.Helper()
		t.Log(place)
		for entry := range int64(50) {
			e.requireEntry(7, entry, 100)
			e.requireEntry(9, entry, 1000)
		}
		e.requireNo(7, 50, ErrNoEntry)
		e.requireNo(8, 0, ErrNoLedger)
		got, err := e.s.Read(7, -1, nil)
		require.NoError(t, err)
		require.Equal(t, testBody(7, 49, 48, 100, 0), got)
		l, err := e.s.Ledger(9, false)
		require.NoError(t, err)
		lac, err := l.LAC()
		require.NoError(t, err)
		require.EqualValues(t, 48, lac)
		ranges, err := l.Entries()
		require.NoError(t, err)
		require.Equal(t, []Range{{0, 49}}, ranges)
		l.Release()
	}
	check("write cache")
	e.checkpoint()
	check("overlay")
	e.close()
	e.open()
	check("after a clean stop")
	e.close()
}

func TestReplayAfterCrash(t *testing.T) {
	e := newEnv(t, 2, 2, nil).open()
	for entry := range int64(20) {
		for ledger := range int64(8) {
			e.mustAdd(ledger, entry, 200)
		}
		if entry == 10 {
			e.checkpoint()
		}
	}
	require.NoError(t, e.fence(3))
	e.crash(1, 0)
	e.open()
	for entry := range int64(20) {
		for ledger := range int64(8) {
			e.requireEntry(ledger, entry, 200)
		}
	}
	require.Error(t, e.add(3, 20, testBody(3, 20, 19, 100, 0), false))
	require.NoError(t, e.add(4, 20, testBody(4, 20, 19, 200, 0), false))
	e.close()
}
