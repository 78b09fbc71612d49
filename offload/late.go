package offload

import (
	"context"
	"sync"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
)

// lateFor is how long after the grace the janitor looks for uploads that were begun after the commit. What is older is left to the
// bucket's own rule for unfinished uploads.
const lateFor = 24 * time.Hour

// lateUploads remembers which attempts have been looked at. A request that creates an upload may arrive long after it was given up
// and sent again, when the object is complete already and nobody looks for uploads of its name any more.
type lateUploads struct {
	mu   sync.Mutex
	done map[AttemptID]bool // guarded by mu
}

func newLateUploads() *lateUploads { return &lateUploads{done: map[AttemptID]bool{}} }

// due says whether an attempt is to be looked at now.
func (l *lateUploads) due(id AttemptID, since, grace time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if since >= grace+lateFor {
		delete(l.done, id)
		return false
	}
	return since >= grace && !l.done[id]
}

func (l *lateUploads) looked(id AttemptID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done[id] = true
}

// abortLate aborts, once the grace after the commit is over, what uploads of a ledger's objects are open.
func (w *Worker) abortLate(ctx context.Context, id ledger.ID, r *Record, now time.Time, s *Swept) error {
	if r.State != StateComplete && r.State != StateReleased || r.Inline || !w.late.due(r.Attempt, now.Sub(time.UnixMilli(r.CompletedAt)), w.o.Grace) {
		return nil
	}
	for i := range r.Placement {
		if p := &r.Placement[i]; !p.Missing {
			if err := w.abortKey(ctx, p.Target, ShardName(r.Attempt, id, i, p.Generation), s); err != nil {
				return err
			}
		}
	}
	w.late.looked(r.Attempt)
	return nil
}

// abortKey aborts the open uploads of one object.
func (w *Worker) abortKey(ctx context.Context, target, key string, s *Swept) error {
	store, err := w.o.Targets.store(target)
	if err != nil {
		return err
	}
	n, err := abortUploads(ctx, store, key)
	s.Removed += n
	return err
}
