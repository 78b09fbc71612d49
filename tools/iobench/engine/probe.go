package engine

import (
	"slices"
	"sync"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// Probe keeps what operations of one kind took, over all rounds.
type Probe struct {
	Cell result.Cell // what is done; the figures are filled in by Result

	mu       sync.Mutex // guards what follows while a load runs
	total    *hdr.Histogram
	write    *hdr.Histogram
	sync     *hdr.Histogram
	round    *hdr.Histogram
	rounds   []result.Round
	started  time.Time // of the round
	cpu      time.Duration
	ops      int64
	bytes    int64
	late     int64
	elapsed  time.Duration
	cpuSum   time.Duration
	roundOps int64
	roundB   int64
	closed   time.Duration // longest service time
	last     time.Time     // last completion in the round
	rests    bool          // between operations, as was meant: that is no gap
	stalls   *stalls
	series   *series
	spans    []Span // nil: not kept
}

// Span is from when to when an operation took.
type Span struct{ From, To time.Time }

// spansMax bounds what Spanned keeps: 48 MiB.
const spansMax = 1 << 20

// NewProbe returns a probe for what the cell describes.
func NewProbe(c result.Cell) *Probe {
	return &Probe{Cell: c, total: result.NewHistogram(), round: result.NewHistogram()}
}

// Stalled makes the probe keep the gaps between completions.
func (p *Probe) Stalled() *Probe { p.stalls = &stalls{}; return p }

// Rests makes the time between operations no gap.
func (p *Probe) Rests() *Probe { p.rests = true; return p }

// Timed makes the probe keep a time line in steps of a second.
func (p *Probe) Timed() *Probe { p.series = &series{}; return p }

// Spanned makes the probe keep when each of the first operations was under way.
func (p *Probe) Spanned() *Probe { p.spans = []Span{}; return p }

// Spans are of a probe that is Spanned.
func (p *Probe) Spans() []Span { return p.spans }

func (p *Probe) beginRound(e *Env) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = time.Now()
	p.last = p.started
	p.cpu = CPUTime()
	p.roundOps, p.roundB = 0, 0
	p.round.Reset()
	if p.series != nil {
		p.series.begin(p.started, e)
	}
	if p.stalls != nil && p.stalls.origin.IsZero() {
		p.stalls.origin = p.started
	}
}

// record counts one operation.
func (p *Probe) record(intended, start, end time.Time, parts Parts, late bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := end.Sub(intended)
	result.Record(p.round, took)
	p.roundOps++
	n := parts.Written + parts.Read
	p.roundB += n
	if late {
		p.late++
	}
	p.closed = max(p.closed, end.Sub(start))
	if p.spans != nil && len(p.spans) < spansMax {
		p.spans = append(p.spans, Span{intended, end})
	}
	if parts.Write > 0 || parts.Sync > 0 {
		if p.write == nil {
			p.write, p.sync = result.NewHistogram(), result.NewHistogram()
		}
		result.Record(p.write, parts.Write)
		result.Record(p.sync, parts.Sync)
	}
	if p.stalls != nil {
		since := p.last
		if p.rests {
			since = start
		}
		p.stalls.add(end, end.Sub(since))
	}
	p.last = end
	if p.series != nil {
		p.series.add(end, took, n)
	}
}

func (p *Probe) endRound(e *Env, elapsed time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.series != nil {
		p.series.finish()
	}
	p.elapsed += elapsed
	p.cpuSum += CPUTime() - p.cpu
	if p.roundOps == 0 {
		return
	}
	p.total.Merge(p.round)
	p.ops += p.roundOps
	p.bytes += p.roundB
	r := result.Round{
		StartedS: e.since() - elapsed.Seconds(), ElapsedS: elapsed.Seconds(), Ops: p.roundOps,
		P50US: us(p.round.ValueAtQuantile(50)), P99US: us(p.round.ValueAtQuantile(99)), MaxUS: us(p.round.Max()),
	}
	r.StartedS = max(r.StartedS, 0)
	if elapsed > 0 {
		r.MBPerS = float64(p.roundB) / 1e6 / elapsed.Seconds()
	}
	p.rounds = append(p.rounds, r)
}

func us(nanos int64) float64 { return float64(nanos) / 1e3 }

// Ops is how many operations were counted.
func (p *Probe) Ops() int64 { return p.ops }

// P99 is of all rounds.
func (p *Probe) P99() time.Duration { return time.Duration(p.total.ValueAtQuantile(99)) }

// P50 is of all rounds.
func (p *Probe) P50() time.Duration { return time.Duration(p.total.ValueAtQuantile(50)) }

// Share is the part of all operations that took longer than d, in percent.
func (p *Probe) Share(d time.Duration) float64 {
	if p.ops == 0 {
		return 0
	}
	var over int64
	for _, b := range p.total.Distribution() {
		if b.From > int64(d) {
			over += b.Count
		}
	}
	return 100 * float64(over) / float64(p.ops)
}

// Result fills in the figures.
func (p *Probe) Result() result.Cell {
	c := p.Cell
	if c.Loop == "" {
		c.Loop = "closed"
	}
	c.Ops, c.Bytes, c.Late = p.ops, p.bytes, p.late
	c.ElapsedS = p.elapsed.Seconds()
	if p.elapsed > 0 {
		c.OpsPerS = float64(p.ops) / c.ElapsedS
		c.MBPerS = float64(p.bytes) / 1e6 / c.ElapsedS
		c.CPUPercent = max(0, 100*p.cpuSum.Seconds()/c.ElapsedS)
	}
	c.Latency, c.WritePart, c.SyncPart = result.NewLatency(p.total), result.NewLatency(p.write), result.NewLatency(p.sync)
	c.Rounds = p.rounds
	if c.Loop == "open" {
		c.ClosedMaxUS = us(int64(p.closed))
	}
	c.Steady = p.Steady()
	return c
}

// steadyWindows is how many last windows must lie within steadyWithin of their middle.
const (
	steadyWindows = 5
	steadyWithin  = 0.10
)

// Windows are the throughputs by which a load counts as steady: of its rounds, or of equal parts of its time line.
func (p *Probe) Windows() []float64 {
	if p.series != nil && len(p.series.points) >= 2*steadyWindows {
		return p.series.windows(20)
	}
	var w []float64
	for _, r := range p.rounds {
		w = append(w, r.MBPerS)
	}
	if p.bytes == 0 {
		w = w[:0]
		for _, r := range p.rounds {
			w = append(w, float64(r.Ops)/max(r.ElapsedS, 1e-9))
		}
	}
	return w
}

// Steady reports whether the last five windows lie within 10 %.
func (p *Probe) Steady() bool { return SteadyWindows(p.Windows()) }

// SteadyWindows reports whether the last five windows lie within 10 % of one another. Fewer say nothing, so they are not.
func SteadyWindows(w []float64) bool {
	if len(w) < steadyWindows {
		return false
	}
	w = w[len(w)-steadyWindows:]
	lo, hi := slices.Min(w), slices.Max(w)
	return hi > 0 && hi-lo <= steadyWithin*hi
}

// Series returns the time line, nil if none was kept.
func (p *Probe) Series() *result.Series {
	if p.series == nil {
		return nil
	}
	return p.series.result(p.Cell.ID)
}

// Stalls returns the gaps, nil if they were not kept.
func (p *Probe) Stalls() *result.Stalls {
	if p.stalls == nil {
		return nil
	}
	return p.stalls.result(p.Cell.ID)
}

// Bytes is how many bytes were moved.
func (p *Probe) Bytes() int64 { return p.bytes }

// OneRound forgets how the operations were divided into rounds: each was one by itself.
func (p *Probe) OneRound() {
	if len(p.rounds) == 0 {
		return
	}
	r := p.rounds[0]
	r.ElapsedS, r.Ops = p.elapsed.Seconds(), p.ops
	r.P50US, r.P99US, r.MaxUS = us(p.total.ValueAtQuantile(50)), us(p.total.ValueAtQuantile(99)), us(p.total.Max())
	p.rounds = []result.Round{r}
}

// Begin begins a round of a load that Run does not drive.
func (p *Probe) Begin(e *Env) { p.beginRound(e) }

// Count counts an operation.
func (p *Probe) Count(intended, start, end time.Time, parts Parts, late bool) {
	p.record(intended, start, end, parts, late)
}

// End ends the round.
func (p *Probe) End(e *Env, elapsed time.Duration) { p.endRound(e, elapsed) }
