package journal

import (
	"github.com/binderylog/bindery/internal/vfs"
)

// ack is a record's sink and token, kept until the record's group is durable.
type ack struct {
	sink Sink
	t    Token
}

// group is a batch of records that reaches the disk in one write.
//
// Life: open (Append fills it) -> sealed (its sequence, segment and offset are fixed) -> in flight -> durable -> its
// sinks have heard -> free. Until it is sealed Journal.mu guards it; from then on it belongs to the worker that writes
// it, and then to the one that runs its acknowledgements.
type group struct {
	buf     []byte // off heap, a multiple of vfs.Align; the header's place comes first
	used    int    // bytes of buf that are filled, header included
	records int
	acks    []ack
	charge  int64 // body bytes, given back to the budget in the end

	seq    uint64   // with seg
	seg    *segment // nil until the first record is appended
	off    int64
	s      uint64 // highest durable sequence when its write was started
	opened int64  // when the first record or force came
	large  bool   // holds one record that does not fit an ordinary group
	write  bool   // it goes to disk; a group of nothing but forces does not
	done   bool
	err    error
}

// groupBufferBytes is the buffer of an ordinary group that may hold n bytes of records.
func groupBufferBytes(n int) int { return extent(groupHeaderBytes + n) }

// content reports whether there is anybody to answer.
func (g *group) content() bool { return g.records > 0 || len(g.acks) > 0 }

// reset makes a group ready to be filled again.
func (g *group) reset() {
	clear(g.acks) // lets go of the sinks
	*g = group{buf: g.buf, acks: g.acks[:0], used: groupHeaderBytes}
}

// fits reports whether a record of n bytes, header included, still fits.
func (g *group) fits(n int) bool { return g.used+n <= len(g.buf) }

// add copies a record in. A large one has been copied already.
func (g *group) add(kind uint8, tag uint64, body []byte, crc uint32) {
	putRecordHeader(g.buf[g.used:], kind, tag, len(body), crc, g.seg.seal.record(g.seq, g.used))
	g.used += RecordOverhead
	if !g.large {
		copy(g.buf[g.used:], body)
	}
	g.used += len(body)
	g.records++
	g.charge += int64(len(body))
}

// newLargeGroup returns a group for one record that does not fit an ordinary one. Its body is copied in here, so that it
// does not happen under the journal's lock.
func newLargeGroup(body []byte) (*group, error) {
	b, err := vfs.AllocOffHeap(groupBufferBytes(RecordOverhead + len(body)))
	if err != nil {
		return nil, err
	}
	copy(b[groupHeaderBytes+RecordOverhead:], body)
	return &group{buf: b, used: groupHeaderBytes, large: true}, nil
}

// free gives the buffer of a large group back.
func (g *group) free() error {
	b := g.buf
	g.buf = nil
	return vfs.FreeOffHeap(b)
}

// bytes finishes the group and returns what goes to disk.
func (g *group) bytes(written int64) []byte {
	n := extent(g.used)
	clear(g.buf[g.used:n])
	h := groupHeader{
		segment:  g.seg.id,
		sequence: g.seq,
		durable:  g.s,
		records:  uint32(g.records),
		payload:  uint32(g.used - groupHeaderBytes),
		written:  written,
	}
	h.encode(g.buf, g.seg.seal.group(g.off))
	return g.buf[:n]
}

// groupPool keeps buffers off the Go heap for reuse. Journal.mu guards it.
type groupPool struct {
	size int // of an ordinary buffer
	free []*group
}

// get returns an empty group.
func (p *groupPool) get() (*group, error) {
	if n := len(p.free); n > 0 {
		g := p.free[n-1] // the one used last: its pages are in the processor's cache
		p.free = p.free[:n-1]
		return g, nil
	}
	b, err := vfs.AllocOffHeap(p.size)
	if err != nil {
		return nil, err
	}
	return &group{buf: b, used: groupHeaderBytes}, nil
}

// put takes a group back. Large ones, and those without a buffer, are left to the garbage collector.
func (p *groupPool) put(g *group) {
	if len(g.buf) != p.size {
		return
	}
	g.reset()
	p.free = append(p.free, g)
}

// shrink frees all but n groups.
func (p *groupPool) shrink(n int) error {
	var first error
	for len(p.free) > n {
		g := p.free[len(p.free)-1]
		p.free[len(p.free)-1] = nil
		p.free = p.free[:len(p.free)-1]
		if err := vfs.FreeOffHeap(g.buf); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// queue is a first-in, first-out list of groups that does not allocate once it has grown.
type queue struct {
	items []*group
	head  int
}

func (q *queue) len() int      { return len(q.items) - q.head }
func (q *queue) first() *group { return q.items[q.head] }

func (q *queue) push(g *group) {
	if q.head > 0 && len(q.items) == cap(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, g)
}

func (q *queue) pop() *group {
	g := q.items[q.head]
	q.items[q.head] = nil
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return g
}
