package session

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/binderylog/bindery/tools/iobench/advice"
	"github.com/binderylog/bindery/tools/iobench/chapter"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// rounds are what was measured at one load, and what is predicted from it.
type rounds struct {
	pct         float64
	rate        float64 // 0: full speed
	entry       int
	connections int
	processors  float64         // adds a second that they allow, by the rounds at full speed; 0: not known
	rest        string          // what the rest was measured with
	disks       [][]result.Cell // before the first round, after the first, after the second...
	list        []round
	noise       float64 // percent
}

// round is one turn.
type round struct {
	rest measured       // by the bookie in memory
	echo *hdr.Histogram // or over loopback; nil otherwise
	disk measured       // by the bookie on the disk
	said result.Prediction
}

// cores is how many processors bookie and generator share.
var cores = float64(runtime.NumCPU())

var errNothingPredicted = errors.New("no durable writes were measured: nothing can be predicted")

// predict predicts each round from the disk's figures around it.
func (r *rounds) predict() error {
	var noise []float64
	for i := range r.list {
		one := &r.list[i]
		var err error
		if one.said, err = r.from(one, r.disks[i], r.disks[i+1]); err != nil {
			return err
		}
		before, err := r.from(one, r.disks[i])
		if err != nil {
			return err
		}
		after, err := r.from(one, r.disks[i+1])
		if err != nil {
			return err
		}
		a, b := before.P50US, after.P50US
		if r.rate == 0 {
			a, b = before.AddsPerS, after.AddsPerS
		}
		noise = append(noise, 100*(max(a, b)/max(min(a, b), 1e-9)-1))
	}
	r.noise = median(noise)
	return nil
}

// settle takes the first round off and returns half way from the assumed rate to the one predicted with it.
func (r *rounds) settle(assumed float64) (float64, error) {
	p, err := r.from(&r.list[0], r.disks[0], r.disks[1])
	r.list, r.disks = r.list[1:], r.disks[1:]
	return (assumed + p.AddsPerS) / 2, err
}

func (r *rounds) from(one *round, disk ...[]result.Cell) (p result.Prediction, err error) {
	m, ok := advice.PipelineModel(disk...)
	if !ok {
		return p, errNothingPredicted
	}
	switch {
	case one.echo != nil:
		m.Trip, m.CPU, m.Cores = one.echo, one.disk.processor(), cores // the generator runs on the same processors
	case r.rate == 0:
		// A disk that takes time takes processors, too: the kernel's share of a write, and of waking who waits for it. What waits for
		// a turn on them is in the writes, which were measured beside the same load.
		m.CPUPeak = one.processors()
	default: // what the processors took is in what the bookie in memory took, but what piles up in a pause has to get through them
		if m.Trip, err = micros(one.rest.Hist); err != nil {
			return p, err
		}
		if r.processors > 0 {
			m.CPU = time.Duration(1e9 / r.processors)
		}
	}
	// A bookie alone may stay below what the machine allows, and the disk alone, too: pauses come when both want it at once.
	m.Pauses, m.InTrip = one.disk.pauses, one.rest.pauses.Share()
	m.Tick = time.Duration(one.disk.Tick * 1e3 / float64(r.connections)) // they take turns
	if r.rate == 0 {
		return m.Peak(verifyWindow, r.entry), nil
	}
	return m.At(r.entry, r.pct, r.rate), nil
}

// processors is how many adds a second they allow, by a round at full speed.
func (r *round) processors() float64 {
	return 1e9 / max(1e9/max(r.rest.AddsPerS, 1), float64(r.disk.processor())/cores)
}

// running makes cells of the time that writes took while the machine ran: its pauses come on top of that in the model.
func running(slices []chapter.Slice, w *watched) (cells []result.Cell) {
	for _, s := range slices {
		h := result.NewHistogram()
		for _, x := range s.Spans {
			result.Record(h, w.running(x.From, x.To))
		}
		s.Latency = result.NewLatency(h)
		cells = append(cells, s.Cell)
	}
	return cells
}

// micros reads a histogram of microseconds into one of nanoseconds.
func micros(text string) (*hdr.Histogram, error) {
	in, err := hdr.Decode([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("histogram of bindery bench cluster: %w", err)
	}
	h := result.NewHistogram()
	for _, b := range in.Distribution() {
		if b.Count > 0 {
			_ = h.RecordValues(min(b.From*1000, h.HighestTrackableValue()), b.Count) // in range
		}
	}
	return h, nil
}

func (r *rounds) measured(f func(*measured) float64) (list []float64) {
	for i := range r.list {
		list = append(list, f(&r.list[i].disk))
	}
	return list
}

func (r *rounds) predicted(f func(*result.Prediction) float64) (list []float64) {
	for i := range r.list {
		list = append(list, f(&r.list[i].said))
	}
	return list
}

// paused is how much of the rounds' time the machine stood still, in percent.
func (r *rounds) paused() float64 {
	return 100 * median(r.measured(func(m *measured) float64 { return m.pauses.Share() }))
}

// processorsAllow is of all rounds.
func (r *rounds) processorsAllow() float64 {
	var list []float64
	for i := range r.list {
		list = append(list, r.list[i].processors())
	}
	return median(list)
}

func rateOf(m *measured) float64             { return m.AddsPerS }
func perSecond(p *result.Prediction) float64 { return p.AddsPerS }

// row sums the rounds up.
func (r *rounds) row() result.Verified {
	p := r.list[len(r.list)/2].said
	p50, p99 := r.predicted(func(p *result.Prediction) float64 { return p.P50US }), r.predicted(func(p *result.Prediction) float64 { return p.P99US })
	p.P50US, p.P99US, p.P99LowUS, p.P99HighUS = median(p50), median(p99), lowest(p99), slices.Max(p99)
	got := r.measured(func(m *measured) float64 { return m.Latency["p99"] })
	row := result.Verified{
		Predicted: p, MeasuredPerS: median(r.measured(rateOf)), MeasuredP50US: median(r.measured(func(m *measured) float64 { return m.Latency["p50"] })),
		MeasuredP99US: median(got), MeasuredP99LowUS: lowest(got), MeasuredP99HighUS: slices.Max(got), NoisePct: r.noise, PausedPct: r.paused(),
	}
	row.P50Within = near(p.P50US, row.MeasuredP50US)
	row.P99Within = row.MeasuredP99LowUS <= p.P99HighUS && row.MeasuredP99HighUS >= p.P99LowUS
	return row
}

// near reports whether a prediction is as close as it must be.
func near(predicted, measured float64) bool {
	return math.Abs(predicted-measured) <= result.VerifyWithin*measured
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 && n > 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

func lowest(v []float64) float64 { return slices.Min(v) }

// label names a load in the cells of the chapter.
func label(pct float64) string { return fmt.Sprintf("%.0f", pct) }
