package offload

import (
	"sync"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
)

// sightings remembers since when something has been so in every look.
type sightings struct {
	mu    sync.Mutex
	since map[ledger.ID]time.Time
}

func newSightings() *sightings { return &sightings{since: map[ledger.ID]time.Time{}} }

// look notes whether it is so now, and returns for how long it has been.
func (s *sightings) look(id ledger.ID, so bool, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !so {
		delete(s.since, id)
		return 0
	}
	first, ok := s.since[id]
	if !ok {
		s.since[id] = now
		return 0
	}
	return now.Sub(first)
}
