package loadgen

import (
	"context"
	"fmt"
	"sync"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"github.com/binderylog/bindery/ledgerclient"
)

// TailReads is what readers that follow the ledgers while they are written saw.
type TailReads struct {
	Reads     int64              `json:"reads"`      // of adds acknowledged in the measured time
	Missing   int64              `json:"missing"`    // such adds that no reader had seen when it gave up
	LatencyUs map[string]float64 `json:"latency_us"` // from the writer's acknowledgement to the reader's hands
}

// tailPatience is how long readers may take for what is left once the writers have closed their ledgers.
const tailPatience = 20 * time.Second

// tailer follows one ledger. Whoever of the writer and the reader comes second to an entry records it: the reader may well have
// it before the writer's done function has run.
type tailer struct {
	w *clusterWriter
	r *ledgerclient.Reader

	mu    sync.Mutex  // guards what follows
	acked []time.Time // of each entry in order; zero once it was read
	read  int         // entries read, in order
	early []time.Time // when entries from len(acked) on were read
	hist  *hdr.Histogram
	reads int64
	err   error
}

// startTails opens a reader for each ledger. stop must follow.
func (r *clusterRun) startTails(ctx context.Context) (stop func(*Result) error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	for _, w := range r.writers {
		var tr *ledgerclient.Reader
		if tr, err = r.d.Client.Open(ctx, w.w.ID(), ledgerclient.OpenOptions{}); err != nil {
			err = fmt.Errorf("open ledger %d to follow it: %w", w.w.ID(), err)
			break
		}
		w.tail = &tailer{w: w, r: tr, hist: newHistogram()}
		following.Go(func() { w.tail.follow(ctx) })
	}
	if err != nil {
		cancel()
		following.Wait()
		return nil, err
	}
	return func(res *Result) error {
		defer cancel()
		defer time.AfterFunc(tailPatience, cancel).Stop()
		following.Wait() // the ledgers are closed: their readers come to an end
		return r.collectTails(res)
	}, nil
}

// follow reads until the ledger is closed.
func (t *tailer) follow(ctx context.Context) {
	defer t.r.Close() //nolint:errcheck // only read
	for _, err := range t.r.Tail(ctx, 0) {
		now := time.Now()
		t.mu.Lock()
		if err != nil {
			t.err = err
			t.mu.Unlock()
			return
		}
		if t.read < len(t.acked) {
			t.recordLocked(t.acked[t.read], now)
			t.acked[t.read] = time.Time{}
		} else {
			t.early = append(t.early, now)
		}
		t.read++
		t.mu.Unlock()
	}
}

// ack notes that the writer has learned of the next entry.
func (t *tailer) ack(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.early) > 0 {
		t.recordLocked(now, t.early[0])
		t.early = t.early[1:]
		now = time.Time{}
	}
	t.acked = append(t.acked, now)
}

// recordLocked notes the time from an acknowledgement in the measured time to the read.
func (t *tailer) recordLocked(acked, read time.Time) {
	if acked.Before(t.w.run.measureFrom) || !acked.Before(t.w.run.measureTo) {
		return
	}
	t.reads++
	record(t.hist, read.Sub(acked))
}

func (r *clusterRun) collectTails(res *Result) error {
	h := newHistogram()
	res.Tail = &TailReads{}
	var first error
	for _, w := range r.writers {
		t := w.tail
		t.mu.Lock()
		h.Merge(t.hist)
		res.Tail.Reads += t.reads
		for _, at := range t.acked {
			if !at.IsZero() && !at.Before(r.measureFrom) && at.Before(r.measureTo) {
				res.Tail.Missing++
			}
		}
		if first == nil && t.err != nil {
			first = fmt.Errorf("follow ledger %d: %w", w.w.ID(), t.err)
		}
		t.mu.Unlock()
	}
	res.Tail.LatencyUs = percentiles(h)
	return first
}
