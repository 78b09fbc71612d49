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
		if !m.up && !m.gone && m.start() == nil {
			n.c.probe(m, n.rng.Uint64())
		}
	})
}

func (n *nemesis) trouble(f Fault) {
	n.count++
	c, m, seed := n.c, n.member(), n.rng.Uint64()
	if m.gone {
		return
	}
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
		a, b := n.peer(m), m.name
		c.h.Add("nemesis", "connections between %s and %s break", a, b)
		c.net.Reset(a, b)
	case FaultLag:
		a, b, d := n.peer(m), m.name, time.Duration(n.rng.Int64N(int64(8*time.Second)))
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
		if c.loner != nil && n.rng.IntN(4) == 0 {
			c.h.Add("nemesis", "the session of %s ends", lonerName)
			c.loner.store.ExpireSession()
		} else if m.up {
			c.h.Add("nemesis", "the session of %s ends", m.name)
			m.store.ExpireSession()
		}
	case FaultDeath:
		if c.loner != nil && n.rng.IntN(3) == 0 {
			c.loner.die()
		} else {
			n.w.killClient(n.rng)
		}
	default:
		n.operate(f, m)
	}
}

// operate is trouble that operators are part of.
func (n *nemesis) operate(f Fault, m *member) {
	c := n.c
	switch f {
	case FaultGone:
		if n.spare() < 1 || !c.check.MayLose(m.name) {
			return
		}
		m.vanish(n.rng.Uint64())
		if c.cfg.Healers.On() {
			n.later(10*time.Second, func() { c.retire(m) })
			n.later(40*time.Second, func() { n.reuse(m) })
		}
	case FaultDrain:
		if n.spare() < 1 || !m.up || m.ro {
			return
		}
		m.setReadOnly(true)
		c.drain(m.name, true)
		n.later(20*time.Second, func() {
			c.drain(m.name, false)
			if m.ro {
				m.setReadOnly(false)
			}
		})
	case FaultSwitch:
		c.switchRecovery(false)
		n.later(8*time.Second, func() { c.switchRecovery(true) })
	case FaultGarble:
		c.h.Add("nemesis", "some entries that %s serves have a wrong bit", m.name)
		c.net.Garble(m.name, true)
		n.later(8*time.Second, func() { c.net.Garble(m.name, false) })
	default:
		n.tier(f)
	}
}

// tier is trouble of the tier.
func (n *nemesis) tier(f Fault) {
	t := n.c.tier
	i, x := n.rng.IntN(len(t.stores)), t.workers[n.rng.IntN(len(t.workers))]
	switch f {
	case FaultTarget:
		t.setTrouble(i, true)
		n.later(15*time.Second, func() { t.setTrouble(i, false) })
	case FaultObjects:
		t.lose(i)
	case FaultMover:
		x.die(n.rng.Uint64(), []float64{-1, 0, 0.5, 1}[n.rng.IntN(4)])
		n.later(8*time.Second, func() {
			if !x.up {
				x.start()
			}
		})
	}
}

// reuse starts a bookie with empty disks under the name of one that has been decommissioned.
func (n *nemesis) reuse(m *member) {
	if m.retired.Load() && m.gone {
		m.gone, m.retiring = false, false
		m.retired.Store(false)
		_ = m.start()
	}
}

// spare is how many more bookies can go and leave enough for every ledger of the run.
func (n *nemesis) spare() int {
	left := len(n.c.members) - n.c.cfg.widest()
	for _, m := range n.c.members {
		if m.gone || m.ro {
			left--
		}
	}
	return left
}

// keep draws how much of what is not synced survives.
func (n *nemesis) keep() float64 { return []float64{0, 0, 0.5, 0.9}[n.rng.IntN(4)] }

// peer draws a process that talks to a bookie: a client, or one with auto-recovery.
func (n *nemesis) peer(of *member) string {
	c := n.c
	if c.cfg.Healers.On() && n.rng.IntN(3) == 0 {
		i := n.rng.IntN(c.cfg.Healers.Members + 1)
		if i < c.cfg.Healers.Members && c.members[i] != of {
			return c.members[i].name
		}
		if c.loner != nil {
			return lonerName
		}
	}
	return n.w.clientName(n.rng)
}

// peers are all of them.
func (n *nemesis) peers() []string {
	var all []string
	for _, k := range n.w.clients {
		all = append(all, k.name)
	}
	for _, m := range n.c.members[:n.c.cfg.Healers.Members] {
		all = append(all, m.name)
	}
	if n.c.loner != nil {
		all = append(all, lonerName)
	}
	return all
}

// partition cuts some processes off from some bookies.
func (n *nemesis) partition() {
	c := n.c
	oneWay := n.rng.IntN(3)
	var cut []link
	for range 1 + n.rng.IntN(4) {
		m := n.member()
		a, b := n.peer(m), m.name
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
	for _, name := range n.peers() {
		for _, m := range c.members {
			c.net.Block(name, m.name)
			c.net.Block(m.name, name)
		}
	}
	elapse(c.ctx, time.Duration(5+n.rng.IntN(40))*time.Second)
	c.net.Heal()
}
