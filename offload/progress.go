package offload

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
)

// Stage is what is being done with a ledger.
type Stage string

// The stages of an offload.
const (
	StageStarting  Stage = "starting"
	StageWaiting   Stage = "waiting for memory"
	StageUploading Stage = "uploading"
	StageVerifying Stage = "verifying"
)

// Progress is how far an offload has come.
type Progress struct {
	Ledger  ledger.ID
	Stage   Stage
	Done    int64 // payload bytes that were read from the bookies, those of a former run included
	Total   int64
	Resumed int64 // of Done, what a former run had done
	Since   time.Time
}

// Left estimates how long reading and sending will take, 0 if it can not be told yet.
func (p Progress) Left(now time.Time) time.Duration {
	done := p.Done - p.Resumed
	if done <= 0 || p.Total <= p.Done {
		return 0
	}
	return time.Duration(float64(now.Sub(p.Since)) * float64(p.Total-p.Done) / float64(done))
}

// Progress lists the offloads under way in this worker, by ledger.
func (w *Worker) Progress() []Progress {
	b := w.progress
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Progress, 0, len(b.of))
	for _, p := range b.of {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(x, y Progress) int { return cmp.Compare(x.Ledger, y.Ledger) })
	return out
}

type progressBook struct {
	mu sync.Mutex
	of map[ledger.ID]*Progress
}

func newProgressBook() *progressBook { return &progressBook{of: map[ledger.ID]*Progress{}} }

func (b *progressBook) begin(id ledger.ID, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of[id] = &Progress{Ledger: id, Stage: StageStarting, Since: now}
}

func (b *progressBook) end(id ledger.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.of, id)
}

func (b *progressBook) change(id ledger.ID, f func(*Progress)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.of[id]; p != nil {
		f(p)
	}
}

func (b *progressBook) stage(id ledger.ID, s Stage) {
	b.change(id, func(p *Progress) { p.Stage = s })
}

func (b *progressBook) from(id ledger.ID, done, total int64) {
	b.change(id, func(p *Progress) { p.Done, p.Resumed, p.Total = done, done, total })
}

func (b *progressBook) read(id ledger.ID, n int64) {
	b.change(id, func(p *Progress) { p.Done += n })
}
