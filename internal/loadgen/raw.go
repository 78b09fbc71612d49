package loadgen

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/binderylog/bindery/internal/digest"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/pace"
)

// Raw drives one bookie with V2 adds.
type Raw struct {
	Plan
	Address       string
	FirstLedger   int64 // ledgers are FirstLedger, FirstLedger+1...; 0 = drawn from an unlikely range
	Password      string
	Servers       []int // processes that are measured
	KeepHistogram bool  // put the histogram into the result
}

const (
	drainTimeout = 10 * time.Second // for answers after the last add
	dialTimeout  = 5 * time.Second
	readBuffer   = 256 << 10
	writeBatch   = 256 << 10 // bytes of frames per write
)

// Run drives the load to its end. With an error the result, if any, tells what was measured until then.
func (d *Raw) Run(ctx context.Context) (*Result, error) {
	d.Defaults()
	if err := d.Validate(); err != nil {
		return nil, err
	}
	if d.Address == "" {
		return nil, errNothingToDrive
	}
	d.Connections = min(d.Connections, d.Ledgers) // a ledger lives on one connection, in order
	if d.FirstLedger == 0 {
		d.FirstLedger = 1<<40 + int64(rand.Uint64N(1<<38))
	}
	dg, err := digest.New(ledger.DigestCRC32C, []byte(d.Password))
	if err != nil {
		return nil, err
	}
	run := &rawRun{d: d, digest: dg, key: digest.MasterKey([]byte(d.Password)), payload: payloadPool(d.Seed, d.Size)}
	for i := range d.Connections {
		c, err := run.dial(ctx, i)
		if err != nil {
			run.close()
			return nil, err
		}
		run.conns = append(run.conns, c)
	}
	return run.drive(ctx)
}

// payloadPool is random data that entries take slices of, so that no two are alike and nothing compresses.
func payloadPool(seed uint64, size int) []byte {
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)})
	pool := make([]byte, size+1<<20)
	_, _ = rng.Read(pool) // never fails
	return pool
}

type rawRun struct {
	d       *Raw
	digest  *digest.Digest
	key     [20]byte
	payload []byte
	conns   []*rawConn

	measureFrom, measureTo time.Time
}

func (r *rawRun) dial(ctx context.Context, i int) (*rawConn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	nc, err := dialer.DialContext(ctx, "tcp", r.d.Address)
	if err != nil {
		return nil, fmt.Errorf("connect to the bookie: %w", err)
	}
	c := &rawConn{run: r, index: i, conn: nc, free: r.d.Outstanding, hist: newHistogram(), errors: map[string]int64{}}
	c.progress.L = &c.mu
	n := r.d.Ledgers / r.d.Connections
	if i < r.d.Ledgers%r.d.Connections {
		n++
	}
	slots := 2
	for slots < 2*((r.d.Outstanding+n-1)/n) {
		slots *= 2
	}
	c.ledgers = make([]rawLedger, n)
	for k := range c.ledgers {
		c.ledgers[k] = rawLedger{id: r.d.FirstLedger + int64(i) + int64(k)*int64(r.d.Connections), starts: make([]int64, slots)}
	}
	return c, nil
}

func (r *rawRun) close() {
	for _, c := range r.conns {
		c.conn.Close()
	}
}

func (r *rawRun) drive(ctx context.Context) (*Result, error) {
	start := time.Now()
	r.measureFrom = start.Add(r.d.Warmup)
	r.measureTo = r.measureFrom.Add(r.d.Duration)
	sendCtx, stopSending := context.WithDeadline(ctx, r.measureTo)
	defer stopSending()

	var senders, receivers sync.WaitGroup
	for _, c := range r.conns {
		receivers.Go(func() {
			if c.receive(); c.err != nil {
				stopSending() // a load on fewer connections than asked for is not the load asked for
			}
		})
		senders.Go(func() { c.send(sendCtx, start) })
		senders.Go(func() { // wakes a sender that waits for its window when the time is up
			<-sendCtx.Done()
			c.mu.Lock()
			c.stop = true
			c.progress.Broadcast()
			c.mu.Unlock()
		})
	}
	_ = pace.Sleep(sendCtx, time.Until(r.measureFrom))
	m := startMeter(r.d.Servers)
	from := time.Now()
	<-sendCtx.Done()
	elapsed := time.Since(from)
	res := r.result()
	m.stop(res)
	senders.Wait()
	for _, c := range r.conns {
		_ = c.conn.SetReadDeadline(time.Now().Add(drainTimeout))
		c.finishIfDrained()
	}
	receivers.Wait()
	r.close()
	return r.collect(ctx, res, elapsed)
}

func (r *rawRun) result() *Result {
	res := &Result{
		Driver: "raw", Target: r.d.Address, Loop: "closed", Outstanding: r.d.Outstanding, Connections: r.d.Connections,
		Ledgers: r.d.Ledgers, SizeBytes: r.d.Size, Errors: map[string]int64{},
	}
	if r.d.Rate > 0 {
		p := newSchedule(time.Time{}, r.d.Rate/float64(r.d.Connections), 0)
		res.Loop, res.Rate, res.TickMicros = "open", r.d.Rate, float64(p.tick)/1e3
	}
	return res
}

func (r *rawRun) collect(ctx context.Context, res *Result, elapsed time.Duration) (*Result, error) {
	h := newHistogram()
	var errs []error
	for _, c := range r.conns {
		h.Merge(c.hist)
		res.Adds += c.answered
		res.WarmupAdds += c.warmup
		res.Overruns += c.overruns
		res.Unanswered += c.inFlight()
		for code, n := range c.errors {
			res.Errors[code] += n
		}
		if c.err != nil {
			errs = append(errs, fmt.Errorf("connection %d: %w", c.index, c.err))
		}
	}
	if len(res.Errors) == 0 {
		res.Errors = nil
	}
	res.finish(h, elapsed, r.d.KeepHistogram)
	if len(errs) > 0 {
		return res, errors.Join(errs[:min(len(errs), 3)]...)
	}
	return res, context.Cause(ctx)
}
