package engine

import (
	"errors"
	"sync/atomic"
)

// ErrWriteCap is returned by Meter.Take when the run has written what it may.
var ErrWriteCap = errors.New("the run has written as much as --max-write allows")

// Meter counts what a run writes and reads, and bounds the writing.
type Meter struct {
	max     int64 // 0: no bound
	written atomic.Int64
	read    atomic.Int64
}

// NewMeter returns a meter that allows so many bytes of writing; 0 means all.
func NewMeter(writeMax int64) *Meter { return &Meter{max: writeMax} }

// Take asks to write n bytes.
func (m *Meter) Take(n int64) error {
	if m.written.Add(n) > m.max && m.max > 0 {
		m.written.Add(-n)
		return ErrWriteCap
	}
	return nil
}

// Left is how much may still be written.
func (m *Meter) Left() int64 {
	if m.max == 0 {
		return 1 << 62
	}
	return max(m.max-m.written.Load(), 0)
}

// Read counts n bytes that were read.
func (m *Meter) Read(n int64) { m.read.Add(n) }

// Written returns the bytes written so far.
func (m *Meter) Written() int64 { return m.written.Load() }

// ReadBytes returns the bytes read so far.
func (m *Meter) ReadBytes() int64 { return m.read.Load() }
