package ledgerclient

import (
	"testing"

	"github.com/binderylog/bindery/internal/digest"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
)

type sinkFunc func(*call)

func (f sinkFunc) callDone(c *call) { f(c) }

// FuzzAnswers feeds what a bookie might send to everything that looks at answers: no panic, and nothing is taken for an
// entry that is not one.
func FuzzAnswers(f *testing.F) {
	d, err := digest.New(ledger.DigestCRC32C, nil)
	if err != nil {
		f.Fatal(err)
	}
	body := d.Seal(nil, 5, 7, 6, 100, []byte("payload"))
	for _, r := range []wire.Response{
		{Proto: wire.V2, Version: 2, Op: wire.OpAdd, Ledger: 5, Entry: 7},
		{Proto: wire.V2, Version: 2, Op: wire.OpRead, Ledger: 5, Entry: 7, Body: body},
		{Proto: wire.V2, Version: 2, Op: wire.OpRead, Code: wire.NoEntry, Ledger: 5, Entry: 7},
		{Proto: wire.V2, Version: 2, Op: wire.OpBatchRead, Ledger: 5, Entry: 7, RequestID: 1, Entries: [][]byte{body, body[:10], {}}},
		{Proto: wire.V3, Op: wire.OpRead, TxnID: 1, Ledger: 5, Entry: 7, Body: body, MaxLAC: 9, HasMaxLAC: true},
		{Proto: wire.V3, Op: wire.OpReadLAC, TxnID: 1, Ledger: 5, LACBody: d.SealLAC(nil, 5, 9), LastEntryBody: body},
		{Proto: wire.V3, Op: wire.OpAdd, TxnID: 1 | laneTxn, Ledger: 5, Entry: 7},
	} {
		f.Add(wire.AppendResponse(nil, &r), r.Proto == wire.V3)
	}
	f.Fuzz(func(t *testing.T, data []byte, v3 bool) {
		client := &Client{o: (&Options{Logger: quietLogger()}).EnsureDefaults()}
		c := &conn{peer: &peer{client: client, id: "b"}, proto: wire.V2, calls: map[callKey]*call{}, lanes: map[LedgerID]*lane{}}
		if v3 {
			c.proto = wire.V3
		}
		rd := &Reader{client: client, id: 5, digest: d, core: ledger.NewReader(&ledger.Metadata{Ensemble: 1, WriteQuorum: 1, AckQuorum: 1, State: StateOpen,
			Fragments: []Fragment{{Bookies: []BookieID{"b"}}}}, 1)}
		sink := sinkFunc(func(x *call) {
			s := &scan{r: rd}
			ch := &chunk{first: 7, count: 3}
			if x.answer() == ledger.AnswerOK && s.accept(ch, x) == ledger.AnswerOK && string(ch.entries[0].Data) != "payload" {
				t.Errorf("accepted %q", ch.entries[0].Data)
			}
			_, _, _ = rd.lacOf(x)
			tl := &tail{r: rd}
			if e, _, _ := tl.open(x, 6); e != nil && string(e.Data) != "payload" {
				t.Errorf("polled %q", e.Data)
			}
			_ = x.failure()
		})
		for _, op := range []wire.Op{wire.OpRead, wire.OpReadLAC, wire.OpAdd, wire.OpForce} {
			c.calls[callKey{op: op, a: 1}] = &call{op: op, conn: c, sink: sink}
		}
		c.calls[callKey{op: wire.OpRead, a: 5, b: 7}] = &call{op: wire.OpRead, conn: c, sink: sink}
		c.calls[callKey{op: wire.OpBatchRead, a: 1}] = &call{op: wire.OpBatchRead, conn: c, sink: sink}
		w := &Writer{id: 5, wake: make(chan struct{}, 1)}
		c.lanes[5] = &lane{w: w, conn: c}
		r := receiver{c: c, limit: client.o.MaxFrameBytes, buf: append([]byte(nil), data...), end: len(data)}
		if len(data) >= wire.LengthSize {
			if n, err := wire.FrameSize(data, r.limit); err == nil && n > len(data) && n > ownFrameBytes {
				return // it would wait for the rest
			}
		}
		for r.end-r.start >= wire.LengthSize {
			have := r.buf[r.start:r.end]
			size, err := wire.FrameSize(have, r.limit)
			if err != nil || size > len(have) {
				break
			}
			if r.packet(have[wire.LengthSize:size], false) != nil {
				break
			}
			r.start += size
		}
		r.handOver()
	})
}
