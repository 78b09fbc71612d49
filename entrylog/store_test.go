package entrylog

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// fill writes some checkpoints of interleaved ledgers, enough for several logs.
func fill(t *testing.T, s *Store, m *model, checkpoints int) {
	t.Helper()
	next := map[int64]int64{}
	for c := range checkpoints {
		var b batch
		for ledger := int64(1); ledger <= 5; ledger++ {
			for range 3 + c%4 {
				size := 200
				if ledger%2 == 0 {
					size = 100 + int(next[ledger]*37%500)
				}
				b.add(ledger, next[ledger], size, 0)
				next[ledger]++
			}
		}
		if c%3 == 0 {
			b.state(int64(c%5), "state of checkpoint "+string(rune('a'+c%26)))
		}
		require.NoError(t, m.write(s, &b))
	}
}

func TestWriteReadReopen(t *testing.T) {
	fs := memfs.New(testDir)
	var sealed []LogInfo
	o := smallOptions()
	o.OnSealed = func(i LogInfo) { sealed = append(sealed, i) }
	s, r := mustOpen(t, fs, o)
	require.Empty(t, r.Damage)
	m := newModel()
	fill(t, s, m, 40)
	for id, loc := range m.at {
		got, err := s.Read(loc, nil)
		require.NoError(t, err)
		require.Equal(t, m.entries[id], got)
	}
	require.NoError(t, s.Close())
	require.Greater(t, len(sealed), 3)
	for _, i := range sealed {
		require.True(t, i.Sealed)
	}

	s, r = mustOpen(t, fs, o)
	require.Empty(t, r.Damage)
	require.Empty(t, r.Unsealed)
	c, err := readAll(s)
	require.NoError(t, err)
	require.Empty(t, c.damage)
	require.Len(t, c.at, len(m.entries))
	m.holds(t, s, c, "after reopening")
	require.NoError(t, s.Close())
}

func TestUnsealedLogIsRecoveredAndSealed(t *testing.T) {
	fs := memfs.New(testDir)
	o := smallOptions()
	o.LogSize = 1 << 30
	s, _ := mustOpen(t, fs, o)
	m := newModel()
	fill(t, s, m, 12)
	durable := s.Durable()
	after := fs.CrashClone(1, 0)
	require.NoError(t, s.Close())

	o.Durable = durable
	o.ReadOnly = true
	ro, r := mustOpen(t, after, o)
	require.Len(t, r.Unsealed, 1)
	require.Empty(t, r.Damage)
	c, err := readAll(ro)
	require.NoError(t, err)
	m.holds(t, ro, c, "inspected")
	require.NoError(t, ro.Close())

	o.ReadOnly = false
	s, r = mustOpen(t, after, o)
	require.Len(t, r.Unsealed, 1)
	require.Empty(t, r.Damage)
	require.True(t, r.Unsealed[0].Info.Sealed)
	require.Zero(t, r.Unsealed[0].Tail)
	c, err = readAll(s)
	require.NoError(t, err)
	m.holds(t, s, c, "recovered")
	f, err := s.Footer(r.Unsealed[0].Info.ID)
	require.NoError(t, err)
	require.Equal(t, FromFooter, f.Source)
	require.NoError(t, s.Close())
}
