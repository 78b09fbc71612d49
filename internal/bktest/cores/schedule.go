package cores

import (
	"io"
	"slices"
	"strings"

	"github.com/binderylog/bindery/internal/ledger"
)

// Result is what came of a run.
type Result struct {
	Config Config
	Log    []string
	Broken []string
	Digest uint64 // of everything that happened
	Acked  int
	Closed int
	Steps  int
}

// WriteTo writes the history.
func (r *Result) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, r.Config.String()+"\n"+strings.Join(r.Log, "\n")+"\n")
	return int64(n), err
}

// Run makes one run.
func Run(cfg Config) Result {
	w := newWorld(cfg)
	r := Result{Config: cfg}
	for ; r.Steps < cfg.Steps && len(w.broken) == 0; r.Steps++ {
		if !w.step() {
			break
		}
	}
	if len(w.broken) == 0 {
		w.finish()
	}
	r.Log, r.Broken, r.Digest = w.log, w.broken, w.digest
	for _, k := range w.books {
		r.Acked += int(k.acked) + 1
		if k.record.State == ledger.StateClosed {
			r.Closed++
		}
	}
	return r
}

// choice is one thing that can happen.
type choice struct {
	weight int
	run    func()
}

// step lets one thing happen. It reports false if nothing can.
func (w *world) step() bool {
	if b := w.doomed; b != nil {
		w.doomed = nil
		if w.cuts > 0 && !b.down {
			w.cuts--
			w.cut(b)
			w.check()
			return true
		}
	}
	if b := w.ruined; b != nil {
		w.ruined = nil
		if w.losses > 0 && w.mayLose(b) {
			w.losses--
			w.say("%s loses its data", b.id)
			b.lose(w, true)
			w.check()
			return true
		}
	}
	var all []choice
	add := func(weight int, run func()) { all = append(all, choice{weight, run}) }
	w.messageChoices(add)
	w.storeChoices(add)
	for _, c := range w.clients {
		if !c.dead {
			w.clientChoices(c, add)
		}
	}
	for _, b := range w.bookies {
		w.bookieChoices(b, add)
	}
	if !w.calm && w.rng.IntN(w.cfg.Calm) == 0 {
		w.rareChoices(add)
	}
	total := 0
	for _, c := range all {
		total += c.weight
	}
	if total == 0 {
		return false
	}
	n := w.rng.IntN(total)
	for _, c := range all {
		if n -= c.weight; n < 0 {
			c.run()
			break
		}
	}
	w.check()
	return true
}

func (w *world) messageChoices(add func(int, func())) {
	for _, m := range w.messages {
		stuck := w.blocked[route{m.c.name, string(m.b.id)}]
		if stuck && m.stale {
			continue
		}
		weight := w.weight(m.c.name, string(m.b.id))
		if m.stale || m.c.dead {
			weight = (weight + 9) / 10
		}
		if !w.calm {
			weight = (weight + m.slow - 1) / m.slow
		}
		add(weight, func() {
			if !m.stale && (stuck || w.rng.Float64() < w.timeout()) {
				w.giveUp(m)
				return
			}
			w.deliver(m)
		})
	}
}

func (w *world) timeout() float64 {
	if w.calm {
		return 0
	}
	return w.cfg.Timeout
}

func (w *world) storeChoices(add func(int, func())) {
	for _, op := range w.ops {
		add(w.weight(op.c.name, ""), func() {
			outcome := "ok"
			if !w.calm && w.rng.Float64() < w.cfg.Unknown {
				outcome = []string{"applied", "dropped", "late"}[w.rng.IntN(3)]
			}
			w.meta(op, outcome)
		})
	}
	for _, op := range w.late {
		add(10, func() {
			w.late = slices.DeleteFunc(w.late, func(x *metaOp) bool { return x == op })
			w.say("store: late write of %s: %s at v%d: %v", op.c.name, describe(op.act.Record), op.act.Version, w.apply(op))
		})
	}
}

func (w *world) clientChoices(c *client, add func(int, func())) {
	if c.picking {
		add(50, func() { c.answerPick(w) })
	}
	if c.reader != nil {
		if !c.reader.busy && !w.calm {
			add(10, func() { c.reader.begin(w) })
		}
		return
	}
	if c.w == nil || c.w.Cause() != ledger.CauseNone || w.calm {
		return
	}
	if c.left > 0 {
		weight := w.weight(c.name, "application")
		if c.left == 1 && c.book.recovers > 0 && c.book.recovers == c.book.cfg.Recoverers {
			weight = 1 // the last one is of most interest after a recovery that its writer has not heard of
		}
		add(weight, func() { c.append(w) })
	}
	if c.w.Degraded() {
		add(5, func() { w.say("%s looks for bookies again", c.name); c.step(w, ledger.Event{Kind: ledger.EvRetry}) })
	}
	if c.w.LACUnsent() && !c.book.cfg.Deferred {
		add(5, func() { w.say("%s: explicit LAC", c.name); c.step(w, ledger.Event{Kind: ledger.EvLACTick}) })
	}
	if c.book.cfg.Deferred && !c.forcing && c.last > ledger.InvalidEntry {
		add(10, func() { c.forcing = true; w.say("%s forces", c.name); c.step(w, ledger.Event{Kind: ledger.EvForce}) })
	}
}

func (w *world) bookieChoices(b *bookie, add func(int, func())) {
	switch {
	case b.down:
		add(10, func() { w.say("%s starts", b.id); b.start(w) })
		return
	case len(b.journal) > 0:
		add(w.weight("", string(b.id)), func() {
			n := len(b.journal)
			if w.rng.IntN(3) == 0 {
				n = 1 + w.rng.IntN(n)
			}
			w.say("%s syncs %d records", b.id, n)
			b.sync(w, n)
		})
	}
	for _, v := range b.verifies {
		add(30, func() { b.verifyStep(w, v) })
	}
	if b.gc != nil {
		add(10, func() { b.collect(w) })
	}
}

// rareChoices are the troubles, and what must not happen all the time.
func (w *world) rareChoices(add func(int, func())) {
	b := w.bookies[w.rng.IntN(len(w.bookies))]
	if len(b.journal) == 0 { // a crash is of interest where something is at stake
		b = w.bookies[w.rng.IntN(len(w.bookies))]
	}
	k := w.books[w.rng.IntN(len(w.books))]
	c := w.clients[w.rng.IntN(len(w.clients))]
	if w.cuts > 0 && !b.down {
		add(150, func() {
			w.cuts--
			w.cut(b)
		})
	}
	if w.losses > 0 && w.mayLose(b) {
		add(150, func() {
			w.losses--
			all := w.rng.IntN(3) > 0
			w.say("%s loses its data, all of it: %v", b.id, all)
			b.lose(w, all)
		})
	}
	if w.parts > 0 {
		add(150, func() {
			w.parts--
			r := route{c.name, string(b.id)}
			w.blocked[r] = true
			w.say("%s and %s can not reach each other", c.name, b.id)
		})
	}
	add(100, func() { clear(w.pace) })
	if len(w.blocked) > 0 {
		add(150, func() { w.say("all links work"); clear(w.blocked) })
	}
	if k.recovers > 0 {
		add(150, func() { k.recovers--; w.addRecovery(k) })
	}
	if c.w != nil && c.w.Cause() == ledger.CauseNone && !c.dead {
		add(30, func() { w.say("%s closes", c.name); c.step(w, ledger.Event{Kind: ledger.EvClose}) })
	}
	if !c.dead && c.reader == nil {
		add(30, func() { w.say("%s dies", c.name); c.dead = true })
	}
	if w.lists > 0 && k.record.State == ledger.StateClosed {
		add(100, func() { w.lists--; k.gone = true; w.say("ledger %d is deleted", k.n) })
	}
	if !b.down {
		add(50, func() { w.say("%s makes a checkpoint", b.id); b.checkpoint() })
		if b.gc == nil {
			add(50, func() { b.collect(w) })
		}
		add(100, func() {
			for i := range b.replicas {
				w.returnCopy(b, i)
				b.endLimbo(w, i)
			}
		})
	}
	for _, op := range w.ops {
		if op.read {
			add(15, func() {
				w.ops = slices.DeleteFunc(w.ops, func(x *metaOp) bool { return x == op })
				w.say("%s gives up on the store", op.c.name)
				op.c.step(w, ledger.Event{Kind: ledger.EvMetaTimeout})
			})
		}
	}
}

// cut ends a bookie's process, with its power or without. Without power the disk keeps some first part of what was on
// the way to it.
func (w *world) cut(b *bookie) {
	keep, power := 0, w.rng.IntN(3) > 0
	switch {
	case !power:
		keep = len(b.journal)
	case w.rng.IntN(2) == 0:
		keep = w.rng.IntN(len(b.journal) + 1)
	}
	w.say("%s dies, %d of %d records are left, power cut: %v", b.id, keep, len(b.journal), power)
	b.die(w, keep, power)
}

// returnCopy lets the replicator put an entry that a limbo bookie misses back in its place.
func (w *world) returnCopy(b *bookie, i int) {
	k, r := w.books[i], b.replicas[i]
	if !r.mem.Limbo || k.gone || k.record.State != ledger.StateClosed {
		return
	}
	q := k.record.Quorum()
	for e := ledger.EntryID(0); e <= k.record.LastEntry; e++ {
		at := slices.Index(k.record.EnsembleOf(e), b.id)
		if _, have := r.entries[e]; have || at < 0 || !q.Stores(e, at) {
			continue
		}
		for _, id := range k.record.EnsembleOf(e) {
			if c, ok := w.bookie(id).replicas[i].stored[e]; ok && !w.bookie(id).down {
				w.say("e%d of ledger %d is copied from %s to %s", e, i, id, b.id)
				r.entries[e] = c
				r.mem.Accept(masterKey, true)
				b.state(i, nil)
				b.append(record{book: i, entry: e, copy: c})
				r.acked[e] = true
				break
			}
		}
	}
}

// mayLose reports whether a bookie may lose its data within the fault budget: at most Qa-1 members of a write set.
func (w *world) mayLose(b *bookie) bool {
	for _, k := range w.books {
		if k.gone {
			continue
		}
		for _, f := range k.record.Fragments {
			if !slices.Contains(f.Bookies, b.id) {
				continue
			}
			n := 1
			for _, m := range f.Bookies {
				if m != b.id && k.lost[string(m)] {
					n++
				}
			}
			if n > k.cfg.Quorum.Ack-1 {
				return false
			}
		}
	}
	return true
}

// drain lets everything come to rest.
func (w *world) drain() {
	for n := 0; len(w.broken) == 0; n++ {
		if n == 50_000 {
			w.violate("V", "no end: %d messages, %d metadata operations", len(w.messages), len(w.ops))
			return
		}
		if !w.step() {
			return
		}
	}
}

// finish ends all trouble, lets everything arrive, and recovers every ledger: it must end closed, whatever happened.
func (w *world) finish() {
	w.calm = true
	clear(w.blocked)
	w.say("the trouble is over")
	w.drain()
	for _, c := range w.clients {
		switch {
		case c.dead || c.reader != nil || len(w.broken) > 0:
		case c.w != nil && c.w.Cause() == ledger.CauseNone && c.w.Changing():
			w.violate("V3", "the ensemble change of %s does not end", c.name)
		case c.w != nil && c.w.Cause() == ledger.CauseNone && c.w.Pending() > 0 && c.w.Missing() == 0:
			w.violate("V2", "%s keeps adds that all their bookies have acknowledged", c.name)
		case c.w != nil && c.w.Cause() != ledger.CauseNone && !c.ended:
			w.violate("V2", "%s does not close", c.name)
		case c.r != nil && !c.ended:
			w.violate("V5", "%s does not end", c.name)
		}
	}
	for _, k := range w.books {
		for attempt := 0; len(w.broken) == 0 && !k.gone && k.record.State != ledger.StateClosed; attempt++ {
			if w.stuck(k) {
				w.say("ledger %d waits for bookies in limbo; only an operator can end it", k.n)
				break
			}
			if attempt == 3 {
				w.violate("V1", "ledger %d can not be recovered: %s", k.n, describe(k.record))
				break
			}
			w.addRecovery(k)
			w.drain()
		}
	}
	for _, c := range w.clients { // writers that have heard of nothing go on
		if c.w != nil && !c.dead && c.w.Cause() == ledger.CauseNone && len(w.broken) == 0 {
			c.append(w)
		}
	}
	w.drain()
	for _, k := range w.books {
		if len(w.broken) == 0 && !k.gone {
			w.readable(k)
		}
	}
}

// stuck reports whether so many members of the last ensemble are in limbo that no recovery can end the ledger. That is
// within the fault budget only by misfortune: a bookie was chosen, lost its disk, and was named then.
func (w *world) stuck(k *book) bool {
	unknown := ledger.IndexSet(0)
	for i, id := range k.record.Last().Bookies {
		if w.bookie(id).replicas[k.n].mem.Limbo {
			unknown = unknown.With(i)
		}
	}
	q := k.record.Quorum()
	for e := range ledger.EntryID(q.Ensemble) {
		if (q.WriteSet(e) & unknown).Len() >= q.Ack {
			return true
		}
	}
	return false
}

// readable checks that every entry of a closed ledger can be had.
func (w *world) readable(k *book) {
	q := k.record.Quorum()
	for e := ledger.EntryID(0); e <= k.record.LastEntry; e++ {
		have := false
		for i := range q.Write {
			_, ok := w.bookie(k.record.EnsembleOf(e)[q.Index(e, i)]).replicas[k.n].entries[e]
			have = have || ok
		}
		if !have {
			w.violate("I4", "nobody has e%d of ledger %d: %s", e, k.n, describe(k.record))
			return
		}
	}
}
