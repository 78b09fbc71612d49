package engine

import (
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// point is one second.
type point struct {
	ops   int64
	bytes int64
	p50   float64
	p99   float64
	max   float64
	sense Sensed
}

// series is a load in steps of a second.
type series struct {
	env     *Env
	begun   bool
	offset  float64 // since the start of the run
	start   time.Time
	current int // second that hist is of
	now     point
	hist    *hdr.Histogram
	points  []point
}

func (s *series) begin(t time.Time, e *Env) {
	if !s.begun {
		s.begun, s.env, s.offset = true, e, e.since()
		s.hist = result.NewHistogram()
	}
	// A further round goes on behind the last.
	s.start = t.Add(-time.Duration(len(s.points)) * time.Second)
	s.current = len(s.points)
}

func (s *series) add(end time.Time, took time.Duration, bytes int64) {
	for second := int(end.Sub(s.start) / time.Second); s.current < second; {
		s.turn()
	}
	result.Record(s.hist, took)
	s.now.ops++
	s.now.bytes += bytes
}

// turn ends the current second.
func (s *series) turn() {
	if s.hist.TotalCount() > 0 {
		s.now.p50, s.now.p99, s.now.max = us(s.hist.ValueAtQuantile(50)), us(s.hist.ValueAtQuantile(99)), us(s.hist.Max())
		s.hist.Reset()
	}
	if s.env.Sensors != nil {
		s.now.sense = s.env.Sensors()
	}
	s.points = append(s.points, s.now)
	s.now = point{}
	s.current++
}

// finish ends the last second, unless too little of it was measured to say anything.
func (s *series) finish() {
	if s.now.ops > 0 && len(s.points) == 0 {
		s.turn()
	}
	s.now = point{}
	s.hist.Reset()
}

// windows cuts the time line into at most n equal parts of a whole number of seconds and returns their rates.
func (s *series) windows(n int) []float64 {
	per := max(len(s.points)/n, 1)
	var w []float64
	for at := len(s.points) % per; at+per <= len(s.points); at += per {
		var bytes, ops int64
		for _, p := range s.points[at : at+per] {
			bytes += p.bytes
			ops += p.ops
		}
		if bytes == 0 {
			bytes = ops
		}
		w = append(w, float64(bytes)/float64(per))
	}
	return w
}

func (s *series) result(cell string) *result.Series {
	r := &result.Series{Cell: cell, StartedS: s.offset, IntervalS: 1, Ops: []int64{}, MBPerS: []float64{}}
	var heat, clock bool
	for _, p := range s.points {
		heat = heat || p.sense.TemperatureC != 0
		clock = clock || p.sense.ClockMHz != 0
	}
	for _, p := range s.points {
		r.Ops = append(r.Ops, p.ops)
		r.MBPerS = append(r.MBPerS, float64(p.bytes)/1e6)
		r.P50US = append(r.P50US, p.p50)
		r.P99US = append(r.P99US, p.p99)
		r.MaxUS = append(r.MaxUS, p.max)
		if heat {
			r.TemperatureC = append(r.TemperatureC, p.sense.TemperatureC)
		}
		if clock {
			r.ClockMHz = append(r.ClockMHz, p.sense.ClockMHz)
		}
	}
	return r
}
