package ledger

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// schedule is one random run of a world.
type schedule struct {
	*world
	rnd     *rand.Rand
	entries int
	recover int // recoverers that may still be started
	fail    float64
	unknown float64
	wipes   int
	cuts    int // power cuts that may still happen
	forces  bool
	calm    int // one in so many steps may be a power cut or a force
	steps   int
	trace   []string
}

func (s *schedule) note(format string, args ...any) {
	s.trace = append(s.trace, fmt.Sprintf(format, args...))
}

// step makes one random choice among what can happen.
func (s *schedule) step() bool {
	type choice struct {
		weight int
		run    func()
	}
	var all []choice
	add := func(weight int, run func()) { all = append(all, choice{weight, run}) }
	for _, m := range s.messages {
		add(10, func() {
			if s.rnd.Float64() < s.fail {
				s.note("timeout %s", m.name())
				s.timeout(m)
				return
			}
			s.note("deliver %s", m.name())
			s.deliver(m)
		})
	}
	for _, op := range s.wants {
		add(10, func() {
			outcome := "ok"
			if s.rnd.Float64() < s.unknown {
				outcome = []string{"unknown-applied", "unknown-dropped", "unknown-late"}[s.rnd.IntN(3)]
			}
			s.note("meta %s read=%v %s", op.client.name, op.read, outcome)
			s.meta(op, outcome)
		})
	}
	if len(s.late) > 0 {
		add(3, func() {
			op := s.late[0]
			s.late = s.late[1:]
			s.note("land %s", describe(op.act.Record))
			s.apply(op)
		})
	}
	for _, c := range s.clients {
		if c.dead {
			continue
		}
		if c.picking {
			add(10, func() { s.pickRandom(c) })
		}
		if c.w == nil {
			continue
		}
		if c.w.Cause() == CauseNone && s.entries > 0 {
			add(8, func() { s.entries--; s.note("append"); s.appendEntry(c) })
		}
		if c.w.Cause() == CauseNone && s.rnd.IntN(60) == 0 {
			add(5, func() { s.note("close"); s.world.step(c, Event{Kind: EvClose}) })
		}
		if s.forces && c.w.Cause() == CauseNone && s.rnd.IntN(max(s.calm/3, 1)) == 0 {
			add(6, func() { s.note("force"); s.world.step(c, Event{Kind: EvForce}) })
		}
		if c.w.Degraded() {
			add(2, func() { s.note("retry"); s.world.step(c, Event{Kind: EvRetry}) })
		}
		if s.rnd.IntN(80) == 0 {
			add(5, func() { s.note("writer dies"); c.dead = true })
		}
	}
	if s.recover > 0 && s.rnd.IntN(30) == 0 {
		add(20, func() {
			s.recover--
			name := fmt.Sprintf("R%d", len(s.clients))
			s.note("recover %s", name)
			s.world.recover(name, 1+s.rnd.IntN(3))
		})
	}
	if s.wipes > 0 && s.rnd.IntN(40) == 0 {
		add(10, func() {
			s.wipes--
			b := s.bookies[s.rnd.IntN(len(s.bookies))]
			s.note("wipe %s", b.id)
			s.wipe(b)
		})
	}
	for _, b := range s.bookies {
		if s.split && b.unsynced() {
			add(6, func() { s.note("sync %s", b.id); s.syncBookie(b) })
		}
	}
	if s.cuts > 0 && s.rnd.IntN(s.calm) == 0 {
		add(10, func() {
			s.cuts--
			b := s.bookies[s.rnd.IntN(len(s.bookies))]
			s.note("power cut of %s", b.id)
			s.crash(b)
		})
	}
	if len(all) == 0 {
		return false
	}
	total := 0
	for _, c := range all {
		total += c.weight
	}
	n := s.rnd.IntN(total)
	for _, c := range all {
		if n -= c.weight; n < 0 {
			c.run()
			break
		}
	}
	s.check()
	return true
}

func (s *schedule) pickRandom(c *simClient) {
	ensemble := c.currentEnsemble()
	var names []BookieID
	for i := range s.q.Ensemble {
		if !c.pick.Has(i) {
			continue
		}
		b := s.bookies[s.rnd.IntN(len(s.bookies))].id
		if b != ensemble[i] && (holds(ensemble, b) || holds(names, b)) {
			b = ""
		}
		names = append(names, b)
	}
	s.note("pick %s %v", c.name, names)
	s.pickFor(c, names)
}

func (c *simClient) currentEnsemble() []BookieID {
	if c.w != nil {
		return c.w.ensemble
	}
	return c.r.ensemble
}

// runSchedules runs n seeds of one setting and reports the first broken one with its trace.
func runSchedules(t *testing.T, n int, name string, setup func(rnd *rand.Rand) *schedule) {
	t.Run(name, func(t *testing.T) {
		closed, acked := 0, 0
		for seed := range n {
			rnd := rand.New(rand.NewPCG(uint64(seed), 7))
			s := setup(rnd)
			s.rnd = rnd
			for s.steps = 0; s.steps < 3000; s.steps++ {
				if !s.step() || len(s.broken) > 0 {
					break
				}
			}
			s.finish(t, seed)
			if len(s.broken) > 0 {
				for _, l := range s.trace {
					t.Log(l)
				}
				t.Fatalf("seed %d: %v\nrecord %s", seed, s.broken, describe(s.record))
			}
			acked += len(s.acked)
			if s.record.State == StateClosed {
				closed++
			}
		}
		t.Logf("%d runs, %d closed, %d entries acked", n, closed, acked)
		if closed < n/2 || acked < n/3 {
			t.Errorf("the schedules do too little: %d of %d runs closed, %d entries acked", closed, n, acked)
		}
	})
}

// finish lets everything still in flight arrive and recovers the ledger: it must end closed, whatever happened before.
func (s *schedule) finish(t *testing.T, seed int) {
	s.fail, s.unknown, s.entries, s.recover, s.wipes, s.cuts, s.forces = 0, 0, 0, 0, 0, 0, false
	quiet := func() {
		for range 20000 {
			if !s.step() || len(s.broken) > 0 {
				return
			}
		}
		t.Fatalf("seed %d: no end", seed)
	}
	quiet()
	if len(s.broken) > 0 {
		return
	}
	for _, c := range s.clients {
		if c.w != nil && !c.dead && c.w.Cause() == CauseNone && c.w.Pending() > 0 && c.w.Changing() {
			s.violate("V3: the ensemble change of %s never ends", c.name)
		}
		if c.w != nil && !c.dead && c.w.Cause() != CauseNone && c.closed == nil {
			s.violate("V2: %s never closes", c.name)
		}
		if c.r != nil && c.closed == nil {
			s.violate("V5: %s never ends", c.name)
		}
	}
	s.note("final recovery")
	s.world.recover("RX", 2)
	quiet()
	if s.noLoss && len(s.broken) == 0 && s.record.State != StateClosed {
		s.violate("V1: the ledger is never closed")
	}
}

// TestC39RandomSchedules checks, in 10,000 random schedules with stalled and unknown metadata writes, double failures and
// concurrent recoveries, after every step: acknowledged entries are held by an ack quorum of the stored write set.
func TestC39RandomSchedules(t *testing.T) {
	n := 1500
	if testing.Short() || raceEnabled {
		n = 150
	}
	type setting struct {
		name     string
		q        Quorum
		bookies  int
		recover  int
		deferred bool
		wipes    int
		cuts     int
		delay    bool
	}
	for _, c := range []setting{
		{"E=3/Qw=3/Qa=2/delayed changes", Quorum{3, 3, 2}, 6, 2, false, 0, 0, true},
		{"E=5/Qw=3/Qa=2/delayed changes", Quorum{5, 3, 2}, 8, 2, false, 0, 0, true},
		{"E=3/Qw=3/Qa=2", Quorum{3, 3, 2}, 6, 2, false, 0, 0, false},
		{"E=4/Qw=2/Qa=2", Quorum{4, 2, 2}, 7, 1, false, 0, 0, false},
		{"E=2/Qw=1/Qa=1", Quorum{2, 1, 1}, 5, 1, false, 0, 0, false},
		{"E=5/Qw=3/Qa=2", Quorum{5, 3, 2}, 8, 2, false, 0, 0, false},
		{"E=3/Qw=3/Qa=3", Quorum{3, 3, 3}, 6, 2, false, 0, 0, false},
		{"E=3/Qw=2/Qa=1", Quorum{3, 2, 1}, 6, 2, false, 0, 0, false},
		{"E=3/Qw=3/Qa=2/wipe", Quorum{3, 3, 2}, 6, 2, false, 1, 0, false},
		{"E=3/Qw=3/Qa=3/two wipes", Quorum{3, 3, 3}, 6, 2, false, 2, 0, false},
		{"E=3/Qw=3/Qa=2/power cuts", Quorum{3, 3, 2}, 5, 2, false, 0, 3, false},
		{"E=3/Qw=2/Qa=2/power cuts", Quorum{3, 2, 2}, 5, 2, false, 0, 3, false},
		{"E=3/Qw=3/Qa=2/deferred", Quorum{3, 3, 2}, 3, 1, true, 0, 0, false},
		{"E=3/Qw=3/Qa=2/deferred/power cuts", Quorum{3, 3, 2}, 3, 1, true, 0, 2, false},
	} {
		runSchedules(t, n, c.name, func(rnd *rand.Rand) *schedule {
			var names []string
			var ens []BookieID
			for i := range c.bookies {
				names = append(names, string(rune('A'+i)))
				if i < c.q.Ensemble {
					ens = append(ens, BookieID(names[i]))
				}
			}
			s := &schedule{world: newWorld(names...), entries: 2 + rnd.IntN(8), recover: rnd.IntN(c.recover + 1), wipes: c.wipes}
			s.fail = []float64{0, 0.02, 0.1, 0.3}[rnd.IntN(4)]
			s.unknown = []float64{0, 0.2, 0.6}[rnd.IntN(3)]
			s.cuts, s.split, s.forces, s.calm = c.cuts, c.cuts > 0, c.deferred, 30
			if c.deferred && c.cuts > 0 { // many short ones: the harm is done between an ack, a cut and a force
				s.calm, s.fail, s.unknown, s.entries = 4, 0, 0, 1+rnd.IntN(2)
			}
			s.createWith("W", c.q, WriterConfig{Deferred: c.deferred, Delay: c.delay}, ens...)
			return s
		})
	}
}
