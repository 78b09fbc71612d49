package cores

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/binderylog/bindery/internal/ledger"
)

// world is the state of a run.
type world struct {
	cfg      Config
	rng      *rand.Rand
	bookies  []*bookie
	books    []*book
	clients  []*client
	messages []*message
	ops      []*metaOp // metadata operations that wait for their outcome
	late     []*metaOp // writes of unknown outcome that may still land
	blocked  map[route]bool
	pace     map[route]int // how likely what happens on a route is: some are a hundred times slower than others

	calm   bool    // the trouble is over
	doomed *bookie // its power fails next
	ruined *bookie // its disk is lost next
	cuts   int
	losses int
	faults int
	parts  int
	lists  int

	log    []string
	broken []string
	digest uint64
}

// book is one ledger: its record in the store and what has been promised about it.
type book struct {
	n        int
	cfg      LedgerConfig
	record   *ledger.Metadata
	version  int64
	gone     bool
	acked    ledger.EntryID // highest entry that an application was told is durable
	lost     map[string]bool
	told     ledger.EntryID // highest LAC that a reader was told
	touched  bool
	recovers int
}

type route struct{ client, bookie string }

// message is a request on its way to a bookie, or the answer on its way back.
type message struct {
	c     *client
	b     *bookie
	kind  msgKind
	act   ledger.Action
	conn  uint64
	body  string
	prev  ledger.EntryID // long poll
	reply bool
	ev    ledger.Event
	has   bool // long poll: an entry came
	stale bool // its client has given up
	slow  int  // it is so many times less likely to arrive than others
	tag   int  // of a reader's request
}

type msgKind uint8

const (
	msgAdd msgKind = iota
	msgReadd
	msgFence
	msgRecoveryRead
	msgLength
	msgForce
	msgWriteLAC
	msgReadLAC
	msgRead
	msgPoll
)

var kindNames = [...]string{"add", "re-add", "fence", "recovery read", "length read", "force", "write LAC", "read LAC", "read", "long poll"}

func (m *message) String() string {
	s := fmt.Sprintf("%s>%s %s", m.c.name, m.b.id, kindNames[m.kind])
	switch m.kind {
	case msgAdd, msgReadd, msgRecoveryRead, msgLength, msgRead:
		s += fmt.Sprintf(" e%d", m.act.Entry)
	}
	if m.reply {
		s += ": " + m.ev.Answer.String()
	}
	return s
}

type metaOp struct {
	c    *client
	read bool
	act  ledger.Action
}

func newWorld(cfg Config) *world {
	w := &world{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x72756e)), blocked: map[route]bool{}, pace: map[route]int{}, cuts: cfg.Cuts, losses: cfg.Losses, faults: cfg.Faults, parts: cfg.Parts, lists: cfg.Lists}
	for i := range cfg.Bookies {
		w.bookies = append(w.bookies, newBookie(string(rune('A'+i)), len(cfg.Ledgers)))
	}
	for i, lc := range cfg.Ledgers {
		b := &book{n: i, cfg: lc, acked: ledger.InvalidEntry, told: ledger.InvalidEntry, lost: map[string]bool{}, version: 1, recovers: lc.Recoverers}
		order := w.rng.Perm(cfg.Bookies)
		ensemble := make([]ledger.BookieID, lc.Quorum.Ensemble)
		for k := range ensemble {
			ensemble[k] = w.bookies[order[k]].id
		}
		b.record = &ledger.Metadata{FormatVersion: 3, Ensemble: lc.Quorum.Ensemble, WriteQuorum: lc.Quorum.Write, AckQuorum: lc.Quorum.Ack, State: ledger.StateOpen,
			LastEntry: ledger.InvalidEntry, Fragments: []ledger.Fragment{{First: 0, Bookies: ensemble}}, Digest: ledger.DigestCRC32C}
		w.books = append(w.books, b)
		w.addWriter(b)
		for range lc.Readers {
			w.addReader(b)
		}
	}
	return w
}

func (w *world) bookie(id ledger.BookieID) *bookie {
	for _, b := range w.bookies {
		if b.id == id {
			return b
		}
	}
	return nil
}

// say notes an event. The digest is over the whole log, so two runs with one digest are the same run.
func (w *world) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	w.log = append(w.log, line)
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %s", w.digest, line)
	w.digest = h.Sum64()
}

func (w *world) violate(invariant, format string, args ...any) {
	text := invariant + ": " + fmt.Sprintf(format, args...)
	w.broken = append(w.broken, text)
	w.say("VIOLATED %s", text)
}

// post puts a message in the bag. A few take very long.
func (w *world) post(m *message) {
	m.slow = []int{1, 1, 1, 1, 1, 10, 100}[w.rng.IntN(7)]
	w.messages = append(w.messages, m)
}

// drop takes a message out of the bag.
func (w *world) drop(m *message) {
	if i := slices.Index(w.messages, m); i >= 0 {
		w.messages = slices.Delete(w.messages, i, i+1)
	}
}

// deliver carries a message to its receiver.
func (w *world) deliver(m *message) {
	w.drop(m)
	if m.reply {
		w.say("deliver %s", m)
		if !m.stale {
			m.c.take(w, m)
		}
		return
	}
	if m.b.down {
		w.say("%s: nobody there", m)
		w.refuse(m)
		return
	}
	w.say("deliver %s", m)
	m.b.serve(w, m)
}

// refuse answers a request with nothing usable: a connection that broke or could not be made.
func (w *world) refuse(m *message) {
	m.answer(ledger.AnswerUnknown)
	w.post(m)
}

// giveUp lets a client give up on a message, which may arrive nevertheless.
func (w *world) giveUp(m *message) {
	w.say("timeout %s", m)
	gone := *m
	gone.answer(ledger.AnswerUnknown)
	m.stale = true
	if m.reply {
		w.drop(m)
	}
	gone.c.take(w, &gone)
}

// disconnect breaks the connections of a bookie: what was on the way to it is lost, which its clients notice some time
// later; what it said is lost, too, for some.
func (w *world) disconnect(b *bookie) {
	for _, m := range w.messages {
		if m.b == b && !m.reply {
			m.answer(ledger.AnswerUnknown)
		}
	}
	b.conn++
}

// weight is how likely it is that something happens between a client and a bookie, the store (bookie "") or within a
// bookie (client "").
func (w *world) weight(client, bookie string) int {
	if w.calm {
		return 50
	}
	r := route{client, bookie}
	n, ok := w.pace[r]
	if !ok {
		n = []int{1, 10, 50, 50, 200}[w.rng.IntN(5)]
		w.pace[r] = n
	}
	return n
}

// meta gives a metadata operation its outcome.
func (w *world) meta(op *metaOp, outcome string) {
	w.ops = slices.DeleteFunc(w.ops, func(x *metaOp) bool { return x == op })
	c := op.c
	if op.read {
		w.say("store: %s reads: %s", c.name, outcome)
		switch {
		case outcome != "ok":
			c.step(w, ledger.Event{Kind: ledger.EvMetaUnknown})
		case c.book.gone:
			c.step(w, ledger.Event{Kind: ledger.EvGone})
		default:
			c.step(w, ledger.Event{Kind: ledger.EvRead, Record: c.book.record, Version: c.book.version})
		}
		return
	}
	w.say("store: %s writes %s at v%d: %s", c.name, describe(op.act.Record), op.act.Version, outcome)
	switch outcome {
	case "ok":
		switch {
		case c.book.gone:
			c.step(w, ledger.Event{Kind: ledger.EvGone})
		case w.apply(op):
			c.step(w, ledger.Event{Kind: ledger.EvWritten, Version: c.book.version})
		default:
			c.step(w, ledger.Event{Kind: ledger.EvConflict})
		}
	case "applied":
		w.apply(op)
		c.step(w, ledger.Event{Kind: ledger.EvMetaUnknown})
	case "late":
		w.late = append(w.late, op)
		c.step(w, ledger.Event{Kind: ledger.EvMetaUnknown})
	default:
		c.step(w, ledger.Event{Kind: ledger.EvMetaUnknown})
	}
}

// apply makes a conditional write.
func (w *world) apply(op *metaOp) bool {
	b := op.c.book
	if b.gone {
		return false
	}
	if op.act.Version != b.version && !(ledger.Planted() == ledger.MutantBlindChange && op.c.w != nil) {
		return false
	}
	for _, k := range op.act.Checks {
		if w.bookie(k.Bookie).incarnation != k.Version {
			return false
		}
	}
	w.succession(b, op.act.Record)
	b.record, b.version, b.touched = op.act.Record, b.version+1, true
	return true
}

func describe(m *ledger.Metadata) string {
	var s strings.Builder
	s.WriteString(m.State.String())
	for _, f := range m.Fragments {
		fmt.Fprintf(&s, " %d:", f.First)
		for _, b := range f.Bookies {
			s.WriteString(string(b))
		}
	}
	if m.State == ledger.StateClosed {
		fmt.Fprintf(&s, " ends at e%d", m.LastEntry)
	}
	return s.String()
}
