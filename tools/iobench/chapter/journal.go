package chapter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/journal"
	"github.com/binderylog/bindery/tools/iobench/engine"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// journalSegment is the size of the segments of a measured journal.
const journalSegment = 64 * engine.MiB

// RealJournal is a journal of ours, on files without names, for measuring.
type RealJournal struct {
	*journal.Journal
	files func() error // gives them up
	meter *engine.Meter
	pay   *engine.Payload
	bytes int64
	last  journal.Position
	seen  uint64 // bytes on disk that the meter knows of
}

// OpenJournal starts a journal in the place's directory. It fails with errors.ErrUnsupported where files must have names.
func OpenJournal(p *Place, m journal.IOMethod, groupBytes int) (*RealJournal, error) {
	g, err := engine.NewGhost(p.Env.FS, p.Env.Dir)
	if err != nil {
		return nil, err
	}
	r, err := openJournal(p, g, g.Close, m, groupBytes, journalSegment)
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return r, nil
}

func openJournal(p *Place, fs vfs.FS, files func() error, m journal.IOMethod, groupBytes int, segment int64) (*RealJournal, error) {
	j, err := journal.Open(fs, "/journal", journal.Options{SegmentSize: segment, IO: m, MaxGroupBytes: groupBytes})
	if err == nil {
		if _, err = j.Replay(0, func(journal.Record) error { return nil }); err == nil {
			err = j.Start()
		}
	}
	if err != nil {
		return nil, err
	}
	return &RealJournal{Journal: j, files: files, meter: p.Env.Meter, pay: engine.NewPayload(p.Env.Seed+9, engine.MiB)}, nil
}

// Close stops the journal; its files are gone.
func (r *RealJournal) Close() error { return errors.Join(r.Journal.Close(), r.files()) }

// Add appends a record and, as checkpoints do, lets go of what lies a segment back.
func (r *RealJournal) Add(n int, s journal.Sink, t journal.Token) error {
	if err := r.Reserve(n, 30*time.Second); err != nil {
		return err
	}
	if _, err := r.Append(1, 1, r.pay.Next(n), s, t); err != nil {
		return err
	}
	if r.bytes += int64(n); r.bytes < journalSegment {
		return nil
	}
	r.bytes = 0
	st := r.Stats()
	if err := r.Trim(min(r.last, st.Durable)); err != nil {
		return err
	}
	r.last = r.Mark()
	return r.settle()
}

// settle tells the meter what was written meanwhile.
func (r *RealJournal) settle() error {
	st := r.Stats()
	now := st.WrittenBytes + st.ZeroedBytes
	n := int64(now - r.seen)
	r.seen = now
	return r.meter.Take(n)
}

// sink records when records were durable. The journal calls it from one goroutine at a time.
type sink struct {
	probe *engine.Probe
	epoch time.Time
	size  int64

	mu    sync.Mutex // guards what follows
	room  sync.Cond
	free  int
	freed int // by the group under way
	err   error
}

func newSink(window int) *sink {
	s := &sink{free: window, epoch: time.Now()}
	s.room.L = &s.mu
	return s
}

// JournalDone implements journal.Sink.
func (s *sink) JournalDone(t journal.Token, err error) {
	s.freed++
	if err != nil {
		s.mu.Lock()
		s.err = errors.Join(s.err, err)
		s.mu.Unlock()
		return
	}
	if s.probe != nil {
		due := s.epoch.Add(time.Duration(t.A))
		s.probe.Count(due, due, time.Now(), engine.Parts{Written: s.size}, false)
	}
}

// JournalFlush implements journal.Sink.
func (s *sink) JournalFlush() {
	s.mu.Lock()
	s.free += s.freed
	s.freed = 0
	s.room.Signal()
	s.mu.Unlock()
}

// take waits for room of at least n and takes that, or all there is if n is 0.
func (s *sink) take(n int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.free < max(n, 1) && s.err == nil {
		s.room.Wait()
	}
	if n == 0 {
		n = s.free
	}
	s.free -= n
	return n, s.err
}

// journalWindow is how many records are in flight at full speed.
const journalWindow = 1000

// Model runs the real journal with entries of the asked size: at full speed, and at 10, 50 and 80 % of that.
func Model(ctx context.Context, p *Place, o Options) (*Result, error) {
	b := open(result.ChapterModel, p, o)
	c := measured(result.Cell{Op: "add", Engine: "bindery", Allocation: "zeroed", BlockBytes: o.EntryBytes}, o.Method)
	c.ID, c.Depth = fmt.Sprintf("%d/100", o.EntryBytes), journalWindow
	j, err := OpenJournal(p, o.Method, 512*engine.KiB)
	if err != nil {
		if !engine.IsUnsupported(err) && !isNoDirectIO(err) {
			return b.close(&engine.DiskError{Op: "start a journal", Err: err})
		}
		b.unsupported(c, err)
		return b.close(nil)
	}
	err = b.loads(ctx, j, c)
	return b.close(errors.Join(err, j.settle(), j.Close()))
}

func isNoDirectIO(err error) bool {
	var e *journal.NoDirectIOError
	return errors.As(err, &e)
}

func (b *book) loads(ctx context.Context, j *RealJournal, c result.Cell) error {
	o, env := b.o, b.place.Env
	env.Report(b.chapter.Name, "warm-up", 0)
	slice := o.Budget / 5
	// Until the journal goes on in segments that were used before; not measured.
	if err := b.saturate(ctx, j, nil, 64*engine.KiB, 64, slice); err != nil {
		return err
	}
	peak := b.probe(c)
	env.Report(b.chapter.Name, c.ID, 0.2)
	if err := b.saturate(ctx, j, peak, o.EntryBytes, journalWindow, slice); err != nil {
		return err
	}
	rate := peak.Result().OpsPerS
	for i, load := range []float64{10, 50, 80} {
		c := c
		c.ID, c.Loop, c.AskedPerS, c.Depth = fmt.Sprintf("%d/%.0f", o.EntryBytes, load), "open", rate*load/100, 1
		env.Report(b.chapter.Name, c.ID, 0.4+0.2*float64(i))
		if err := b.paced(ctx, j, b.probe(c), o.EntryBytes, c.AskedPerS, slice); err != nil {
			return err
		}
	}
	return nil
}

// saturate keeps window records in flight.
func (b *book) saturate(ctx context.Context, j *RealJournal, probe *engine.Probe, size, window int, d time.Duration) error {
	s := newSink(window)
	s.size, s.probe = int64(size), probe
	if probe != nil {
		probe.Begin(b.place.Env)
	}
	start := time.Now()
	end := start.Add(d)
	var err error
	for err == nil && time.Now().Before(end) && ctx.Err() == nil {
		var n int
		if n, err = s.take(0); err != nil {
			break
		}
		taken := 0
		for ; taken < n && err == nil; taken++ {
			err = j.Add(size, s, journal.Token{A: int64(time.Since(s.epoch))})
		}
		if err != nil {
			s.give(n - taken + 1)
		}
		j.Commit()
	}
	elapsed := time.Since(start)
	_, terr := s.take(window) // all of them back: nothing is in flight
	if probe != nil {
		probe.End(b.place.Env, elapsed)
	}
	return b.ended(ctx, err, terr)
}

// give returns room that was taken and not used.
func (s *sink) give(n int) {
	s.mu.Lock()
	s.free += n
	s.mu.Unlock()
}

// ended sorts out how a load came to its end: what the meter says is no failure of the disk.
func (b *book) ended(ctx context.Context, errs ...error) error {
	err := errors.Join(errs...)
	switch {
	case err == nil:
		return ctx.Err()
	case errors.Is(err, engine.ErrWriteCap):
		return engine.ErrWriteCap
	}
	return &engine.DiskError{Op: "journal", Err: err}
}

// paced appends records at their times. What was due while it slept counts from when it woke, since how exactly the
// kernel wakes it is no property of the journal; what was due while it worked or waited counts from its own time.
func (b *book) paced(ctx context.Context, j *RealJournal, probe *engine.Probe, size int, rate float64, d time.Duration) error {
	const window = 1 << 15
	s := newSink(window)
	s.size, s.probe = int64(size), probe
	probe.Begin(b.place.Env)
	var err error
	sent := int64(0)
	at := func(n int64) time.Duration { return time.Duration(float64(n) / rate * 1e9) }
	woke := time.Duration(0)
	for now := woke; err == nil && now < d && ctx.Err() == nil; now = time.Since(s.epoch) {
		for err == nil && at(sent) <= now {
			if _, err = s.take(1); err != nil {
				break
			}
			if err = j.Add(size, s, journal.Token{A: int64(max(at(sent), woke))}); err != nil {
				s.give(1)
			}
			sent++
		}
		j.Commit()
		if next := s.epoch.Add(at(sent)); time.Now().Before(next) {
			b.place.Env.WaitUntil(next)
			woke = time.Since(s.epoch)
		}
	}
	elapsed := time.Since(s.epoch)
	_, terr := s.take(window)
	probe.End(b.place.Env, elapsed)
	return b.ended(ctx, err, terr)
}

// PacedOn runs a journal on a given file system with adds at a rate. Tests hold predictions against it.
func PacedOn(ctx context.Context, p *Place, fs vfs.FS, probe *engine.Probe, size int, rate float64, d time.Duration) error {
	b := open(result.ChapterModel, p, Options{})
	const segment = 16 * engine.MiB
	j, err := openJournal(p, fs, func() error { return nil }, journal.IODSync, journal.DefaultGroupBytesMax, segment)
	if err != nil {
		return err
	}
	return errors.Join(b.paced(ctx, j, probe, size, rate, d), j.Close())
}
