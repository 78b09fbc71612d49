package metadata

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// doubtsMax bounds the locks in doubt; beyond it the oldest is left to the end of its session.
const doubtsMax = 1024

// settlePause is the least time between two looks at locks in doubt.
const settlePause = time.Second

// lockDoubts are locks that nobody in this process holds, but whose keys may be in the store: creating or releasing them had no
// clear answer. They would keep everybody from their ledgers for as long as the session lasts.
type lockDoubts struct {
	mu     sync.Mutex // guards what follows
	list   []doubtfulLock
	looked time.Time
}

type doubtfulLock struct {
	key, token string
	session    Session
	late       bool // its creation may land yet: that nothing is there proves nothing
}

func (d *lockDoubts) add(l doubtfulLock) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.list) == doubtsMax {
		d.list = slices.Delete(d.list, 0, 1)
	}
	d.list = append(d.list, l)
}

// due returns the locks in doubt, if it is time to look at them.
func (d *lockDoubts) due(now time.Time) []doubtfulLock {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.list) == 0 || now.Sub(d.looked) < settlePause {
		return nil
	}
	d.looked = now
	return slices.Clone(d.list)
}

func (d *lockDoubts) remove(token string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = slices.DeleteFunc(d.list, func(l doubtfulLock) bool { return l.token == token })
}

// Settle removes what locks in doubt have left; without any it does nothing. What fails is tried again at the next call. Lock and
// Locked call it, and a bookie now and then: its collector may not take a lock again for long.
func (r *Replication) Settle(ctx context.Context) {
	for _, l := range r.doubts.due(time.Now()) {
		select {
		case <-l.session.Done():
			r.doubts.remove(l.token) // its keys went with it
			continue
		default:
		}
		token, err := r.store.Get(ctx, l.token)
		switch {
		case errors.Is(err, ErrNotFound):
			if !l.late {
				r.doubts.remove(l.token)
			}
			continue
		case err != nil:
			return // the store has trouble
		}
		// Both keys come and go together: while this token is there, the lock is this lock.
		lock, err := r.store.Get(ctx, l.key)
		if err != nil {
			return
		}
		if _, err := r.store.Txn(ctx, Txn{Deletes: []Delete{{Key: token.Key, Version: token.Version}, {Key: lock.Key, Version: lock.Version}}}); err == nil {
			r.doubts.remove(l.token)
		}
	}
}
