package intent

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

func rewriteHeaderCRC(b []byte) {
	binary.BigEndian.PutUint32(b[headerSize-4:], crc32.Checksum(b[:headerSize-4], castagnoli))
}

func requireCorrupt(t *testing.T, err error) {
	t.Helper()
	var c *corrupt.Error
	require.ErrorAs(t, err, &c)
	require.NotEmpty(t, c.Path)
}

// history is what a workload was told: the state of each intent by its text.
type history struct {
	order []string
	state map[string]string // "asked", "pending", "finishing", "done"
}

func (h *history) set(text, state string) {
	if h.state == nil {
		h.state = map[string]string{}
	}
	if _, ok := h.state[text]; !ok {
		h.order = append(h.order, text)
	}
	h.state[text] = state
}

// check compares what a log holds with what the workload was told.
func (h *history) check(t testing.TB, l Log, where string) {
	t.Helper()
	got := texts(l)
	for _, text := range h.order {
		has := slices.Contains(got, text)
		switch h.state[text] {
		case "pending":
			require.True(t, has, "%s: acknowledged intent %q is gone; log: %v", where, text, got)
		case "done":
			require.False(t, has, "%s: finished intent %q is back", where, text)
		}
	}
	known := []string{}
	for _, text := range h.order {
		if slices.Contains(got, text) {
			known = append(known, text)
		}
	}
	require.Equal(t, known, got, "%s: order, or an intent that nobody appended", where)
}

// work opens a log, appends and finishes intents through several generations, closes it and opens it again; it stops
// at the first error.
func work(fsys vfs.FS) (h *history, err error) {
	h = &history{}
	ctx := context.Background()
	for round := range 2 {
		l, err := OpenVFS(fsys, "/data/i", Options{SegmentBytes: 1500})
		if err != nil {
			return h, err
		}
		for i := range 8 {
			text := fmt.Sprintf("intent %d of round %d, with some weight to it", i, round)
			h.set(text, "asked")
			id, err := l.Append(ctx, []byte(text))
			if err != nil {
				_ = l.Close()
				return h, err
			}
			h.set(text, "pending")
			if i%3 == 0 {
				continue
			}
			h.set(text, "finishing")
			if err := l.Done(ctx, id); err != nil {
				_ = l.Close()
				return h, err
			}
			h.set(text, "done")
		}
		if err := l.Close(); err != nil {
			return h, err
		}
	}
	return h, nil
}

func TestPowerLossAtEveryChange(t *testing.T) {
	var h *history
	memfs.Sweep(t, func() *memfs.FS { return memfs.New("/data") },
		func(f *memfs.FS) { h, _ = work(f) },
		func(f *memfs.FS, where string) {
			l, err := OpenVFS(f, "/data/i", Options{})
			require.NoError(t, err, where)
			h.check(t, l, where)
			id, err := l.Append(context.Background(), []byte("after"))
			require.NoError(t, err, where)
			require.NoError(t, l.Done(context.Background(), id), where)
			require.NoError(t, l.Close(), where)
			// A second power loss right behind changes nothing that was there.
			l, err = OpenVFS(f.CrashClone(1, 0), "/data/i", Options{})
			require.NoError(t, err, where)
			h.check(t, l, where)
			require.NoError(t, l.Close(), where)
		})
}

func TestEveryOperationFails(t *testing.T) {
	for _, sticky := range []bool{false, true} {
		for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC} {
			t.Run(fmt.Sprintf("sticky=%v/%v", sticky, errno), func(t *testing.T) {
				var mem *memfs.FS
				fault := func(n int64) errorfs.Injector {
					if sticky {
						return errorfs.From(errorfs.Any, n, errno)
					}
					return errorfs.Nth(errorfs.Any, n, errno)
				}
				met := errorfs.Sweep(t, func() vfs.FS { mem = memfs.New("/data"); return mem }, fault,
					func(fsys *errorfs.FS, n int64) {
						h, err := work(fsys)
						if err != nil {
							require.ErrorIs(t, err, errno)
						}
						for _, keep := range []float64{0, 0.5, 1} {
							l, err := OpenVFS(mem.CrashClone(uint64(n), keep), "/data/i", Options{})
							require.NoError(t, err)
							h.check(t, l, fmt.Sprintf("keep %v", keep))
							require.NoError(t, l.Close())
						}
					})
				require.Greater(t, met, int64(100))
			})
		}
	}
}

func TestShortWrites(t *testing.T) {
	for _, short := range []int{1, 52, 60, 100} {
		var mem *memfs.FS
		errorfs.Sweep(t, func() vfs.FS { mem = memfs.New("/data"); return mem },
			func(n int64) errorfs.Injector { return errorfs.ShortWrite(n, short, syscall.EIO) },
			func(fsys *errorfs.FS, n int64) {
				h, _ := work(fsys)
				l, err := OpenVFS(mem.CrashClone(uint64(n), 1), "/data/i", Options{})
				require.NoError(t, err)
				h.check(t, l, "short write")
				require.NoError(t, l.Close())
			})
	}
}

func TestAFailedSyncPoisons(t *testing.T) {
	mem := memfs.New("/data")
	sync := errorfs.NewSwitch(errorfs.Nth(errorfs.Sync, 1, syscall.EIO))
	l, err := OpenVFS(errorfs.Wrap(mem, sync), "/data/i", Options{})
	require.NoError(t, err)
	add(t, l, "safe")
	sync.Set(true)
	_, err = l.Append(context.Background(), []byte("lost"))
	require.ErrorIs(t, err, ErrPoisoned)
	require.ErrorIs(t, err, syscall.EIO)
	_, err = l.Append(context.Background(), []byte("the disk works again, the file is not trusted"))
	require.ErrorIs(t, err, ErrPoisoned)
	require.ErrorIs(t, l.Done(context.Background(), 1), ErrPoisoned)
	require.ErrorIs(t, l.Err(), ErrPoisoned)
	require.Equal(t, []string{"safe"}, texts(l))
	require.NoError(t, l.Close())
	l, err = OpenVFS(mem.CrashClone(1, 0), "/data/i", Options{})
	require.NoError(t, err)
	require.Equal(t, []string{"safe"}, texts(l))
	require.NoError(t, l.Close())
}

// TestBitFlipsEverywhere flips each bit of what Open reads: the result is the right intents or a typed error, never
// fewer intents.
func TestBitFlipsEverywhere(t *testing.T) {
	mem := memfs.New("/data")
	l, err := OpenVFS(mem, "/data/i", Options{})
	require.NoError(t, err)
	add(t, l, "first")
	id := add(t, l, "second")
	add(t, l, "third")
	done(t, l, id)
	add(t, l, "last, and acknowledged like the others")
	require.NoError(t, l.Close())
	want := []string{"first", "third", "last, and acknowledged like the others"}
	info, err := mem.Stat("/data/i/00000001/" + fileName)
	require.NoError(t, err)
	cuts := 0
	for bit := range info.Size * 8 {
		fsys := errorfs.Wrap(mem.Clone(), errorfs.OnPath(fileName, errorfs.FlipBit(1, bit)))
		l, err := OpenVFS(fsys, "/data/i", Options{})
		if err != nil {
			requireCorrupt(t, err)
			continue
		}
		cuts++
		require.Equal(t, want, texts(l), "bit %d", bit)
		require.NoError(t, l.Close())
	}
	require.Positive(t, cuts)
	require.LessOrEqual(t, cuts, frameSize(0)*8, "only the last record, which states what is synced, may be cut off")
}

func TestSalvageKeepsWhatCanBeRead(t *testing.T) {
	both(t, func(t *testing.T, k kindOfLog) {
		l := k.must(t, Options{})
		add(t, l, "first")
		add(t, l, "second")
		third := add(t, l, "third")
		require.NoError(t, l.Close())
		name := k.dir + "/00000001/" + fileName
		data, err := vfs.ReadFile(k.fs, name)
		require.NoError(t, err)
		at := bytes.Index(data, []byte("second"))
		data[at] ^= 0x10
		require.NoError(t, vfs.WriteFileAtomic(k.fs, name, data))

		_, err = k.open(Options{})
		requireCorrupt(t, err)
		require.ErrorContains(t, err, errDataCRC.Error())
		l = k.must(t, Options{Salvage: true})
		require.Equal(t, []string{"first", "third"}, texts(l))
		require.Len(t, l.Recovered().Damage, 1)
		require.Equal(t, k.dir+"/damaged-00000001", l.Recovered().SetAside)
		_, err = k.fs.Stat(l.Recovered().SetAside + "/" + fileName)
		require.NoError(t, err, "the evidence is kept")
		require.Greater(t, add(t, l, "fourth"), third)
		require.NoError(t, l.Close())
		l = k.must(t, Options{})
		require.Equal(t, []string{"first", "third", "fourth"}, texts(l))
	})
}

func TestFullDiskRefusesAndGoesOn(t *testing.T) {
	mem := memfs.New("/data")
	l, err := OpenVFS(mem, "/data/i", Options{})
	require.NoError(t, err)
	add(t, l, "before")
	u, err := mem.Usage("/data")
	require.NoError(t, err)
	mem.SetCapacity(u.Total - u.Available)
	var kept []string
	for { // the started block has room
		_, err := l.Append(context.Background(), bytes.Repeat([]byte("x"), 500))
		if err != nil {
			require.ErrorIs(t, err, syscall.ENOSPC)
			require.NotErrorIs(t, err, ErrPoisoned)
			break
		}
		kept = append(kept, string(bytes.Repeat([]byte("x"), 500)))
	}
	require.NotEmpty(t, kept)
	require.NoError(t, l.Err())
	require.Equal(t, append([]string{"before"}, kept...), texts(l))
	_, err = l.Append(context.Background(), bytes.Repeat([]byte("x"), 5000))
	require.ErrorIs(t, err, syscall.ENOSPC)

	l2, err := OpenVFS(mem.CrashClone(1, 0), "/data/i", Options{})
	require.NoError(t, err)
	require.Equal(t, append([]string{"before"}, kept...), texts(l2))
	require.NoError(t, l2.Close())

	mem.SetCapacity(0)
	add(t, l, "after")
	require.NoError(t, l.Close())
	l, err = OpenVFS(mem.CrashClone(1, 0), "/data/i", Options{})
	require.NoError(t, err)
	require.Equal(t, append(append([]string{"before"}, kept...), "after"), texts(l))
	require.NoError(t, l.Close())
}

// TestFullDiskUnderTheLibrary puts a torn record where the library's file ends, as a refused write would.
func TestFullDiskUnderTheLibrary(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "i")
	var full atomic.Bool
	opener := func(dir string, last uint64, size int64) (appender, error) {
		a, err := openWAL(dir, last, size)
		return &fullAppender{appender: a, file: filepath.Join(dir, fileName), full: &full}, err
	}
	l, err := open(vfs.OS(), opener, dir, Options{})
	require.NoError(t, err)
	add(t, l, "before")
	full.Store(true)
	_, err = l.Append(context.Background(), []byte("refused"))
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, l.Err())
	full.Store(false)
	add(t, l, "after")
	require.NoError(t, l.Close())
	l, err = Open(dir, Options{})
	require.NoError(t, err)
	require.Equal(t, []string{"before", "after"}, texts(l))
	require.NoError(t, l.Close())
}

type fullAppender struct {
	appender
	file string
	full *atomic.Bool
}

func (a *fullAppender) append(records [][]byte) error {
	if !a.full.Load() {
		return a.appender.append(records)
	}
	f, err := os.OpenFile(a.file, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.Write([]byte{200, 1, 'B'})
	}
	return errors.Join(fmt.Errorf("%w: %w", errWrite, syscall.ENOSPC), err, f.Close())
}

func TestFullDiskKeepsTheOldGeneration(t *testing.T) {
	mem := memfs.New("/data")
	full := errorfs.NewSwitch(errorfs.OnPath("0*.tmp", errorfs.From(errorfs.Mkdir, 1, syscall.ENOSPC)))
	l, err := OpenVFS(errorfs.Wrap(mem, full), "/data/i", Options{SegmentBytes: 500})
	require.NoError(t, err)
	full.Set(true)
	for range 100 {
		done(t, l, add(t, l, "some intent"))
	}
	names, err := mem.List("/data/i")
	require.NoError(t, err)
	require.Equal(t, []string{"00000001", "LOCK"}, names)
	full.Set(false)
	keep := add(t, l, "kept")
	for range 100 {
		done(t, l, add(t, l, "some intent"))
	}
	names, err = mem.List("/data/i")
	require.NoError(t, err)
	require.NotEqual(t, "00000001", names[0])
	require.Equal(t, []Record{{keep, []byte("kept")}}, l.Pending())
	require.NoError(t, l.Close())
}
