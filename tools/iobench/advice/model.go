package advice

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/binderylog/bindery/journal"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// Model is a disk, by what was measured, with a journal on it.
type Model struct {
	Sizes     []int            // of groups, ascending
	Times     []*hdr.Histogram // of writing one, nanoseconds
	Beside    []*hdr.Histogram // of writing one while another is under way; nil: Crowd says it
	Low, High []float64        // by size: factors by which the rounds' p99 lay below and above that of all
	Crowd     float64          // what a write takes longer while another is under way; at least 1
	CPU       time.Duration    // processor time of one add
	Cores     float64
	CPUPeak   float64        // adds a second that the processors allow if the disk takes no time; 0: CPU says it
	Trip      *hdr.Histogram // of a request and its answer beside the journal, nanoseconds; nil: none
	InFlight  int            // groups
	GroupMax  int
	Tick      time.Duration // adds come in batches so far apart; 0: evenly
	Pauses    Pauses        // of the machine; Times and Beside are without any
	InTrip    float64       // share of the time that the machine stood still for Trip
}

// NewModel takes the figures of one method. ok is false if there are none.
func NewModel(c *result.Chapter, method string) (m Model, ok bool) {
	m = Model{Crowd: 1, InFlight: 2, GroupMax: journal.DefaultGroupBytesMax, Cores: 1}
	if c == nil {
		return m, false
	}
	var cells []*result.Cell
	for i := range c.Cells {
		if cell := &c.Cells[i]; cell.Method == method && cell.Latency != nil {
			cells = append(cells, cell)
		}
	}
	slices.SortFunc(cells, func(a, b *result.Cell) int { return cmp.Compare(a.BlockBytes, b.BlockBytes) })
	for _, cell := range cells {
		h, err := cell.Latency.Decode()
		if err != nil {
			return m, false
		}
		m.Sizes, m.Times = append(m.Sizes, cell.BlockBytes), append(m.Times, h)
		low, high := 1.0, 1.0
		for _, r := range cell.Rounds {
			if p := cell.Latency.P99US; p > 0 {
				low, high = min(low, r.P99US/p), max(high, r.P99US/p)
			}
		}
		m.Low, m.High = append(m.Low, low), append(m.High, high)
	}
	return m, len(cells) > 0
}

// spread is by what the p99 of groups of so many bytes moved from round to round.
func (m *Model) spread(bytes int) (low, high float64) {
	best := -1
	for i, size := range m.Sizes {
		if best < 0 || math.Abs(math.Log(float64(size)/float64(max(bytes, 1)))) < math.Abs(math.Log(float64(m.Sizes[best])/float64(max(bytes, 1)))) {
			best = i
		}
	}
	if best < 0 || best >= len(m.Low) {
		return 1, 1
	}
	return m.Low[best], m.High[best]
}

// quantiles is a distribution in equal steps of probability.
type quantiles []float64

// quantileSteps are enough for a p99.9.
const quantileSteps = 4096

func newQuantiles(h *hdr.Histogram) quantiles {
	at := make([]float64, quantileSteps)
	for i := range at {
		at[i] = 100 * (float64(i) + 0.5) / quantileSteps
	}
	q := make(quantiles, quantileSteps)
	for i, v := range h.ValueAtPercentilesSlice(at) {
		q[i] = float64(v)
	}
	return q
}

// draw returns the value at a probability from 0 to 1.
func (q quantiles) draw(p float64) float64 { return q[min(int(p*quantileSteps), quantileSteps-1)] }

// write draws what writing a group of so many bytes takes: the same quantile of the next smaller and the next larger size
// that were measured, in proportion.
func (s *sim) write(bytes int, crowded bool) float64 {
	p := s.rng.Float64()
	sizes, times := s.m.Sizes, s.times
	if crowded && s.beside != nil {
		times, crowded = s.beside, false
	}
	i, found := slices.BinarySearch(sizes, bytes)
	var took float64
	switch {
	case found || i == 0:
		took = times[i].draw(p)
	case i == len(sizes):
		last := times[i-1].draw(p)
		took = last * float64(bytes) / float64(sizes[i-1])
		if i > 1 { // on along the line through the two largest
			slope := (last - times[i-2].draw(p)) / float64(sizes[i-1]-sizes[i-2])
			took = last + max(slope, 0)*float64(bytes-sizes[i-1])
		}
	default:
		a, b := times[i-1].draw(p), times[i].draw(p)
		took = a + (b-a)*float64(bytes-sizes[i-1])/float64(sizes[i]-sizes[i-1])
	}
	if crowded {
		took *= s.m.Crowd
	}
	return max(took, 1)
}

// Outcome is what a load came to.
type Outcome struct {
	AddsPerS   float64
	P50, P99   time.Duration
	GroupBytes float64 // mean
	CPUBusy    float64 // share of the processors' time
	DiskBusy   float64 // share of the time with a write under way
}

// group of adds in the simulation.
type group struct {
	adds    []float64 // when each came, nanoseconds
	bytes   int
	started float64
	done    float64 // when its write ends
	written bool
}

// sim is a journal in simulated time. Its rules are the journal's: see journal/commit.go.
type sim struct {
	m         *Model
	rng       *rand.Rand
	times     []quantiles // by size
	beside    []quantiles // the same while another write is under way; nil: not measured
	trip      quantiles   // nil: none
	onTrip    Pauses      // those that are not in trip already
	entry     int
	now       float64
	open      *group
	sealed    []*group
	flight    []*group // in order of their start
	inflight  int
	lastStart float64
	syncTime  float64
	cpuFree   float64
	hist      *hdr.Histogram
	acked     int64
	groups    int64
	bytes     float64
	diskBusy  float64
	cpuBusy   float64
	window    int       // closed loop: adds in flight
	due       []arrival // of adds that are on their way through the processor
}

type arrival struct{ at, from float64 }

// Open simulates adds that come at a rate.
func (m *Model) Open(rate float64, entry int, d time.Duration, seed uint64) Outcome {
	s := m.sim(entry, seed)
	n := max(int64(rate*d.Seconds()), 1)
	next := int64(0)
	gap := 1e9 / rate
	for next < n || s.pending() {
		at := math.Inf(1)
		if next < n {
			at = float64(next) * gap
			if m.Tick > 0 { // the batch goes out when its last one is due
				at = math.Ceil(at/float64(m.Tick)) * float64(m.Tick)
			}
		}
		s.step(at, func() {
			s.arrive(at, float64(next)*gap, at)
			next++
		})
	}
	return s.outcome()
}

// Closed simulates a number of adds in flight, each followed by another as soon as it is answered.
func (m *Model) Closed(window, entry int, adds int64, seed uint64) Outcome {
	s := m.sim(entry, seed)
	s.window = window
	for range window {
		s.arrive(0, 0, 0)
	}
	for s.acked < adds {
		s.step(math.Inf(1), nil)
	}
	return s.outcome()
}

func (m *Model) sim(entry int, seed uint64) *sim {
	s := &sim{m: m, rng: rand.New(rand.NewPCG(seed, 11)), entry: entry, hist: result.NewHistogram(), lastStart: math.Inf(-1)}
	for _, h := range m.Times {
		s.times = append(s.times, newQuantiles(h))
	}
	for _, h := range m.Beside {
		s.beside = append(s.beside, newQuantiles(h))
	}
	if m.Trip != nil && m.Trip.TotalCount() > 0 {
		s.trip, s.onTrip = newQuantiles(m.Trip), m.Pauses.Beyond(m.InTrip, seed)
	}
	return s
}

func (s *sim) pending() bool {
	return len(s.due) > 0 || s.open != nil || len(s.sealed) > 0 || len(s.flight) > 0
}

// arrive lets an add begin its way through the processor; latency counts from from.
func (s *sim) arrive(at, from, now float64) {
	if s.m.Tick > 0 {
		from = at // a batch is sent when its last add is due, and counts from then
	}
	cost := 0.0
	if s.m.CPU > 0 {
		cost = float64(s.m.CPU) / s.m.Cores
	}
	s.cpuFree = s.m.Pauses.through(max(s.cpuFree, now), cost)
	s.cpuBusy += cost
	s.due = append(s.due, arrival{s.cpuFree, from})
}

// step goes to the next thing that happens: an add that comes, one that reaches the journal, a write that is done, a group
// that may start.
func (s *sim) step(arrivalAt float64, arrive func()) {
	const comes, reaches, timer = -1, -2, -3 // otherwise the place in flight of a write that ends
	next, what := arrivalAt, comes
	if len(s.due) > 0 && s.due[0].at <= next {
		next, what = s.due[0].at, reaches
	}
	for i, g := range s.flight {
		if !g.written && g.done <= next {
			next, what = g.done, i
		}
	}
	if at := s.timer(); at < next {
		next, what = at, timer
	}
	if s.inflight > 0 {
		s.diskBusy += next - s.now
	}
	s.now = max(next, s.now)
	switch what {
	case comes:
		arrive()
	case reaches:
		a := s.due[0]
		s.due = s.due[1:]
		s.append(a.from)
		// What reaches the journal at the same moment goes along.
		for len(s.due) > 0 && s.due[0].at <= s.now {
			s.append(s.due[0].from)
			s.due = s.due[1:]
		}
	case timer:
	default:
		g := s.flight[what]
		s.inflight--
		took := g.done - g.started
		if s.syncTime == 0 {
			s.syncTime = took
		}
		s.syncTime += (took - s.syncTime) / 8
		g.written = true
		s.acknowledge()
	}
	s.start()
}

// timer is when the journal would look again by itself.
func (s *sim) timer() float64 {
	const least = float64(time.Millisecond)
	if s.open == nil || s.inflight == 0 || s.inflight >= s.m.InFlight {
		return math.Inf(1)
	}
	if due := s.lastStart + s.syncTime/2; due-s.now >= least {
		return due
	}
	return math.Inf(1)
}

func (s *sim) append(from float64) {
	if s.open != nil && s.open.bytes+s.entry+journal.RecordOverhead > s.m.GroupMax {
		s.sealed = append(s.sealed, s.open)
		s.open = nil
	}
	if s.open == nil {
		s.open = &group{}
	}
	s.open.adds = append(s.open.adds, from)
	s.open.bytes += s.entry + journal.RecordOverhead
}

// start starts what may start.
func (s *sim) start() {
	for {
		var g *group
		switch {
		case len(s.sealed) > 0:
			if s.inflight >= s.m.InFlight {
				return
			}
			g = s.sealed[0]
			s.sealed = s.sealed[1:]
		case s.open != nil && (journal.MayStart(s.inflight, s.m.InFlight, s.open.bytes, since(s.now, s.lastStart), time.Duration(s.syncTime))):
			g, s.open = s.open, nil
		default:
			return
		}
		n := journal.GroupBytes(len(g.adds), len(g.adds)*s.entry)
		g.started, g.done = s.now, s.m.Pauses.through(s.now, s.write(n, s.inflight > 0))
		s.lastStart = s.now
		s.inflight++
		s.flight = append(s.flight, g)
		s.groups++
		s.bytes += float64(n)
	}
}

func since(now, then float64) time.Duration {
	if math.IsInf(then, -1) {
		return time.Hour
	}
	return time.Duration(now - then)
}

// acknowledge answers groups in order.
func (s *sim) acknowledge() {
	for len(s.flight) > 0 && s.flight[0].written {
		g := s.flight[0]
		s.flight = s.flight[1:]
		for _, from := range g.adds {
			trip := 0.0
			if s.trip != nil {
				trip = s.trip.draw(s.rng.Float64())
			}
			at := s.onTrip.through(s.now, trip)
			result.Record(s.hist, time.Duration(at-from))
			s.acked++
			if s.window > 0 {
				s.arrive(at, s.now, at)
			}
		}
	}
}

func (s *sim) outcome() Outcome {
	o := Outcome{P50: time.Duration(s.hist.ValueAtQuantile(50)), P99: time.Duration(s.hist.ValueAtQuantile(99))}
	if s.now > 0 {
		o.AddsPerS = float64(s.acked) / s.now * 1e9
		o.CPUBusy, o.DiskBusy = min(s.cpuBusy/s.now, 1), min(s.diskBusy/s.now, 1)
	}
	if s.groups > 0 {
		o.GroupBytes = s.bytes / float64(s.groups)
	}
	return o
}
