package entrylog

import (
	"encoding/hex"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// openStore opens a store that must open.
func openStore(t *testing.T, mem *memfs.FS, o Options) (*Store, *Recovered) {
	t.Helper()
	s, r, err := Open(mem, testDir, o)
	require.NoError(t, err)
	return s, r
}

// fourLogs returns a directory with the sealed logs 1, 2 and 4, of which 4 is a compaction of 3, and the unsealed 5.
func fourLogs(t *testing.T) *memfs.FS {
	mem := memfs.New(testDir)
	s, _ := openStore(t, mem, smallOptions())
	m := newModel()
	for n := range int64(3) {
		var b batch
		b.add(n, 0, 500, 0)
		b.state(n, "fenced")
		require.NoError(t, m.write(s, &b))
		require.NoError(t, s.Roll())
	}
	s.wg.Wait()
	w, err := s.NewCompactionWriter(3)
	require.NoError(t, err)
	var rb RunBuilder
	loc, err := w.Append(makeBody(2, 0, 500, 0))
	require.NoError(t, err)
	rb.Add(2, 0, loc)
	require.NoError(t, w.Checkpoint(rb.Runs(), nil))
	_, err = w.Seal()
	require.NoError(t, err)
	require.NoError(t, s.Remove(3))
	var b batch
	b.add(5, 0, 500, 0)
	require.NoError(t, m.write(s, &b))
	left := mem.CrashClone(1, 0)
	require.NoError(t, s.Close())
	return left
}

// TestDeletedLogIsMissed: each log in turn is deleted, the unsealed one and a compaction's, too. That is damage, at every
// start, until it is accepted; what collection deletes is none.
func TestDeletedLogIsMissed(t *testing.T) {
	whole := fourLogs(t)
	s, r := openStore(t, whole.Clone(), smallOptions())
	require.Empty(t, r.Damage)
	require.Empty(t, s.Missing())
	require.Equal(t, []LogID{1, 2, 4, 5}, s.listed.ids)
	require.NoError(t, s.Close())
	for _, id := range []LogID{1, 2, 4, 5} {
		mem := whole.Clone()
		require.NoError(t, mem.Remove(filepath.Join(testDir, id.String()+logSuffix)))
		for range 2 {
			ro := smallOptions()
			ro.ReadOnly = true
			for _, o := range []Options{ro, smallOptions()} {
				s, r := openStore(t, mem, o)
				require.Len(t, r.Damage, 1, "log %s", id)
				require.Equal(t, id, r.Damage[0].Log)
				require.True(t, r.Damage[0].Runs && r.Damage[0].States)
				require.ErrorIs(t, r.Damage[0].Err, fs.ErrNotExist)
				require.Equal(t, r.Damage, s.Missing())
				require.NoError(t, s.Close())
			}
		}
		s, _ := openStore(t, mem, smallOptions())
		var b batch
		b.add(7, 0, 500, 0)
		require.NoError(t, newModel().write(s, &b))
		require.Len(t, s.Missing(), 1, "a new log changes nothing about it")
		require.NoError(t, s.AcceptMissing())
		require.Empty(t, s.Missing())
		require.NoError(t, s.Close())
		s, r := openStore(t, mem, smallOptions())
		require.Empty(t, r.Damage)
		require.NotContains(t, s.listed.ids, id)
		for _, i := range s.Logs() {
			require.Greater(t, s.nextID, i.ID)
			require.Contains(t, s.listed.ids, i.ID)
		}
		require.NoError(t, s.Close())
	}
}

// TestListLost: without the list nobody knows what is missing, if logs say that there was one; a slot of it is enough. A
// directory from before there were lists gets one.
func TestListLost(t *testing.T) {
	name := filepath.Join(testDir, listName)
	for what, c := range map[string]struct {
		damage func(mem *memfs.FS) error
		lost   bool
	}{
		"removed":   {func(mem *memfs.FS) error { return mem.Remove(name) }, true},
		"cut":       {func(mem *memfs.FS) error { return vfs.WriteFileAtomic(mem, name, make([]byte, 77)) }, true},
		"zeros":     {func(mem *memfs.FS) error { return vfs.WriteFileAtomic(mem, name, make([]byte, 2*listSlotMin)) }, true},
		"one slot":  {func(mem *memfs.FS) error { return mem.FlipBit(name, 8*16) }, false},
		"the other": {func(mem *memfs.FS) error { return mem.FlipBit(name, 8*(listSlotMin+16)) }, false},
	} {
		mem := fourLogs(t)
		require.NoError(t, c.damage(mem))
		for range 2 { // a start that is cut off before the caller has taken note must not forget it
			s, r := openStore(t, mem, smallOptions())
			if c.lost {
				require.Len(t, r.Damage, 1, what)
				require.Zero(t, r.Damage[0].Log)
				require.ErrorContains(t, r.Damage[0].Err, listName)
			} else {
				for _, d := range r.Damage { // an older list may name what was collected since, and never less than is there
					require.EqualValues(t, 3, d.Log, what)
				}
			}
			require.NoError(t, s.Close())
		}
		s, _ := openStore(t, mem, smallOptions())
		require.NoError(t, s.AcceptMissing(), what)
		require.NoError(t, s.Close())
		s, r := openStore(t, mem, smallOptions())
		require.Empty(t, r.Damage, what)
		require.Equal(t, []LogID{1, 2, 4, 5}, s.listed.ids, what)
		require.NoError(t, s.Close())
	}
}

// TestDirectoryFromBeforeTheList: its logs do not speak of a list; they are taken for all that there were.
func TestDirectoryFromBeforeTheList(t *testing.T) {
	mem := memfs.New(testDir)
	s, _ := openStore(t, mem, smallOptions())
	buffers, err := s.takeBuffers()
	require.NoError(t, err)
	w, err := createLog(mem, s.path(1, logSuffix), meta{id: 1, precedence: 1}, buffers, s.writerOptions())
	require.NoError(t, err)
	var rb RunBuilder
	loc, err := w.append(makeBody(1, 0, 100, 0))
	require.NoError(t, err)
	rb.Add(1, 0, loc)
	require.NoError(t, w.checkpoint(rb.Runs(), nil))
	w.stop()
	s.giveBuffers(buffers)
	require.NoError(t, w.f.Close())
	require.NoError(t, s.Close())
	require.NoError(t, mem.Remove(filepath.Join(testDir, listName)))
	s, r := openStore(t, mem, smallOptions())
	require.Empty(t, r.Damage)
	require.Equal(t, []LogID{1}, s.listed.ids)
	require.NoError(t, s.Close())
	require.NoError(t, mem.Remove(s.path(1, logSuffix)))
	s, r = openStore(t, mem, smallOptions())
	require.Len(t, r.Damage, 1)
	require.NoError(t, s.Close())
}

// TestListGrows: a list that does not fit its slots gets larger ones.
func TestListGrows(t *testing.T) {
	mem := memfs.New(testDir)
	s, _ := openStore(t, mem, smallOptions())
	ids := []LogID{}
	for id := LogID(2); len(ids) < 40_000; id += 2 {
		ids = append(ids, id)
	}
	require.NoError(t, s.writeList(ids))
	require.Greater(t, s.listSlot, int64(listSlotMin))
	require.NoError(t, s.writeList(append(ids, 1<<32-1)))
	require.NoError(t, s.Close())
	got, err := s.readList()
	require.NoError(t, err)
	require.Equal(t, append(ids, 1<<32-1), got.ids)
}

// TestListPage: the bytes of a slot, as docs/formats/entrylog.md has them.
func TestListPage(t *testing.T) {
	l := logList{seq: 3, ids: []LogID{1, 2, 3, 300, 1<<32 - 1}}
	b := l.encode()
	require.Equal(t, "424e4452594c535401000000"+"0b000000"+"0300000000000000", hex.EncodeToString(b[:24]))
	require.Equal(t, "00000000"+"0103"+"a80201"+"d2fdffff0f01", hex.EncodeToString(b[28:]))
	got, err := decodeList(append(b, 0, 0, 0))
	require.NoError(t, err)
	require.Equal(t, &l, got)
	for i := range b {
		if i >= 28 && i < 32 {
			continue
		}
		b[i] ^= 1
		_, err := decodeList(b)
		require.Error(t, err, "byte %d", i)
		b[i] ^= 1
	}
}

func FuzzList(f *testing.F) {
	for _, ids := range [][]LogID{nil, {1}, {1, 2, 3, 300, 1<<32 - 1}} {
		l := logList{seq: 3, ids: ids}
		f.Add(l.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := decodeList(b)
		if err != nil {
			return
		}
		again, err := decodeList(l.encode())
		require.NoError(t, err)
		require.Equal(t, l, again)
	})
}
