package objstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// TargetOptions of a Target.
type TargetOptions struct {
	ID string // names it in errors and metrics

	GetTimeout time.Duration // one get, head, list or delete, retries included; default 30 s
	PutTimeout time.Duration // one put, part or complete, retries included; default 5 min
	RetryMax   int           // tries of one request; default 6
	RetryBase  time.Duration // the first wait is at most this, each further one twice as long; default 100 ms
	RetryCap   time.Duration // the longest wait; default 10 s
	Reads      int           // gets and heads in flight; default 64
	Writes     int           // other requests in flight; default 32
}

// EnsureDefaults fills what is zero.
func (o *TargetOptions) EnsureDefaults() {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.GetTimeout, 30*time.Second)
	def(&o.PutTimeout, 5*time.Minute)
	def(&o.RetryBase, 100*time.Millisecond)
	def(&o.RetryCap, 10*time.Second)
	if o.RetryMax == 0 {
		o.RetryMax = 6
	}
	if o.Reads == 0 {
		o.Reads = 64
	}
	if o.Writes == 0 {
		o.Writes = 32
	}
}

// Retries of all requests together are bounded, so that a target in trouble does not get more than it would when well.
const (
	budgetShare = 0.2 // of a retry that each request earns
	budgetMost  = 20  // saved at most; what a target starts with
	crcTries    = 3   // of a body that the store calls damaged: beyond that it is this machine's memory
)

// Target is a Store with time-outs, retries, a bound on requests in flight, a circuit breaker and metrics.
//
//   - Requests are tried again, with full jitter, when their kind is retriable and the target's retry budget allows it. All of a Store's requests can be
//     repeated; a conditional put may then be told of its own first try.
//   - CompleteUpload with an unknown outcome looks whether an object of that size is there before it asks again.
//   - After an unclear try the error of the last one is Unclear too, whatever it is.
//   - While the circuit is open, GetRange fails at once with KindCircuitOpen, so that a reader turns to other targets; everything else waits and tries as usual.
//
// It starts no goroutine.
type Target struct {
	in Store
	o  TargetOptions
	m  *targetMetrics

	circuit       circuit
	reads, writes *limiter

	mu     sync.Mutex
	budget float64       // guarded by mu
	can    *Capabilities // guarded by mu: what was found out; nil: what the driver says
}

var _ Store = (*Target)(nil)

// NewTarget wraps a driver's store, which it then owns.
func NewTarget(in Store, o TargetOptions) *Target {
	o.EnsureDefaults()
	t := &Target{in: in, o: o, budget: budgetMost, reads: newLimiter(o.Reads), writes: newLimiter(o.Writes)}
	t.m = newTargetMetrics(o.ID)
	return t
}

// ID returns the target's id.
func (t *Target) ID() string { return t.o.ID }

// Close implements Store.
func (t *Target) Close() error { return t.in.Close() }

// Capabilities implements Store.
func (t *Target) Capabilities() Capabilities {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.can != nil {
		return *t.can
	}
	return t.in.Capabilities()
}

// SetCapabilities makes known what CheckTarget found out.
func (t *Target) SetCapabilities(c Capabilities) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.can = &c
}

// Check runs CheckTarget, without retries, and keeps the capabilities that it found.
func (t *Target) Check(ctx context.Context) (Report, error) {
	r, err := CheckTarget(ctx, t.in)
	if err != nil {
		return r, fmt.Errorf("target %s: %w", t.o.ID, err)
	}
	t.SetCapabilities(r.Capabilities)
	return r, nil
}

// CircuitOpen says whether requests are kept away from the target now.
func (t *Target) CircuitOpen() bool { return t.circuit.open(time.Now()) }

// request is one request with its tries.
type request struct {
	op      Op
	key     string
	sent    int // bytes of the body
	read    int // bytes asked for
	timeout time.Duration
	// again decides after an unclear try whether the request is done after all; nil: it is simply repeated.
	again func(context.Context) (done bool)
}

func (t *Target) do(ctx context.Context, r request, call func(context.Context) error) error {
	op, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	t.earn()
	unclear := false
	for try := 1; ; try++ {
		err := t.once(ctx, op, r, call)
		if err == nil {
			return nil
		}
		unclear = unclear || Unclear(err)
		if r.again != nil && unclear && t.settled(op, r, err) {
			return nil
		}
		if !t.mayRetry(op, r.op, err, try) || t.pause(op, try) != nil {
			return t.final(err, r, unclear)
		}
		t.m.retries.Add(1)
	}
}

// settled asks whether an unclear request was done. The kinds that end an upload are looked at too: they may be the answer to a repeat.
func (t *Target) settled(ctx context.Context, r request, err error) bool {
	switch KindOf(err) {
	case KindTransient, KindUnreachable, KindNoUpload, KindCircuitOpen:
		return r.again(ctx)
	}
	return false
}

// once makes one try. outer is the caller's context, ctx the operation's, with its deadline.
func (t *Target) once(outer, ctx context.Context, r request, call func(context.Context) error) error {
	lim := t.writes
	if r.op == OpGet || r.op == OpHead {
		lim = t.reads
	}
	if err := lim.enter(ctx); err != nil {
		return t.timedOut(outer, r, &Error{Kind: KindCanceled, Op: r.op, Key: r.key, Err: err})
	}
	start := time.Now()
	probe, ok := t.circuit.enter(start)
	if !ok {
		lim.leave(start, false)
		err := &Error{Kind: KindCircuitOpen, Op: r.op, Key: r.key, Err: fmt.Errorf("not sent: the target failed %d times in a row, or half of %d times; the last was %s", circuitRow, circuitWindow, t.circuit.why())}
		t.m.count(r.op, KindCircuitOpen)
		return err
	}
	err := call(ctx)
	if err != nil {
		err = t.timedOut(outer, r, err)
	}
	end, k := time.Now(), KindOf(err)
	t.circuit.leave(end, probe, outcomeOf(k, err), err)
	lim.leave(end, k == KindThrottled)
	t.m.took(r, k, err, end.Sub(start))
	return err
}

// timedOut tells the operation's deadline from an end that the caller made.
func (t *Target) timedOut(outer context.Context, r request, err error) error {
	if KindOf(err) != KindCanceled || outer.Err() != nil {
		return err
	}
	return &Error{Kind: KindTransient, Op: r.op, Key: r.key, MaybeDone: Unclear(err), Err: fmt.Errorf("no answer within %s", r.timeout)}
}

func outcomeOf(k Kind, err error) outcome {
	switch {
	case err == nil:
		return outcomeGood
	case k == KindThrottled, k == KindCanceled, k == KindMisuse, k == KindUnknown, k == KindChecksum:
		return outcomeNone
	case k.Retriable(), k.Setup():
		return outcomeBad
	}
	return outcomeGood // it answered
}

func (t *Target) mayRetry(ctx context.Context, op Op, err error, try int) bool {
	k := KindOf(err)
	switch {
	case try >= t.o.RetryMax, ctx.Err() != nil:
		return false
	case k == KindChecksum:
		return try < crcTries
	case k == KindCircuitOpen:
		return op != OpGet
	case !k.Retriable():
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.budget < 1 {
		return false
	}
	t.budget--
	return true
}

func (t *Target) earn() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.budget = min(budgetMost, t.budget+budgetShare)
}

// pause waits before the next try: a random share of a time that doubles.
func (t *Target) pause(ctx context.Context, try int) error {
	most := min(t.o.RetryCap, t.o.RetryBase<<min(try-1, 20))
	timer := time.NewTimer(time.Duration(rand.Int64N(int64(most) + 1)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// final puts the target's name on an error.
func (t *Target) final(err error, r request, unclear bool) error {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Kind: KindOf(err), Op: r.op, Key: r.key, Err: err}
	}
	out := *e
	out.Target = t.o.ID
	out.MaybeDone = out.MaybeDone || unclear
	return &out
}

// Put implements Objects.
func (t *Target) Put(ctx context.Context, key string, body Body, o PutOptions) (info Info, err error) {
	r := request{op: OpPut, key: key, sent: len(body.Data), timeout: t.o.PutTimeout}
	err = t.do(ctx, r, func(ctx context.Context) (err error) {
		info, err = t.in.Put(ctx, key, body, o)
		return err
	})
	return info, err
}

// GetRange implements Objects.
func (t *Target) GetRange(ctx context.Context, key string, offset int64, dst []byte) (info Info, err error) {
	r := request{op: OpGet, key: key, read: len(dst), timeout: t.o.GetTimeout}
	err = t.do(ctx, r, func(ctx context.Context) (err error) {
		info, err = t.in.GetRange(ctx, key, offset, dst)
		return err
	})
	return info, err
}

// Head implements Objects.
func (t *Target) Head(ctx context.Context, key string) (info Info, err error) {
	err = t.do(ctx, request{op: OpHead, key: key, timeout: t.o.GetTimeout}, func(ctx context.Context) (err error) {
		info, err = t.in.Head(ctx, key)
		return err
	})
	return info, err
}

// Delete implements Objects.
func (t *Target) Delete(ctx context.Context, key string) error {
	return t.do(ctx, request{op: OpDelete, key: key, timeout: t.o.GetTimeout}, func(ctx context.Context) error {
		return t.in.Delete(ctx, key)
	})
}

// List implements Objects.
func (t *Target) List(ctx context.Context, prefix, after string, limit int) (out []Info, err error) {
	err = t.do(ctx, request{op: OpList, key: prefix, timeout: t.o.GetTimeout}, func(ctx context.Context) (err error) {
		out, err = t.in.List(ctx, prefix, after, limit)
		return err
	})
	return out, err
}

// CreateUpload implements Multipart.
func (t *Target) CreateUpload(ctx context.Context, key string, o UploadOptions) (id string, err error) {
	err = t.do(ctx, request{op: OpCreate, key: key, timeout: t.o.GetTimeout}, func(ctx context.Context) (err error) {
		id, err = t.in.CreateUpload(ctx, key, o)
		return err
	})
	return id, err
}

// PutPart implements Multipart.
func (t *Target) PutPart(ctx context.Context, key, id string, number int, body Body) (part Part, err error) {
	r := request{op: OpPart, key: key, sent: len(body.Data), timeout: t.o.PutTimeout}
	err = t.do(ctx, r, func(ctx context.Context) (err error) {
		part, err = t.in.PutPart(ctx, key, id, number, body)
		return err
	})
	return part, err
}

// CompleteUpload implements Multipart.
func (t *Target) CompleteUpload(ctx context.Context, key, id string, parts []Part) (info Info, err error) {
	size := int64(0)
	for _, p := range parts {
		size += p.Size
	}
	r := request{op: OpComplete, key: key, timeout: t.o.PutTimeout, again: func(ctx context.Context) bool {
		have, err := t.Head(ctx, key)
		if err != nil || have.Size != size {
			return false
		}
		info = have
		return true
	}}
	err = t.do(ctx, r, func(ctx context.Context) (err error) {
		info, err = t.in.CompleteUpload(ctx, key, id, parts)
		return err
	})
	return info, err
}

// AbortUpload implements Multipart.
func (t *Target) AbortUpload(ctx context.Context, key, id string) error {
	return t.do(ctx, request{op: OpAbort, key: key, timeout: t.o.GetTimeout}, func(ctx context.Context) error {
		return t.in.AbortUpload(ctx, key, id)
	})
}

// ListUploads implements Multipart.
func (t *Target) ListUploads(ctx context.Context, key string) (out []Upload, err error) {
	err = t.do(ctx, request{op: OpUploads, key: key, timeout: t.o.GetTimeout}, func(ctx context.Context) (err error) {
		out, err = t.in.ListUploads(ctx, key)
		return err
	})
	return out, err
}
