package explore

import (
	"fmt"
	"slices"

	"github.com/binderylog/bindery/internal/ledger"
)

// space holds a world's parts and the results of steps. All methods may be called concurrently.
type space struct {
	spec  *Spec
	names [bookieMax]ledger.BookieID
	key   []byte

	records  interned[*ledger.Metadata]
	clients  interned[*client]
	bookies  interned[*bookie]
	messages interned[message]
	lates    interned[lateWrite]
	codes    interned[struct{}] // encodings under a renaming
	tiers    numbered[tier]

	steps  memo[stepKey, *clientStep]
	serves memo[serveKey, serveResult]

	group []renaming
	// encodings under each renaming but the first, by group element
	recordCodes, clientCodes, messageCodes, lateCodes []codeTable

	start state
}

// renaming is one symmetry: indices, bookies and equal clients change places.
type renaming struct {
	naming *ledger.Naming
	bookie [bookieMax]uint8 // by present bookie
	back   [bookieMax]uint8 // inverse
	client [clientMax]uint8
	cback  [clientMax]uint8
	index  [bookieMax]uint8
}

func newSpace(spec *Spec) (*space, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	x := &space{spec: spec, key: []byte("key")}
	for i := range x.names {
		x.names[i] = ledger.BookieID(rune('A' + i))
	}
	x.group = symmetries(spec, x.names)
	if spec.asymmetric {
		x.group = x.group[:1]
	}
	x.recordCodes = make([]codeTable, len(x.group))
	x.clientCodes = make([]codeTable, len(x.group))
	x.messageCodes = make([]codeTable, len(x.group))
	x.lateCodes = make([]codeTable, len(x.group))
	x.messages.id([]byte{0xff}, func() message { return message{} }) // number 0 stands for none
	x.lates.id([]byte{0xff}, func() lateWrite { return lateWrite{} })

	q := spec.Quorum
	s := &x.start
	s.version, s.closed, s.served = 1, noEnd, -1
	s.budget = spec.budgets()
	s.record = x.recordID(&ledger.Metadata{FormatVersion: 3, Ensemble: q.Ensemble, WriteQuorum: q.Write, AckQuorum: q.Ack, State: ledger.StateOpen,
		Fragments: []ledger.Fragment{{Bookies: slices.Clone(x.names[:q.Ensemble])}}, Digest: ledger.DigestCRC32C})
	s.tier = x.tiers.id(tier{})
	for i := range spec.Bookies {
		s.inc[i] = 1
		s.bookies[i] = x.bookieID(&bookie{})
	}
	for i := range spec.clients() {
		c := &client{role: x.roleOf(i), released: -1, lac: -1}
		if c.role == roleWriter {
			c.status = statusLive
			c.w = ledger.NewWriter(*x.records.at(s.record), 1, ledger.WriterConfig{Deferred: spec.Deferred})
		}
		s.clients[i] = x.clientID(c)
	}
	if err := x.setUp(); err != nil {
		return nil, err
	}
	return x, nil
}

// setUp makes the moves of Spec.Setup; they cost no budget.
func (x *space) setUp() error {
	budget := x.start.budget
	for i := range x.start.budget {
		x.start.budget[i] = 9
	}
	for _, line := range x.spec.Setup {
		next, why, err := x.byText(&x.start, line)
		if err != nil {
			return fmt.Errorf("world %s: set-up: %w", x.spec.Name, err)
		}
		if why != "" {
			return fmt.Errorf("world %s: set-up: %q violates %s", x.spec.Name, line, why)
		}
		x.start = next
	}
	x.start.budget = budget
	if x.spec.NoWriter {
		x.endClient(&x.start, 0)
		x.settle(&x.start)
	}
	return nil
}

func (x *space) roleOf(i int) role {
	switch s := x.spec; {
	case i == 0:
		return roleWriter
	case i <= s.Recoverers:
		return roleRecovery
	case i <= s.Recoverers+s.Replicators:
		return roleReplicator
	}
	return roleReader
}

// clientName is W, R1.., P1.., T1.. (tail reader).
func (x *space) clientName(i int) string {
	switch x.roleOf(i) {
	case roleWriter:
		return "W"
	case roleRecovery:
		return fmt.Sprintf("R%d", i)
	case roleReplicator:
		return fmt.Sprintf("P%d", i-x.spec.Recoverers)
	}
	return fmt.Sprintf("T%d", i-x.spec.Recoverers-x.spec.Replicators)
}

func (x *space) bookieNumber(b ledger.BookieID) int { return int(b[0] - 'A') }

func (x *space) recordID(m *ledger.Metadata) uint32 {
	return x.records.id(appendRecord(nil, m, nil), func() *ledger.Metadata { return m })
}

func appendRecord(b []byte, m *ledger.Metadata, g *renaming) []byte {
	b = append(b, byte(m.State), byte(len(m.Fragments)))
	if m.State == ledger.StateClosed {
		b = append(b, byte(m.LastEntry), byte(m.Length))
	}
	for _, f := range m.Fragments {
		b = append(b, byte(f.First))
		at := len(b)
		b = append(b, make([]byte, len(f.Bookies))...)
		for i, k := range f.Bookies {
			n := k[0] - 'A'
			if g != nil {
				b[at+int(g.index[i])] = g.bookie[n]
			} else {
				b[at+i] = n
			}
		}
	}
	return b
}

func (x *space) clientID(c *client) uint32 {
	return x.clients.id(x.appendClient(nil, c, nil), func() *client { return c })
}

func (x *space) appendClient(b []byte, c *client, g *renaming) []byte {
	b = append(b, byte(c.role), byte(c.status), byte(c.released))
	if c.status == statusDone {
		return b
	}
	var n *ledger.Naming
	if g != nil {
		n = g.naming
	}
	switch {
	case c.w != nil:
		b = c.w.AppendStateAs(b, n)
	case c.r != nil:
		b = c.r.AppendStateAs(b, n)
	case c.rd != nil:
		b = c.rd.AppendStateAs(b, n)
	case c.rep != nil:
		b = x.appendReplicator(b, c.rep, g)
	}
	b = append(b, byte(c.lac), renameSet(uint8(c.pick), g))
	return x.appendWant(b, &c.want, g)
}

func (x *space) appendWant(b []byte, w *want, g *renaming) []byte {
	b = append(b, byte(w.kind), flag(w.answered), byte(w.outcome), w.version, flag(w.locked), flag(w.blind))
	if w.kind != wantNone && (w.kind == wantWrite || w.answered) {
		b = appendRecord(b, *x.records.at(w.record), g)
	}
	checks := w.checks
	if g != nil {
		for i := range checks {
			if checks[i].bookie > 0 {
				checks[i].bookie = 1 + g.bookie[checks[i].bookie-1]
			}
		}
		slices.SortFunc(checks[:], func(a, b incarnation) int { return int(a.bookie) - int(b.bookie) })
	}
	for _, k := range checks {
		b = append(b, k.bookie, k.version)
	}
	return b
}

func renameSet(s uint8, g *renaming) uint8 {
	if g == nil {
		return s
	}
	t := uint8(0)
	for i := range bookieMax {
		if s>>i&1 != 0 {
			t |= 1 << g.index[i]
		}
	}
	return t
}

func flag(v bool) byte {
	if v {
		return 1
	}
	return 0
}

func (x *space) bookieID(k *bookie) uint32 {
	return x.bookies.id(x.appendBookie(nil, k), func() *bookie { return k })
}

// appendBookie names no bookie, so it needs no renaming. The generation is compared only with what was noted before; what
// was noted knows of later changes by itself.
func (x *space) appendBookie(b []byte, k *bookie) []byte {
	mem, disk := k.mem, k.disk
	mem.Generation, disk.Generation = 0, 0
	b = mem.AppendState(b)
	b = disk.AppendState(b)
	for e := range entryMax {
		b = append(b, flag(k.have[e].ok), byte(k.have[e].lac), byte(k.have[e].length), flag(k.synced[e].ok), byte(k.synced[e].lac), byte(k.synced[e].length))
	}
	return append(b, flag(k.starting), k.believes, k.lossEpoch, k.conn, flag(k.fenceAnswered), k.acked, k.lost, k.gc)
}

func (x *space) messageID(m *message) uint16 {
	id := x.messages.id(appendMessage(nil, m), func() message { return *m })
	if id > 0xffff {
		panic(errTooMany)
	}
	return uint16(id)
}

func appendMessage(b []byte, m *message) []byte {
	return append(b, byte(m.kind), byte(m.phase), flag(m.orphan), m.client, m.bookie, m.index, m.round, byte(m.entry), byte(m.lac), byte(m.length), m.conn,
		byte(m.answer), byte(m.gotEntry), byte(m.gotLAC), byte(m.gotLength), flag(m.open), flag(m.stale))
}

func (x *space) lateID(l *lateWrite) uint16 {
	key := x.appendWant([]byte{l.client}, &l.want, nil)
	return uint16(x.lates.id(key, func() lateWrite { return *l }))
}

// code gives an encoding a number.
func (x *space) code(b []byte) uint32 {
	return x.codes.id(b, func() struct{} { return struct{}{} })
}

// The encodings of parts under group element g.

func (x *space) recordCode(g int, id uint32) uint32 {
	return x.recordCodes[g].get(id, func() uint32 {
		return x.code(appendRecord([]byte{'r'}, *x.records.at(id), &x.group[g]))
	})
}

func (x *space) clientCode(g int, id uint32) uint32 {
	return x.clientCodes[g].get(id, func() uint32 {
		return x.code(x.appendClient([]byte{'c'}, *x.clients.at(id), &x.group[g]))
	})
}

func (x *space) messageCode(g int, id uint16) uint32 {
	return x.messageCodes[g].get(uint32(id), func() uint32 {
		m, r := *x.messages.at(uint32(id)), &x.group[g]
		m.bookie = r.bookie[m.bookie]
		if !m.orphan { // of an orphan's client and index nothing is left to rename
			m.index, m.client = r.index[m.index], r.client[m.client]
		}
		return x.code(appendMessage([]byte{'m'}, &m))
	})
}

func (x *space) lateCode(g int, id uint16) uint32 {
	if id == 0 {
		return 0
	}
	return x.lateCodes[g].get(uint32(id), func() uint32 {
		l, r := x.lates.at(uint32(id)), &x.group[g]
		return x.code(x.appendWant([]byte{'l', r.client[l.client]}, &l.want, r))
	})
}

// scratch is what one worker reuses.
type scratch struct {
	words, best []uint32
	moves       []move
}

// fingerprint is that of the smallest vector among the state's images under the symmetries. Columns (a bookie and what is
// under way to it, without names) sort the candidates first; images whose columns are not in order are not looked at.
func (x *space) fingerprint(s *state, sc *scratch) fingerprint {
	var column [bookieMax]uint64
	if len(x.group) > 1 {
		for b := range x.spec.Bookies {
			column[b] = finish(uint64(s.bookies[b])<<8 | uint64(s.inc[b]))
		}
		for _, id := range s.flight() {
			m := x.messages.at(uint32(id))
			column[m.bookie] += finish(uint64(m.kind) | uint64(m.phase)<<8 | uint64(flag(m.orphan))<<16 | uint64(uint8(m.entry))<<24 | uint64(uint8(m.lac))<<32 |
				uint64(m.answer)<<40 | uint64(uint8(m.gotEntry))<<48 | uint64(uint8(m.gotLAC))<<56 + 0x9e3779b97f4a7c15)
		}
	}
	sc.best = sc.best[:0]
	for g := range x.group {
		if len(x.group) > 1 && !x.ordered(&x.group[g], &column) {
			continue
		}
		x.vector(s, g, sc)
		if len(sc.best) == 0 || slices.Compare(sc.words, sc.best) < 0 {
			sc.words, sc.best = sc.best, sc.words
		}
	}
	return hash(sc.best)
}

// ordered reports whether the renaming puts the columns in order, within the first ensemble and among the spares.
func (x *space) ordered(g *renaming, column *[bookieMax]uint64) bool {
	e := x.spec.Quorum.Ensemble
	for i := 1; i < x.spec.Bookies; i++ {
		if i != e && (i > e || x.spec.unstriped()) && column[g.back[i-1]] > column[g.back[i]] {
			return false
		}
	}
	return true
}

func (x *space) vector(s *state, g int, sc *scratch) {
	r := &x.group[g]
	lock := s.lock
	if lock >= lockBookie {
		lock = lockBookie + r.bookie[lock-lockBookie]
	}
	w := append(sc.words[:0], x.recordCode(g, s.record), uint32(s.version)|uint32(flag(s.gone))<<8|uint32(uint8(s.closed))<<16|uint32(uint8(s.served))<<24,
		uint32(s.promised)|uint32(lock)<<8)
	if x.spec.Tier { // no part of it names a bookie
		w = append(w, s.tier)
	}
	for i := 0; i < len(s.budget); i += 4 {
		v := uint32(0)
		for k := i; k < min(i+4, len(s.budget)); k++ {
			v |= uint32(s.budget[k]) << (8 * (k - i))
		}
		w = append(w, v)
	}
	for i := range x.spec.clients() {
		w = append(w, x.clientCode(g, s.clients[r.cback[i]]))
	}
	for i := range x.spec.Bookies {
		w = append(w, s.bookies[r.back[i]]<<4|uint32(s.inc[r.back[i]]))
	}
	at := len(w)
	for _, l := range s.late {
		w = append(w, x.lateCode(g, l))
	}
	slices.Sort(w[at:])
	at = len(w)
	for _, m := range s.flight() {
		w = append(w, x.messageCode(g, m))
	}
	slices.Sort(w[at:])
	sc.words = w
}

// symmetries lists the renamings under which the world looks the same: spare bookies; indices with their bookies, where
// every entry goes to the whole ensemble; recoverers.
func symmetries(spec *Spec, names [bookieMax]ledger.BookieID) []renaming {
	e := spec.Quorum.Ensemble
	first := [][]uint8{identity(e)}
	if spec.unstriped() {
		first = permutations(e)
	}
	var all []renaming
	for _, p := range first {
		for _, q := range permutations(spec.Bookies - e) {
			for _, c := range permutations(spec.Recoverers) {
				r := renaming{naming: &ledger.Naming{Index: slices.Clone(p), Bookie: map[ledger.BookieID]ledger.BookieID{}}}
				for i := range bookieMax {
					r.bookie[i], r.index[i] = uint8(i), uint8(i)
				}
				for i := range clientMax {
					r.client[i] = uint8(i)
				}
				for i, to := range p {
					r.bookie[i], r.index[i] = to, to
				}
				for i, to := range q {
					r.bookie[e+i] = uint8(e) + to
				}
				for i, to := range c {
					r.client[1+i] = 1 + to
				}
				for i := range bookieMax {
					r.back[r.bookie[i]] = uint8(i)
					r.naming.Bookie[names[i]] = names[r.bookie[i]]
				}
				for i := range clientMax {
					r.cback[r.client[i]] = uint8(i)
				}
				all = append(all, r)
			}
		}
	}
	return all
}

func identity(n int) []uint8 {
	p := make([]uint8, n)
	for i := range p {
		p[i] = uint8(i)
	}
	return p
}

func permutations(n int) [][]uint8 {
	if n <= 0 {
		return [][]uint8{nil}
	}
	var all [][]uint8
	for _, p := range permutations(n - 1) {
		for at := n - 1; at >= 0; at-- {
			q := slices.Insert(slices.Clone(p), at, uint8(n-1))
			all = append(all, q)
		}
	}
	return all
}
