package offload

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
)

// survey is what one look at all records shows: the figures behind the gauges.
type survey struct {
	at                       time.Time
	states                   map[State]int
	redundancy               map[int]int // ledgers by shards that may still be lost
	degraded                 int         // ledgers that lack shards
	missing                  int         // shards
	garbage                  int
	payload, stored          int64 // bytes of what is in the tier
	releasable               int64 // payload bytes that bookies hold, too
	oldestUpload, oldestLook time.Duration
	there                    map[ledger.ID]bool
}

func newSurvey(now time.Time) *survey {
	return &survey{at: now, states: map[State]int{}, redundancy: map[int]int{}, there: map[ledger.ID]bool{}}
}

// wanting is what a ledger lacks.
type wanting struct {
	shards int  // copies of the manifest, if the ledger is in it
	dark   bool // no copy of the manifest can be read
}

// wanting says what a ledger lacks: by its record, by the last look at its objects, and because targets are not configured.
func (w *Worker) wanting(id ledger.ID, r *Record) wanting {
	bad, dark := w.health.lacks(id)
	away := 0
	for _, t := range r.Manifest.Targets {
		if w.o.Targets.byID[t] == nil {
			away++
		}
	}
	out := wanting{dark: dark || away > 0 && away == len(r.Manifest.Targets)}
	if r.Inline {
		out.shards = away
		return out
	}
	for i := range r.Placement {
		if p := &r.Placement[i]; p.Missing || p.Lost || bad[i] || w.o.Targets.byID[p.Target] == nil {
			out.shards++
		}
	}
	return out
}

// add takes one record, with what is wanting.
func (s *survey) add(id ledger.ID, r *Record, lost wanting) {
	s.there[id] = true
	s.states[r.State]++
	s.garbage += len(r.Garbage)
	switch r.State {
	case StateUploading:
		s.oldestUpload = max(s.oldestUpload, s.at.Sub(time.UnixMilli(r.StartedAt)))
	case StateComplete, StateReleased:
		s.missing += lost.shards
		if lost.shards > 0 || lost.dark {
			s.degraded++
		}
		s.redundancy[redundancyLeft(r, lost)]++
		s.payload += r.Length
		s.stored += storedBytes(r)
		if r.State == StateComplete && lost == (wanting{}) {
			s.releasable += r.Length
		}
		s.oldestLook = max(s.oldestLook, s.at.Sub(lookedAt(r)))
	}
}

// redundancyLeft is how many shards, or copies of what is in the manifest, may still be lost; below zero the ledger can not be read.
func redundancyLeft(r *Record, lost wanting) int {
	switch {
	case lost.dark:
		return -1
	case r.Inline:
		return len(r.Manifest.Targets) - 1 - lost.shards
	}
	return r.Geometry.Parity - lost.shards
}

// storedBytes estimates what a ledger takes in the tier.
func storedBytes(r *Record) int64 {
	copies := r.Manifest.Length * int64(len(r.Manifest.Targets))
	if r.Inline {
		return copies
	}
	return copies + r.Length/int64(max(r.Geometry.Data, 1))*int64(r.Geometry.Shards()-r.Missing())
}

// lookedAt is when a ledger's bytes were last read whole, or else when it was committed.
func lookedAt(r *Record) time.Time { return time.UnixMilli(cmp.Or(r.VerifiedAt, r.CompletedAt)) }

// publish makes a survey the one that gauges and status show.
func (w *Worker) publish(s *survey) {
	w.health.keep(s.there)
	w.survey.Store(s)
	for state := StateUploading; state.Valid(); state++ {
		w.m.states[state].Store(int64(s.states[state]))
	}
	for left := range w.m.redundancy {
		w.m.redundancy[left].Store(int64(s.redundancy[left]))
	}
	w.m.unreadable.Store(0)
	for left, n := range s.redundancy {
		if left < 0 {
			w.m.unreadable.Add(int64(n))
		}
	}
	w.m.degradedLedgers.Store(int64(s.degraded))
	w.m.shardsMissing.Store(int64(s.missing))
	w.m.garbage.Store(int64(s.garbage))
	w.m.payload.Store(s.payload)
	w.m.releasable.Store(s.releasable)
	w.m.oldestUploading.Store(int64(s.oldestUpload.Seconds()))
	w.m.scrubOldest.Store(int64(s.oldestLook.Seconds()))
}

// health remembers what this worker last saw of ledgers with which something is wrong.
type health struct {
	mu sync.Mutex
	of map[ledger.ID]*ailing
}

// healthMax bounds the problems of ledgers without a record that are remembered.
const healthMax = 1000

// ailing is a ledger with which something is wrong.
type ailing struct {
	bad     map[int]bool // shards that the last look found missing, damaged or out of reach
	dark    bool         // the last look found no manifest that could be read
	problem string       // why it was not moved on, or could not be looked at
}

func newHealth() *health { return &health{of: map[ledger.ID]*ailing{}} }

func (h *health) change(id ledger.ID, f func(*ailing)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.of[id]
	if x == nil {
		x = &ailing{}
		h.of[id] = x
	}
	if f(x); len(x.bad) == 0 && !x.dark && x.problem == "" {
		delete(h.of, id)
	}
}

// looked notes what a look found.
func (h *health) looked(id ledger.ID, findings []Finding) {
	bad := map[int]bool{}
	for _, f := range findings {
		if f.Shard >= 0 {
			bad[f.Shard] = true
		}
	}
	h.change(id, func(x *ailing) { x.bad, x.dark = bad, false })
}

// blind notes that a ledger could not be looked at, since no copy of its manifest could be read. What was known of its shards stays.
func (h *health) blind(id ledger.ID, err error) {
	var key *KeyError
	if errors.As(err, &key) {
		return // it is there
	}
	h.change(id, func(x *ailing) { x.dark = true })
}

// lacks returns the shards that are wanting, and whether there is no manifest.
func (h *health) lacks(id ledger.ID) (bad map[int]bool, dark bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if x := h.of[id]; x != nil {
		return maps.Clone(x.bad), x.dark
	}
	return nil, false
}

// repaired notes that a shard is whole again.
func (h *health) repaired(id ledger.ID, shard int) {
	h.change(id, func(x *ailing) { delete(x.bad, shard) })
}

// moved notes why a ledger was not moved on. That others have it in hand, that its time has not come, and that it is to stay as it is are
// no problems.
func (h *health) moved(id ledger.ID, err error) {
	var stopped *StoppedError
	if errors.Is(err, ErrNotYet) || errors.As(err, &stopped) && stopped.Err == nil {
		err = nil
	}
	h.change(id, func(x *ailing) {
		x.problem = ""
		if err != nil {
			x.problem = err.Error()
		}
	})
}

// problem returns what the problem is.
func (h *health) problem(id ledger.ID) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if x := h.of[id]; x != nil {
		return x.problem
	}
	return ""
}

// keep forgets ledgers that have no record, unless there is a problem with them.
func (h *health) keep(there map[ledger.ID]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.of, func(id ledger.ID, x *ailing) bool { return !there[id] && (x.problem == "" || len(h.of) > healthMax) })
}

// ids lists them.
func (h *health) ids() []ledger.ID {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.of))
}

func countsByLeft(m map[int]int) map[string]int {
	out := map[string]int{}
	for left, n := range m {
		out[strconv.Itoa(left)] = n
	}
	return out
}
