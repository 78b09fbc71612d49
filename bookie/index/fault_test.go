package index

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

const memPath = "/data/" + FileName

// steps is a workload of whole transactions: after each of them the reference is what the index must hold.
type steps struct {
	ref   *reference
	next  *reference // with the step under way applied
	meta  string
	metas string // with the step under way applied
}

func (s *steps) do(x Index, change func(*reference), call func() error) error {
	s.next = s.ref.clone()
	change(s.next)
	if err := call(); err != nil {
		return err
	}
	s.ref, s.meta = s.next, s.metas
	return nil
}

// run does some of everything.
func (s *steps) run(x Index) error {
	ctx := context.Background()
	for n := range entrylog.LogID(4) {
		info := logInfo(n + 1)
		runs := []entrylog.Run{run(1, int64(n)*10, 15, info.ID, 4096, 50), run(2, int64(n)*200, 150, info.ID, 9000, 30)}
		states := []entrylog.LedgerState{{Ledger: int64(n % 2), Data: fmt.Appendf(nil, "state %d", n)}}
		// One Ingest is several transactions, but small: runs and states are in the last.
		if err := s.do(x, func(r *reference) { r.ingest(info, runs, states) }, func() error { return x.Ingest(ctx, info, seqOf(runs), states) }); err != nil {
			return err
		}
	}
	var moves []Move
	for e := range int64(20) {
		old := s.ref.at[[2]int64{1, e}]
		moves = append(moves, Move{1, e, old, entrylog.Location{Log: 9, Offset: 4096 + e*58, Size: old.Size}})
	}
	if err := s.do(x, func(r *reference) {
		for _, m := range moves {
			r.at[[2]int64{1, m.Entry}] = m.New
		}
	}, func() error { _, err := x.Relocate(moves); return err }); err != nil {
		return err
	}
	s.metas = "two"
	return s.do(x, func(r *reference) {
		for id := range r.at {
			if id[0] == 2 {
				delete(r.at, id)
			}
		}
		delete(r.states, 2)
	}, func() error { return x.DeleteLedgers([]int64{2}, MetaValue{"deleted", []byte("two")}) })
}

// either proves that the index holds what it held before the step under way, or after.
func (s *steps) either(t *testing.T, x Index, where string) {
	t.Helper()
	v, _, err := x.Meta("deleted")
	require.NoError(t, err, where)
	if s.next == nil || s.matches(x, s.ref, s.meta, string(v)) {
		return
	}
	require.True(t, s.matches(x, s.next, s.metas, string(v)), "%s: neither what was there before the change under way nor after it", where)
}

// matches is a quick comparison.
func (s *steps) matches(x Index, r *reference, meta, got string) bool {
	if meta != got {
		return false
	}
	n := 0
	for ledger := range int64(4) {
		for run, err := range x.Runs(ledger, 0) {
			if err != nil {
				return false
			}
			for i := range int(run.Count) {
				if r.at[[2]int64{ledger, run.First + int64(i)}] != run.Location(i) {
					return false
				}
				n++
			}
		}
		data, ok, err := x.State(ledger)
		want, has := r.states[ledger]
		if err != nil || ok != has || string(data) != string(want.data) {
			return false
		}
	}
	return n == len(r.at)
}

// TestMemPowerLossAtEveryChange leaves each transaction whole or not at all.
func TestMemPowerLossAtEveryChange(t *testing.T) {
	var s *steps
	memfs.Sweep(t, func() *memfs.FS { return memfs.New("/data") },
		func(f *memfs.FS) {
			s = &steps{ref: newReference()}
			x, err := OpenMem(f, memPath, Options{})
			if err != nil {
				return
			}
			if err := s.run(x); err != nil && !f.Crashed() {
				t.Errorf("without a crash: %v", err)
			}
			_ = x.Close()
		},
		func(f *memfs.FS, where string) {
			x, err := OpenMem(f, memPath, Options{})
			require.NoError(t, err, where)
			s.either(t, x, where)
			checked(t, x)
			require.NoError(t, x.Close())
		})
}

// TestMemErrorAtEveryOperation fails each operation once.
func TestMemErrorAtEveryOperation(t *testing.T) {
	for _, cause := range []error{syscall.EIO, syscall.ENOSPC} {
		t.Run(cause.Error(), func(t *testing.T) {
			var disk *memfs.FS
			errorfs.Sweep(t, func() vfs.FS { disk = memfs.New("/data"); return disk },
				func(n int64) errorfs.Injector { return errorfs.Nth(errorfs.Any, n, cause) },
				func(fs *errorfs.FS, n int64) {
					s := &steps{ref: newReference()}
					where := fmt.Sprintf("operation %d", n)
					if x, err := OpenMem(fs, memPath, Options{}); err == nil {
						if err := s.run(x); err != nil {
							require.ErrorIs(t, err, cause, where)
							if !errors.Is(err, ErrNoSpace) {
								require.ErrorIs(t, err, ErrFailed, where)
								_, err := x.Locate(1, 0)
								require.ErrorIs(t, err, ErrFailed, "%s: a failed index answers nothing", where)
							} else {
								s.either(t, x, where)
							}
						}
						require.NoError(t, x.Close())
					}
					x, err := OpenMem(disk.CrashClone(uint64(n), 0), memPath, Options{})
					require.NoError(t, err, where)
					s.either(t, x, where)
					require.NoError(t, x.Close())
				})
		})
	}
}

// honest proves of a damaged index that each answer is right or an error of damage; never another entry, never "not found".
func honest(t *testing.T, x Index, ref *reference, where string) (wrong int) {
	t.Helper()
	bad := func(err error) bool {
		if err == nil {
			return false
		}
		require.True(t, corrupt.Is(err) || errors.Is(err, ErrFailed), "%s: %v", where, err)
		require.NotErrorIs(t, err, ErrNotFound, where)
		wrong++
		return true
	}
	for id, want := range ref.at {
		if id[1]%3 == 1 { // ends and middles of runs are enough
			continue
		}
		loc, err := x.Locate(id[0], id[1])
		if !bad(err) {
			require.Equal(t, want, loc, "%s: %v", where, id)
		}
	}
	last := map[int64]int64{}
	for id := range ref.at {
		if l, ok := last[id[0]]; !ok || l < id[1] {
			last[id[0]] = id[1]
		}
	}
	for ledger, want := range last {
		got, err := x.Last(ledger)
		if !bad(err) {
			require.Equal(t, want, got, where)
		}
	}
	for ledger, want := range ref.states {
		data, ok, err := x.State(ledger)
		if !bad(err) {
			require.True(t, ok, "%s: state of ledger %d", where, ledger)
			require.Equal(t, string(want.data), string(data), where)
		}
	}
	v, ok, err := x.Meta("tombstones")
	if !bad(err) {
		require.True(t, ok, where)
		require.Equal(t, "1-5,9", string(v), where)
	}
	return wrong
}

// fillForSurgery makes an index with some depth and returns what it holds.
func fillForSurgery(t *testing.T, x Index) *reference {
	t.Helper()
	ref := newReference()
	for log := entrylog.LogID(1); log <= 3; log++ {
		var runs []entrylog.Run
		var states []entrylog.LedgerState
		off := int64(4096)
		for ledger := range int64(60) {
			for piece := range int64(2) {
				r := run(ledger, int64(log)*20+piece*10, 8, log, off, 40)
				off += r.Bytes()
				runs = append(runs, r)
			}
			if ledger%4 == 0 {
				states = append(states, entrylog.LedgerState{Ledger: ledger, Data: fmt.Appendf(nil, "ledger %d, log %d", ledger, log)})
			}
		}
		require.NoError(t, x.Ingest(context.Background(), logInfo(log), seqOf(runs), states))
		ref.ingest(logInfo(log), runs, states)
	}
	require.NoError(t, x.PutMeta(MetaValue{"tombstones", []byte("1-5,9")}))
	return ref
}

// TestMemFlippedBits flips a bit in each byte of the twin's files.
func TestMemFlippedBits(t *testing.T) {
	clean := memfs.New("/data")
	x, err := OpenMem(clean, memPath, Options{})
	require.NoError(t, err)
	ref := fillForSurgery(t, x)
	require.NoError(t, x.Close())
	stride := int64(11)
	if testing.Short() {
		stride = 101
	}
	for _, name := range []string{memPath, memPath + ".log"} {
		st, err := clean.Stat(name)
		require.NoError(t, err)
		for off := int64(0); off < st.Size; off += stride {
			fs := clean.Clone()
			f, err := fs.Open(name, vfs.Mode{Write: true})
			require.NoError(t, err)
			var b [1]byte
			_, err = f.ReadAt(b[:], off)
			require.NoError(t, err)
			b[0] ^= 1 << (off % 8)
			_, err = f.WriteAt(b[:], off)
			require.NoError(t, err)
			require.NoError(t, f.Close())
			where := fmt.Sprintf("%s, byte %d", name, off)
			x, err := OpenMem(fs, memPath, Options{MustExist: true})
			if err != nil {
				require.True(t, corrupt.Is(err), "%s: %v", where, err)
				continue
			}
			// The last change alone may pass for torn.
			_, ok, err := x.Meta("tombstones")
			require.NoError(t, err)
			if ok {
				honest(t, x, ref, where)
			}
			require.NoError(t, x.Close())
		}
	}
}

// surgery copies a bbolt file, changes the copy, and opens it.
func surgery(t *testing.T, clean []byte, cut func(b []byte) []byte) (Index, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), FileName)
	require.NoError(t, os.WriteFile(path, cut(append([]byte(nil), clean...)), 0o644))
	return OpenBolt(path, Options{MustExist: true, InitialMapSize: 1 << 30})
}

func boltFile(t *testing.T) ([]byte, *reference) {
	t.Helper()
	path := filepath.Join(t.TempDir(), FileName)
	x, err := OpenBolt(path, Options{})
	require.NoError(t, err)
	ref := fillForSurgery(t, x)
	require.NoError(t, x.Close())
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	used := int(max(binary.NativeEndian.Uint64(b[boltMetaAt+40:]), binary.NativeEndian.Uint64(b[os.Getpagesize()+boltMetaAt+40:])))
	return b[:used*os.Getpagesize()], ref // the rest was only grown ahead
}

// TestC21BoltSurgery zeroes and cuts an index file at each page.
func TestC21BoltSurgery(t *testing.T) {
	clean, ref := boltFile(t)
	page := os.Getpagesize()
	refused, failed := 0, 0
	for off := 0; off < len(clean); off += page {
		for name, cut := range map[string]func([]byte) []byte{
			"zeroed":            func(b []byte) []byte { clear(b[off : off+page]); return b },
			"cut":               func(b []byte) []byte { return b[:off] },
			"cut in the middle": func(b []byte) []byte { return b[:off+page/2] },
			"garbage": func(b []byte) []byte {
				for i := range page {
					b[off+i] = byte(i*131 + off)
				}
				return b
			},
			"another page": func(b []byte) []byte { copy(b[off:off+page], b[(off+3*page)%len(b):]); return b },
		} {
			where := fmt.Sprintf("page %d %s", off/page, name)
			x, err := surgery(t, clean, cut)
			if err != nil {
				require.True(t, corrupt.Is(err), "%s: %v", where, err)
				refused++
				continue
			}
			if honest(t, x, ref, where) > 0 {
				failed++
				require.Error(t, x.Err(), where)
			} else {
				_ = x.Check(t.Context(), func(error) {}) // it may find free pages damaged, or nothing; it comes back
			}
			require.NoError(t, x.Close(), where)
		}
	}
	t.Logf("%d refused, %d failed later", refused, failed)
	require.Positive(t, refused)
	require.Positive(t, failed)
	_, err := surgery(t, clean, func([]byte) []byte { return nil })
	require.True(t, corrupt.Is(err), "an emptied index is not a new one: %v", err)
}

// TestBoltFlippedBits flips bits all over an index file.
func TestBoltFlippedBits(t *testing.T) {
	clean, ref := boltFile(t)
	stride := int64(37)
	if testing.Short() {
		stride = 211
	}
	path := filepath.Join(t.TempDir(), FileName)
	require.NoError(t, os.WriteFile(path, clean, 0o644))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // a test's file
	bad := 0
	for off := int64(0); off < int64(len(clean)); off += stride {
		_, err := f.WriteAt([]byte{clean[off] ^ 1<<(off%8)}, off) // look-ups write nothing, so the rest stays as it is
		require.NoError(t, err)
		where := fmt.Sprintf("byte %d", off)
		x, err := OpenBolt(path, Options{MustExist: true, InitialMapSize: 1 << 30})
		if err != nil {
			require.True(t, corrupt.Is(err), "%s: %v", where, err)
			bad++
		} else {
			if honest(t, x, ref, where) > 0 {
				bad++
			}
			require.NoError(t, x.Close(), where)
			if off%5 == 0 { // a whole check of the same file, on an index that has not failed yet
				x, err = OpenBolt(path, Options{MustExist: true, ReadOnly: true, InitialMapSize: 1 << 30})
				require.NoError(t, err, where)
				_ = x.Check(t.Context(), func(error) {})
				require.NoError(t, x.Close(), where)
			}
		}
		_, err = f.WriteAt(clean[off:off+1], off)
		require.NoError(t, err)
	}
	t.Logf("%d of %d flips were noticed; the others hit free space", bad, int64(len(clean))/stride+1)
	require.Positive(t, bad)
}

// TestBoltBranchLoop leads a branch page back to itself: bbolt would overflow the stack.
func TestBoltBranchLoop(t *testing.T) {
	clean, _ := boltFile(t)
	page := os.Getpagesize()
	loops := 0
	for id := 2; id < len(clean)/page; id++ {
		p := clean[id*page : (id+1)*page]
		if binary.NativeEndian.Uint16(p[8:]) != boltBranch || binary.NativeEndian.Uint64(p) != uint64(id) {
			continue
		}
		for e := range int(binary.NativeEndian.Uint16(p[10:])) {
			_, err := surgery(t, clean, func(b []byte) []byte {
				binary.NativeEndian.PutUint64(b[id*page+boltPageHeader+e*boltElement+8:], uint64(id))
				return b
			})
			if err != nil { // else the page is free
				require.True(t, corrupt.Is(err), "%v", err)
				loops++
			}
		}
	}
	require.Positive(t, loops)
}

// TestC27FaultOnMapping takes the file away under the mapping, as a dying disk does: the look-up faults, the index of this
// directory fails, the process and its other indexes go on.
func TestC27FaultOnMapping(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mapped file can not be cut on Windows: runs on every other system")
	}
	clean, ref := boltFile(t)
	x, err := surgery(t, clean, func(b []byte) []byte { return b })
	require.NoError(t, err)
	other, err := surgery(t, clean, func(b []byte) []byte { return b })
	require.NoError(t, err)
	require.NoError(t, os.Truncate(x.(*runIndex).path, int64(os.Getpagesize())))
	failed := 0
	for id := range ref.at {
		if _, err := x.Locate(id[0], id[1]); err != nil {
			require.ErrorIs(t, err, ErrFailed)
			require.NotErrorIs(t, err, ErrNotFound)
			failed++
		}
	}
	require.Positive(t, failed)
	require.ErrorIs(t, x.Err(), ErrFailed)
	require.ErrorIs(t, x.PutMeta(MetaValue{"a", []byte("b")}), ErrFailed)
	require.NoError(t, x.Close())
	require.Zero(t, honest(t, other, ref, "the other index"))
	require.NoError(t, other.Close())
}
