package ledgerclient

import (
	"sync"

	"github.com/binderylog/bindery/internal/ledger"
)

// mailbox collects what a goroutine that drives a core waits for: answered calls, and events that other goroutines made.
type mailbox struct {
	wake chan struct{}

	mu     sync.Mutex // guards the fields below
	calls  []*call
	events []ledger.Event
}

func newMailbox() *mailbox { return &mailbox{wake: make(chan struct{}, 1)} }

func (m *mailbox) callDone(c *call) {
	m.mu.Lock()
	m.calls = append(m.calls, c)
	m.mu.Unlock()
	m.poke()
}

func (m *mailbox) post(ev ledger.Event) {
	m.mu.Lock()
	m.events = append(m.events, ev)
	m.mu.Unlock()
	m.poke()
}

func (m *mailbox) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// take empties the mailbox.
func (m *mailbox) take() (calls []*call, events []ledger.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls, events = m.calls, m.events
	m.calls, m.events = nil, nil
	return calls, events
}
