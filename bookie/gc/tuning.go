package gc

import "time"

// tuning is the part of the options that can change while the collector runs.
type tuning struct {
	interval     time.Duration
	minor, major Compaction
	rate         int64
}

func tuningOf(o *Options) *tuning { return &tuning{o.Interval, o.Minor, o.Major, o.Rate} }

// Tune takes over Interval, Minor, Major and Rate of o. They hold from the next decision on, also within a running pass;
// the time to the next pass is counted anew. What o leaves zero is the default.
func (c *Collector) Tune(o Options) error {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return err
	}
	c.tuning.Store(tuningOf(&o))
	select {
	case c.retimed <- struct{}{}:
	default:
	}
	return nil
}
