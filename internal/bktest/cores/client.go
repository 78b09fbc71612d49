package cores

import (
	"fmt"
	"slices"

	"github.com/binderylog/bindery/internal/ledger"
)

// client is a writer, a recovery or a reader of one ledger.
type client struct {
	name   string
	book   *book
	w      *ledger.Writer
	r      *ledger.Recovery
	reader *reading
	dead   bool
	ended  bool

	left     int // adds that the application will make
	bodies   map[ledger.EntryID]string
	last     ledger.EntryID // last one released
	pick     ledger.IndexSet
	ensemble []ledger.BookieID // as of the last pick
	picking  bool
	forcing  bool
}

func bodyOf(k *book, e ledger.EntryID) string { return fmt.Sprintf("L%d e%d", k.n, e) }

func (w *world) addClient(k *book, letter string) *client {
	c := &client{name: fmt.Sprintf("%s%d", letter, len(w.clients)), book: k, bodies: map[ledger.EntryID]string{}, last: ledger.InvalidEntry}
	w.clients = append(w.clients, c)
	return c
}

func (w *world) addWriter(k *book) {
	c := w.addClient(k, "W")
	c.left = k.cfg.Entries
	c.w = ledger.NewWriter(k.record, k.version, ledger.WriterConfig{Deferred: k.cfg.Deferred})
}

func (w *world) addRecovery(k *book) *client {
	c := w.addClient(k, "R")
	c.r = ledger.NewRecovery(k.record, k.version, ledger.RecoveryConfig{ReadAhead: 1 + w.rng.IntN(3)})
	w.say("%s recovers ledger %d", c.name, k.n)
	c.perform(w, c.r.Start(nil))
	return c
}

// step feeds one event to the client's core and carries out what comes of it.
func (c *client) step(w *world, ev ledger.Event) {
	if c.dead {
		return
	}
	c.book.touched = true
	if c.w != nil {
		c.perform(w, c.w.Step(ev, nil))
	} else if c.r != nil {
		c.perform(w, c.r.Step(ev, nil))
	}
}

// append makes the application's next add.
func (c *client) append(w *world) {
	e := c.w.LastAddPushed() + 1
	c.left--
	c.bodies[e] = bodyOf(c.book, e)
	w.say("%s appends e%d", c.name, e)
	c.step(w, ledger.Event{Kind: ledger.EvAppend, Size: 10 + int64(e)})
}

var requests = map[ledger.ActionKind]msgKind{
	ledger.ActForce: msgForce, ledger.ActWriteLAC: msgWriteLAC, ledger.ActFence: msgFence, ledger.ActRecoveryRead: msgRecoveryRead, ledger.ActReadLength: msgLength,
}

func (c *client) perform(w *world, acts []ledger.Action) {
	for _, a := range acts {
		if kind, ok := requests[a.Kind]; ok {
			c.send(w, kind, a)
			continue
		}
		switch a.Kind {
		case ledger.ActSend:
			kind := msgAdd
			if c.r != nil {
				kind = msgReadd
			}
			c.send(w, kind, a)
		case ledger.ActWrite:
			w.proposes(c, a)
			w.ops = append(w.ops, &metaOp{c: c, act: a})
		case ledger.ActRead:
			w.ops = append(w.ops, &metaOp{c: c, read: true, act: a})
		case ledger.ActPick:
			c.pick, c.ensemble, c.picking = a.Indices, a.Exclude, true
		case ledger.ActRelease:
			c.released(w, a)
		case ledger.ActFail:
			w.say("%s fails e%d to e%d: %v", c.name, a.First, a.Entry, a.Cause)
		case ledger.ActForceDone:
			c.forcing = false
			w.say("%s: force up to e%d: %v", c.name, a.Entry, a.Cause)
			if a.Cause == ledger.CauseNone {
				w.promise(c, a.Entry)
			}
		case ledger.ActClosed, ledger.ActRecovered, ledger.ActAborted:
			c.end(w, a)
		}
	}
}

func (c *client) send(w *world, kind msgKind, a ledger.Action) {
	b := w.bookie(a.Bookie)
	w.post(&message{c: c, b: b, kind: kind, act: a, conn: b.conn, body: c.bodies[a.Entry]})
}

func (c *client) released(w *world, a ledger.Action) {
	if c.w == nil {
		return
	}
	w.say("%s acknowledges e%d to e%d", c.name, a.First, a.Entry)
	if a.First != c.last+1 {
		w.violate("I8", "%s acknowledges e%d after e%d", c.name, a.First, c.last)
	}
	c.last = a.Entry
	if !c.book.cfg.Deferred {
		w.promise(c, a.Entry)
	}
}

func (c *client) end(w *world, a ledger.Action) {
	c.ended = true
	k := c.book
	w.say("%s ends: %v e%d", c.name, a.Cause, a.Entry)
	switch {
	case a.Kind == ledger.ActClosed && a.Cause == ledger.CauseNone:
		if !k.gone && (k.record.State != ledger.StateClosed || k.record.LastEntry != a.Entry) {
			w.violate("I3", "%s reports that ledger %d ends at e%d, the record says %s", c.name, k.n, a.Entry, describe(k.record))
		}
	case a.Kind == ledger.ActRecovered:
		if !k.gone && (a.Record.State != ledger.StateClosed || k.record.State != ledger.StateClosed || k.record.LastEntry != a.Record.LastEntry) {
			w.violate("I3", "%s reports %s of ledger %d, the record says %s", c.name, describe(a.Record), k.n, describe(k.record))
		}
	}
}

// answer builds the event that the client of a request gets.
func (m *message) answer(a ledger.Answer) {
	m.reply = true
	kind := ledger.EvAnswer
	switch m.kind {
	case msgFence:
		kind = ledger.EvFenceAnswer
	case msgRecoveryRead:
		kind = ledger.EvReadAnswer
	case msgLength:
		kind = ledger.EvLengthAnswer
	case msgForce:
		kind = ledger.EvForceAnswer
	}
	m.ev = ledger.Event{Kind: kind, Answer: a, Index: m.act.Index, Bookie: m.act.Bookie, Entry: m.act.Entry, Round: m.act.Round, Conn: m.conn, LAC: ledger.InvalidEntry}
	if m.kind == msgFence {
		m.ev.Entry = ledger.InvalidEntry
	}
}

// take gives an answer to the client.
func (c *client) take(w *world, m *message) {
	switch {
	case c.dead:
	case c.reader != nil:
		c.reader.take(w, m)
	case m.kind == msgRecoveryRead:
		if _, have := c.bodies[m.act.Entry]; !have && m.ev.Answer == ledger.AnswerOK {
			c.bodies[m.act.Entry] = m.body
		}
		c.step(w, m.ev)
	default:
		c.step(w, m.ev)
	}
}

// answerPick chooses bookies for the indices that the core asked for.
func (c *client) answerPick(w *world) {
	c.picking = false
	var picks []ledger.Pick
	text := ""
	taken := slices.Clone(c.ensemble)
	for i, old := range c.ensemble {
		if !c.pick.Has(i) {
			continue
		}
		p := ledger.Pick{Index: i}
		order := w.rng.Perm(len(w.bookies))
		switch {
		case w.rng.IntN(8) == 0 && !w.bookie(old).down: // it answers again
			p.Bookie = old
		case w.cfg.PickNone && w.rng.IntN(4) == 0:
		default:
			for _, n := range order {
				if b := w.bookies[n]; !b.down && !slices.Contains(taken, b.id) {
					p.Bookie = b.id
					break
				}
			}
		}
		if p.Bookie != "" {
			taken = append(taken, p.Bookie)
			p.Incarnation = w.bookie(p.Bookie).incarnation
		}
		text += fmt.Sprintf(" %d:%s", i, p.Bookie)
		picks = append(picks, p)
	}
	w.say("%s picks%s", c.name, text)
	c.step(w, ledger.Event{Kind: ledger.EvPicked, Picks: picks})
}
