package loadgen

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"github.com/binderylog/bindery/internal/pace"
	"github.com/binderylog/bindery/ledgerclient"
)

// Cluster writes replicated ledgers through the ledger client.
type Cluster struct {
	Plan
	Client        *ledgerclient.Client
	Target        string // for the report
	Create        ledgerclient.CreateOptions
	Servers       []int
	KeepHistogram bool
	KeepLedgers   bool // leave the ledgers; otherwise they are deleted at the end
	Tail          bool // a reader follows each ledger
}

// Run drives the load to its end.
func (d *Cluster) Run(ctx context.Context) (*Result, error) {
	d.Defaults()
	d.Connections = 1
	if err := d.Validate(); err != nil {
		return nil, err
	}
	if d.Client == nil {
		return nil, errNothingToDrive
	}
	run := &clusterRun{d: d, payload: payloadPool(d.Seed, d.Size)}
	defer run.cleanUp(context.WithoutCancel(ctx))
	for i := range d.Ledgers {
		w, err := d.Client.Create(ctx, d.Create)
		if err != nil {
			return nil, fmt.Errorf("ledger %d of %d: %w", i+1, d.Ledgers, err)
		}
		run.writers = append(run.writers, &clusterWriter{run: run, index: i, w: w, free: make(chan struct{}, d.Outstanding), hist: newHistogram(), errors: map[string]int64{}})
	}
	if !d.Tail {
		return run.drive(ctx)
	}
	stop, err := run.startTails(ctx)
	if err != nil {
		return nil, err
	}
	res, err := run.drive(ctx)
	run.closeWriters(context.WithoutCancel(ctx))
	terr := stop(res)
	if err == nil {
		err = terr
	}
	return res, err
}

type clusterRun struct {
	d       *Cluster
	payload []byte
	writers []*clusterWriter

	measureFrom, measureTo time.Time
	overruns               atomic.Int64
	failed                 bool // an add failed: what the cluster is still able to do is not to be waited for
}

// clusterWriter drives one ledger. Done functions of entries that were confirmed run one at a time, so what they count needs no
// lock; those of failed ones may run on the sender, too. All is read after all of them have run.
type clusterWriter struct {
	run   *clusterRun
	index int
	w     *ledgerclient.Writer
	free  chan struct{} // the window: an element per add in flight
	wg    sync.WaitGroup
	bad   atomic.Bool // an add failed: the ledger is at its end
	tail  *tailer     // nil: nobody follows it

	mu    sync.Mutex // guards first and errors
	first error      // of the adds that failed

	hist             *hdr.Histogram
	answered, warmup int64
	errors           map[string]int64
}

func (r *clusterRun) drive(ctx context.Context) (*Result, error) {
	start := time.Now()
	r.measureFrom = start.Add(r.d.Warmup)
	r.measureTo = r.measureFrom.Add(r.d.Duration)
	sendCtx, stop := context.WithDeadline(ctx, r.measureTo)
	defer stop()
	var senders sync.WaitGroup
	for _, w := range r.writers {
		senders.Go(func() {
			w.send(sendCtx, start)
			if w.bad.Load() {
				stop() // a load on fewer ledgers than asked for is not the load asked for
			}
		})
	}
	_ = pace.Sleep(sendCtx, time.Until(r.measureFrom))
	m := startMeter(r.d.Servers)
	from := time.Now()
	<-sendCtx.Done()
	elapsed := time.Since(from)
	q := r.d.Create.Quorum
	res := &Result{
		Driver: "cluster", Target: r.d.Target, Loop: "closed", Outstanding: r.d.Outstanding, Ledgers: r.d.Ledgers, SizeBytes: r.d.Size,
		Quorum: fmt.Sprintf("%d/%d/%d", q.Ensemble, q.Write, q.Ack), Errors: map[string]int64{},
	}
	if r.d.Rate > 0 {
		res.Loop, res.Rate = "open", r.d.Rate
		res.TickMicros = float64(newSchedule(start, r.d.Rate/float64(r.d.Ledgers), 0).tick) / 1e3
	}
	m.stop(res)
	senders.Wait()
	h := newHistogram()
	var first error
	for _, w := range r.writers {
		w.wg.Wait() // every add is answered or has failed: the client bounds each by its time-outs
		h.Merge(w.hist)
		res.Adds += w.answered
		res.WarmupAdds += w.warmup
		for code, n := range w.errors {
			res.Errors[code] += n
		}
		if first == nil {
			first = w.first
		}
	}
	r.failed = first != nil
	res.Overruns = r.overruns.Load()
	if len(res.Errors) == 0 {
		res.Errors = nil
	}
	res.finish(h, elapsed, r.d.KeepHistogram)
	if first != nil {
		return res, fmt.Errorf("the cluster failed %s after the start: %d adds failed, the first with: %w", elapsed.Round(100*time.Millisecond), res.Failed(), first)
	}
	return res, context.Cause(ctx)
}

// send sends adds until ctx ends or one fails.
func (w *clusterWriter) send(ctx context.Context, start time.Time) {
	var p *schedule
	if rate := w.run.d.Rate; rate > 0 {
		n := float64(w.run.d.Ledgers)
		p = newSchedule(start, rate/n, float64(w.index)/n)
	}
	for i := int64(0); ctx.Err() == nil && !w.bad.Load(); {
		if p == nil {
			if !w.take(ctx) {
				return
			}
			w.add(i, time.Now())
			i++
			continue
		}
		n, next := p.due(time.Now())
		if n == 0 {
			pace.SleepUntil(earlier(next, w.run.measureTo))
			continue
		}
		for range n {
			select {
			case w.free <- struct{}{}:
			default:
				w.run.overruns.Add(1)
				if !w.take(ctx) {
					return
				}
			}
			w.add(i, p.dueOf(p.sent))
			p.sent++
			i++
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// take waits for room in the window.
func (w *clusterWriter) take(ctx context.Context) bool {
	select {
	case w.free <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (w *clusterWriter) add(i int64, due time.Time) {
	size := w.run.d.Size
	off := int((i*31 + int64(w.index)*1009) & (1<<20 - 1))
	w.wg.Add(1)
	w.w.AppendAsync(w.run.payload[off:off+size], func(_ ledgerclient.EntryID, err error) {
		defer w.wg.Done()
		now := time.Now()
		<-w.free
		if err != nil {
			w.mu.Lock()
			if w.first == nil {
				w.first = err
			}
			w.errors[errorName(err)]++
			w.mu.Unlock()
			w.bad.Store(true)
			return
		}
		if w.tail != nil {
			w.tail.ack(now)
		}
		switch {
		case now.Before(w.run.measureFrom):
			w.warmup++
		case now.Before(w.run.measureTo):
			w.answered++
		}
		if !due.Before(w.run.measureFrom) && due.Before(w.run.measureTo) {
			record(w.hist, now.Sub(due))
		}
	})
}

// errorName sorts errors into few kinds.
func errorName(err error) string {
	for _, e := range []error{
		ledgerclient.ErrFenced, ledgerclient.ErrNotEnoughBookies, ledgerclient.ErrTimeout, ledgerclient.ErrTooManyRequests,
		ledgerclient.ErrReadOnly, ledgerclient.ErrMetadata, ledgerclient.ErrClosed,
	} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	return err.Error()
}

// closeTimeout is how long ledgers may take to close and go. A cluster that failed gets a moment only: it may be gone, and its
// ledgers stay.
func (r *clusterRun) closeTimeout() time.Duration {
	if r.failed {
		return 2 * time.Second
	}
	return time.Minute
}

func (r *clusterRun) closeWriters(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.closeTimeout())
	defer cancel()
	for _, w := range r.writers {
		_ = w.w.Close(ctx) // a ledger that will not close is deleted all the same
	}
}

// cleanUp closes and deletes the ledgers.
func (r *clusterRun) cleanUp(ctx context.Context) {
	r.closeWriters(ctx)
	if r.d.KeepLedgers {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.closeTimeout())
	defer cancel()
	for _, w := range r.writers {
		_ = r.d.Client.Delete(ctx, w.w.ID())
	}
}
