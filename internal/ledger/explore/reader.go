package explore

import (
	"fmt"

	"github.com/binderylog/bindery/internal/ledger"
)

// A reader follows the ledger without recovering it: it reads the record now and then, hears LACs from bookies, and
// reads entries up to its LAC. What it was told must stay true.

func (x *space) readerMoves(s *state, slot int, c *client, out []move) []move {
	if s.budget[budReads] == 0 {
		return out
	}
	who := uint8(slot)
	if _, version := c.rd.Metadata(); version != int64(s.version) && !s.gone {
		out = append(out, move{kind: mvReadRecord, who: who})
	}
	for b := range x.spec.Bookies {
		if k := *x.bookies.at(s.bookies[b]); !k.starting && x.lacOf(k) > int8(c.rd.LastAddConfirmed()) {
			out = append(out, move{mvReadLAC, who, uint32(b)})
		}
	}
	for e := uint32(0); int64(e) <= int64(c.rd.LastAddConfirmed()); e++ {
		out = append(out, move{mvReadEntry, who, e})
	}
	return out
}

// lacOf is the LAC that a bookie answers to READ_LAC.
func (x *space) lacOf(b *bookie) int8 {
	lac := int8(b.mem.LAC())
	found := false
	for _, h := range b.have {
		if h.ok {
			lac, found = max(lac, h.lac), true
		}
	}
	if b.mem.ReadLast(found) != ledger.Serve && b.mem.LAC() < 0 || b.mem.Limbo {
		return -1
	}
	return lac
}

func (x *space) read(s *state, m move) string {
	c := (*x.clients.at(s.clients[m.who])).clone()
	if c.status == statusLive {
		s.budget[budReads]--
	}
	before := c.lac
	switch m.kind {
	case mvReadRecord:
		if c.status == statusIdle {
			c.status, c.rd = statusLive, ledger.NewReader(*x.records.at(s.record), int64(s.version))
		} else {
			c.rd.Record(*x.records.at(s.record), int64(s.version))
		}
	case mvReadLAC:
		c.rd.Raise(ledger.EntryID(x.lacOf(*x.bookies.at(s.bookies[m.with]))))
	case mvReadEntry:
		return x.readEntry(s, c, ledger.EntryID(m.with))
	}
	c.lac = int8(c.rd.LastAddConfirmed())
	s.clients[m.who] = x.clientID(c)
	if c.lac < before {
		return fmt.Sprintf("I9: the reader's LAC goes back from %d to %d", before, c.lac)
	}
	if s.closed != noEnd && c.lac > s.closed {
		return fmt.Sprintf("I21: the reader may read up to e%d, the ledger ended at e%d", c.lac, s.closed)
	}
	return ""
}

// readEntry asks the write set one after the other. With the stored record, an entry up to the LAC can not be absent.
func (x *space) readEntry(s *state, c *client, e ledger.EntryID) string {
	rec, version := c.rd.Metadata()
	read := ledger.NewEntryRead(x.spec.Quorum, e, -1)
	for {
		i, ok := read.Next()
		if !ok {
			return ""
		}
		b := *x.bookies.at(s.bookies[x.bookieNumber(rec.EnsembleOf(e)[i])])
		answer := ledger.AnswerUnknown
		if !b.starting {
			answer = readAnswer(b.mem.Read(b.have[e].ok))
		}
		switch read.Answer(i, answer) {
		case ledger.ReadFound:
			if b.have[e].length != int8(e)+1 {
				return fmt.Sprintf("I6: the reader gets another body as e%d", e)
			}
			return ""
		case ledger.ReadAbsent:
			if version == int64(s.version) && !s.gone {
				return fmt.Sprintf("I7: e%d is below the reader's LAC %d and everybody denies it", e, c.rd.LastAddConfirmed())
			}
			return ""
		}
	}
}
