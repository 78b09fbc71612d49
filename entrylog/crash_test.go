package entrylog

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// history is a workload with everything in it that changes files: several logs, entries added again, states, compaction,
// removal, a restart. What was acknowledged is in the model; what was under way when it failed is in pending.
type history struct {
	model   *model
	pending *batch
	durable Position
	gone    map[LogID]bool // removal was asked for
	moved   map[entryID]bool
}

func newHistory() *history {
	return &history{model: newModel(), gone: map[LogID]bool{}, moved: map[entryID]bool{}}
}

// flush writes a batch, repeating it as the storage does when that fails.
func (h *history) flush(s *Store, b *batch, tries int) error {
	h.pending = b
	var err error
	for range tries {
		if err = h.model.write(s, b); err == nil {
			h.durable, h.pending = s.Durable(), nil
			return nil
		}
		if aerr := s.Abort(); aerr != nil {
			return aerr
		}
	}
	return err
}

func sweepOptions() Options {
	o := smallOptions()
	o.LogSize, o.BufferSize, o.PreallocateSize = 12<<10, 4<<10, 8<<10
	return o
}

func (h *history) batch(n int) *batch {
	b := &batch{}
	for ledger := int64(1); ledger <= 3; ledger++ {
		for i := range int64(3) {
			b.add(ledger, int64(n)*3+i, 150+n*40+int(ledger), uint64(n))
		}
	}
	if n > 0 {
		b.add(4, 7, 300, uint64(n)) // added again each time
	}
	b.state(int64(n%3), fmt.Sprintf("state %d", n))
	b.state(9, fmt.Sprintf("nine %d", n))
	return b
}

// run does everything once.
func (h *history) run(fs vfs.FS, tries int) error {
	s, _, err := Open(fs, testDir, sweepOptions())
	if err != nil {
		return err
	}
	for n := range 6 {
		if err := h.flush(s, h.batch(n), tries); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	if err := s.Close(); err != nil {
		return err
	}
	o := sweepOptions()
	o.Durable = h.durable
	s, r, err := Open(fs, testDir, o)
	if err != nil {
		return err
	}
	if len(r.Damage) > 0 { // the storage would answer "unknown" from here on
		return errors.Join(r.Damage[0].Err, s.Close())
	}
	if err := h.compact(s); err != nil {
		return errors.Join(err, s.Close())
	}
	if err := h.flush(s, h.batch(6), tries); err != nil {
		return errors.Join(err, s.Close())
	}
	return s.Close()
}

// compact copies what is live in the oldest log to a new one and removes it, as gc does.
func (h *history) compact(s *Store) error {
	source := s.Logs()[0].ID
	f, err := s.Footer(source)
	if err != nil {
		return err
	}
	w, err := s.NewCompactionWriter(source)
	if err != nil {
		return err
	}
	defer w.Abort() //nolint:errcheck // nothing after Seal; before, the next Open deletes it too
	var rb RunBuilder
	moves := map[entryID]Location{}
	for r, err := range f.Runs() {
		if err != nil {
			return err
		}
		for i := range int(r.Count) {
			id := entryID{r.Ledger, r.First + int64(i)}
			if h.model.at[id] != r.Location(i) {
				continue // an older copy
			}
			body, err := s.Read(r.Location(i), nil)
			if err != nil {
				return err
			}
			loc, err := w.Append(body)
			if err != nil {
				return err
			}
			rb.Add(id.ledger, id.entry, loc)
			moves[id] = loc
		}
	}
	if err := w.Checkpoint(rb.Runs(), f.States); err != nil {
		return err
	}
	if _, err := w.Seal(); err != nil {
		return err
	}
	for id, loc := range moves {
		h.model.at[id] = loc
		h.moved[id] = true
	}
	h.gone[source] = true
	return s.Remove(source)
}

// verify opens what a crash left and proves that everything acknowledged is there: the acknowledged copy, or the one that
// was being written.
func (h *history) verify(t *testing.T, fs vfs.FS, where string) {
	t.Helper()
	o := sweepOptions()
	o.Durable = h.durable
	for round := range 2 { // the second time after a recovery that sealed
		s, r, err := Open(fs, testDir, o)
		require.NoError(t, err, where)
		require.Empty(t, r.Damage, where)
		c, err := readAll(s)
		require.NoError(t, err, where)
		require.Empty(t, c.damage, where)
		pending := map[entryID][]byte{}
		states := map[int64]string{}
		if h.pending != nil {
			for _, e := range h.pending.bodies {
				pending[e.id] = e.body
			}
			for _, st := range h.pending.states {
				states[st.Ledger] = string(st.Data)
			}
		}
		for id, body := range h.model.entries {
			loc, ok := c.at[id]
			require.True(t, ok, "%s, round %d: entry %v is missing", where, round, id)
			got, err := s.Read(loc, nil)
			if p, ok := pending[id]; ok && (err != nil || !bytes.Equal(got, body)) {
				// The write under way may have got through. Only the very first one, before there was a mark, may have done
				// so in part.
				require.True(t, err != nil && h.durable == Position{} || bytes.Equal(got, p), "%s: entry %v: %v", where, id, err)
				continue
			}
			require.NoError(t, err, "%s, round %d: entry %v at %s", where, round, id, loc)
			require.Equal(t, body, got, "%s, round %d: entry %v", where, round, id)
		}
		for ledger, want := range h.model.states {
			got := c.states[ledger]
			if p, ok := states[ledger]; ok && got == p {
				continue
			}
			require.Equal(t, want, got, "%s, round %d: state of ledger %d", where, round, ledger)
		}
		// What is there beyond the model was written by somebody.
		for id, loc := range c.at {
			if _, ok := h.model.entries[id]; !ok {
				require.Contains(t, pending, id, "%s: entry %v at %s", where, id, loc)
			}
		}
		for _, name := range mustList(t, fs) {
			_, leftover := parseName(name, compactingSuffix)
			require.False(t, leftover, "%s: %s", where, name)
		}
		require.NoError(t, s.Close(), where)
	}
}

func mustList(t *testing.T, fs vfs.FS) []string {
	t.Helper()
	names, err := fs.List(testDir)
	require.NoError(t, err)
	return names
}

// TestPowerLossAtEveryChange also is C17 at this level: compaction is part of the history.
func TestPowerLossAtEveryChange(t *testing.T) {
	var h *history
	memfs.Sweep(t, func() *memfs.FS { return memfs.New(testDir) },
		func(f *memfs.FS) {
			h = newHistory()
			if err := h.run(f, 1); err != nil && !f.Crashed() {
				t.Errorf("without a crash: %v", err)
			}
		},
		func(f *memfs.FS, where string) { h.verify(t, f, where) })
}

// TestErrorAtEveryOperation fails each operation once, and lets the flush be repeated.
func TestErrorAtEveryOperation(t *testing.T) {
	for _, err := range []error{syscall.EIO, syscall.ENOSPC} {
		t.Run(err.Error(), func(t *testing.T) {
			var disk *memfs.FS
			met := errorfs.Sweep(t,
				func() vfs.FS { disk = memfs.New(testDir); return disk },
				func(n int64) errorfs.Injector { return errorfs.Nth(errorfs.Any, n, err) },
				func(fs *errorfs.FS, n int64) {
					h := newHistory()
					if rerr := h.run(fs, 3); rerr != nil {
						require.NotZero(t, fs.Injected(), "without a fault: %v", rerr)
						require.ErrorIs(t, rerr, err)
					}
					where := fmt.Sprintf("operation %d", n)
					h.verify(t, disk.Clone(), where)
					h.verify(t, disk.CrashClone(uint64(n), 0), where+", then power loss")
				})
			t.Logf("%d operations", met)
		})
	}
}

// kill ends a store as kill -9 does: what was handed to the system stays, nothing else happens.
func (s *Store) kill() error {
	s.wmu.Lock()
	if s.w != nil {
		s.w.stop()
		_ = s.w.f.Close()
		s.w = nil
	}
	s.wmu.Unlock()
	s.wg.Wait()
	return s.closeFiles()
}

// runKilled is a process that is killed in the middle of a flush, or between its last write and the sync, and another one
// that goes on.
func (h *history) runKilled(fs vfs.FS, beforeSync bool) error {
	o := sweepOptions()
	o.LogSize = 1 << 20
	syncs := errorfs.NewSwitch(errorfs.OnPath(logPath(1), errorfs.From(errorfs.Sync, 1, syscall.EIO)))
	s, _, err := Open(errorfs.Wrap(fs, syncs), testDir, o)
	if err != nil {
		return err
	}
	for n := range 3 {
		if err := h.flush(s, h.batch(n), 1); err != nil {
			return errors.Join(err, s.kill())
		}
	}
	b := h.batch(3)
	h.pending = b
	syncs.Set(beforeSync)
	if beforeSync {
		_ = newModel().write(s, b) // no sync: the kill comes first
	}
	for i := 0; i < 4 && !beforeSync; i++ { // several buffers
		for _, e := range b.bodies {
			if _, err := s.Append(e.body); err != nil {
				return errors.Join(err, s.kill())
			}
		}
	}
	if err := s.kill(); err != nil {
		return err
	}
	o.Durable = h.durable
	s, r, err := Open(fs, testDir, o)
	if err != nil {
		return err
	}
	if len(r.Damage) > 0 {
		return errors.Join(r.Damage[0].Err, s.Close())
	}
	if err := h.flush(s, b, 1); err != nil {
		return errors.Join(err, s.Close())
	}
	return s.Close()
}

// TestPowerLossAfterKill loses power while the process after a killed one reads back and seals. What it makes of what lay
// unsynced in the system's memory must hold whatever part of that reaches the disk, so there are many clones of each moment.
func TestPowerLossAfterKill(t *testing.T) {
	clones := uint64(24)
	if testing.Short() {
		clones = 6
	}
	for name, beforeSync := range map[string]bool{"in a flush": false, "before its sync": true} {
		t.Run(name, func(t *testing.T) {
			more, done := 0, false
			for n := int64(1); !done; n++ {
				f, h := memfs.New(testDir), newHistory()
				f.CrashAt(n)
				if err := h.runKilled(f, beforeSync); err != nil && !f.Crashed() {
					t.Fatalf("without a crash: %v", err)
				}
				done = !f.Crashed()
				f.CrashNow()
				for seed := range clones {
					where := fmt.Sprintf("power loss in change %d, seed %d", n, seed)
					clone := f.CrashClone(seed, 0.5)
					h.verify(t, clone, where)
					more += h.readable(t, clone, where)
				}
			}
			require.Positive(t, more, "what was under way was found and kept")
		})
	}
}

// readable proves that everything the logs list can be read, once there is a mark, and counts what was never acknowledged.
func (h *history) readable(t *testing.T, fs vfs.FS, where string) int {
	t.Helper()
	if (h.durable == Position{}) {
		return 0
	}
	o := sweepOptions()
	o.Durable = h.durable
	s, _, err := Open(fs, testDir, o)
	require.NoError(t, err, where)
	defer func() { require.NoError(t, s.Close(), where) }()
	c, err := readAll(s)
	require.NoError(t, err, where)
	for id, loc := range c.at {
		_, err := s.Read(loc, nil)
		require.NoError(t, err, "%s: entry %v at %s", where, id, loc)
	}
	return max(0, len(c.at)-len(h.model.entries))
}

// TestQuotaIsAFullDisk: a step of preallocation that a quota refuses is tried smaller, like one that a disk refuses.
func TestQuotaIsAFullDisk(t *testing.T) {
	for _, err := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		disk := memfs.New(testDir)
		refused := 0
		steps := errorfs.Func("large steps", func(op errorfs.Op) errorfs.Fault {
			if op.Kind == errorfs.Preallocate && op.Off >= 1<<20 {
				refused++
				return errorfs.Fault{Err: err}
			}
			return errorfs.Fault{}
		})
		o := smallOptions()
		o.PreallocateSize = 1 << 20
		s, _, oerr := Open(errorfs.Wrap(disk, steps), testDir, o)
		require.NoError(t, oerr)
		h := newHistory()
		for n := range 6 {
			require.NoError(t, h.flush(s, h.batch(n), 1))
		}
		require.NoError(t, s.Close())
		require.Positive(t, refused)
		h.verify(t, disk.Clone(), err.Error())
	}
}
