package bktest

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/binderylog/bindery/internal/vfs/errorfs"
)

// nemesis makes the trouble of a run, from the seed.
type nemesis struct {
	c     *Cluster
	w     *work
	rng   *rand.Rand
	until time.Time
	count int
	undo  []timed
}

type timed struct {
	at time.Time
	fn func()
}

func newNemesis(c *Cluster, w *work) *nemesis {
	return &nemesis{c: c, w: w, rng: rand.New(rand.NewPCG(c.cfg.Seed, 0x6e656d6573)), until: time.Now().Add(c.cfg.For)}
}

// storm makes trouble until its time is over. It runs on one goroutine, so bookies change one after the other.
func (n *nemesis) storm() {
	next := time.Now().Add(n.calm())
	for now := time.Now(); now.Before(n.until); now = time.Now() {
		if len(n.undo) > 0 && n.undo[0].at.Before(next) {
			u := n.undo[0]
			n.undo = n.undo[1:]
			if !elapse(n.c.ctx, time.Until(u.at)) {
				return
			}
			u.fn()
			continue
		}
		if !elapse(n.c.ctx, time.Until(next)) {
			return
		}
		next = time.Now().Add(n.calm())
		if len(n.c.cfg.Faults) > 0 {
			n.trouble(n.c.cfg.Faults[n.rng.IntN(len(n.c.cfg.Faults))])
		}
	}
}

func (n *nemesis) calm() time.Duration {
	return time.Duration(n.rng.Int64N(int64(2*n.c.cfg.Calm))) + time.Millisecond
}

// later keeps fn until some time has passed.
func (n *nemesis) later(within time.Duration, fn func()) {
	at := time.Now().Add(time.Duration(n.rng.Int64N(int64(within))))
	i := len(n.undo)
	for i > 0 && n.undo[i-1].at.After(at) {
		i--
	}
	n.undo = slices.Insert(n.undo, i, timed{at, fn})
}

func (n *nemesis) member() *member { return n.c.members[n.rng.IntN(len(n.c.members))] }

// again starts a dead member some time later.
func (n *nemesis) again(m *member) {
	n.later(6*time.Second, func() {
		if !m.up && m.start() == nil {
			n.c.probe(m, n.rng.Uint64())
		}
	})
}

func (n *nemesis) trouble(f Fault) {
	n.count++
	c, m, seed := n.c, n.member(), n.rng.Uint64()
	switch f {
	case FaultRestart:
		if m.up {
			m.stop()
			n.again(m)
		}
	case FaultKill:
		m.kill(seed, 1, false)
		n.again(m)
	case FaultPower:
		m.kill(seed, n.keep(), n.rng.IntN(2) == 0)
		n.again(m)
	case FaultBlackout:
		keep := n.keep()
		for i, m := range c.members {
			m.kill(seed+uint64(i), keep, true)
			n.again(m)
		}
	case FaultWipe:
		if !c.check.MayLose(m.name) {
			return
		}
		m.kill(seed, 0, true)
		if err := m.wipe(); err != nil {
			c.h.Add("nemesis", "%v", err)
		}
		n.again(m)
	case FaultPartition:
		n.partition()
	case FaultReset:
		a, b := n.process(), m.name
		c.h.Add("nemesis", "connections between %s and %s break", a, b)
		c.net.Reset(a, b)
	case FaultLag:
		a, b, d := n.process(), m.name, time.Duration(n.rng.Int64N(int64(8*time.Second)))
		c.h.Add("nemesis", "from %s to %s everything takes %v more", a, b, d)
		c.net.Lag(a, b, d)
		n.later(10*time.Second, func() { c.net.Lag(a, b, 0) })
	case FaultPause:
		n.pause()
	default:
		n.more(f, m)
	}
}

func (n *nemesis) more(f Fault, m *member) {
	c := n.c
	switch f {
	case FaultSlowDisk:
		if m.fault.Load() == nil {
			m.slowDisk(time.Duration(1+n.rng.IntN(300)) * time.Millisecond)
			n.later(8*time.Second, m.healDisk)
		}
	case FaultDisk:
		if m.fault.Load() != nil || !c.check.MayLose(m.name) {
			return
		}
		c.check.Lost(m.name)
		m.breakDisk([]errorfs.Kind{errorfs.Read, errorfs.Write, errorfs.Sync, errorfs.Write | errorfs.Sync, errorfs.Changes}[n.rng.IntN(5)])
		n.later(4*time.Second, m.healDisk)
	case FaultRot:
		if !m.up || !c.check.MayLose(m.name) {
			return
		}
		m.kill(n.rng.Uint64(), 1, false)
		c.check.Lost(m.name)
		m.rot(n.rng)
		n.again(m)
	case FaultFull:
		m.fillDisk()
		n.later(10*time.Second, m.healDisk)
	case FaultStore:
		c.setStormy(true)
		n.later(10*time.Second, func() {
			c.setStormy(false)
			c.tree.LandLate()
		})
	case FaultSession:
		if m.up {
			c.h.Add("nemesis", "the session of %s ends", m.name)
			m.store.ExpireSession()
		}
	case FaultDeath:
		n.w.killClient(n.rng)
	}
}

// keep draws how much of what is not synced survives.
func (n *nemesis) keep() float64 { return []float64{0, 0, 0.5, 0.9}[n.rng.IntN(4)] }

// process draws a client.
func (n *nemesis) process() string { return n.w.clientName(n.rng) }

// partition cuts some processes off from some bookies.
func (n *nemesis) partition() {
	c := n.c
	oneWay := n.rng.IntN(3)
	var cut []link
	for range 1 + n.rng.IntN(4) {
		a, b := n.process(), n.member().name
		if oneWay != 1 {
			cut = append(cut, link{a, b})
		}
		if oneWay != 2 {
			cut = append(cut, link{b, a})
		}
	}
	for _, l := range cut {
		c.h.Add("nemesis", "nothing passes from %s to %s", l.from, l.to)
		c.net.Block(l.from, l.to)
	}
	n.later(12*time.Second, func() {
		for _, l := range cut {
			c.net.Unblock(l.from, l.to)
		}
		c.h.Add("nemesis", "%d links pass again", len(cut))
	})
}

// pause stops all traffic for so long that every time-out of the protocol passes.
func (n *nemesis) pause() {
	c := n.c
	c.h.Add("nemesis", "everything pauses")
	for _, k := range n.w.clients {
		for _, m := range c.members {
			c.net.Block(k.name, m.name)
			c.net.Block(m.name, k.name)
		}
	}
	elapse(c.ctx, time.Duration(5+n.rng.IntN(40))*time.Second)
	c.net.Heal()
}
