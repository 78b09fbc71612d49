package intent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kindOfLog is one of the two implementations, in a directory.
type kindOfLog struct {
	fs   vfs.FS
	dir  string
	open func(o Options) (Log, error)
}

// both runs a test over the library-backed log and its twin.
func both(t *testing.T, test func(t *testing.T, k kindOfLog)) {
	t.Run("wal", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "intents")
		test(t, kindOfLog{vfs.OS(), dir, func(o Options) (Log, error) { return Open(dir, o) }})
	})
	t.Run("vfs", func(t *testing.T) {
		fsys := memfs.New("/data")
		dir := "/data/intents"
		test(t, kindOfLog{fsys, dir, func(o Options) (Log, error) { return OpenVFS(fsys, dir, o) }})
	})
}

func (k kindOfLog) must(t *testing.T, o Options) Log {
	t.Helper()
	l, err := k.open(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func add(t *testing.T, l Log, data string) uint64 {
	t.Helper()
	id, err := l.Append(context.Background(), []byte(data))
	require.NoError(t, err)
	return id
}

func done(t *testing.T, l Log, ids ...uint64) {
	t.Helper()
	require.NoError(t, l.Done(context.Background(), ids...))
}

// texts returns the data of the pending intents, in order.
func texts(l Log) []string {
	out := []string{}
	for _, r := range l.Pending() {
		out = append(out, string(r.Data))
	}
	return out
}

func TestPendingSurvivesReopening(t *testing.T) {
	both(t, func(t *testing.T, k kindOfLog) {
		l := k.must(t, Options{})
		require.Empty(t, l.Pending())
		a, b, c := add(t, l, "a"), add(t, l, ""), add(t, l, "c")
		require.Less(t, a, b)
		require.Less(t, b, c)
		done(t, l, b)
		done(t, l, b, 999)
		done(t, l)
		require.Equal(t, []string{"a", "c"}, texts(l))
		require.NoError(t, l.Close())
		require.NoError(t, l.Close())

		l = k.must(t, Options{})
		require.Equal(t, []Record{{a, []byte("a")}, {c, []byte("c")}}, l.Pending())
		require.Nil(t, l.Recovered().Cut)
		d := add(t, l, "d")
		require.Greater(t, d, c)
		done(t, l, a, c, d)
		require.NoError(t, l.Close())

		l = k.must(t, Options{})
		require.Empty(t, l.Pending())
		require.Greater(t, add(t, l, "e"), d, "ids are not reused")
	})
}

func TestClosedLogRefuses(t *testing.T) {
	both(t, func(t *testing.T, k kindOfLog) {
		l := k.must(t, Options{})
		id := add(t, l, "a")
		require.NoError(t, l.Close())
		_, err := l.Append(context.Background(), []byte("b"))
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, l.Done(context.Background(), id), ErrClosed)
		require.Equal(t, []string{"a"}, texts(l))
	})
}

func TestOneOwnerPerDirectory(t *testing.T) {
	both(t, func(t *testing.T, k kindOfLog) {
		l := k.must(t, Options{})
		_, err := k.open(Options{})
		require.ErrorIs(t, err, vfs.ErrLocked)
		require.NoError(t, l.Close())
		k.must(t, Options{})
	})
}

func TestWhoHasALogOpen(t *testing.T) {
	both(t, func(t *testing.T, k kindOfLog) {
		for _, holder := range []string{"first (process 7)", "second", strings.Repeat("long", holderMax)} {
			l := k.must(t, Options{Holder: holder})
			_, err := k.open(Options{Holder: "another"})
			require.ErrorIs(t, err, vfs.ErrLocked)
			require.ErrorContains(t, err, holder[:min(len(holder), holderMax-1)]+" has it open")
			require.ErrorContains(t, err, k.dir)
			add(t, l, "what the other did not touch")
			require.NoError(t, l.Close())
		}
		// What is in the file decides nothing.
		require.NoError(t, vfs.WriteFileAtomic(k.fs, filepath.Join(k.dir, lockName), []byte("\xff\xfe")))
		l := k.must(t, Options{})
		_, err := k.open(Options{})
		require.ErrorIs(t, err, vfs.ErrLocked)
		require.NotContains(t, err.Error(), "has it open")
		require.Len(t, texts(l), 3)
		require.NoError(t, l.Close())
	})
}

func TestLimits(t *testing.T) {
	both(t, func(t *testing.T, k kindOfLog) {
		l := k.must(t, Options{})
		big := bytes.Repeat([]byte("x"), MaxRecord)
		_, err := l.Append(context.Background(), append(big, 'y'))
		require.ErrorIs(t, err, ErrTooLarge)
		for range MaxPendingBytes / MaxRecord {
			add(t, l, string(big))
		}
		_, err = l.Append(context.Background(), []byte("one more"))
		require.ErrorIs(t, err, ErrFull)
		done(t, l, l.Pending()[3].ID)
		id := add(t, l, string(big))
		require.NoError(t, l.Close())
		l = k.must(t, Options{})
		require.Len(t, l.Pending(), 16)
		require.Equal(t, id, l.Pending()[15].ID)
		require.Equal(t, big, l.Pending()[15].Data)
	})
}

func TestPendingCountIsBounded(t *testing.T) {
	fsys := memfs.New("/data")
	l, err := OpenVFS(fsys, "/data/i", Options{})
	require.NoError(t, err)
	defer l.Close()
	for i := range MaxPending {
		add(t, l, fmt.Sprint(i))
	}
	_, err = l.Append(context.Background(), nil)
	require.ErrorIs(t, err, ErrFull)
	done(t, l, l.Pending()[0].ID)
	add(t, l, "again")
}

func TestContext(t *testing.T) {
	both(t, func(t *testing.T, k kindOfLog) {
		l := k.must(t, Options{})
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := l.Append(ctx, []byte("x"))
		if err != nil { // a free owner may have been faster
			require.ErrorIs(t, err, context.Canceled)
		}
	})
}

func TestGenerationsChange(t *testing.T) {
	both(t, func(t *testing.T, k kindOfLog) {
		l := k.must(t, Options{SegmentBytes: 4 << 10})
		keep := add(t, l, "kept through all generations")
		var last uint64
		for i := range 400 {
			last = add(t, l, strings.Repeat("g", i%90))
			done(t, l, last)
		}
		names, err := k.fs.List(k.dir)
		require.NoError(t, err)
		require.Len(t, names, 2, "one generation and the lock: %v", names)
		require.NotEqual(t, generationName(1), names[0])
		info, err := k.fs.Stat(filepath.Join(k.dir, names[0], fileName))
		require.NoError(t, err)
		require.Less(t, info.Size, int64(8<<10))
		require.NoError(t, l.Close())

		l = k.must(t, Options{SegmentBytes: 4 << 10})
		require.Equal(t, []Record{{keep, []byte("kept through all generations")}}, l.Pending())
		require.Greater(t, add(t, l, "x"), last)
	})
}

func TestConcurrentCallers(t *testing.T) {
	both(t, func(t *testing.T, k kindOfLog) {
		l := k.must(t, Options{SegmentBytes: 16 << 10})
		const callers, each = 8, 40
		var wg sync.WaitGroup
		kept := make([][]string, callers)
		errs := make(chan error, callers)
		for c := range callers {
			wg.Go(func() {
				for i := range each {
					text := fmt.Sprintf("caller %d intent %d", c, i)
					id, err := l.Append(context.Background(), []byte(text))
					if err != nil {
						errs <- err
						return
					}
					if i%4 == 0 {
						kept[c] = append(kept[c], text)
						continue
					}
					if err := l.Done(context.Background(), id); err != nil {
						errs <- err
						return
					}
					_ = l.Pending()
				}
			})
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			require.NoError(t, err)
		}
		require.NoError(t, l.Close())
		l = k.must(t, Options{})
		var want []string
		for _, texts := range kept {
			want = append(want, texts...)
		}
		require.ElementsMatch(t, want, texts(l))
	})
}

func TestEachOpensTheOthersFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "i")
	twin := func() (Log, error) { return OpenVFS(vfs.OS(), dir, Options{}) }
	lib := func() (Log, error) { return Open(dir, Options{}) }
	want := []string{}
	for i, open := range []func() (Log, error){lib, twin, lib, twin} {
		l, err := open()
		require.NoError(t, err)
		require.Equal(t, want, texts(l))
		want = append(want, fmt.Sprint("intent ", i))
		add(t, l, want[i])
		require.NoError(t, l.Close())
	}
}

func TestNewerFormatIsRefused(t *testing.T) {
	both(t, func(t *testing.T, k kindOfLog) {
		l := k.must(t, Options{})
		add(t, l, "a")
		require.NoError(t, l.Close())
		name := filepath.Join(k.dir, generationName(1), fileName)
		data, err := vfs.ReadFile(k.fs, name)
		require.NoError(t, err)
		data[1+4] = version + 1
		rewriteHeaderCRC(data[1:])
		require.NoError(t, vfs.WriteFileAtomic(k.fs, name, data))
		for _, salvage := range []bool{false, true} {
			_, err = k.open(Options{Salvage: salvage})
			require.ErrorIs(t, err, ErrNewerFormat)
			require.ErrorContains(t, err, name+", offset 0: ")
		}
		again, err := vfs.ReadFile(k.fs, name)
		require.NoError(t, err)
		require.Equal(t, data, again, "the file is left alone")
	})
}

func TestMissingFileOfAGenerationIsDamage(t *testing.T) {
	both(t, func(t *testing.T, k kindOfLog) {
		l := k.must(t, Options{})
		id := add(t, l, "a")
		require.NoError(t, l.Close())
		require.NoError(t, k.fs.Remove(filepath.Join(k.dir, generationName(1), fileName)))
		_, err := k.open(Options{})
		requireCorrupt(t, err)
		require.False(t, errors.Is(err, fs.ErrNotExist) && err == nil)
		l = k.must(t, Options{Salvage: true})
		require.Empty(t, l.Pending())
		require.Len(t, l.Recovered().Damage, 1)
		require.Greater(t, add(t, l, "b"), id)
	})
}
