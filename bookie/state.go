package bookie

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/binderylog/bindery/internal/wire"
)

// Reason is why a bookie takes no normal adds. Several can hold at once; it is writable when none does.
type Reason uint8

// The reasons.
const (
	ReasonConfig   Reason = 1 << iota // started with --read-only; lasts as long as the process
	ReasonOperator                    // set by an operator; lasts until an operator takes it back, also across restarts
	ReasonDisk                        // a ledger directory is full or has failed
	ReasonJournal                     // a journal has failed; lasts as long as the process
	ReasonStopping                    // the bookie is stopping
	ReasonMetadata                    // the metadata store was rolled back; lasts until an operator accepts it
	reasonCount    = iota
)

var reasonNames = [reasonCount]string{"config", "operator", "disk", "journal", "stopping", "metadata"}

// String returns the names of the reasons in r, joined by commas.
func (r Reason) String() string {
	var names []string
	for i, name := range reasonNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// ReadOnlyState is what a bookie takes and why.
type ReadOnlyState struct {
	ReadOnly     bool
	Reasons      Reason
	Text         string // for operators
	HighPriority bool   // high-priority adds are taken although the bookie is read-only
}

// state is the read-only machine of a bookie. Reasons come and go independently: a disk that recovers does not end what
// an operator has ordered.
type state struct {
	readOnly     atomic.Bool
	waiting      atomic.Uint64 // one bit per journal that could not be started yet for want of space
	highPriority atomic.Bool   // recovery adds are taken while read-only
	changed      chan struct{} // has room for one: read-only has changed since the last receive

	mu      sync.Mutex
	reasons Reason
	texts   [reasonCount]string
	jErr    error // the first journal failure
	onFail  func(error)
}

func newState(onJournalFailed func(error)) *state {
	st := &state{changed: make(chan struct{}, 1), onFail: onJournalFailed}
	st.highPriority.Store(true)
	return st
}

// takesAdd reports whether an add with these flags may be taken. RECOVERY_ADD alone does not help on a read-only bookie.
func (st *state) takesAdd(f wire.Flags) bool {
	return !st.readOnly.Load() || (f&wire.HighPriority != 0 && st.highPriority.Load())
}

func (st *state) writable() bool { return !st.readOnly.Load() }

// set adds or takes away one reason.
func (st *state) set(r Reason, on bool, text string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	before := st.reasons
	if on {
		st.reasons |= r
	} else {
		st.reasons &^= r
		text = ""
	}
	for i := range reasonNames {
		if r == 1<<i {
			st.texts[i] = text
		}
	}
	st.readOnly.Store(st.reasons != 0)
	if (before != 0) != (st.reasons != 0) {
		select {
		case st.changed <- struct{}{}:
		default:
		}
	}
}

// setRecoveryRoom says whether there is room for high-priority adds.
func (st *state) setRecoveryRoom(ok bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.highPriority.Store(ok && st.jErr == nil)
}

// journalFailed notes that a journal can make nothing durable any more. Called for every record that suffers from it.
func (st *state) journalFailed(err error) {
	st.mu.Lock()
	first := st.jErr == nil && err != nil
	if first {
		st.jErr = err
		st.highPriority.Store(false)
	}
	st.mu.Unlock()
	if !first {
		return
	}
	st.set(ReasonJournal, true, err.Error())
	if st.onFail != nil {
		st.onFail(err)
	}
}

// get returns the state of the moment.
func (st *state) get() ReadOnlyState {
	st.mu.Lock()
	defer st.mu.Unlock()
	var texts []string
	for i, name := range reasonNames {
		if st.reasons&(1<<i) != 0 {
			text := name
			if st.texts[i] != "" {
				text += ": " + st.texts[i]
			}
			texts = append(texts, text)
		}
	}
	return ReadOnlyState{
		ReadOnly: st.reasons != 0, Reasons: st.reasons, Text: strings.Join(texts, "; "),
		HighPriority: st.reasons == 0 || st.highPriority.Load(),
	}
}
