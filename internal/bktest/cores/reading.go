package cores

import (
	"github.com/binderylog/bindery/internal/ledger"
)

// reading is a reader that does one thing after the other: read the LAC, read an entry, poll for the next one.
type reading struct {
	c    *client
	core *ledger.Reader
	tag  int // of the present request; answers of others are ignored
	what msgKind
	busy bool

	lac   ledger.LACRead
	entry ledger.EntryRead
	poll  ledger.LongPoll
	e     ledger.EntryID
	at    int64 // version of the record that the present read goes by
}

func (w *world) addReader(k *book) {
	c := w.addClient(k, "T")
	c.reader = &reading{c: c, core: ledger.NewReader(k.record, k.version)}
}

// begin starts the next thing.
func (r *reading) begin(w *world) {
	k := r.c.book
	if k.gone {
		return
	}
	r.tag++
	r.busy = true
	record, version := r.core.Metadata()
	q := record.Quorum()
	r.at = version
	switch n := w.rng.IntN(4); {
	case n == 0:
		r.core.Record(k.record, k.version)
		r.busy = false
		r.seen(w)
	case n == 1 && r.core.LastAddConfirmed() >= 0:
		r.what, r.e = msgRead, ledger.EntryID(w.rng.Int64N(int64(r.core.LastAddConfirmed())+1))
		r.entry = ledger.NewEntryRead(q, r.e, w.rng.IntN(q.Ensemble+1)-1)
		r.ask(w)
	case n == 2 && !r.core.Sealed():
		r.what, r.poll = msgPoll, ledger.NewLongPoll(q, r.core.LastAddConfirmed())
		r.e = r.core.LastAddConfirmed()
		r.ask(w)
	case !r.core.Sealed():
		r.what, r.lac = msgReadLAC, ledger.NewLACRead(q)
		for i, b := range record.Last().Bookies {
			r.send(w, i, b, ledger.InvalidEntry)
		}
	default:
		r.busy = false
	}
}

func (r *reading) send(w *world, i int, id ledger.BookieID, e ledger.EntryID) {
	b := w.bookie(id)
	w.post(&message{c: r.c, b: b, kind: r.what, conn: b.conn, tag: r.tag, prev: r.e,
		act: ledger.Action{Index: i, Bookie: id, Entry: e}})
}

// ask sends the present read to the next bookie.
func (r *reading) ask(w *world) {
	record, _ := r.core.Metadata()
	if r.what == msgPoll {
		if i, ok := r.poll.Next(); ok {
			r.send(w, i, record.Last().Bookies[i], ledger.InvalidEntry)
		}
		return
	}
	if i, ok := r.entry.Next(); ok {
		r.send(w, i, record.EnsembleOf(r.e)[i], r.e)
	}
}

// take takes an answer.
func (r *reading) take(w *world, m *message) {
	if m.tag != r.tag || !r.busy {
		return
	}
	k := r.c.book
	switch r.what {
	case msgReadLAC:
		switch r.lac.Answer(m.act.Index, m.ev.Answer, m.ev.LAC) {
		case ledger.ReadFound:
			r.busy = false
			r.core.Raise(r.lac.LAC())
			r.seen(w)
		case ledger.ReadFailed:
			r.busy = false
		}
	case msgPoll:
		switch r.poll.Answer(m.ev.Answer, m.has, m.ev.LAC) {
		case ledger.ReadPending:
			r.ask(w)
		case ledger.ReadFound:
			r.busy = false
			r.core.Raise(m.ev.LAC)
			if m.has && m.body != bodyOf(k, r.e+1) {
				w.violate("I7", "%s is sent %q as e%d of ledger %d", r.c.name, m.body, r.e+1, k.n)
			}
			r.seen(w)
		default:
			r.busy = false
		}
	case msgRead:
		switch r.entry.Answer(m.act.Index, m.ev.Answer) {
		case ledger.ReadPending:
			r.ask(w)
		case ledger.ReadFound:
			r.busy = false
			if m.body != bodyOf(k, r.e) {
				w.violate("I7", "%s reads %q as e%d of ledger %d", r.c.name, m.body, r.e, k.n)
			}
		case ledger.ReadAbsent:
			r.busy = false
			if r.at == k.version && !k.gone && !k.cfg.Deferred {
				w.violate("I4", "%s is told by all of its write set that e%d of ledger %d does not exist; %d are confirmed", r.c.name, r.e, k.n, r.core.LastAddConfirmed()+1)
			}
		default:
			r.busy = false
		}
	}
}

// seen checks what the reader believes.
func (r *reading) seen(w *world) {
	k, lac := r.c.book, r.core.LastAddConfirmed()
	w.say("%s sees e%d of ledger %d", r.c.name, lac, k.n)
	if lac < r.c.last {
		w.violate("I9", "the LAC of ledger %d goes from e%d back to e%d for %s", k.n, r.c.last, lac, r.c.name)
	}
	r.c.last = lac
	k.told = max(k.told, lac)
	if !k.gone && k.record.State == ledger.StateClosed && lac > k.record.LastEntry {
		w.violate("I21", "%s is told LAC %d of ledger %d, which ends at e%d", r.c.name, lac, k.n, k.record.LastEntry)
	}
}
