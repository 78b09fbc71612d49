package ledgerclient

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/metadata/memmeta"
	"github.com/binderylog/bindery/internal/wire"
)

// fakeBookie is a bookie in memory that obeys ledger.Replica, on a loopback port. It keeps real semantics: keys, fences,
// limbo, tombstones, recovery adds, LAC, long polls, force. What is not durable about it is nothing: it never crashes, it is
// only cut off, wiped, or told to answer otherwise.
type fakeBookie struct {
	id      BookieID
	discard bool // keep no bodies: for benchmarks
	oldV2   bool // knows no batch reads: hangs up on them, as old bookies do

	readOnly  atomic.Bool
	lossEpoch atomic.Uint64
	fault     atomic.Pointer[func(r *wire.Request) fault]
	adds      atomic.Int64

	mu      sync.Mutex // guards the fields below
	ln      net.Listener
	addr    string
	conns   map[net.Conn]struct{}
	ledgers map[int64]*fakeLedger
	wg      sync.WaitGroup

	open func(id int64, b BookieID) bool // the linearizable read of decision 36
	deaf atomic.Bool                     // answers a long poll only when its time is over, whatever came meanwhile
}

// fault is what a bookie does to a request instead of serving it.
type fault struct {
	code  wire.Code
	act   bool // answer with code
	after bool // with act: serve it first
	drop  bool // no answer
	close bool // hang up
	delay time.Duration
}

type fakeLedger struct {
	mu      sync.Mutex // guards the fields below
	rep     ledger.Replica
	entries map[int64][]byte
	last    int64
	lac     int64
	moved   chan struct{} // closed when the LAC moves or the ledger is fenced
}

func newFakeBookie(id string) *fakeBookie {
	return &fakeBookie{id: BookieID(id), conns: map[net.Conn]struct{}{}, ledgers: map[int64]*fakeLedger{}}
}

// start listens, at the old port if there was one.
func (b *fakeBookie) start(t testing.TB) {
	t.Helper()
	require.NoError(t, b.listen())
}

func (b *fakeBookie) listen() error {
	b.mu.Lock()
	addr := b.addr
	b.mu.Unlock()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", addr)
	for end := time.Now().Add(time.Minute); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // another process has got the port while nobody listened
		ln, err = net.Listen("tcp", addr)
	}
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.ln, b.addr = ln, ln.Addr().String()
	b.mu.Unlock()
	b.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			b.mu.Lock()
			if b.ln != ln {
				b.mu.Unlock()
				_ = c.Close()
				return
			}
			b.conns[c] = struct{}{}
			b.wg.Go(func() { b.serve(c) })
			b.mu.Unlock()
		}
	})
	return nil
}

// stop hangs up on everybody and listens no more. What it stores stays.
func (b *fakeBookie) stop() {
	b.mu.Lock()
	if b.ln != nil {
		_ = b.ln.Close()
		b.ln = nil
	}
	for c := range b.conns {
		_ = c.Close()
	}
	b.mu.Unlock()
	b.wg.Wait()
}

// wipe forgets everything and comes back under the same id: what the record of each ledger named here is limbo.
func (b *fakeBookie) wipe(named ...int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledgers = map[int64]*fakeLedger{}
	b.lossEpoch.Add(1)
	for _, id := range named {
		l := newFakeLedger()
		l.rep.Lose()
		b.ledgers[id] = l
	}
}

func newFakeLedger() *fakeLedger {
	return &fakeLedger{entries: map[int64][]byte{}, last: -1, lac: -1, moved: make(chan struct{})}
}

func (b *fakeBookie) setFault(fn func(r *wire.Request) fault) {
	if fn == nil {
		b.fault.Store(nil)
		return
	}
	b.fault.Store(&fn)
}

func (b *fakeBookie) ledger(id int64) *fakeLedger {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.ledgers[id]
	if l == nil {
		l = newFakeLedger()
		b.ledgers[id] = l
	}
	return l
}

// holds returns how many entries of a ledger are here, and whether e is.
func (b *fakeBookie) holds(id LedgerID, e EntryID) (n int, has bool) {
	l := b.ledger(int64(id))
	l.mu.Lock()
	defer l.mu.Unlock()
	_, has = l.entries[int64(e)]
	return len(l.entries), has
}

// corrupt flips a bit of an entry that is here.
func (b *fakeBookie) corrupt(id LedgerID, e EntryID) {
	b.damage(id, e, func(l *fakeLedger, body []byte) {
		body = bytes.Clone(body)
		body[len(body)-1] ^= 0x40
		l.entries[int64(e)] = body
	})
}

// forget loses an entry that is here.
func (b *fakeBookie) forget(id LedgerID, e EntryID) {
	b.damage(id, e, func(l *fakeLedger, _ []byte) { delete(l.entries, int64(e)) })
}

// damage does something to an entry. It must be here: an add that comes later would mend what was broken.
func (b *fakeBookie) damage(id LedgerID, e EntryID, do func(l *fakeLedger, body []byte)) {
	l := b.ledger(int64(id))
	l.mu.Lock()
	defer l.mu.Unlock()
	body, has := l.entries[int64(e)]
	if !has {
		panic(fmt.Sprintf("bookie %s has no entry %d of ledger %d yet: call awaitCopies first", b.id, e, id))
	}
	do(l, body)
}

// serve is one connection: everything that has arrived is served, then all answers are written at once.
func (b *fakeBookie) serve(c net.Conn) {
	stop, cancel := context.WithCancel(context.Background())
	var polls sync.WaitGroup
	defer func() {
		cancel()
		_ = c.Close()
		polls.Wait()
		b.mu.Lock()
		delete(b.conns, c)
		b.mu.Unlock()
	}()
	var dec wire.Decoder
	var wmu sync.Mutex
	write := func(p []byte) {
		wmu.Lock()
		defer wmu.Unlock()
		_, _ = c.Write(p)
	}
	buf := make([]byte, 256<<10)
	end := 0
	var out []byte
	var req wire.Request
	for {
		if end == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
		n, err := c.Read(buf[end:])
		if err != nil {
			return
		}
		end += n
		rest := buf[:end]
		out = out[:0]
		for {
			packet, after, err := wire.Frame(rest, 64<<20)
			if err != nil {
				break
			}
			rest = after
			if err := dec.Request(packet, &req); err != nil {
				return
			}
			if f := b.fault.Load(); f != nil {
				x := (*f)(&req)
				if x.delay > 0 {
					time.Sleep(x.delay)
				}
				switch {
				case x.close:
					return
				case x.drop:
					continue
				case x.act:
					var resp wire.Response
					if x.after {
						out = b.handle(&req, out[:len(out):len(out)])[:len(out)]
					}
					req.Answer(&resp, x.code)
					out = wire.AppendResponse(out, &resp)
					continue
				}
			}
			if req.Op == wire.OpBatchRead && b.oldV2 {
				return
			}
			if req.Op == wire.OpRead && req.LongPoll() {
				r := req
				polls.Go(func() { write(b.longPoll(stop, &r)) })
				continue
			}
			out = b.handle(&req, out)
		}
		if len(out) > 0 {
			write(out)
		}
		end = copy(buf, rest)
	}
}

// handle serves one request and appends its answer.
func (b *fakeBookie) handle(r *wire.Request, out []byte) []byte {
	var resp wire.Response
	switch r.Op {
	case wire.OpAdd:
		r.Answer(&resp, b.add(r))
	case wire.OpRead:
		return b.read(r, out)
	case wire.OpBatchRead:
		return b.batch(r, out)
	case wire.OpReadLAC:
		b.readLAC(r, &resp)
	case wire.OpWriteLAC:
		l := b.ledger(r.Ledger)
		l.mu.Lock()
		v, _ := l.rep.SetExplicitLAC(r.Key, r.Body)
		l.advance(int64(l.rep.LAC()))
		l.mu.Unlock()
		r.Answer(&resp, codeOf(v))
	case wire.OpForce:
		l := b.ledger(r.Ledger)
		l.mu.Lock()
		v := l.rep.CheckForce(b.lossEpoch.Load())
		l.mu.Unlock()
		r.Answer(&resp, codeOf(v))
	case wire.OpBookieInfo:
		code := wire.OK
		for _, p := range r.Context {
			if string(p.Key) == bookieIDContext && string(p.Value) != string(b.id) {
				code = wire.UA
			}
		}
		r.Answer(&resp, code)
	default:
		r.Answer(&resp, wire.BadReq)
	}
	return wire.AppendResponse(out, &resp)
}

func codeOf(v ledger.Verdict) wire.Code {
	switch v {
	case ledger.Accepted:
		return wire.OK
	case ledger.BadKey:
		return wire.UA
	case ledger.RefusedFenced:
		return wire.Fenced
	case ledger.RefusedDeleted:
		return wire.NoLedger
	}
	return wire.IO
}

func (b *fakeBookie) add(r *wire.Request) wire.Code {
	recovery := r.Flags&wire.RecoveryAdd != 0
	if b.readOnly.Load() && r.Flags&wire.HighPriority == 0 {
		return wire.ReadOnly
	}
	b.adds.Add(1)
	l := b.ledger(r.Ledger)
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.rep.CheckAdd(r.Key, recovery, b.lossEpoch.Load())
	if v == ledger.NeedsVerify {
		ticket := l.rep.Ticket()
		l.mu.Unlock()
		open := b.open != nil && b.open(r.Ledger, b.id)
		l.mu.Lock()
		if v, _ = l.rep.Verify(ticket, open, b.lossEpoch.Load()); v == ledger.Accepted {
			v = l.rep.CheckAdd(r.Key, recovery, b.lossEpoch.Load())
		}
	}
	if v != ledger.Accepted {
		return codeOf(v)
	}
	l.rep.Accept(r.Key, recovery)
	if b.discard {
		return wire.OK
	}
	l.entries[r.Entry] = append([]byte(nil), r.Body...)
	l.last = max(l.last, r.Entry)
	l.advance(int64(binary.BigEndian.Uint64(r.Body[16:])))
	return wire.OK
}

// advance raises the LAC; the ledger is locked.
func (l *fakeLedger) advance(lac int64) {
	if lac > l.lac {
		l.lac = lac
		close(l.moved)
		l.moved = make(chan struct{})
	}
}

func (b *fakeBookie) read(r *wire.Request, out []byte) []byte {
	var resp wire.Response
	l := b.ledger(r.Ledger)
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Flags&wire.Fence != 0 {
		if v, _ := l.rep.Fence(r.Key); v != ledger.Accepted {
			r.Answer(&resp, codeOf(v))
			return wire.AppendResponse(out, &resp)
		}
		close(l.moved)
		l.moved = make(chan struct{})
	}
	id, verdict := r.Entry, ledger.Serve
	if id == -1 {
		id = l.last
	}
	body, found := l.entries[id]
	if r.Entry == -1 {
		verdict = l.rep.ReadLast(found)
	} else {
		verdict = l.rep.Read(found)
	}
	r.Answer(&resp, readCode(verdict))
	if verdict == ledger.Serve {
		resp.Body = body
		if r.Flags&wire.Fence == 0 {
			resp.MaxLAC, resp.HasMaxLAC = l.lac, true
		}
	}
	return wire.AppendResponse(out, &resp)
}

func readCode(v ledger.ReadVerdict) wire.Code {
	return [...]wire.Code{ledger.Serve: wire.OK, ledger.NoEntry: wire.NoEntry, ledger.NoLedger: wire.NoLedger, ledger.UnknownAnswer: wire.UnknownState}[v]
}

func (b *fakeBookie) batch(r *wire.Request, out []byte) []byte {
	l := b.ledger(r.Ledger)
	l.mu.Lock()
	defer l.mu.Unlock()
	var resp wire.Response
	limit := min(r.MaxSize, 5<<20)
	used := int64(36)
	for id := r.Entry; r.MaxCount <= 0 || len(resp.Entries) < int(r.MaxCount); id++ {
		body, found := l.entries[id]
		if !found || len(resp.Entries) > 0 && used+int64(len(body))+4 > limit {
			break
		}
		used += int64(len(body)) + 4
		resp.Entries = append(resp.Entries, body)
	}
	entries := resp.Entries
	code := wire.OK
	if len(entries) == 0 {
		code = readCode(l.rep.Read(false))
	}
	r.Answer(&resp, code)
	resp.Entries = entries
	return wire.AppendResponse(out, &resp)
}

func (b *fakeBookie) readLAC(r *wire.Request, resp *wire.Response) {
	l := b.ledger(r.Ledger)
	l.mu.Lock()
	defer l.mu.Unlock()
	body, found := l.entries[l.last]
	if v := l.rep.ReadLast(found); v != ledger.Serve && l.rep.ExplicitLAC == nil || v == ledger.UnknownAnswer {
		r.Answer(resp, readCode(v))
		return
	}
	r.Answer(resp, wire.OK)
	resp.LACBody, resp.LastEntryBody = l.rep.ExplicitLAC, body
}

func (b *fakeBookie) longPoll(stop context.Context, r *wire.Request) []byte {
	var resp wire.Response
	l := b.ledger(r.Ledger)
	timeout := time.NewTimer(time.Duration(r.TimeoutMillis) * time.Millisecond)
	defer timeout.Stop()
	for waiting := true; ; {
		l.mu.Lock()
		if l.rep.Limbo {
			l.mu.Unlock()
			r.Answer(&resp, wire.UnknownState)
			break
		}
		if !waiting || !b.deaf.Load() && (l.lac > r.PreviousLAC || l.rep.Fenced) {
			r.Answer(&resp, wire.OK)
			resp.MaxLAC, resp.HasMaxLAC = l.lac, true
			if body, ok := l.entries[r.PreviousLAC+1]; ok && l.lac > r.PreviousLAC {
				resp.Body, resp.Entry = body, r.PreviousLAC+1
			}
			l.mu.Unlock()
			if l.rep.Fenced && waiting {
				time.Sleep(5 * time.Millisecond) // a fenced ledger answers at once; do not make its reader spin
			}
			break
		}
		moved := l.moved
		l.mu.Unlock()
		select {
		case <-moved:
		case <-timeout.C:
			waiting = false
		case <-stop.Done():
			return nil
		}
	}
	return wire.AppendResponse(nil, &resp)
}

// cluster is a metadata store in memory and bookies.
type cluster struct {
	t       testing.TB
	tree    *memmeta.Tree
	stores  map[BookieID]*memmeta.Store
	views   *metadata.Views
	bookies []*fakeBookie
}

// newCluster starts n bookies "b0" ... and registers them.
func newCluster(t testing.TB, n int) *cluster {
	t.Helper()
	c := &cluster{t: t, tree: memmeta.NewTree(), stores: map[BookieID]*memmeta.Store{}}
	admin := c.tree.Open()
	c.views = metadata.NewViews(admin, metadata.DefaultRoot)
	_, err := c.views.Cluster.Init(context.Background())
	require.NoError(t, err)
	for i := range n {
		c.addBookie("b" + strconv.Itoa(i))
	}
	t.Cleanup(func() {
		for _, b := range c.bookies {
			b.stop()
		}
		for _, s := range c.stores {
			_ = s.Close()
		}
		_ = admin.Close()
	})
	return c
}

func (c *cluster) addBookie(id string) *fakeBookie {
	b := newFakeBookie(id)
	b.open = func(id int64, who BookieID) bool {
		m, _, err := c.views.Ledgers.Read(context.Background(), LedgerID(id))
		return err == nil && m.State == StateOpen && m.Names(who)
	}
	b.start(c.t)
	c.bookies = append(c.bookies, b)
	c.register(b, false)
	return b
}

func (c *cluster) register(b *fakeBookie, readOnly bool) {
	s := c.stores[b.id]
	if s == nil {
		s = c.tree.Open()
		c.stores[b.id] = s
	}
	host, port, err := net.SplitHostPort(b.addr)
	require.NoError(c.t, err)
	n, err := strconv.Atoi(port)
	require.NoError(c.t, err)
	info := metadata.ServiceInfo{Endpoints: []metadata.Endpoint{{ID: metadata.EndpointBookie, Host: host, Port: int32(n), Protocol: metadata.ProtocolBookie}}}
	_, err = metadata.NewBookies(s, metadata.DefaultRoot).Register(context.Background(), b.id, info, readOnly, 0)
	require.NoError(c.t, err)
}

func (c *cluster) bookie(id BookieID) *fakeBookie {
	for _, b := range c.bookies {
		if b.id == id {
			return b
		}
	}
	c.t.Fatalf("no bookie %s", id)
	return nil
}

// client opens a client with time-outs that a slow machine keeps; change may alter its options.
func (c *cluster) client(change ...func(o *Options)) (*Client, *memmeta.Store) {
	c.t.Helper()
	o := &Options{AddTimeout: 15 * time.Second, ReadTimeout: 15 * time.Second, ConnectTimeout: 10 * time.Second, HedgeDelay: 100 * time.Millisecond,
		LongPollTimeout: time.Second, MetadataTimeout: 30 * time.Second, Logger: quietLogger()}
	for _, fn := range change {
		fn(o)
	}
	o = o.EnsureDefaults()
	require.NoError(c.t, o.Validate())
	store := c.tree.Open()
	views, err := metadata.LoadViews(context.Background(), store, metadata.DefaultRoot)
	require.NoError(c.t, err)
	client, err := newClient(store, views, o, netDial)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = client.Close() })
	return client, store
}

// record returns the stored record of a ledger.
func (c *cluster) record(id LedgerID) *Metadata {
	c.t.Helper()
	m, _, err := c.views.Ledgers.Read(context.Background(), id)
	require.NoError(c.t, err)
	return m
}

// awaitCopies waits until every entry up to last lies on its whole write set.
func (c *cluster) awaitCopies(id LedgerID, last EntryID) {
	c.t.Helper()
	m := c.record(id)
	for e := range last + 1 {
		for i := range m.WriteQuorum {
			b := c.bookie(m.EnsembleOf(e)[m.Quorum().Index(e, i)])
			require.Eventually(c.t, func() bool { _, has := b.holds(id, e); return has }, 30*time.Second, time.Millisecond, "entry %d on %s", e, b.id)
		}
	}
}

// checkStored fails unless every entry up to last is held by an ack quorum of its stored write set.
func (c *cluster) checkStored(id LedgerID, last EntryID) {
	c.t.Helper()
	m := c.record(id)
	q := m.Quorum()
	for e := EntryID(0); e <= last; e++ {
		have := 0
		for i := range q.Write {
			if _, ok := c.bookie(m.EnsembleOf(e)[q.Index(e, i)]).holds(id, e); ok {
				have++
			}
		}
		require.GreaterOrEqual(c.t, have, q.Ack, "entry %d of ledger %d, record %s", e, id, describeRecord(m))
	}
}

func describeRecord(m *Metadata) string {
	s := m.State.String()
	for _, f := range m.Fragments {
		s += fmt.Sprintf(" %d:%v", f.First, f.Bookies)
	}
	return s
}
