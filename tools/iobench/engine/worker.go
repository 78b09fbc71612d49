package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/journal"
)

// Worker does one operation after the other.
type Worker interface {
	// Prepare gets everything ready for the next operation. It is not measured.
	Prepare(ctx context.Context) error
	// Do does it. An error is the end of the load.
	Do() (Parts, error)
}

// Parts are what an operation was made of.
type Parts struct {
	Write, Sync time.Duration // where write and sync are two calls; both 0 otherwise
	Written     int64
	Read        int64
}

// sequence gives out offsets that only go forward, from the start again at the end. It may be shared by workers.
type sequence struct {
	mu   sync.Mutex
	at   int64
	from int64
	end  int64
}

// next returns the place of the following n bytes; wrapped says that the end was reached.
func (s *sequence) next(n int64) (off int64, wrapped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at+n > s.end {
		s.at, wrapped = s.from, true
	}
	off = s.at
	s.at += n
	return off, wrapped
}

// durableWriter makes one write after the other durable, as the journal's writer does.
type durableWriter struct {
	area   *Area
	file   *journal.DurableFile
	method journal.IOMethod
	size   int
	seq    *sequence
	pay    *Payload
	p      []byte
	off    int64
}

// DurableWriter returns a worker that writes size bytes at a time with a method.
func (a *Area) DurableWriter(m journal.IOMethod, size int) (Worker, error) {
	if err := a.refused[m]; err != nil {
		return nil, err
	}
	f := a.methods[m]
	if f == nil {
		return nil, fmt.Errorf("the test file is not open for %s", m)
	}
	return &durableWriter{area: a, file: f, method: m, size: size, seq: &sequence{end: a.size}, pay: a.env.payload(size)}, nil
}

// DurableWriters returns depth workers that share one sequence of blocks, as the groups in flight of a journal do.
func (a *Area) DurableWriters(m journal.IOMethod, size, depth int) (ws []Worker, err error) {
	seq := &sequence{end: a.size}
	for range depth {
		w, err := a.DurableWriter(m, size)
		if err != nil {
			return nil, err
		}
		w.(*durableWriter).seq = seq
		ws = append(ws, w)
	}
	return ws, nil
}

// payload returns one of its own for each worker.
func (e *Env) payload(size int) *Payload {
	return NewPayload(e.Seed+uint64(e.cells.Add(1))<<8, size)
}

func (w *durableWriter) Prepare(ctx context.Context) error {
	if err := w.area.env.Meter.Take(int64(w.size)); err != nil {
		return err
	}
	off, wrapped := w.seq.next(int64(w.size))
	if wrapped && w.area.state != Recycled {
		if err := w.area.reset(ctx, 0); err != nil {
			return err
		}
	}
	w.off, w.p = off, w.pay.Next(w.size)
	return nil
}

func (w *durableWriter) Do() (Parts, error) {
	parts := Parts{Written: int64(w.size)}
	if !w.file.Syncs() {
		if err := w.file.Write(w.p, w.off); err != nil {
			return parts, fmt.Errorf("%s write of %d bytes: %w", w.method, w.size, err)
		}
		return parts, nil
	}
	start := time.Now()
	if err := w.file.Write(w.p, w.off); err != nil {
		return parts, fmt.Errorf("%s write of %d bytes: %w", w.method, w.size, err)
	}
	written := time.Now()
	if err := w.file.Sync(); err != nil {
		return parts, fmt.Errorf("%s sync of %d bytes: %w", w.method, w.size, err)
	}
	parts.Write, parts.Sync = written.Sub(start), time.Since(written)
	return parts, nil
}

// sectorWriter writes pieces that start at odd multiples of their size: the alignment that only they have.
type sectorWriter struct {
	area *Area
	size int
	seq  sequence
	pay  *Payload
	p    []byte
	off  int64
}

// SectorWriter returns a worker that writes size bytes at odd multiples of size, durable by O_DSYNC.
func (a *Area) SectorWriter(size int) (Worker, error) {
	if a.noSect != nil {
		return nil, a.noSect
	}
	return &sectorWriter{area: a, size: size, seq: sequence{end: a.size}, pay: a.env.payload(max(size, vfs.Align))}, nil
}

func (w *sectorWriter) Prepare(context.Context) error {
	if err := w.area.env.Meter.Take(int64(w.size)); err != nil {
		return err
	}
	// A whole stride further each time, so that no two pieces share a physical block.
	stride := int64(max(2*w.size, 2*vfs.Align))
	off, _ := w.seq.next(stride)
	w.off = off + int64(w.size)
	w.p = w.pay.Next(max(w.size, vfs.Align))[:w.size]
	return nil
}

func (w *sectorWriter) Do() (Parts, error) {
	if _, err := w.area.sectors.WriteAt(w.p, w.off); err != nil {
		return Parts{}, fmt.Errorf("write of %d bytes at an odd multiple: %w", w.size, err)
	}
	return Parts{Written: int64(w.size)}, nil
}

// streamWriter writes large blocks without making each durable.
type streamWriter struct {
	area  *Area
	file  vfs.File
	size  int
	seq   *sequence
	pay   *Payload
	flush Flusher
	p     []byte
	off   int64
}

// StreamWriters returns depth workers that write one sequence of blocks. With buffered they go through the page cache, and
// the system is asked to start writing each block at once; otherwise they are direct. They are not durable: the caller
// syncs the area and counts the time of that.
func (a *Area) StreamWriters(size, depth int, buffered bool) ([]Worker, error) {
	f, seq := a.own, &sequence{end: a.size}
	var flush Flusher
	if buffered {
		f = a.buffer
		flush, _ = f.(Flusher)
	} else if !a.Direct {
		return nil, vfs.ErrNoDirectIO
	}
	if f == nil {
		return nil, fmt.Errorf("the test file is not open for buffered writing")
	}
	var ws []Worker
	for range depth {
		ws = append(ws, &streamWriter{area: a, file: f, size: size, seq: seq, pay: a.env.payload(size), flush: flush})
	}
	return ws, nil
}

func (w *streamWriter) Prepare(context.Context) error {
	if err := w.area.env.Meter.Take(int64(w.size)); err != nil {
		return err
	}
	w.off, _ = w.seq.next(int64(w.size))
	w.p = w.pay.Next(w.size)
	return nil
}

func (w *streamWriter) Do() (Parts, error) {
	if _, err := w.file.WriteAt(w.p, w.off); err != nil {
		return Parts{}, fmt.Errorf("write of %d bytes: %w", w.size, err)
	}
	if w.flush != nil {
		if err := w.flush.FlushRange(w.off, int64(w.size)); err != nil {
			return Parts{}, fmt.Errorf("start write-back: %w", err)
		}
	}
	return Parts{Written: int64(w.size)}, nil
}

// Sync makes durable what the area's streams wrote, and returns how long that took.
func (a *Area) Sync() (time.Duration, error) {
	start := time.Now()
	err := a.sync()
	if err == nil && a.buffer != nil {
		if err = a.buffer.Sync(); err != nil {
			err = &DiskError{"sync the test file", err}
		}
	}
	return time.Since(start), err
}

// reader reads blocks of the area.
type reader struct {
	area *Area
	size int
	seq  *sequence // nil: random places
	rng  *rand.Rand
	p    []byte
	off  int64
}

// Readers returns depth workers that read blocks: one sequence each, or random places. Without direct I/O the caller
// drops the cache first and says that they were buffered.
func (a *Area) Readers(size, depth int, random bool) []Worker {
	var ws []Worker
	share := a.size / int64(depth) / int64(size) * int64(size)
	for i := range depth {
		r := &reader{area: a, size: size, p: vfs.AlignedBytes(size), rng: rand.New(rand.NewPCG(a.env.Seed, uint64(i)))}
		if !random {
			r.seq = &sequence{from: int64(i) * share, at: int64(i) * share, end: int64(i+1) * share}
			if share < int64(size) {
				r.seq = &sequence{end: a.size}
			}
		}
		ws = append(ws, r)
	}
	return ws
}

func (r *reader) Prepare(context.Context) error {
	if r.seq != nil {
		r.off, _ = r.seq.next(int64(r.size))
		return nil
	}
	r.off = r.rng.Int64N(max(r.area.size/int64(r.size), 1)) * int64(r.size)
	return nil
}

func (r *reader) Do() (Parts, error) {
	if _, err := r.area.own.ReadAt(r.p, r.off); err != nil {
		return Parts{}, fmt.Errorf("read of %d bytes: %w", r.size, err)
	}
	r.area.env.Meter.Read(int64(r.size))
	return Parts{Read: int64(r.size)}, nil
}

// randomWriter writes blocks at random places, as a merge of the index does.
type randomWriter struct {
	area *Area
	size int
	rng  *rand.Rand
	pay  *Payload
	p    []byte
	off  int64
}

// RandomWriter returns a worker that writes blocks at random places, direct, not durable.
func (a *Area) RandomWriter(size int) Worker {
	return &randomWriter{area: a, size: size, rng: rand.New(rand.NewPCG(a.env.Seed, 77)), pay: a.env.payload(size)}
}

func (w *randomWriter) Prepare(context.Context) error {
	if err := w.area.env.Meter.Take(int64(w.size)); err != nil {
		return err
	}
	w.off = w.rng.Int64N(max(w.area.size/int64(w.size), 1)) * int64(w.size)
	w.p = w.pay.Next(w.size)
	return nil
}

func (w *randomWriter) Do() (Parts, error) {
	if _, err := w.area.own.WriteAt(w.p, w.off); err != nil {
		return Parts{}, fmt.Errorf("write of %d bytes: %w", w.size, err)
	}
	return Parts{Written: int64(w.size)}, nil
}

// FuncWorker is a worker made of functions; prepare may be nil.
func FuncWorker(prepare func(ctx context.Context) error, do func() (Parts, error)) Worker {
	return &funcWorker{prepare, do}
}

type funcWorker struct {
	prepare func(ctx context.Context) error
	do      func() (Parts, error)
}

func (w *funcWorker) Prepare(ctx context.Context) error {
	if w.prepare == nil {
		return nil
	}
	return w.prepare(ctx)
}

func (w *funcWorker) Do() (Parts, error) { return w.do() }

// Bursts makes a worker do n operations at once and then nothing until the next burst is due.
func Bursts(w Worker, n int, every time.Duration) Worker { return &bursts{w: w, n: n, every: every} }

type bursts struct {
	w     Worker
	n     int
	every time.Duration
	done  int
	next  time.Time
}

func (b *bursts) Prepare(ctx context.Context) error {
	if err := b.w.Prepare(ctx); err != nil {
		return err
	}
	if b.done%b.n == 0 {
		if now := time.Now(); b.done > 0 && now.Before(b.next) {
			t := time.NewTimer(b.next.Sub(now))
			defer t.Stop()
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-t.C:
			}
		}
		b.next = time.Now().Add(b.every)
	}
	b.done++
	return nil
}

func (b *bursts) Do() (Parts, error) { return b.w.Do() }

// Pair makes one operation of two: a block is read and one is written, as compaction does.
func Pair(first, second Worker) Worker { return &pair{first, second} }

type pair struct{ first, second Worker }

func (p *pair) Prepare(ctx context.Context) error {
	if err := p.first.Prepare(ctx); err != nil {
		return err
	}
	return p.second.Prepare(ctx)
}

func (p *pair) Do() (Parts, error) {
	a, err := p.first.Do()
	if err != nil {
		return a, err
	}
	b, err := p.second.Do()
	return Parts{Written: a.Written + b.Written, Read: a.Read + b.Read}, err
}

// Gentle makes a worker use at most a share of the disk's time: after each operation it rests in proportion.
func Gentle(w Worker, share float64) Worker { return &gentle{w: w, share: share} }

type gentle struct {
	w     Worker
	share float64
	took  time.Duration
}

func (g *gentle) Prepare(ctx context.Context) error {
	if g.took > 0 {
		t := time.NewTimer(time.Duration(float64(g.took) * (1/g.share - 1)))
		defer t.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
	return g.w.Prepare(ctx)
}

func (g *gentle) Do() (Parts, error) {
	start := time.Now()
	parts, err := g.w.Do()
	g.took = time.Since(start)
	return parts, err
}
