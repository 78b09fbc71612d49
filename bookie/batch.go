package bookie

import (
	"errors"

	"github.com/binderylog/bindery/internal/wire"
)

// batchMax is the number of requests that are processed together. A buffer of small adds holds more; it makes several
// batches.
const batchMax = 256

// addOverhead is what an add in flight costs besides its frame: its slot, its place in a journal group.
const addOverhead = 128

// Marks in the place of an add's answer.
const (
	codePending  wire.Code = -1 // not known yet
	codeAppended wire.Code = -2 // a journal will answer
	codeVerify   wire.Code = -3 // the ledger's metadata has to be read first
)

// add is what processing one add has come to.
type add struct {
	code    wire.Code
	slot    uint32 // on the connection, while being stored
	size    int32  // taken from the budget
	journal bool   // room in the journal is held
	room    bool   // room in the write cache is held
}

// batch is the room to process one batch. Batches are reused.
type batch struct {
	reqs    [batchMax]wire.Request
	adds    [batchMax]add
	n       int
	start   int64  // arrival
	touched uint64 // journals with records that are not committed, by bit
	scratch []byte // a ledger state being encoded
	body    []byte // an entry that is answered at once
	resp    wire.Response
}

// decode takes requests from buf until it is empty, the batch is full, or a frame is not complete.
func (b *batch) decode(d *wire.Decoder, buf []byte, limit int) (used int, err error) {
	b.n = 0
	for b.n < batchMax {
		packet, rest, err := wire.Frame(buf[used:], limit)
		if errors.Is(err, wire.ErrShort) {
			return used, nil
		}
		if err != nil {
			return used, err
		}
		if err := d.Request(packet, &b.reqs[b.n]); err != nil {
			return used, err
		}
		used = len(buf) - len(rest)
		b.n++
	}
	return used, nil
}

// take processes every complete frame at the start of buf and returns how many bytes they had. On an error the
// connection is to be closed; what came before the bad frame has been processed.
func (s *server) take(c *conn, buf []byte) (used int, err error) {
	b := s.batches.Get().(*batch)
	defer s.batches.Put(b)
	b.start = now()
	for {
		n, err := b.decode(&c.dec, buf[used:], s.o.FrameLimit)
		used += n
		s.process(c, b)
		if err != nil || b.n < batchMax {
			return used, err
		}
	}
}

// process handles the requests of a batch in order: adds in runs, everything else one by one.
func (s *server) process(c *conn, b *batch) {
	for i := 0; i < b.n; {
		if b.reqs[i].Op != wire.OpAdd {
			s.single(c, b, &b.reqs[i])
			i++
			continue
		}
		j := i + 1
		for j < b.n && b.reqs[j].Op == wire.OpAdd {
			j++
		}
		s.adds(c, b, i, j)
		i = j
	}
	s.settle(c, b)
}

// settle hands what was appended to the journals and what was answered to the socket. It must precede every wait: others
// may depend on it.
func (s *server) settle(c *conn, b *batch) {
	s.commit(b)
	c.flush()
}

// commit tells the journals that got records.
func (s *server) commit(b *batch) {
	for i := 0; b.touched != 0; i++ {
		if b.touched&1 != 0 {
			s.journals[i].Commit()
		}
		b.touched >>= 1
	}
}

// acquire takes room in the budget, settling the batch before it waits. 0 means that the connection has ended.
func (s *server) acquire(c *conn, b *batch, n int64, l lane) int64 {
	if s.budget.try(n, l) {
		return n
	}
	s.settle(c, b)
	return s.budget.acquire(n, l, c.closing)
}
