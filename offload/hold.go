package offload

import (
	"context"
	"errors"
	"sync"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload/protocol"
)

// inHand are the ledgers that this worker is busy with. A lock goes with its metadata session, and then another call may have it while
// the one that held it is still on its way out: two calls of one worker never have the same intents in hand.
type inHand struct {
	mu  sync.Mutex
	ids map[ledger.ID]bool // guarded by mu
}

func newInHand() *inHand { return &inHand{ids: map[ledger.ID]bool{}} }

func (h *inHand) take(id ledger.ID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ids[id] {
		return false
	}
	h.ids[id] = true
	return true
}

func (h *inHand) giveBack(id ledger.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.ids, id)
}

var errLockLost = errors.New("offload: the metadata session was lost, and the ledger's lock with it; a later try goes on")

// lock takes a ledger's lock, or says Busy. The context that it returns ends when the lock is lost; unlock has to be called.
func (w *Worker) lock(ctx context.Context, id ledger.ID) (_ context.Context, unlock func(), err error) {
	if !w.busy.take(id) {
		return nil, nil, &StoppedError{Ledger: id, Reason: protocol.Busy}
	}
	l, ok, err := w.o.Records.Lock(ctx, id, w.o.Name)
	if err == nil && !ok {
		err = &StoppedError{Ledger: id, Reason: protocol.Busy}
	}
	if err != nil {
		w.busy.giveBack(id)
		return nil, nil, err
	}
	held, cancel := context.WithCancelCause(ctx)
	released := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-l.Lost():
			cancel(errLockLost)
		case <-released:
		}
	})
	return held, func() {
		close(released)
		watch.Wait()
		cancel(nil)
		l.Release(ctx)
		w.busy.giveBack(id)
	}, nil
}
