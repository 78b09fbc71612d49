package engine

import (
	"errors"
	"math"
	"sync/atomic"
)

// ErrWriteCap is returned by Meter.Take when the run has written what it may.
var ErrWriteCap = errors.New("the run has written as much as --max-write allows")

// Meter counts what a run writes and reads, and bounds the writing.
type Meter struct {
	max     int64        // 0: no bound
	until   atomic.Int64 // what may be written by now, of max; 0: all
	written atomic.Int64
	read    atomic.Int64
}

// NewMeter returns a meter that allows so many bytes of writing; 0 means all.
func NewMeter(writeMax int64) *Meter { return &Meter{max: writeMax} }

// Take asks to write n bytes.
func (m *Meter) Take(n int64) error {
	if m.written.Add(n) > m.bound() {
		m.written.Add(-n)
		return ErrWriteCap
	}
	return nil
}

func (m *Meter) bound() int64 {
	if m.max == 0 {
		return math.MaxInt64
	}
	if until := m.until.Load(); until > 0 {
		return min(until, m.max)
	}
	return m.max
}

// Keep reserves n bytes for later: until it is called again no more than the rest may be written.
func (m *Meter) Keep(n int64) { m.until.Store(max(m.max-n, 1)) }

// Left is how much may still be written.
func (m *Meter) Left() int64 {
	if m.max == 0 {
		return 1 << 62
	}
	return max(m.bound()-m.written.Load(), 0)
}

// Read counts n bytes that were read.
func (m *Meter) Read(n int64) { m.read.Add(n) }

// Written returns the bytes written so far.
func (m *Meter) Written() int64 { return m.written.Load() }

// ReadBytes returns the bytes read so far.
func (m *Meter) ReadBytes() int64 { return m.read.Load() }
