package loadgen

import (
	"errors"
	"fmt"
	"time"
)

// Plan is a load.
type Plan struct {
	Rate        float64       // adds per second over all connections; 0 = closed loop
	Outstanding int           // window of adds per connection (Raw) or per ledger (Cluster); in an open loop the bound at which the target counts as overrun
	Connections int           // Raw only
	Ledgers     int           // over all connections
	Size        int           // bytes of payload per add
	Warmup      time.Duration // sent, not measured
	Duration    time.Duration // measured
	Seed        uint64        // of the payload
}

// Bounds of a plan.
const (
	connectionsMax  = 4096
	ledgersMax      = 1_000_000
	outstandingMax  = 1 << 20
	sizeMax         = 5 << 20
	durationMax     = 24 * time.Hour
	rateMax         = 10_000_000
	openOutstanding = 1 << 15 // default bound of an open loop
)

// Defaults fills what is zero.
func (p *Plan) Defaults() {
	if p.Connections == 0 {
		p.Connections = 4
	}
	if p.Ledgers == 0 {
		p.Ledgers = p.Connections
	}
	if p.Size == 0 {
		p.Size = 1024
	}
	if p.Duration == 0 {
		p.Duration = 10 * time.Second
	}
	if p.Outstanding == 0 {
		p.Outstanding = 100
		if p.Rate > 0 {
			p.Outstanding = openOutstanding
		}
	}
	if p.Seed == 0 {
		p.Seed = 1
	}
}

// Validate says what is wrong with a plan.
func (p *Plan) Validate() error {
	switch {
	case p.Rate < 0 || p.Rate > rateMax:
		return fmt.Errorf("a rate of %v adds/s is outside 0 to %d", p.Rate, rateMax)
	case p.Outstanding < 1 || p.Outstanding > outstandingMax:
		return fmt.Errorf("%d outstanding adds is outside 1 to %d", p.Outstanding, outstandingMax)
	case p.Connections < 1 || p.Connections > connectionsMax:
		return fmt.Errorf("%d connections is outside 1 to %d", p.Connections, connectionsMax)
	case p.Ledgers < 1 || p.Ledgers > ledgersMax:
		return fmt.Errorf("%d ledgers is outside 1 to %d", p.Ledgers, ledgersMax)
	case p.Size < 0 || p.Size > sizeMax:
		return fmt.Errorf("entries of %d bytes are outside 0 to %d", p.Size, sizeMax)
	case p.Duration <= 0 || p.Duration > durationMax:
		return fmt.Errorf("a duration of %v is outside 0 to %v", p.Duration, durationMax)
	case p.Warmup < 0 || p.Warmup > durationMax:
		return fmt.Errorf("a warm-up of %v is outside 0 to %v", p.Warmup, durationMax)
	}
	return nil
}

var errNothingToDrive = errors.New("nothing to drive: no address")

// tickMin is the shortest time between two bursts of an open loop: a finer grid would make the generator, not the
// target, the busiest process of the machine.
const tickMin = 200 * time.Microsecond

// schedule is that of one sender of an open loop: burst adds are due at each tick.
type schedule struct {
	start time.Time
	every time.Duration // of one add
	tick  time.Duration
	sent  int64
}

// newSchedule plans rate adds per second for one sender. Senders are shifted against each other by their share of a tick.
func newSchedule(start time.Time, rate float64, shift float64) *schedule {
	every := time.Duration(float64(time.Second) / rate)
	tick := max(every, tickMin)
	return &schedule{start: start.Add(time.Duration(shift * float64(tick))), every: every, tick: tick}
}

// due returns how many adds are to be sent by now and, with none, when to look again.
func (p *schedule) due(now time.Time) (n int64, next time.Time) {
	if now.Before(p.start) {
		return 0, p.start
	}
	ticks := int64(now.Sub(p.start) / p.tick)
	total := ticks*int64(p.tick)/int64(p.every) + 1
	return max(total-p.sent, 0), p.start.Add(time.Duration(ticks+1) * p.tick)
}

// dueOf is the time at which the i-th add was due: the tick that follows its place in the schedule. It differs from the
// time of sending when the sender was late.
func (p *schedule) dueOf(i int64) time.Time {
	tick := int64(p.tick)
	ticks := (i*int64(p.every) + tick - 1) / tick
	return p.start.Add(time.Duration(ticks * tick))
}
