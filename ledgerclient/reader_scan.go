package ledgerclient

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
)

const (
	// chunkBytes is the payload that one batch read aims at, and chunkMax what it asks for at most: large enough that the
	// request costs nothing beside it, small enough to keep many under way, and to fit buffers that bookies keep (256 KiB
	// here) instead of making one for each answer. Measured: twice the bookie's processor time at 512 KiB.
	chunkBytes   = 192 << 10
	chunkMax     = 250 << 10
	chunkEntries = 4096 // entries of one batch read, at most
	scanChunks   = 512  // requests of one iteration under way, at most; ReadWindowBytes bounds what they bring
)

// scan is one iteration over a range. Everything happens on the consumer's goroutine; answers wait in a mailbox. Requests
// for later entries are under way while the consumer works on the earlier ones.
//
// The range is cut into chunks: runs of entries of one fragment that one batch read is expected to bring, or single entries
// if the ensemble is striped or the bookie knows no batch reads. A chunk that comes back short is continued with another
// one for the rest.
type scan struct {
	r      *Reader
	ctx    context.Context
	box    *mailbox
	chunks []*chunk // in order of entries
	next   EntryID  // first entry not in a chunk
	last   EntryID
	mean   int64 // payload bytes of an entry, estimated
	seen   bool  // the estimate is from entries read
	timer  *time.Timer
}

// chunk is a run of entries being read.
type chunk struct {
	first   EntryID
	count   int
	peers   []*peer // of its fragment, by index
	read    ledger.EntryRead
	single  bool
	asked   time.Time     // when the newest request was sent
	late    time.Duration // after that, another bookie is asked
	hedged  bool          // more than one bookie is asked
	firstAt int           // index that was asked first
	entries []Entry
	ready   bool
	outcome ledger.ReadOutcome
	causes  []error
	fresh   bool            // the record was read again for its sake
	paused  ledger.IndexSet // members that nobody tried to reach, since an attempt had failed a moment ago
	attempt int             // from 1
}

// Entries yields the entries first to last, never past the LAC: a higher last is cut off there. Entries that arrived
// together share memory. An error is the last thing it yields.
func (r *Reader) Entries(ctx context.Context, first, last EntryID) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if first < 0 {
			yield(Entry{}, fmt.Errorf("ledger %d entry %d: %w", r.id, first, ErrNoSuchEntry))
			return
		}
		r.scan(ctx, first, min(last, r.LastAddConfirmed()), yield)
	}
}

// Bodies yields what bookies keep of the entries first to last: header, digest and payload, the digest checked. It is for those
// who copy a ledger; a ledger that has moved to the tier has none. An error is the last thing it yields.
func (r *Reader) Bodies(ctx context.Context, first, last EntryID) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for e, err := range r.Entries(ctx, first, last) {
			if err == nil && e.body == nil {
				err = fmt.Errorf("read ledger %d entry %d: bookies do not have it any more: %w", r.id, e.ID, ErrNoSuchEntry)
			}
			if !yield(e.body, err) || err != nil {
				return
			}
		}
	}
}

// scan yields a range. It reports whether the consumer wants more.
func (r *Reader) scan(ctx context.Context, first, last EntryID, yield func(Entry, error) bool) bool {
	if t := r.tier.Load(); t != nil {
		return r.scanTier(ctx, t, first, last, yield)
	}
	m := r.record()
	s := &scan{r: r, ctx: ctx, box: newMailbox(), next: first, last: last, mean: 1 << 10}
	if m.State == StateClosed && m.LastEntry >= 0 && m.Length > 0 {
		s.mean = m.Length/(int64(m.LastEntry)+1) + 1
		s.seen = true
	}
	defer s.stop()
	for s.next <= s.last || len(s.chunks) > 0 {
		if err := s.ended(); err != nil {
			yield(Entry{}, fmt.Errorf("read ledger %d: %w", r.id, err))
			return false
		}
		s.fill()
		front := s.chunks[0]
		if !front.ready {
			if err := s.wait(front); err != nil {
				yield(Entry{}, fmt.Errorf("read ledger %d entry %d: %w", r.id, front.first, err))
				return false
			}
			continue
		}
		if front.outcome != ledger.ReadFound {
			if s.again(front) {
				continue
			}
			if s.ended() == nil && r.moved(ctx) {
				return r.scanTier(ctx, r.tier.Load(), front.first, last, yield)
			}
			yield(Entry{}, s.failure(front))
			return false
		}
		s.pop(front)
		for _, e := range front.entries {
			if !yield(e, nil) {
				return false
			}
		}
	}
	return true
}

// ended returns why the iteration must not go on, if so.
func (s *scan) ended() error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	if s.r.ctx.Err() != nil {
		return context.Cause(s.r.ctx)
	}
	return nil
}

func (s *scan) stop() {
	if s.timer != nil {
		s.timer.Stop()
	}
}

// fill starts chunks as far as the window goes.
func (s *scan) fill() {
	window := s.r.client.o.ReadWindowBytes
	under := int64(0)
	for _, c := range s.chunks {
		under += int64(c.count) * s.mean
	}
	for s.next <= s.last && (len(s.chunks) == 0 || len(s.chunks) < scanChunks && under < window) {
		c := s.chunk(s.next, s.size(window))
		s.chunks = append(s.chunks, c)
		s.next += EntryID(c.count)
		under += int64(c.count) * s.mean
		s.ask(c)
	}
}

// size is how many entries the next chunk should hold.
func (s *scan) size(window int64) int {
	n := min(chunkBytes, max(window/4, 1)) / s.mean
	if !s.seen {
		n = min(n, 64)
	}
	return int(min(max(n, 1), chunkEntries))
}

// chunk makes a chunk of at most n entries that ends with its fragment.
func (s *scan) chunk(first EntryID, n int) *chunk {
	m := s.r.record()
	q := m.Quorum()
	f := m.FragmentOf(first)
	c := &chunk{first: first, count: 1, attempt: 1, peers: s.r.client.peersOf(m.Fragments[f].Bookies), single: true}
	if q.Ensemble == q.Write && !noBatch(c.peers) {
		end := s.last
		if f+1 < len(m.Fragments) {
			end = min(end, m.Fragments[f+1].First-1)
		}
		c.count = int(min(EntryID(n), end-first+1))
		c.single = c.count == 1
	}
	s.plan(c, q)
	return c
}

// noBatch reports whether some member is known not to take batch reads.
func noBatch(peers []*peer) bool {
	return slices.ContainsFunc(peers, func(p *peer) bool { return p.noBatch.Load() })
}

// plan orders the bookies that a chunk may be read from.
func (s *scan) plan(c *chunk, q Quorum) {
	prefer := -1
	if q.Ensemble == q.Write {
		prefer = int(s.r.prefer.Load())
	}
	c.read = ledger.NewEntryRead(q, c.first, prefer)
	var bad ledger.IndexSet
	for i, p := range c.peers {
		if p.isQuarantined() {
			bad = bad.With(i)
		}
	}
	c.read.Demote(bad | slow(c.peers))
	c.firstAt = -1
}

// slow returns the members that lately took much longer than the quickest one.
func slow(peers []*peer) ledger.IndexSet {
	var means [ledger.EnsembleMax]time.Duration
	best := time.Duration(0)
	for i, p := range peers {
		if mean, _, known := p.reads.usual(); known {
			means[i] = mean
			if best == 0 || mean < best {
				best = mean
			}
		}
	}
	var slow ledger.IndexSet
	for i := range peers {
		if means[i] > slowFactor*best+hedgeMin {
			slow = slow.With(i)
		}
	}
	return slow
}

// ask sends a chunk's request to the next bookie.
func (s *scan) ask(c *chunk) bool {
	i, ok := c.read.Next()
	if ok {
		s.send(c, i)
	}
	return ok
}

func (s *scan) send(c *chunk, i int) {
	if c.firstAt < 0 {
		c.firstAt = i
	}
	p := c.peers[i]
	c.asked, c.late = time.Now(), p.hedgeAfter()
	x := &call{sink: s.box, index: i, detail: c}
	r := wire.Request{Op: wire.OpRead, Ledger: int64(s.r.id), Entry: int64(c.first)}
	if !c.single && !p.noBatch.Load() {
		r.Op = wire.OpBatchRead
		r.MaxCount = int32(c.count)
		r.MaxSize = int64(min(chunkMax, s.r.client.o.MaxFrameBytes))
	}
	p.send(wire.V2, &r, x, s.r.client.o.ReadTimeout)
}

// hedge asks another bookie for a chunk that is late: early on credit, and in any case after HedgeDelay. Without credit, or
// without another bookie, it is looked at again when that time has come.
func (s *scan) hedge(c *chunk) {
	limit := s.r.client.o.HedgeDelay
	if c.late < limit && !s.r.client.hedges.spend() {
		c.late = limit
		return
	}
	if s.ask(c) {
		c.hedged = true
		s.r.client.m.speculative.Inc()
		return
	}
	c.asked, c.late = time.Now(), limit
}

// wait waits for answers, and asks a second bookie if the first is slow.
func (s *scan) wait(front *chunk) error {
	slow := max(0, front.late-time.Since(front.asked))
	if s.timer == nil {
		s.timer = time.NewTimer(slow)
	} else {
		s.timer.Reset(slow)
	}
	select {
	case <-s.box.wake:
	case <-s.timer.C:
		s.hedge(front)
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	case <-s.r.ctx.Done():
		return context.Cause(s.r.ctx)
	}
	calls, _ := s.box.take()
	for _, x := range calls {
		s.answer(x)
	}
	return nil
}

// answer takes one answer to a chunk's request.
func (s *scan) answer(x *call) {
	c := x.detail.(*chunk)
	if c.ready {
		return
	}
	a := x.answer()
	if a == ledger.AnswerOK {
		a = s.accept(c, x)
	} else {
		if x.hungUp() {
			s.send(c, x.index)
			return
		}
		c.causes = append(c.causes, x.failure())
		if x.conn.paused {
			c.paused = c.paused.With(x.index)
		}
	}
	switch o := c.read.Answer(x.index, a); o {
	case ledger.ReadFound:
		s.r.client.hedges.earn()
		if won := x.index != c.firstAt; won && (len(c.causes) > 0 || c.hedged) {
			if c.hedged {
				s.r.client.m.speculativeWon.Inc()
			}
			s.r.prefer.Store(int32(x.index)) // stay with the one that answers
		}
		c.ready, c.outcome = true, o
	case ledger.ReadPending:
		s.ask(c)
	default:
		c.ready, c.outcome = true, o
	}
}

// accept checks the entries of an answer and keeps those in front of the first bad one.
func (s *scan) accept(c *chunk, x *call) ledger.Answer {
	bodies := x.entries
	if x.op == wire.OpRead {
		bodies = [][]byte{x.body}
	}
	for i, b := range bodies {
		if i == c.count {
			break
		}
		id := c.first + EntryID(i)
		e, err := s.r.digest.Open(b, int64(s.r.id), int64(id))
		if err != nil {
			c.causes = append(c.causes, s.r.badDigest(x, err))
			break
		}
		c.entries = append(c.entries, Entry{ID: id, Data: e.Payload, body: b})
	}
	if len(c.entries) == 0 {
		return ledger.AnswerBadDigest
	}
	return ledger.AnswerOK
}

// pop removes the front chunk, puts one for the entries that it did not bring in its place, and learns their size.
func (s *scan) pop(front *chunk) {
	got := len(front.entries)
	bytes := int64(0)
	for _, e := range front.entries {
		bytes += int64(len(e.Data))
	}
	mean := bytes/int64(got) + 1
	if s.seen {
		mean = (3*s.mean + mean) / 4
	}
	s.mean, s.seen = max(mean, 1), true
	s.chunks = s.chunks[1:]
	if rest := front.count - got; rest > 0 {
		c := s.chunk(front.first+EntryID(got), rest)
		s.chunks = append([]*chunk{c}, s.chunks...)
		s.ask(c)
		if missing := rest - c.count; missing > 0 { // the fragments changed; cannot hold more entries than before
			s.chunks = s.chunks[:1]
			s.next = c.first + EntryID(c.count)
		}
	}
}

// again tries a chunk that failed once more: if the record has changed since, its bookies may have been replaced; and one that
// was not asked, since it could not be reached a moment ago, may be there again.
func (s *scan) again(c *chunk) bool {
	if !c.fresh {
		newer, err := s.r.refresh(s.ctx)
		if err != nil {
			c.causes = append(c.causes, err)
		}
		if newer {
			s.restart(c).fresh = true
			return true
		}
	}
	var unasked []*peer
	for i, p := range c.peers {
		if c.paused.Has(i) {
			unasked = append(unasked, p)
		}
	}
	if !s.r.client.reconnect(s.ctx, unasked, c.attempt) {
		return false
	}
	n := s.restart(c)
	n.fresh, n.attempt = c.fresh, c.attempt+1
	return true
}

// restart begins anew with a chunk that failed; what was asked for behind it is asked for again.
func (s *scan) restart(c *chunk) *chunk {
	n := s.chunk(c.first, c.count)
	s.chunks = []*chunk{n}
	s.next = n.first + EntryID(n.count)
	s.ask(n)
	return n
}

// failure says why a chunk can not be read.
func (s *scan) failure(c *chunk) error {
	q := s.r.record().Quorum()
	err := &QuorumError{Ledger: s.r.id, Entry: c.first, Need: 1, Causes: c.causes}
	if c.outcome == ledger.ReadAbsent {
		err.Reason = fmt.Sprintf("%v on any of its %d bookies", ErrNoSuchEntry, q.Write)
		err.Causes = append([]error{ErrNoSuchEntry}, c.causes...)
	} else {
		err.Causes = append([]error{ErrNotEnoughBookies}, c.causes...)
	}
	return err
}
