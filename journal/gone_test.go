package journal

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// TestDeletedSegments deletes every segment, and everything up to every segment, of a journal of three runs, and replays from
// many marks: a record that the mark needs is there, or the journal says that it is not whole; and nothing is called damage
// that the mark does not need. What was at the end leaves no trace when all behind it is gone, too.
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
	check := func(fs *memfs.FS, from Position, last bool, where string) {
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
		case last && !r.Whole: // nobody can tell what it held
		default:
			require.True(t, r.Whole, "%s, mark %d: %v", where, from, r.Damage)
			passed++
		}
	}
	for i := range segments[:len(segments)-1] {
		one, upTo := mem.Clone(), mem.Clone()
		require.NoError(t, one.Remove(filepath.Join("/j/current", segments[i])))
		for _, n := range segments[:i+1] {
			require.NoError(t, upTo.Remove(filepath.Join("/j/current", n)))
		}
		for k := 0; k < len(marks); k += 5 {
			check(one, marks[k], i == len(segments)-2, segments[i])
			if i < len(segments)-2 { // an empty segment alone may be all that trimming left
				check(upTo, marks[k], false, "up to "+segments[i])
			}
		}
		check(upTo, marks[len(marks)-1]+1, false, "up to "+segments[i])
	}
	for k := range marks {
		check(mem, marks[k], false, "nothing")
	}
	t.Logf("%d segments, %d losses found, %d harmless", len(segments), found, passed)
	require.Greater(t, found, 20)
	require.Greater(t, passed, 20)
}
