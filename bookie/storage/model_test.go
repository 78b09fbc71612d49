package storage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/binderylog/bindery/bookie/index"
	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/errorfs"
	"github.com/stretchr/testify/require"
)

var (
	modelSeed  = flag.Uint64("model.seed", 0, "run the model test with this seed only")
	modelBase  = flag.Uint64("model.base", 1, "first seed of the runs; 0 takes it from the clock")
	modelRuns  = flag.Int("model.runs", 12, "how many seeds the model test runs")
	modelCheck = flag.Bool("model.check", false, "compare everything after every step")
	modelSteps = flag.Int("model.steps", 400, "steps of each run")
)

// modelLedger is what a ledger must look like from outside.
type modelLedger struct {
	entries map[int64]byte // version of the body, by entry
	fenced  bool
	deleted bool
}

// model drives a storage with random operations and compares it with a map.
type model struct {
	e       *env
	r       *rand.Rand
	seed    uint64
	ledgers map[int64]*modelLedger
	unlink  *errorfs.Switch // on: logs can not be deleted
	broken  bool            // unlink is on
	mu      sync.Mutex
	history []string
	focus   string // what a failure is about
}

func (m *model) note(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history = append(m.history, fmt.Sprintf(format, args...))
}

func (m *model) fail(format string, args ...any) {
	m.e.t.Helper()
	for i, h := range m.history {
		if i >= len(m.history)-30 || m.focus != "" && strings.Contains(h, m.focus) || !strings.Contains(h, "put ") {
			m.e.t.Log(h)
		}
	}
	m.e.t.Fatalf("seed %d: %s\nrun again: go test ./bookie/storage -run TestModel -model.seed=%d", m.seed, fmt.Sprintf(format, args...), m.seed)
}

// TestModel runs random puts, re-adds, fences, deletions, re-creations, checkpoints, collections, restarts and crashes
// against a map. Whatever was acknowledged is read back byte for byte, what was deleted stays deleted, and what was fenced
// stays fenced.
func TestModel(t *testing.T) {
	if *modelSeed != 0 {
		runModel(t, *modelSeed)
		return
	}
	base := *modelBase
	if base == 0 {
		base = uint64(time.Now().UnixNano())
	}
	for i := range *modelRuns {
		seed := base + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runModel(t, seed) })
	}
}

func runModel(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	e := newEnv(t, 1+r.IntN(3), 1+r.IntN(2), func(o *Options) {
		o.Log.LogSize = 32 << 10 << r.IntN(4)
		o.WriteCacheBytes = int64(len(o.Dirs)) * 2 * (64 << 10)
		o.IdleLedgersMax = 256
		o.FlushInterval = 50 * time.Millisecond << r.IntN(8)
	})
	m := &model{e: e, r: r, seed: seed, ledgers: map[int64]*modelLedger{}}
	m.unlink = errorfs.NewSwitch(errorfs.OnPath("*.log", errorfs.From(errorfs.Remove, 1, syscall.EPERM)))
	e.wrap = func(fsys vfs.FS) vfs.FS { return errorfs.Wrap(fsys, m.unlink) }
	e.fs = e.wrap(e.mem)
	old := e.tune
	e.tune = func(o *Options) {
		old(o)
		o.Logger = slog.New(slog.NewTextHandler(noteWriter{m}, nil))
		o.OpenIndex = func(path string, io index.Options) (index.Index, error) {
			ix, err := index.OpenMem(e.fs, path, io)
			return &noteIndex{ix, path, m.note}, err
		}
	}
	e.open()
	for range *modelSteps {
		m.step()
		if *modelCheck {
			for id := range m.ledgers {
				m.checkLedger(id)
			}
		}
	}
	m.checkAll()
	e.close()
	m.broken = false
	m.open()
	m.checkAll()
	e.close()
}

func (m *model) ledger(id int64) *modelLedger {
	l := m.ledgers[id]
	if l == nil {
		l = &modelLedger{entries: map[int64]byte{}}
		m.ledgers[id] = l
	}
	return l
}

func (m *model) pick() int64 {
	ids := []int64{1, 2, 3, 4, 5, 6, 7, 100, 1 << 31, 1<<32 + 5, 1<<63 - 1}
	return ids[m.r.IntN(len(ids))]
}

func (m *model) step() {
	switch n := m.r.IntN(100); {
	case n < 45:
		m.put()
	case n < 55:
		m.recoveryPut()
	case n < 70:
		m.read()
	case n < 74:
		m.fence()
	case n < 80:
		m.note("checkpoint")
		if err := m.e.s.Checkpoint(m.e.t.Context()); err != nil {
			m.fail("checkpoint: %v", err)
		}
	case n < 84:
		m.delete()
	case n < 89:
		m.collect()
	case n < 90:
		m.broken = !m.broken
		m.unlink.Set(m.broken)
		m.note("unlink fails: %v", m.broken)
	case n < 92:
		m.checkLedger(m.pick())
	case n < 95:
		m.note("restart")
		m.e.close()
		m.open()
	default:
		keep := []float64{0, 0.5, 1}[m.r.IntN(3)]
		seed := m.r.Uint64()
		m.note("crash keeping %v", keep)
		m.e.crash(seed, keep)
		for _, list := range m.e.j.records {
			for _, r := range list {
				if r.Kind == KindState {
					st, err := parseState(int64(r.Tag), r.Payload)
					m.note("journal %d pos %d: ledger %d fenced %v seq %d birth %d %v", r.Journal, r.Position, r.Tag, st.replica.Fenced, st.seq, st.birth, err)
				}
			}
		}
		m.open()
	}
}

// open starts the storage; what can not be unlinked then is not what is tested here.
func (m *model) open() {
	m.unlink.Set(false)
	m.e.open()
	m.unlink.Set(m.broken)
}

func (m *model) put() {
	id := m.pick()
	l := m.ledger(id)
	next := int64(len(l.entries))
	for range 1 + m.r.IntN(20) {
		version := byte(m.r.Uint32())
		size := 24 + m.r.IntN(400)
		if m.r.IntN(20) == 0 {
			size = 4000 + m.r.IntN(8000)
		}
		entry := next
		if m.r.IntN(10) == 0 && next > 0 {
			entry = m.r.Int64N(next) // a duplicate
		}
		body := modelBody(id, entry, version, size)
		err := m.e.add(id, entry, body, false)
		m.note("put %d/%d v%d (%d bytes): %v", id, entry, version, size, err)
		if l.fenced || l.deleted {
			if err == nil {
				m.fail("ledger %d fenced=%v deleted=%v took an add\n%s", id, l.fenced, l.deleted, m.explainState(id))
			}
			return
		}
		if err != nil {
			m.fail("put %d/%d: %v\n%s%s", id, entry, err, m.explain(id, entry), m.explainState(id))
		}
		l.entries[entry] = version
		next = max(next, entry+1)
	}
}

// modelBody returns a body whose length can be told from its version, so that the model need not keep it.
func modelBody(ledger, entry int64, version byte, size int) []byte {
	b := testBody(ledger, entry, entry-1, max(size, 32), version)
	b[24] = version
	b[25], b[26] = byte(len(b)>>8), byte(len(b))
	return b
}

func (m *model) recoveryPut() {
	id := m.pick()
	l := m.ledger(id)
	entry := m.r.Int64N(int64(len(l.entries)) + 3)
	version := byte(m.r.Uint32())
	err := m.e.add(id, entry, modelBody(id, entry, version, 24+m.r.IntN(1000)), true)
	m.note("recovery put %d/%d v%d: %v", id, entry, version, err)
	if err != nil {
		m.fail("recovery put %d/%d: %v", id, entry, err)
	}
	if l.deleted {
		l.deleted, l.fenced = false, true
	}
	l.entries[entry] = version
}

func (m *model) fence() {
	id := m.pick()
	l := m.ledger(id)
	m.note("fence %d", id)
	if err := m.e.fence(id); err != nil {
		m.fail("fence %d: %v", id, err)
	}
	l.fenced, l.deleted = true, false
}

func (m *model) delete() {
	id := m.pick()
	l := m.ledger(id)
	g, ok, err := m.e.s.Generation(id)
	if err != nil {
		m.fail("generation of %d: %v", id, err)
	}
	exists := (len(l.entries) > 0 || l.fenced) && !l.deleted
	if ok != exists {
		m.fail("ledger %d exists=%v, want %v", id, ok, exists)
	}
	if !ok {
		return
	}
	n, err := m.e.s.Delete(m.e.t.Context(), []int64{id}, []uint32{g})
	m.note("delete %d: %d %v", id, n, err)
	if err != nil || n != 1 {
		m.fail("delete %d: %d, %v", id, n, err)
	}
	*l = modelLedger{entries: map[int64]byte{}, deleted: true}
}

// collect removes and compacts logs as a collector would, with a threshold that is high enough to move much.
func (m *model) collect() {
	for dir := range m.e.s.Dirs() {
		if _, err := m.e.s.RetryRemovals(dir); err != nil && !m.broken {
			m.fail("retry removals: %v", err)
		}
		ids, err := m.e.s.CollectableLogs(dir)
		if err != nil {
			m.fail("logs of %d: %v", dir, err)
		}
		var group []entrylog.LogID
		for _, id := range ids {
			bytes, live, ledgers, damaged, err := m.e.s.LogUsage(dir, id)
			if err != nil || damaged {
				m.fail("usage of log %s: damaged=%v %v", id, damaged, err)
			}
			switch {
			case ledgers == 0:
				m.note("remove log %s of %d", id, dir)
				if err := m.e.s.RemoveLog(m.e.t.Context(), dir, id); err != nil && !(m.broken && errors.Is(err, syscall.EPERM)) {
					m.fail("remove log %s: %v", id, err)
				}
			case live < bytes*9/10 || m.r.IntN(3) == 0:
				group = append(group, id)
			}
		}
		if len(group) == 0 {
			continue
		}
		n, skipped, err := m.e.s.Compact(m.e.t.Context(), dir, group, noLimit)
		m.note("compact %v of %d: %d bytes, skipped %v, %v", group, dir, n, skipped, err)
		if m.broken && errors.Is(err, syscall.EPERM) {
			err = nil
		}
		if err != nil || len(skipped) > 0 {
			m.fail("compact %v: %v %v", group, skipped, err)
		}
	}
}

func (m *model) read() {
	id := m.pick()
	l := m.ledgers[id]
	if l == nil {
		return
	}
	m.checkEntry(id, l, m.r.Int64N(int64(len(l.entries))+2))
}

func (m *model) checkEntry(id int64, l *modelLedger, entry int64) {
	m.e.t.Helper()
	m.focus = fmt.Sprintf("%d/%d ", id, entry)
	got, err := m.e.s.Read(id, entry, nil)
	version, want := l.entries[entry]
	switch {
	case want && err != nil:
		m.fail("read %d/%d: %v\n%s", id, entry, err, m.explain(id, entry))
	case want:
		size := int(got[25])<<8 | int(got[26])
		if !slices.Equal(got, modelBody(id, entry, version, size)) {
			m.fail("read %d/%d: version %d, want %d\n%s", id, entry, got[24], version, m.explain(id, entry))
		}
	case l.deleted || len(l.entries) == 0 && !l.fenced:
		if !errors.Is(err, ErrNoLedger) {
			m.fail("read %d/%d of no ledger: %v", id, entry, err)
		}
	default:
		if !errors.Is(err, ErrNoEntry) {
			m.fail("read %d/%d: %v, want no such entry", id, entry, err)
		}
	}
}

func (m *model) checkLedger(id int64) {
	m.e.t.Helper()
	l := m.ledgers[id]
	if l == nil {
		return
	}
	for entry := range l.entries {
		m.checkEntry(id, l, entry)
	}
	m.checkEntry(id, l, int64(len(l.entries))+5)
	h, err := m.e.s.Ledger(id, false)
	if l.deleted || len(l.entries) == 0 && !l.fenced {
		if !errors.Is(err, ErrNoLedger) {
			m.fail("ledger %d: %v, want no such ledger", id, err)
		}
		return
	}
	if err != nil {
		m.fail("ledger %d: %v", id, err)
	}
	defer h.Release()
	if h.Replica.Fenced != l.fenced {
		m.fail("ledger %d fenced=%v, want %v", id, h.Replica.Fenced, l.fenced)
	}
	ranges, err := h.Entries()
	if err != nil {
		m.fail("entries of %d: %v", id, err)
	}
	var ids []int64
	for _, r := range ranges {
		for entry := r.First; entry <= r.Last; entry++ {
			ids = append(ids, entry)
		}
	}
	if want := slices.Sorted(maps.Keys(l.entries)); !slices.Equal(ids, want) {
		m.fail("entries of %d: %v, want %v", id, ids, want)
	}
	last, err := h.Last()
	if len(ids) == 0 {
		if !errors.Is(err, ErrNoEntry) {
			m.fail("last of %d: %v", id, err)
		}
	} else if err != nil || last != ids[len(ids)-1] {
		m.fail("last of %d: %d %v, want %d", id, last, err, ids[len(ids)-1])
	}
}

func (m *model) checkAll() {
	m.e.t.Helper()
	var want []int64
	for _, id := range slices.Sorted(maps.Keys(m.ledgers)) {
		m.checkLedger(id)
		if l := m.ledgers[id]; !l.deleted && (len(l.entries) > 0 || l.fenced) {
			want = append(want, id)
		}
	}
	var got []int64
	for after := int64(-1); ; {
		ids, err := m.e.s.Ledgers(after, 3)
		if err != nil {
			m.fail("ledgers: %v", err)
		}
		if len(ids) == 0 {
			break
		}
		got = append(got, ids...)
		after = ids[len(ids)-1]
	}
	require.Equal(m.e.t, want, got, "seed %d", m.seed)
	require.NoError(m.e.t, m.e.s.Check(m.e.t.Context(), func(err error) { m.fail("check: %v", err) }))
}

func noLimit(ctx context.Context, _ int) error { return ctx.Err() }

// noteWriter puts log lines into the model's history.
type noteWriter struct{ m *model }

func (w noteWriter) Write(b []byte) (int, error) {
	w.m.note("%s", strings.TrimSpace(string(b)))
	return len(b), nil
}
