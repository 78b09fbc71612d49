package offload

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/pace"
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
		return nil, nil, &StoppedError{Ledger: id, Reason: protocol.Busy, Holder: w.o.Name}
	}
	l, err := w.awaitLock(ctx, id)
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

// lockRetry is how often a lock that somebody holds is tried.
const lockRetry = 200 * time.Millisecond

// awaitLock takes the lock in the metadata store. If somebody holds it, it is tried again for as long as Options.LockWait says.
func (w *Worker) awaitLock(ctx context.Context, id ledger.ID) (*Lock, error) {
	told := false
	for until := time.Now().Add(w.o.LockWait); ; {
		l, ok, err := w.o.Records.Lock(ctx, id, w.o.Name)
		if ok || err != nil {
			return l, err
		}
		holder, err := w.o.Records.Holder(ctx, id)
		switch {
		case err != nil:
			return nil, err
		case !time.Now().Before(until):
			return nil, &StoppedError{Ledger: id, Reason: protocol.Busy, Holder: holder}
		case !told && holder != "" && w.o.Waiting != nil:
			w.o.Waiting(id, holder)
			told = true
		}
		if err := pace.Sleep(ctx, lockRetry); err != nil {
			return nil, err
		}
	}
}
