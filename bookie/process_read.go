package bookie

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
)

// readTask is a request that may wait for a disk, detached from the buffer it came in.
type readTask struct {
	c        *conn
	req      wire.Request // without anything that aliases the buffer
	start    int64
	taken    int64 // from the budget
	fenceErr error // a fencing read: what the journal said
	fenced   bool  // a fencing read: no maxLAC in the answer
}

var readTasks = sync.Pool{New: func() any { return new(readTask) }}

// read answers a request from memory, or hands it to a worker.
func (s *server) read(c *conn, b *batch, r *wire.Request) {
	if s.readHere(c, b, r) {
		return
	}
	t := s.newRead(c, b, r)
	if t == nil {
		return
	}
	l := laneOrdinary
	if r.Flags&wire.HighPriority != 0 {
		l = laneReserved
	}
	s.reads.submit(t, l)
}

// readOverhead is what a read that has not been answered costs: its task and its place in a queue.
const readOverhead = 512

// newRead makes a task of r. The room for its answer is taken when its size is known: see conn.park. nil means that the
// connection has ended.
func (s *server) newRead(c *conn, b *batch, r *wire.Request) *readTask {
	if !c.mayRead() {
		s.settle(c, b)
		if !c.waitWritable() {
			return nil
		}
	}
	taken := s.acquire(c, b, readOverhead, laneReserved)
	if taken == 0 {
		return nil
	}
	t := readTasks.Get().(*readTask)
	*t = readTask{c: c, req: *r, start: b.start, taken: taken, fenced: r.Flags&wire.Fence != 0}
	t.req.Key, t.req.Body, t.req.AuthPayload, t.req.Context = nil, nil, nil, nil
	c.reads.Add(1)
	return t
}

// drop gives back what an unused task took.
func (t *readTask) drop() {
	c := t.c
	c.srv.budget.release(t.taken)
	*t = readTask{}
	readTasks.Put(t)
	c.readDone()
}

// readDone counts a read that was answered.
func (c *conn) readDone() {
	c.mu.Lock()
	c.reads.Add(-1)
	c.mu.Unlock()
	c.cond.Broadcast()
}

// run answers the request.
func (t *readTask) run(w *worker) {
	c, s := t.c, t.c.srv
	select {
	case <-c.closing: // nobody waits for the answer
		t.drop()
		return
	default:
	}
	if c.park(t) {
		return
	}
	t.req.Answer(&w.resp, wire.OK)
	if t.fenceErr != nil {
		w.resp.Code = wire.IO
		c.reply(&w.resp)
		s.journalFailed(t.fenceErr)
	} else {
		t.dispatch(w)
	}
	s.m.answered(t.req.Op, w.resp.Code, now()-t.start)
	c.flush()
	t.drop()
}

func (t *readTask) dispatch(w *worker) {
	switch s := t.c.srv; t.req.Op {
	case wire.OpRead:
		s.readEntry(t, w)
	case wire.OpBatchRead:
		s.readBatch(t, w)
	case wire.OpReadLAC:
		s.readLAC(t, w)
	case wire.OpListEntries:
		s.listEntries(t, w)
	case wire.OpBookieInfo:
		s.bookieInfo(t, w)
	}
}

// readEntry answers a plain or fencing read.
func (s *server) readEntry(t *readTask, w *worker) {
	l, err := s.st.Ledger(t.req.Ledger, false)
	if err != nil {
		w.resp.Code = codeOf(err)
		t.c.reply(&w.resp)
		return
	}
	defer l.Release()
	body, err := l.Read(t.req.Entry, w.buf[:0])
	w.buf = body
	if err != nil {
		w.resp.Code = s.readCode(l, err)
	} else {
		w.resp.Body = body
		s.m.readBytes.Add(uint64(len(body)))
	}
	if t.req.Proto == wire.V3 && w.resp.Code == wire.OK && !t.fenced {
		if lac, err := l.LAC(); err == nil {
			w.resp.MaxLAC, w.resp.HasMaxLAC = lac, true
		}
	}
	t.c.reply(&w.resp)
}

// readCode returns the code for a failed read.
func (s *server) readCode(l *storage.Ledger, err error) wire.Code {
	code := codeOf(err)
	if code == wire.IO {
		s.m.readErrors.Add(1)
		if ok, skipped := s.damaged.allow(err, time.Minute); ok { // clients and auto-recovery may read it over and over
			s.log.Error("an entry could not be read", "ledger", l.ID(), "err", err, "not_logged_of_this_file", skipped)
		}
		if ledger.Planted() == ledger.MutantFaultIsAbsence {
			return wire.NoEntry
		}
	}
	return code
}

// readBatch answers a batch read: consecutive entries from the first one on, which is always returned, until one is
// missing, the count is reached or the answer is large enough.
func (s *server) readBatch(t *readTask, w *worker) {
	l, err := s.st.Ledger(t.req.Ledger, false)
	if err != nil {
		w.resp.Code = codeOf(err)
		t.c.reply(&w.resp)
		return
	}
	defer l.Release()
	a := newBatchAnswer(&w.resp, min(t.req.MaxSize, batchReadMax, int64(s.o.FrameLimit)))
	for entry := t.req.Entry; ; entry++ {
		err := a.read(l, entry)
		if err != nil && a.entries == 0 {
			a.drop()
			w.resp.Code = s.readCode(l, err)
			t.c.reply(&w.resp)
			return
		}
		if err != nil || a.full || a.entries == int64(t.req.MaxCount) || entry == 1<<63-1 {
			break
		}
	}
	s.m.readBytes.Add(uint64(a.size)) //nolint:gosec // not negative
	t.c.replyBuffers(a.close())
}

// readLAC answers READ_LAC: the explicit LAC and the last entry, as far as there are any.
func (s *server) readLAC(t *readTask, w *worker) {
	defer func() { t.c.reply(&w.resp) }()
	l, err := s.st.Ledger(t.req.Ledger, false)
	if err != nil {
		if w.resp.Code = codeOf(err); w.resp.Code == wire.NoLedger {
			w.resp.Code = wire.NoEntry // as every Java bookie says
		}
		return
	}
	defer l.Release()
	l.Lock()
	verdict := l.Replica.ReadLast(false)
	if len(l.Replica.ExplicitLAC) > 0 {
		w.resp.LACBody = append([]byte(nil), l.Replica.ExplicitLAC...)
	}
	l.Unlock()
	if verdict == ledger.UnknownAnswer {
		w.resp.LACBody = nil
		w.resp.Code = wire.UnknownState
		return
	}
	body, err := l.Read(-1, w.buf[:0])
	w.buf = body
	switch {
	case err == nil:
		w.resp.LastEntryBody = body
	case errors.Is(err, storage.ErrNoEntry), errors.Is(err, storage.ErrNoLedger):
		if w.resp.LACBody == nil {
			w.resp.Code = wire.NoEntry
		}
	default:
		w.resp.Code = s.readCode(l, err)
		w.resp.LACBody = nil
	}
}

// listEntries answers GET_LIST_OF_ENTRIES_OF_LEDGER.
func (s *server) listEntries(t *readTask, w *worker) {
	defer func() { t.c.reply(&w.resp) }()
	l, err := s.st.Ledger(t.req.Ledger, false)
	if err != nil {
		w.resp.Code = codeOf(err)
		return
	}
	defer l.Release()
	ranges, err := l.Entries()
	if err != nil {
		w.resp.Code = s.readCode(l, err)
		return
	}
	ranges = s.withoutDamaged(l, ranges)
	const headroom = 128 // of the response around the list
	if wire.AvailabilitySize(len(ranges)) > s.o.FrameLimit-headroom {
		s.log.Warn("the list of a ledger's entries does not fit a frame", "ledger", l.ID(), "runs", len(ranges), "frame_limit", s.o.FrameLimit)
		w.resp.Code = wire.IO
		return
	}
	runs := make([]wire.Run, len(ranges))
	for i, r := range ranges {
		runs[i] = wire.Run{First: r.First, Count: r.Last - r.First + 1}
	}
	w.resp.Availability = wire.AppendAvailability(nil, runs)
}

// withoutDamaged leaves out entries that can not be read back: who asks what is here is about to count copies, or to make those
// that are missing. An entry that has been written anew meanwhile comes off the list of damaged ones.
func (s *server) withoutDamaged(l *storage.Ledger, ranges []storage.Range) []storage.Range {
	for _, e := range s.st.DamagedOf(l.ID()) {
		i, found := slices.BinarySearchFunc(ranges, e, func(r storage.Range, e int64) int {
			switch {
			case r.Last < e:
				return -1
			case r.First > e:
				return 1
			}
			return 0
		})
		if !found {
			continue
		}
		if _, err := l.Read(e, nil); err == nil {
			s.st.Repaired(storage.Damaged{Ledger: l.ID(), Entry: e})
			continue
		}
		r := ranges[i]
		var left []storage.Range
		if r.First < e {
			left = append(left, storage.Range{First: r.First, Last: e - 1})
		}
		if e < r.Last {
			left = append(left, storage.Range{First: e + 1, Last: r.Last})
		}
		ranges = slices.Replace(ranges, i, i+1, left...)
	}
	return ranges
}

// bookieInfo answers GET_BOOKIE_INFO with the fields that were asked for.
func (s *server) bookieInfo(t *readTask, w *worker) {
	total, free, err := s.diskSpace()
	if err != nil {
		s.log.Error("the space of the ledger directories could not be read", "err", err)
		w.resp.Code = wire.IO
	} else {
		w.resp.TotalCapacity, w.resp.HasTotalCapacity = total, t.req.Requested&wire.WantTotalCapacity != 0
		w.resp.FreeSpace, w.resp.HasFreeSpace = free, t.req.Requested&wire.WantFreeSpace != 0
	}
	t.c.reply(&w.resp)
}

// diskSpace sums the space of the ledger directories, counting a file system that holds several of them once.
func (s *server) diskSpace() (total, free int64, err error) {
	type key struct{ total, available, inodes int64 }
	seen := map[key]bool{}
	for _, dir := range s.o.LedgerDirs {
		u, err := s.o.FS.Usage(dir)
		if err != nil {
			return 0, 0, err
		}
		// Directories whose figures agree to the byte at the same moment are on one file system.
		k := key{u.Total, u.Available, u.InodesFree}
		if seen[k] {
			continue
		}
		seen[k] = true
		total += u.Total
		free += u.Available
	}
	return total, free, nil
}
