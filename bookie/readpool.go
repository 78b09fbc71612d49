package bookie

import (
	"sync"

	"github.com/binderylog/bindery/internal/wire"
)

// task is work that may wait for a disk.
type task interface{ run(w *worker) }

// worker is the room of one worker goroutine.
type worker struct {
	buf  []byte // an entry being read
	resp wire.Response
}

// workerKeep is the largest buffer that a worker keeps between tasks.
const workerKeep = 64 << 10

func (w *worker) tidy() {
	if cap(w.buf) > workerKeep {
		w.buf = nil
	}
	w.resp = wire.Response{}
}

// readPool runs reads on a fixed number of goroutines. It has a queue per lane; the reserved one (fencing and recovery)
// goes first. The queues are bounded by the in-flight budget and by connReadsMax per connection, since whoever submits
// has taken room there before.
type readPool struct {
	mu     sync.Mutex
	cond   sync.Cond
	queues [2]deque[task]
	closed bool
	wg     sync.WaitGroup
}

func newReadPool(s *server, workers int) *readPool {
	p := &readPool{}
	p.cond.L = &p.mu
	for range workers {
		p.wg.Go(func() { labelled("read-worker", p.work) })
	}
	return p
}

// submit queues t; it never blocks. After close nothing runs any more: all connections have ended by then.
func (p *readPool) submit(t task, l lane) {
	p.mu.Lock()
	p.queues[l].push(t)
	p.mu.Unlock()
	p.cond.Signal()
}

// close runs what is queued and joins the workers.
func (p *readPool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cond.Broadcast()
	p.wg.Wait()
}

func (p *readPool) next() task {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for _, l := range [...]lane{laneReserved, laneOrdinary} {
			if t, ok := p.queues[l].pop(); ok {
				return t
			}
		}
		if p.closed {
			return nil
		}
		p.cond.Wait()
	}
}

func (p *readPool) work() {
	var w worker
	for {
		t := p.next()
		if t == nil {
			return
		}
		t.run(&w)
		w.tidy()
	}
}

// queued returns the lengths of the queues, for metrics.
func (p *readPool) queued() (ordinary, reserved int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queues[laneOrdinary].len(), p.queues[laneReserved].len()
}

// deque is a first-in-first-out queue in a ring that grows and never allocates once it is large enough.
type deque[T any] struct {
	ring []T
	head int
	n    int
}

func (d *deque[T]) len() int { return d.n }

func (d *deque[T]) push(v T) {
	if d.n == len(d.ring) {
		bigger := make([]T, max(16, 2*len(d.ring)))
		for i := range d.n {
			bigger[i] = d.ring[(d.head+i)%len(d.ring)]
		}
		d.ring, d.head = bigger, 0
	}
	d.ring[(d.head+d.n)%len(d.ring)] = v
	d.n++
}

func (d *deque[T]) pop() (v T, ok bool) {
	if d.n == 0 {
		return v, false
	}
	var zero T
	v, d.ring[d.head] = d.ring[d.head], zero
	d.head = (d.head + 1) % len(d.ring)
	d.n--
	return v, true
}
