package offload

import (
	"context"
	"slices"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
)

// StatusMax bounds the ledgers of one Status.
const StatusMax = 10_000

// Status is what a worker knows of the tier, for consoles.
type Status struct {
	Worker     string         `json:"worker"`
	Geometry   string         `json:"geometry"`
	SurveyedAt string         `json:"surveyed_at,omitempty"` // when all records were last looked at: what the next six say
	States     map[string]int `json:"ledgers_by_state,omitempty"`
	Redundancy map[string]int `json:"ledgers_by_redundancy_left,omitempty"` // shards that may still be lost; below 0: can not be read
	Degraded   int            `json:"ledgers_degraded"`                     // that lack shards
	Garbage    int            `json:"garbage_attempts"`
	Payload    int64          `json:"payload_bytes"`
	Stored     int64          `json:"stored_bytes"` // about
	ScrubAge   float64        `json:"scrub_oldest_seconds"`
	Moved      MovedBytes     `json:"bytes"` // since the start
	Reads      ReadCounts     `json:"reads"` // since the start, of this process
	Scrub      ScrubCounts    `json:"scrub"` // since the start
	Ledgers    []LedgerStatus `json:"ledgers"`
	Next       *int64         `json:"next,omitempty"` // there are more behind this ledger
}

// MovedBytes are the bytes that a worker has moved.
type MovedBytes struct {
	BookieRead uint64 `json:"bookie_read"`
	Raw        uint64 `json:"raw"`
	Stored     uint64 `json:"stored"`
}

// ReadCounts are the reads of a process from the tier.
type ReadCounts struct {
	Entries   uint64 `json:"entries"`
	BlockGets uint64 `json:"block_gets"`
	CacheHits uint64 `json:"cache_hits"`
	Degraded  uint64 `json:"degraded"`
	Hedges    uint64 `json:"hedges"`
	HedgesWon uint64 `json:"hedges_won"`
}

// ScrubCounts are what verifying has read and found.
type ScrubCounts struct {
	Bytes       uint64 `json:"bytes"`
	Findings    uint64 `json:"findings"`
	CRCFailures uint64 `json:"crc_failures"`
	Repaired    uint64 `json:"shards_repaired"`
}

// LedgerStatus is one ledger of a Status.
type LedgerStatus struct {
	Ledger     int64    `json:"ledger"`
	State      string   `json:"state"`           // of its record; empty: it has none yet
	Stage      Stage    `json:"stage,omitempty"` // what this worker is doing with it
	Done       int64    `json:"done_bytes,omitempty"`
	Total      int64    `json:"total_bytes,omitempty"`
	ETA        float64  `json:"eta_seconds,omitempty"`
	Payload    int64    `json:"payload_bytes"`
	Geometry   string   `json:"geometry,omitempty"`
	Missing    int      `json:"shards_missing"` // by the record, by this worker's last look, or since their target is not configured
	Redundancy *int     `json:"redundancy_left,omitempty"`
	Encrypted  bool     `json:"encrypted,omitempty"`
	Completed  string   `json:"completed,omitempty"`
	Released   string   `json:"released,omitempty"`
	Verified   string   `json:"verified,omitempty"`
	ScrubAge   *float64 `json:"scrub_age_seconds,omitempty"`
	Problem    string   `json:"problem,omitempty"` // why this worker could not move it on
}

// Status shows what the worker knows, with at most limit ledgers behind after (-1: from the first).
func (w *Worker) Status(ctx context.Context, after ledger.ID, limit int) (Status, error) {
	m := w.m
	s := Status{
		Worker: w.o.Name, Geometry: w.o.Geometry.String(), Ledgers: []LedgerStatus{},
		Moved: MovedBytes{m.bytesRead.Get(), m.bytesRaw.Get(), m.bytesStored.Get()},
		Reads: ReadCounts{m.entriesRead.Get(), m.blockGets.Get(), m.cacheHits.Get(), m.degraded.Get(), m.hedges.Get(), m.hedgeWins.Get()},
		Scrub: ScrubCounts{m.scrubBytes.Get(), m.scrubFindings.sum.Load(), m.crcFailures.sum.Load(), m.repaired.Get()},
	}
	if v := w.survey.Load(); v != nil {
		s.SurveyedAt, s.States, s.Redundancy = timeText(v.at.UnixMilli()), map[string]int{}, countsByLeft(v.redundancy)
		s.Degraded, s.Garbage, s.Payload, s.Stored, s.ScrubAge = v.degraded, v.garbage, v.payload, v.stored, v.oldestLook.Seconds()
		for state, n := range v.states {
			s.States[state.String()] = n
		}
	}
	doing := map[ledger.ID]Progress{}
	for _, p := range w.Progress() {
		doing[p.Ledger] = p
	}
	limit = min(max(limit, 1), StatusMax)
	now := w.o.now()
	last := after
	for l, err := range w.o.Records.after(ctx, after) {
		if err != nil {
			return s, err
		}
		if len(s.Ledgers) == limit {
			next := int64(last)
			s.Next = &next
			break
		}
		last = l.Ledger
		s.Ledgers = append(s.Ledgers, w.ledgerStatus(l, doing, now))
		delete(doing, l.Ledger)
	}
	if after < 0 && s.Next == nil { // what has no record yet
		for _, id := range w.health.ids() {
			if _, ok := doing[id]; ok || slices.ContainsFunc(s.Ledgers, func(x LedgerStatus) bool { return x.Ledger == int64(id) }) {
				continue
			}
			problem := w.health.problem(id)
			s.Ledgers = append(s.Ledgers, LedgerStatus{Ledger: int64(id), Problem: problem})
		}
		for id := range doing {
			x := LedgerStatus{Ledger: int64(id)}
			x.progress(doing, id, now)
			s.Ledgers = append(s.Ledgers, x)
		}
	}
	return s, nil
}

func (w *Worker) ledgerStatus(l Listed, doing map[ledger.ID]Progress, now time.Time) LedgerStatus {
	x := LedgerStatus{Ledger: int64(l.Ledger), Problem: w.health.problem(l.Ledger)}
	x.progress(doing, l.Ledger, now)
	if l.Err != nil {
		x.State, x.Problem = "damaged", l.Err.Error()
		return x
	}
	r := l.Record
	lost := w.wanting(l.Ledger, r)
	x.State, x.Payload, x.Geometry, x.Missing, x.Encrypted = r.State.String(), r.Length, r.Geometry.String(), lost.shards, r.Key != nil
	x.Completed, x.Released, x.Verified = timeText(r.CompletedAt), timeText(r.ReleasedAt), timeText(r.VerifiedAt)
	if r.State == StateComplete || r.State == StateReleased {
		left, age := redundancyLeft(r, lost), now.Sub(lookedAt(r)).Seconds()
		x.Redundancy, x.ScrubAge = &left, &age
	}
	return x
}

func (x *LedgerStatus) progress(doing map[ledger.ID]Progress, id ledger.ID, now time.Time) {
	if p, ok := doing[id]; ok {
		x.Stage, x.Done, x.Total, x.ETA = p.Stage, p.Done, p.Total, p.Left(now).Seconds()
	}
}

func timeText(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}
