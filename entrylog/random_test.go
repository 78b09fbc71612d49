package entrylog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// world is a store under random use.
type world struct {
	t    *testing.T
	rng  *rand.Rand
	disk *memfs.FS
	o    Options
	s    *Store
	h    *history
	next map[int64]int64
	seq  uint64
}

func (w *world) where(step int) string { return fmt.Sprintf("step %d", step) }

// flushRandom writes a random batch.
func (w *world) flushRandom() {
	b := &batch{}
	for ledger := range w.rng.Int64N(6) {
		for range w.rng.IntN(8) {
			entry := w.next[ledger]
			if entry > 0 && w.rng.IntN(10) == 0 {
				entry = w.rng.Int64N(entry) // again
				for _, e := range b.bodies {
					if e.id == (entryID{ledger, entry}) {
						entry = w.next[ledger] // a cache holds one copy
					}
				}
			}
			if entry == w.next[ledger] {
				w.next[ledger]++
			}
			w.seq++
			size := 24 + w.rng.IntN(300)
			if w.rng.IntN(40) == 0 {
				size = 24 + w.rng.IntN(40<<10)
			}
			b.add(ledger, entry, size, w.seq)
		}
		if w.rng.IntN(4) == 0 {
			b.state(ledger, fmt.Sprint("state ", w.seq))
		}
	}
	require.NoError(w.t, w.h.flush(w.s, b, 1))
	w.h.durable = w.s.Durable()
}

// abortRandom begins a flush and gives it up.
func (w *world) abortRandom() {
	for e := range int64(w.rng.IntN(200)) {
		_, err := w.s.Append(makeBody(9, 1000+e, 24+w.rng.IntN(500), w.seq))
		require.NoError(w.t, err)
	}
	require.NoError(w.t, w.s.Abort())
}

func (w *world) reopen(step int) {
	w.o.Durable = w.h.durable
	s, r, err := Open(w.disk, testDir, w.o)
	require.NoError(w.t, err, w.where(step))
	require.Empty(w.t, r.Damage, w.where(step))
	w.s = s
}

// locate refreshes where everything lies, as an index would know it.
func (w *world) check(step int) {
	require.NoError(w.t, w.s.Roll())
	w.s.wg.Wait()
	c, err := readAll(w.s)
	require.NoError(w.t, err, w.where(step))
	require.Empty(w.t, c.damage, w.where(step))
	w.h.model.holds(w.t, w.s, c, w.where(step))
	w.h.model.at = c.at
}

func (w *world) step(n int) {
	switch what := w.rng.IntN(20); {
	case what < 12:
		w.flushRandom()
	case what < 13:
		w.abortRandom()
	case what < 14:
		w.check(n)
	case what < 15 && len(w.s.Logs()) > 2:
		w.check(n)
		require.NoError(w.t, w.h.compact(w.s), w.where(n))
	case what < 16:
		require.NoError(w.t, w.s.Close(), w.where(n))
		w.reopen(n)
	case what < 18: // killed, or power loss
		keep := []float64{0, 0.5, 1}[w.rng.IntN(3)]
		if w.rng.IntN(2) == 0 { // in the middle of a flush
			for e := range int64(w.rng.IntN(100)) {
				_, err := w.s.Append(makeBody(9, 2000+e, 24+w.rng.IntN(900), w.seq))
				require.NoError(w.t, err)
			}
		}
		clone := w.disk.CrashClone(w.rng.Uint64(), keep)
		require.NoError(w.t, w.s.Close())
		w.disk = clone
		w.reopen(n)
	case what < 19: // a disk that is full for a while
		u, err := w.disk.Usage("/")
		require.NoError(w.t, err)
		w.disk.SetCapacity(u.Total - u.Available + w.rng.Int64N(32<<10))
		for e := range int64(100) {
			if _, err := w.s.Append(makeBody(9, 3000+e, 600, w.seq)); err != nil {
				require.ErrorIs(w.t, err, ErrNoSpace)
				break
			}
		}
		require.NoError(w.t, w.s.Abort())
		w.s.wg.Wait()
		w.disk.SetCapacity(0)
	}
}

// TestRandomUse does random things under several options, which must make no difference to what is there.
func TestRandomUse(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 99))
			o := smallOptions()
			o.LogSize = []int64{8 << 10, 40 << 10, 1 << 20}[rng.IntN(3)]
			o.BufferSize = []int{4 << 10, 16 << 10, 256 << 10}[rng.IntN(3)]
			o.PreallocateSize = []int64{4 << 10, 64 << 10, 1 << 20}[rng.IntN(3)]
			o.DirectReads, o.BufferedWrites = rng.IntN(2) == 0, rng.IntN(3) == 0
			o.OpenFilesMax = 1 + rng.IntN(3)
			h := newHistory()
			w := &world{t: t, rng: rng, disk: memfs.New(testDir), o: o, h: h, next: map[int64]int64{}}
			w.reopen(0)
			for n := range 120 {
				w.step(n)
			}
			w.check(-1)
			require.NoError(t, w.s.Close())
		})
	}
}

// TestFlippedReads flips a bit in each read of a whole history in turn: what comes back is right, or an error of damage.
func TestFlippedReads(t *testing.T) {
	var disk *memfs.FS
	errorfs.Sweep(t, func() vfs.FS { disk = memfs.New(testDir); return disk },
		func(n int64) errorfs.Injector { return errorfs.FlipBit(n, n*7919) },
		func(fs *errorfs.FS, n int64) {
			h := newHistory()
			if err := h.run(fs, 1); err != nil {
				require.True(t, corrupt.Is(err) || errors.Is(err, ErrNotFinal), "read %d: %v", n, err)
			}
			// The disk itself is sound: whatever was made of the flipped bit, nothing acknowledged is lost by it.
			h.verify(t, disk.CrashClone(uint64(n), 0), fmt.Sprintf("read %d", n))
		})
}

// TestShortWrites lets each write in turn stop half way.
func TestShortWrites(t *testing.T) {
	var disk *memfs.FS
	errorfs.Sweep(t, func() vfs.FS { disk = memfs.New(testDir); return disk },
		func(n int64) errorfs.Injector { return errorfs.ShortWrite(n, 512, syscall.EIO) },
		func(fs *errorfs.FS, n int64) {
			h := newHistory()
			if err := h.run(fs, 2); err != nil {
				require.ErrorIs(t, err, syscall.EIO)
			}
			h.verify(t, disk.CrashClone(uint64(n), 0.5), fmt.Sprintf("write %d", n))
		})
}
