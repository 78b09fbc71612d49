package bookie

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
	"github.com/binderylog/bindery/journal"
)

// keyMax bounds master keys; Java's have 20 bytes.
const keyMax = 1 << 10

func bodyLedger(body []byte) int64 { return int64(binary.BigEndian.Uint64(body)) }     //nolint:gosec // two's complement
func bodyEntry(body []byte) int64  { return int64(binary.BigEndian.Uint64(body[8:])) } //nolint:gosec // as above

// adds processes the adds b.reqs[from:to]. Room is taken in the budget, in the journals and in the write cache before
// the ledger's lock; under it nothing waits.
func (s *server) adds(c *conn, b *batch, from, to int) {
	var want [2]int64
	for i := from; i < to; i++ {
		r := &b.reqs[i]
		a := add{code: s.checkAdd(r)}
		if a.code == codePending {
			a.size = int32(len(r.Body) + addOverhead) //nolint:gosec // below the frame limit
			want[addLane(r)] += int64(a.size)
		}
		b.adds[i] = a
	}
	var got [2]int64
	for l, n := range want {
		if n == 0 {
			continue
		}
		if got[l] = s.acquire(c, b, n, lane(l)); got[l] == 0 { //nolint:gosec // two lanes
			s.budget.release(got[laneOrdinary])
			return // the connection has ended
		}
	}
	if got != want {
		// One request larger than its lane: the lane is held while it is processed.
		for i := from; i < to; i++ {
			b.adds[i].size = 0
		}
		defer s.budget.release(got[laneOrdinary] + got[laneReserved])
	}
	s.reserveJournals(c, b, from, to)
	for i := from; i < to; {
		if b.adds[i].code != codePending {
			i++
			continue
		}
		id := bodyLedger(b.reqs[i].Body)
		j := i + 1
		for j < to && b.adds[j].code == codePending && bodyLedger(b.reqs[j].Body) == id {
			j++
		}
		s.addRun(c, b, id, i, j)
		i = j
	}
	s.finishAdds(c, b, from, to)
}

func addLane(r *wire.Request) lane {
	if r.Flags&(wire.RecoveryAdd|wire.HighPriority) != 0 {
		return laneReserved
	}
	return laneOrdinary
}

// checkAdd makes the tests that need no ledger.
func (s *server) checkAdd(r *wire.Request) wire.Code {
	switch {
	case r.MeansOther(string(s.o.ID)):
		return wire.UA
	case !r.VersionOK():
		return wire.BadVersion
	case r.Invalid != "":
		return wire.BadReq
	case !s.state.takesAdd(r.Flags):
		return wire.ReadOnly
	case len(r.Body) < wire.BodyMin || len(r.Body) > storage.MaxEntry || len(r.Key) > keyMax:
		return wire.BadReq
	case bodyLedger(r.Body) < 0 || bodyEntry(r.Body) < 0:
		return wire.BadReq
	}
	return codePending
}

// reserveJournals takes room in the journals for all pending adds; the adds of a journal that has none are refused.
func (s *server) reserveJournals(c *conn, b *batch, from, to int) {
	if s.o.Durability == DurabilityOff {
		return
	}
	for index := range s.journals {
		n := 0
		for i := from; i < to; i++ {
			if s.pendingIn(b, i, index) {
				n += len(b.reqs[i].Body)
			}
		}
		if n == 0 {
			continue
		}
		code := s.reserveJournal(c, b, index, n)
		for i := from; i < to; i++ {
			if s.pendingIn(b, i, index) {
				b.adds[i].code = code
				b.adds[i].journal = code == codePending
			}
		}
	}
}

func (s *server) pendingIn(b *batch, i, index int) bool {
	if b.adds[i].code != codePending {
		return false
	}
	_, j := s.journalOf(bodyLedger(b.reqs[i].Body))
	return j == index
}

func (s *server) reserveJournal(c *conn, b *batch, index, n int) wire.Code {
	j := s.journals[index]
	err := j.Reserve(n, 0)
	if errors.Is(err, journal.ErrBusy) {
		s.settle(c, b)
		err = j.Reserve(n, addWaitMax)
	}
	switch {
	case err == nil:
		return codePending
	case errors.Is(err, journal.ErrBusy):
		return wire.TooMany
	case errors.Is(err, journal.ErrWaiting):
		return wire.ReadOnly
	}
	s.journalFailed(err)
	return wire.IO
}

// addRun processes pending adds of one ledger.
func (s *server) addRun(c *conn, b *batch, id int64, from, to int) {
	l, err := s.st.Ledger(id, true)
	if err != nil {
		for i := from; i < to; i++ {
			b.adds[i].code = codeOf(err)
		}
		return
	}
	defer l.Release()
	for from < to {
		// As many as there is room for without waiting are stored under one hold of the lock; then, holding nothing, room
		// for the next one is waited for.
		ready := from
		for ready < to && s.reserve(l, b, ready, 0) == nil {
			ready++
		}
		if ready == from {
			if err := s.waitRoom(c, b, l, from); err != nil {
				b.adds[from].code = codeOf(err)
				from++
				continue
			}
			ready++
		}
		s.store(c, b, l, from, ready)
		from = ready
	}
}

func (s *server) reserve(l *storage.Ledger, b *batch, i int, wait time.Duration) error {
	r := &b.reqs[i]
	err := l.Reserve(len(r.Body), addLane(r) == laneReserved, wait)
	b.adds[i].room = err == nil
	return err
}

// waitRoom waits for room in the write cache. Once an add of a connection has waited in vain, the next ones do not wait
// at all until one finds room: a client gets all its refusals within the wait of the first.
func (s *server) waitRoom(c *conn, b *batch, l *storage.Ledger, i int) error {
	wait := addWaitMax
	if c.choked {
		wait = 0
	}
	s.settle(c, b)
	err := s.reserve(l, b, i, wait)
	c.choked = errors.Is(err, storage.ErrCacheFull)
	return err
}

// store stores and journals adds for which there is room everywhere, under one hold of the ledger's lock.
func (s *server) store(c *conn, b *batch, l *storage.Ledger, from, to int) {
	c.mu.Lock()
	for i := from; i < to; i++ {
		b.adds[i].slot = c.slotLocked(&b.reqs[i], b.start, int(b.adds[i].size))
	}
	c.mu.Unlock()
	verify, appended, bytes := false, 0, 0
	l.Lock()
	for i := from; i < to; i++ {
		code := s.storeOne(c, b, l, i)
		b.adds[i].code = code
		if code == codeAppended {
			appended++
			bytes += len(b.reqs[i].Body)
		}
		verify = verify || code == codeVerify
	}
	l.Unlock()
	s.addsInProgress.Add(int64(appended))
	s.m.writeBytes.Add(uint64(bytes)) //nolint:gosec // not negative
	if appended == to-from {
		return
	}
	c.mu.Lock()
	for i := from; i < to; i++ {
		if b.adds[i].code != codeAppended {
			c.freeSlotLocked(b.adds[i].slot)
		}
	}
	c.mu.Unlock()
	for i := from; i < to; i++ {
		if b.adds[i].room {
			l.Unreserve(len(b.reqs[i].Body))
		}
	}
	if verify {
		s.verifyAdds(c, b, l.ID(), from, to)
	}
}

// storeOne applies one add to the locked ledger.
func (s *server) storeOne(c *conn, b *batch, l *storage.Ledger, i int) wire.Code {
	r, a := &b.reqs[i], &b.adds[i]
	recovery := r.Flags&wire.RecoveryAdd != 0
	switch v := l.Replica.CheckAdd(r.Key, recovery, s.lossEpoch); v {
	case ledger.Accepted:
	case ledger.NeedsVerify:
		return codeVerify
	default:
		return codeOfVerdict(v)
	}
	// Storage first: a checkpoint may trim from the journal only what storage holds.
	a.room = false // Put uses it up, also if it fails
	if err := l.Put(bodyEntry(r.Body), r.Body); err != nil {
		return codeOf(err)
	}
	j, index := s.journalOf(l.ID())
	known, fenced, tombstone := l.Replica.HasKey, l.Replica.Fenced, l.Replica.Tombstone
	if l.Replica.Accept(r.Key, recovery) {
		l.StateChanged()
		// A recovery add that only raises the generation is no news for the journal: generations matter to one process.
		if !known || fenced != l.Replica.Fenced || tombstone != l.Replica.Tombstone {
			t := journal.Token{A: l.ID()}
			if !fenced && l.Replica.Fenced {
				s.fences.begin(l.ID())
				t.B = 1
			}
			if err := s.appendState(b, l, s.fences, t); err != nil {
				return wire.IO
			}
		}
	}
	if s.o.Durability == DurabilityOff {
		return wire.OK
	}
	var sink journal.Sink = c
	early := ledger.Planted() == ledger.MutantAckBeforeSync || ledger.Planted() == ledger.MutantReaddNotSynced && recovery
	if early {
		sink = nil
	}
	_, err := j.Append(storage.KindEntry, uint64(l.ID()), r.Body, sink, journal.Token{C: uint64(a.slot)}) //nolint:gosec // ids are not negative
	if err != nil {
		s.journalFailed(err)
		return wire.IO
	}
	a.journal = false
	b.touched |= 1 << index
	if early {
		return wire.OK
	}
	return codeAppended
}

// appendState journals the locked ledger's whole state. Nothing may wait here, so its room in the journal is taken by
// force: states are small, and there are few.
func (s *server) appendState(b *batch, l *storage.Ledger, sink journal.Sink, t journal.Token) error {
	j, index := s.journalOf(l.ID())
	b.scratch = l.AppendState(b.scratch[:0])
	j.Release(-len(b.scratch))
	_, err := j.Append(storage.KindState, uint64(l.ID()), b.scratch, sink, t) //nolint:gosec // ids are not negative
	if err != nil {
		j.Release(len(b.scratch))
		s.journalFailed(err)
		return err
	}
	b.touched |= 1 << index
	s.ids.saw(l.ID())
	return nil
}

// finishAdds answers the adds that no journal will answer, and gives back what they took.
func (s *server) finishAdds(c *conn, b *batch, from, to int) {
	var back int64
	for i := from; i < to; i++ {
		r, a := &b.reqs[i], &b.adds[i]
		if a.code == codeAppended {
			continue
		}
		back += int64(a.size)
		if a.journal {
			j, _ := s.journalOf(bodyLedger(r.Body))
			j.Release(len(r.Body))
		}
		if a.code == codeVerify {
			continue // verifyAdds has a copy
		}
		r.Answer(&b.resp, a.code)
		c.reply(&b.resp)
		s.m.answered(wire.OpAdd, a.code, now()-b.start)
	}
	s.budget.release(back)
}
