//go:build crash

package crash

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// status is what is known of one entry on one bookie.
type status uint8

const (
	unknown status = iota // sent, not answered
	absent                // sent, not answered, and found not to be there
	acked                 // answered, or found to be there after a restart
)

// replica is what one bookie said of one ledger.
type replica struct {
	bookie  int
	of      *ledgerState
	mu      sync.Mutex // guards what follows
	entries map[int64]status
	next    int64 // entry to send next
	last    int64 // highest acknowledged entry, -1 = none
	bound   bool  // an answer bound the master key
	asked   bool  // fencing was asked for
	fenced  bool  // and answered
	lac     int64 // highest explicit LAC that was answered, -1 = none
	lacMax  int64 // highest that was sent
}

// ledgerState is one ledger on all bookies.
type ledgerState struct {
	id       int64
	recorded bool         // it has a metadata record, or had
	deferred bool         // its adds are deferred: answered before they are durable, until a force
	deleted  atomic.Int64 // round in which its record was asked to be deleted; 0 = not
	replicas []*replica
}

// world is what all bookies of one data directory said so far.
type world struct {
	content
	bookies int
	round   int

	mu      sync.Mutex // guards what follows
	ledgers []*ledgerState
	wrong   []string // broken promises
	lost    error    // of this round: why a connection ended by itself
	stats   map[string]int64
}

func newWorld(seed uint64, bookies int) *world {
	return &world{content: content{seed}, bookies: bookies, stats: map[string]int64{}}
}

// wrongf notes a broken promise.
func (w *world) wrongf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.wrong) < 40 { // the first ones tell
		w.wrong = append(w.wrong, fmt.Sprintf("round %d: ", w.round)+fmt.Sprintf(format, args...))
	}
}

// lostConn notes that a connection ended by itself, for which only the death of the program is an excuse.
func (w *world) lostConn(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = err
}

// takeLost returns why a connection ended by itself since the last call, or nil.
func (w *world) takeLost() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.lost
	w.lost = nil
	return err
}

func (w *world) broken() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.wrong)
}

func (w *world) count(what string, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats[what] += n
}

// add makes a ledger known.
func (w *world) add(id int64, recorded, deferred bool) *ledgerState {
	l := &ledgerState{id: id, recorded: recorded, deferred: deferred}
	for b := range w.bookies {
		l.replicas = append(l.replicas, &replica{bookie: b, of: l, entries: map[int64]status{}, last: -1, lac: -1, lacMax: -1})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ledgers = append(w.ledgers, l)
	return l
}

// all returns the ledgers, oldest first.
func (w *world) all() []*ledgerState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.ledgers)
}

// active returns the ledgers that may be written to.
func (w *world) active() []*ledgerState {
	return slices.DeleteFunc(w.all(), func(l *ledgerState) bool { return l.deleted.Load() > 0 || !l.recorded })
}

// forget drops ledgers that were deleted some rounds ago, fences of which stay known.
func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ledgers = slices.DeleteFunc(w.ledgers, func(l *ledgerState) bool {
		at := l.deleted.Load()
		return at > 0 && at+4 < int64(w.round)
	})
}

// bytes returns about how much a replica holds.
func (r *replica) bytes(c content) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var n int64
	for entry := range r.entries {
		n += int64(c.size(r.of.id, entry)) + 80
	}
	return n
}

// sentLocked notes that an entry is on its way.
func (r *replica) sentLocked(entry int64) {
	if s, ok := r.entries[entry]; !ok || s == absent {
		r.entries[entry] = unknown
	}
}

// have notes that an entry is there for good.
func (r *replica) have(entry int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.haveLocked(entry)
}

func (r *replica) haveLocked(entry int64) {
	r.entries[entry] = acked
	r.last = max(r.last, entry)
	r.bound = true
}

func (r *replica) String() string {
	return fmt.Sprintf("bookie %d, ledger %d", r.bookie+1, r.of.id)
}
