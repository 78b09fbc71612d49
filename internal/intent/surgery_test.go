package intent

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// specimen makes a library-backed log and returns its file and, by number of whole frames, the intents pending then.
func specimen(t *testing.T) (file []byte, ends []int, pending [][]string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "i")
	l, err := Open(dir, Options{})
	require.NoError(t, err)
	add(t, l, "first")
	id := add(t, l, "second, a longer one")
	add(t, l, "")
	done(t, l, id)
	add(t, l, "last")
	require.NoError(t, l.Close())
	file, err = os.ReadFile(filepath.Join(dir, generationName(1), fileName))
	require.NoError(t, err)

	state := &log{pending: map[uint64][]byte{}}
	for pos := 0; pos < len(file); {
		r, n, err := decodeFrame(file[pos:])
		require.NoError(t, err)
		state.apply([]record{r})
		pos += n
		ends = append(ends, pos)
		now := []string{}
		for _, p := range state.pendingLocked() {
			now = append(now, string(p.Data))
		}
		pending = append(pending, now)
	}
	require.Equal(t, []string{"first", "", "last"}, pending[len(pending)-1])
	return file, ends, pending
}

// place puts a file into a new directory as the only generation of a log.
func place(t *testing.T, file []byte) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "i")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, generationName(1)), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, generationName(1), fileName), file, 0o644))
	return dir
}

func TestFileCutAnywhere(t *testing.T) {
	file, ends, pending := specimen(t)
	for size := range file {
		if size < len(file)-150 && size%4 != 0 { // every byte of the tail; what lies before is cut off more sparsely
			continue
		}
		dir := place(t, file[:size])
		l, err := Open(dir, Options{})
		whole := 0
		for whole < len(ends) && ends[whole] <= size {
			whole++
		}
		if whole == 0 { // the head is synced before the file has its name
			requireCorrupt(t, err)
			continue
		}
		require.NoError(t, err, "cut at %d", size)
		require.Equal(t, pending[whole-1], texts(l), "cut at %d", size)
		if size > ends[whole-1] {
			require.EqualValues(t, ends[whole-1], l.Recovered().Cut.Offset)
			require.EqualValues(t, size-ends[whole-1], l.Recovered().Cut.Bytes)
		}
		add(t, l, "appended after the cut")
		require.NoError(t, l.Close())
		l, err = Open(dir, Options{})
		require.NoError(t, err, "cut at %d", size)
		require.Equal(t, append(pending[whole-1][:len(pending[whole-1]):len(pending[whole-1])], "appended after the cut"), texts(l))
		require.NoError(t, l.Close())
	}
}

func TestBytesInverted(t *testing.T) {
	file, ends, pending := specimen(t)
	for at := 0; at < len(file); at += 3 { // the twin has every bit of every byte flipped
		bad := bytes.Clone(file)
		bad[at] = ^bad[at]
		l, err := Open(place(t, bad), Options{})
		if err != nil {
			requireCorrupt(t, err)
			continue
		}
		require.GreaterOrEqual(t, at, ends[len(ends)-2], "only the last record states nothing that matters")
		require.Equal(t, pending[len(pending)-1], texts(l))
		require.NoError(t, l.Close())
	}
}

func TestZerosAndRubbishAtTheEnd(t *testing.T) {
	file, _, pending := specimen(t)
	want := pending[len(pending)-1]
	for name, tail := range map[string][]byte{
		"zeros":           make([]byte, 4096),
		"one zero":        {0},
		"ones":            bytes.Repeat([]byte{0xff}, 100),
		"half a record":   file[:30],
		"an old record":   file[:61],
		"a huge length":   {0xff, 0xff, 0xff, 0xff, 0x0f},
		"magic only":      []byte(magic),
		"the file again":  file,
		"zeros and magic": append(make([]byte, 700), magic...),
	} {
		t.Run(name, func(t *testing.T) {
			dir := place(t, append(bytes.Clone(file), tail...))
			l, err := Open(dir, Options{})
			require.NoError(t, err)
			require.Equal(t, want, texts(l))
			require.EqualValues(t, len(file), l.Recovered().Cut.Offset)
			require.EqualValues(t, len(tail), l.Recovered().Cut.Bytes)
			require.NoError(t, l.Close())
			l, err = Open(dir, Options{})
			require.NoError(t, err)
			require.Nil(t, l.Recovered().Cut)
			require.NoError(t, l.Close())
		})
	}
}

func TestLeftoversOfAChangeOfGeneration(t *testing.T) {
	file, _, pending := specimen(t)
	dir := place(t, file)
	// The next generation was built in part, an older one was not removed yet.
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "00000002.tmp"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "00000002.tmp", fileName), file[:9], 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a stranger"), nil, 0o644))
	l, err := Open(dir, Options{})
	require.NoError(t, err)
	require.Equal(t, pending[len(pending)-1], texts(l))
	require.NoError(t, l.Close())
	_, err = os.Stat(filepath.Join(dir, "00000002.tmp"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = os.Stat(filepath.Join(dir, "a stranger"))
	require.NoError(t, err, "what is not ours stays")
}
