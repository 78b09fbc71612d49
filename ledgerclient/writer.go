package ledgerclient

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/binderylog/bindery/internal/digest"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/wire"
)

// Writer is the one writer of a ledger. It may be used by any number of goroutines; the order of concurrent appends is the
// order of their ids.
//
// Everything that touches the protocol's core happens in one loop. Callers and connections leave what they have in an
// inbox, which the loop empties at once; so it works in batches under load and at once when idle.
type Writer struct {
	client   *Client
	id       LedgerID
	quorum   Quorum
	digest   *digest.Digest
	proto    wire.Proto // of adds: V3 if their sync is deferred
	deferred bool
	delay    bool // ensemble changes wait until an ack quorum is in danger
	key      []byte
	prefix   []byte // of a V2 add frame, in front of the body

	lac    atomic.Int64
	length atomic.Int64

	wake chan struct{} // the inbox is not empty any more
	done chan struct{} // closed when the loop has ended

	mu       sync.Mutex // guards the inbox and the fields below
	in       inbox
	ended    error // why no more adds are taken
	closeErr error // result of Close, once done is closed
}

// inbox is what the loop has to look at.
type inbox struct {
	adds   []*pendingAdd
	acks   []ack
	events []writerEvent
	tick   bool
}

func (in *inbox) empty() bool {
	return len(in.adds) == 0 && len(in.acks) == 0 && len(in.events) == 0 && !in.tick
}

// writerEvent is anything rare: a lane that broke, an answer to a call, an outcome of the metadata store, a request of the
// application.
type writerEvent struct {
	core   ledger.Event // fed to the core if its kind is not 0
	lane   *lane        // it broke
	call   *call        // it was answered
	err    error        // with lane, or for the log
	force  chan error   // somebody waits for a force
	close  bool         // seal once nothing is pending
	now    bool         // with close: fail what is pending
	metaOp bool         // core is the outcome of a metadata operation

	desperate bool // core is a pick of bookies that failed a moment ago
	retry     bool // a member of the ensemble that had failed may answer again
}

// pendingAdd is an add from the caller's copy to its result.
type pendingAdd struct {
	f      *frame
	size   int
	sealed bool
	sent   int64 // tick
	done   func(EntryID, error)
	wait   *appendWait
}

// appendWait is where a waiting Append gets its result. If its context ends first it is left to the loop.
type appendWait struct {
	result chan appendResult // capacity 1
	state  atomic.Int32      // 0 waiting, 1 result sent, 2 abandoned
}

type appendResult struct {
	id  EntryID
	err error
}

var (
	pendingPool = sync.Pool{New: func() any { return new(pendingAdd) }}
	waitPool    = sync.Pool{New: func() any { return &appendWait{result: make(chan appendResult, 1)} }}
)

func (c *Client) newWriter(id LedgerID, m *ledger.Metadata, v metadata.Version, d *digest.Digest, o CreateOptions) (*Writer, error) {
	key := digest.MasterKey(o.Password)
	w := &Writer{client: c, id: id, quorum: o.Quorum, digest: d, proto: wire.V2, deferred: o.DeferredSync, delay: o.DelayEnsembleChange, key: key[:],
		wake: make(chan struct{}, 1), done: make(chan struct{})}
	if o.DeferredSync || c.addsV3 {
		w.proto = wire.V3
	}
	w.lac.Store(int64(InvalidEntry))
	empty, err := wire.AppendRequest(nil, &wire.Request{Proto: wire.V2, Version: byte(wire.V2), Op: wire.OpAdd, Key: w.key, HasKey: true, Body: make([]byte, wire.BodyMin)})
	if err != nil {
		return nil, err
	}
	w.prefix = empty[:len(empty)-wire.BodyMin]
	l := newWriterLoop(w, m, int64(v))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	c.writers[w] = struct{}{}
	c.m.ledgersCreated.Inc()
	c.wg.Go(l.run)
	return w, nil
}

// ID returns the ledger's id.
func (w *Writer) ID() LedgerID { return w.id }

// LastAddConfirmed returns the id of the last entry that readers may read.
func (w *Writer) LastAddConfirmed() EntryID { return EntryID(w.lac.Load()) }

// Length returns the payload bytes of all confirmed entries.
func (w *Writer) Length() int64 { return w.length.Load() }

// Append adds an entry. It returns once an ack quorum holds the entry durably and every earlier entry is confirmed. An
// error, ctx's included, means that the outcome is unknown: the entry may still be confirmed, or be found by recovery.
func (w *Writer) Append(ctx context.Context, data []byte) (EntryID, error) {
	if err := ctx.Err(); err != nil {
		return InvalidEntry, context.Cause(ctx)
	}
	p, err := w.prepare(ctx, data)
	if err != nil {
		return InvalidEntry, err
	}
	wait := waitPool.Get().(*appendWait)
	wait.state.Store(0)
	p.wait = wait
	if err := w.push(p); err != nil {
		p.recycle()
		waitPool.Put(wait)
		return InvalidEntry, err
	}
	select {
	case r := <-wait.result:
		waitPool.Put(wait)
		return r.id, r.err
	case <-ctx.Done():
	}
	if wait.state.CompareAndSwap(0, 2) {
		return InvalidEntry, fmt.Errorf("append to ledger %d: outcome unknown: %w", w.id, context.Cause(ctx))
	}
	r := <-wait.result
	waitPool.Put(wait)
	return r.id, r.err
}

// AppendAsync adds an entry and returns at once, unless Options.MaxPendingBytes is used up; then it waits for room. done
// runs in entry order, on one goroutine, holding no lock; on a writer that takes no more adds it runs at once. data belongs
// to the writer until then. done may append again; it must not call Close of the writer or the client, which wait for it.
func (w *Writer) AppendAsync(data []byte, done func(EntryID, error)) {
	p, err := w.prepare(w.client.ctx, data)
	if err != nil {
		done(InvalidEntry, err)
		return
	}
	p.done = done
	if err := w.push(p); err != nil {
		p.recycle()
		done(InvalidEntry, err)
	}
}

// prepare takes room from the budget and copies the payload to where it is sent from.
func (w *Writer) prepare(ctx context.Context, data []byte) (*pendingAdd, error) {
	return w.prepareWith(data, func(n int64) error { return w.client.budget.acquire(ctx, n) })
}

func (w *Writer) prepareWith(data []byte, acquire func(n int64) error) (*pendingAdd, error) {
	head := len(w.prefix) + w.digest.Overhead()
	n := head + len(data)
	if limit := w.client.o.MaxFrameBytes - v3Overhead; n > limit {
		return nil, fmt.Errorf("%w: %d bytes, at most %d with frames of %d", ErrTooLarge, len(data), limit-head, w.client.o.MaxFrameBytes)
	}
	f := newFrame(n)
	f.charge = int64(cap(f.b))
	if err := acquire(f.charge); err != nil {
		f.drop()
		return nil, fmt.Errorf("append to ledger %d: %w", w.id, err)
	}
	f.budget = w.client.budget
	f.b = f.b[:n]
	copy(f.b[head:], data)
	p := pendingPool.Get().(*pendingAdd)
	p.f, p.size = f, len(data)
	return p, nil
}

// v3Overhead is what a V3 frame needs around a body beyond the V2 frame of the same entry, at most. Our writers keep it
// free; others may not.
const v3Overhead = 128

// recycle returns what an add that was never taken holds.
func (p *pendingAdd) recycle() {
	p.f.drop()
	*p = pendingAdd{}
	pendingPool.Put(p)
}

// push leaves an add to the loop.
func (w *Writer) push(p *pendingAdd) error {
	w.mu.Lock()
	if w.ended != nil {
		err := w.ended
		w.mu.Unlock()
		return err
	}
	idle := w.in.empty()
	w.in.adds = append(w.in.adds, p)
	w.mu.Unlock()
	if idle {
		w.poke()
	}
	return nil
}

// post leaves an event to the loop. After the loop has ended it is lost, which is right for all events.
func (w *Writer) post(ev writerEvent) {
	w.mu.Lock()
	idle := w.in.empty()
	w.in.events = append(w.in.events, ev)
	w.mu.Unlock()
	if idle {
		w.poke()
	}
}

// answered leaves answers to the loop; acks is copied.
func (w *Writer) answered(acks []ack) {
	w.mu.Lock()
	idle := w.in.empty()
	w.in.acks = append(w.in.acks, acks...)
	w.mu.Unlock()
	if idle {
		w.poke()
	}
}

// expire lets the loop look at its time-outs.
func (w *Writer) expire(int64) {
	w.mu.Lock()
	idle := w.in.empty()
	w.in.tick = true
	w.mu.Unlock()
	if idle {
		w.poke()
	}
}

func (w *Writer) laneDown(l *lane, err error) { w.post(writerEvent{lane: l, err: err}) }
func (w *Writer) callDone(c *call)            { w.post(writerEvent{call: c}) }

func (w *Writer) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Force makes every entry acknowledged before the call durable on all bookies of the ensemble. A writer with DeferredSync
// needs it to confirm entries; if it fails there, the ledger ends at its LAC.
func (w *Writer) Force(ctx context.Context) error {
	result := make(chan error, 1)
	w.mu.Lock()
	err := w.ended
	w.mu.Unlock()
	if err != nil {
		return err
	}
	w.post(writerEvent{force: result})
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("force ledger %d: outcome unknown: %w", w.id, context.Cause(ctx))
	case <-w.done:
		select {
		case err := <-result:
			return err
		default:
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.ended
	}
}

// Close waits for pending adds and their done functions, forces them if their sync was deferred, and seals the ledger at the
// last confirmed entry. If ctx ends first, pending adds fail and sealing goes on without the caller; the outcome is then
// unknown. Every call returns the first one's result.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	if w.ended == nil {
		w.ended = fmt.Errorf("ledger %d: writer: %w", w.id, ErrClosed)
	}
	w.mu.Unlock()
	w.post(writerEvent{close: true})
	select {
	case <-w.done:
	case <-ctx.Done():
		w.post(writerEvent{close: true, now: true})
		return fmt.Errorf("close ledger %d: outcome unknown: %w", w.id, context.Cause(ctx))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closeErr
}
