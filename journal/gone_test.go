package journal

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// TestDeletedSegments deletes every segment, and everything up to every segment, of a journal of three runs, and replays from
// many marks: a record that the mark needs is there, or the journal says that it is not whole; and nothing is called damage
// that the mark does not need.
func TestDeletedSegments(t *testing.T) {
	o := smallOptions()
	mem := memfs.New()
	h := newHistory()
	for range 3 {
		j := mustStart(t, mem, "/j", o)
		for range 12 {
			require.NoError(t, h.appendBatch(j, 2, 7000))
			waitPrepared(t, j)
		}
		require.NoError(t, j.Close())
		replayAll(t, mem, "/j", o, 0)
	}
	names, err := mem.List("/j/current")
	require.NoError(t, err)
	var segments []string
	for _, n := range names {
		if strings.HasSuffix(n, liveSuffix) {
			segments = append(segments, n)
		}
	}
	slices.Sort(segments)
	require.Greater(t, len(segments), 6)
	var marks []Position
	for _, p := range h.appended {
		marks = append(marks, p)
	}
	slices.Sort(marks)
	marks = slices.Compact(marks)
	found, passed := 0, 0
	check := func(fs *memfs.FS, from Position, end bool, where string) {
		t.Helper()
		got, r := replayAll(t, fs, "/j", o, from)
		missing := 0
		for i, p := range h.appended {
			if p >= from && !slices.Contains(got, i) {
				missing++
			}
		}
		switch {
		case missing > 0:
			require.False(t, r.Whole, "%s, mark %d: %d records are missing", where, from, missing)
			require.NotEmpty(t, r.Damage)
			found++
		case end && !r.Whole && from <= marks[len(marks)-1]: // nobody can tell what it held
		default:
			require.True(t, r.Whole, "%s, mark %d: %v", where, from, r.Damage)
			passed++
		}
	}
	for i := range segments {
		one, upTo, from := mem.Clone(), mem.Clone(), mem.Clone()
		for _, n := range segments[i:] {
			require.NoError(t, from.Remove(filepath.Join("/j/current", n)))
		}
		require.NoError(t, one.Remove(filepath.Join("/j/current", segments[i])))
		for _, n := range segments[:i+1] {
			require.NoError(t, upTo.Remove(filepath.Join("/j/current", n)))
		}
		for k := 0; k < len(marks); k += 5 {
			check(one, marks[k], i >= len(segments)-2, segments[i])
			check(upTo, marks[k], i >= len(segments)-2, "up to "+segments[i])
			check(from, marks[k], true, "from "+segments[i])
		}
		check(upTo, marks[len(marks)-1]+1, false, "up to "+segments[i])
		check(from, marks[len(marks)-1]+1, false, "from "+segments[i])
	}
	for k := range marks {
		check(mem, marks[k], false, "nothing")
	}
	t.Logf("%d segments, %d losses found, %d harmless", len(segments), found, passed)
	require.Greater(t, found, 20)
	require.Greater(t, passed, 20)
}

// TestLastSegmentsDeletedAfterAKill: a journal that runs is killed, and its last segments, or all, are deleted while its spares
// stay. That is found, at every start until the mark lies behind it, whatever a start that was killed in turn has done;
// positions do not come back; and once it is behind the mark all is well.
func TestLastSegmentsDeletedAfterAKill(t *testing.T) {
	o := smallOptions()
	mem, h := memfs.New(), newHistory()
	j := mustStart(t, mem, "/j", o)
	for range 20 {
		require.NoError(t, h.appendBatch(j, 2, 7000))
	}
	waitPrepared(t, j)
	killed := mem.CrashClone(1, 0)
	require.NoError(t, j.Close())
	d, err := readDirectory(killed, "/j")
	require.NoError(t, err)
	require.Greater(t, len(d.segments), 3)
	require.NotEmpty(t, d.spares)
	for n := 1; n <= len(d.segments); n++ {
		for _, mark := range []Position{1, h.appended[h.next/2]} {
			where := fmt.Sprintf("the last %d of %d segments, mark %d", n, len(d.segments), mark)
			c := killed.Clone()
			for _, s := range d.segments[len(d.segments)-n:] {
				require.NoError(t, c.Remove(s.name))
			}
			for life := range uint64(4) { // starts that are killed again before anybody has dealt with it
				k := mustOpen(t, c, "/j", o)
				r, err := k.Replay(mark, nil)
				require.NoError(t, err, where)
				require.False(t, r.Whole, "%s, start %d", where, life)
				require.NotEmpty(t, r.Damage)
				require.True(t, corrupt.Is(r.Damage[0].Err), where)
				require.NoError(t, k.Start())
				waitPrepared(t, k) // with a segment that the next start finds empty
				next := newHistory()
				require.NoError(t, next.appendBatch(k, 2, 100))
				for _, p := range next.appended {
					require.Greater(t, p, h.appended[h.next-1], "%s: a position came back", where)
				}
				after := c.CrashClone(life, 0.5)
				if life == 3 { // dealt with: everything is flushed
					require.NoError(t, k.Trim(k.Mark()))
					mark = k.Mark()
					after = c
				}
				require.NoError(t, k.Close())
				c = after
			}
			_, r := replayAll(t, c, "/j", o, mark)
			require.True(t, r.Whole, "%s: %v", where, r.Damage)
			r, err := Check(c, "/j")
			require.NoError(t, err)
			require.True(t, r.Whole, "%s: %v", where, r.Damage)
		}
	}
}

// TestNewestSegmentMissingInVerify: what looks at a directory without a mark sees it, too.
func TestNewestSegmentMissingInVerify(t *testing.T) {
	o := smallOptions()
	mem, _ := filled(t, o, 20)
	d, err := readDirectory(mem, "/j")
	require.NoError(t, err)
	for _, s := range d.segments {
		require.NoError(t, mem.Remove(s.name))
	}
	r, err := Check(mem, "/j")
	require.NoError(t, err)
	require.False(t, r.Whole)
	require.ErrorContains(t, r.Damage[0].Err, "the newest, is missing")
	require.Equal(t, d.segments[len(d.segments)-1].id, r.Damage[0].Segment)
}

// TestNoteLost: without the note nobody can tell what is missing. One slot of it is enough.
func TestNoteLost(t *testing.T) {
	o := smallOptions()
	mem, h := filled(t, o, 20)
	name := "/j/current/" + noteName
	for what, damage := range map[string]func(fs *memfs.FS){
		"removed": func(fs *memfs.FS) { require.NoError(t, fs.Remove(name)) },
		"both slots": func(fs *memfs.FS) {
			require.NoError(t, fs.FlipBit(name, 8*20))
			require.NoError(t, fs.FlipBit(name, 8*(noteSlot+20)))
		},
		"one slot":       func(fs *memfs.FS) { require.NoError(t, fs.FlipBit(name, 8*20)) },
		"the other slot": func(fs *memfs.FS) { require.NoError(t, fs.FlipBit(name, 8*(noteSlot+20))) },
	} {
		fs := mem.Clone()
		damage(fs)
		for range 2 {
			got, r := replayAll(t, fs, "/j", o, 1)
			require.Len(t, got, h.next, "%s: what is there is read", what)
			if strings.Contains(what, "one slot") {
				require.True(t, r.Whole, "%s: %v", what, r.Damage)
				continue
			}
			if strings.Contains(what, "other") { // the older one: it may say too much, never too little
				continue
			}
			require.False(t, r.Whole, what)
			require.ErrorContains(t, r.Damage[0].Err, "not known")
		}
		k := mustOpen(t, fs, "/j", o)
		_, err := k.Replay(1, nil)
		require.NoError(t, err)
		require.NoError(t, k.Start())
		mark := k.Mark()
		require.NoError(t, k.Close())
		_, r := replayAll(t, fs, "/j", o, mark)
		require.True(t, r.Whole, "%s, dealt with: %v", what, r.Damage)
	}
}

// TestDirectoryFromBeforeTheNote: it has segments and no note, and is whole; the next start makes one.
func TestDirectoryFromBeforeTheNote(t *testing.T) {
	o := smallOptions()
	mem := memfs.New("/j/current")
	golden, err := os.ReadFile(filepath.Join("testdata", "segment-v1.jnl"))
	require.NoError(t, err)
	golden = append(golden, make([]byte, 65536-len(golden))...)
	require.NoError(t, vfs.WriteFileAtomic(mem, fileName("/j", 7, liveSuffix), golden))
	k := mustOpen(t, mem, "/j", o)
	r, err := k.Replay(0, nil)
	require.NoError(t, err)
	require.True(t, r.Whole)
	require.NoError(t, k.Start())
	require.NoError(t, k.Close())
	n, err := readNote(mem, "/j")
	require.NoError(t, err)
	require.Greater(t, n.newest, uint64(7))

	empty := mustOpen(t, memfs.New("/j/current"), "/j", o)
	r, err = empty.Replay(5<<20, nil)
	require.NoError(t, err)
	require.False(t, r.Whole, "the mark says that there were segments, and there are none")
	require.NoError(t, empty.Close())
}

// TestNotePage: the bytes of a slot, as docs/formats/journal.md has them.
func TestNotePage(t *testing.T) {
	n := note{seq: 3, highest: 9, newest: 8, last: 5, gone: 2}
	b := n.encode()
	require.Equal(t, "424e4452594a4e540100000000000000"+
		"0300000000000000"+"0900000000000000"+"0800000000000000"+"0500000000000000"+"0200000000000000", hex.EncodeToString(b[:56]))
	require.Equal(t, crc32.Checksum(b[:56], crc32.MakeTable(crc32.Castagnoli)), binary.LittleEndian.Uint32(b[56:]))
	got, err := decodeNote(b)
	require.NoError(t, err)
	require.Equal(t, n, got)
	b[8] = 2
	_, err = decodeNote(b)
	require.ErrorIs(t, err, ErrFormatTooNew)
}

// FuzzNote: nothing decodes but what was encoded.
func FuzzNote(f *testing.F) {
	n := note{seq: 3, highest: 9, newest: 8, last: 5, gone: 2}
	f.Add(n.encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decodeNote(b)
		if err == nil {
			again, err := decodeNote(got.encode())
			require.NoError(t, err)
			require.Equal(t, got, again)
		}
	})
}
