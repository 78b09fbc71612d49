package bookie

import (
	"errors"
	"fmt"
	"time"

	"github.com/binderylog/bindery/bookie/gc"
	"github.com/binderylog/bindery/bookie/storage"
)

// Tuning is what can change while a bookie runs.
type Tuning struct {
	GC                gc.Options         // Interval, Minor, Major and Rate
	Disk              storage.DiskLimits // all of it
	InFlightBytes     int64              // at most what the bookie was started with: the memory was divided then
	SlowClientTimeout time.Duration
	GroupWait         time.Duration // of the journals
}

// Tune changes a running bookie. It checks everything before it changes anything.
func (b *Bookie) Tune(t Tuning) error {
	b.mu.Lock()
	srv, eng, collector, stopped := b.srv, b.eng, b.gc, b.stopped
	b.mu.Unlock()
	if srv == nil || collector == nil || stopped {
		return ErrStopped
	}
	t.GC.EnsureDefaults()
	t.Disk.EnsureDefaults()
	switch {
	case t.InFlightBytes < 1<<20 || t.InFlightBytes > b.o.InFlightBytes:
		return fmt.Errorf("limits.in_flight = %d: must be between 1 MiB and what the bookie was started with, %d", t.InFlightBytes, b.o.InFlightBytes)
	case t.SlowClientTimeout < time.Second:
		return fmt.Errorf("limits.slow_client_timeout = %v: must be at least 1s", t.SlowClientTimeout)
	}
	if err := errors.Join(t.GC.Validate(), t.Disk.Validate()); err != nil {
		return err
	}
	for _, j := range eng.journals {
		if err := j.SetGroupWait(t.GroupWait); err != nil { // checked by the first one, before anything has changed
			return err
		}
	}
	srv.divide(t.InFlightBytes)
	srv.patience.Store(int64(t.SlowClientTimeout))
	err := errors.Join(collector.Tune(t.GC), eng.st.SetDiskLimits(t.Disk))
	select {
	case eng.wake <- struct{}{}: // the new marks may mean another state
	default:
	}
	return err
}
