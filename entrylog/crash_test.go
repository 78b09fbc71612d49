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
				// The write under way may have got through in part; the journal has it.
				require.True(t, err != nil || bytes.Equal(got, p), "%s: entry %v", where, id)
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
