package bktest

import (
	"context"
	"io"
	"math/rand/v2"
	"sort"
	"time"

	"github.com/binderylog/bindery/internal/digest"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
)

// password is that of every ledger of a run.
var password = []byte("sim")

// probeEntries bounds the entries that one probe asks for.
const probeEntries = 64

// question is one request of a probe, and what is known about its answer.
type question struct {
	ledger, entry int64
	add           bool
	must          bool // the entry has to be there
}

// probe asks a bookie directly for entries that it has acknowledged, and plays the old writer to ledgers that it has
// fenced. The tap judges most answers; that a bookie which never lost anything still has what it acknowledged is judged here.
func (c *Cluster) probe(m *member, seed uint64) {
	questions := c.check.questions(m.name, m.kept, rand.New(rand.NewPCG(seed, 1)))
	if len(questions) == 0 {
		return
	}
	host := c.net.Join("probe")
	defer host.Kill(false)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	nc, err := host.Dial(ctx, m.name+":3181")
	if err != nil {
		return
	}
	defer func() { _ = nc.Close() }()
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	var out []byte
	for i, q := range questions {
		r := wire.Request{Proto: wire.V3, Version: byte(wire.V3), Op: wire.OpRead, TxnID: uint64(i), Ledger: q.ledger, Entry: q.entry}
		if q.add {
			key := digest.MasterKey(password)
			d, err := digest.New(ledger.DigestCRC32C, nil)
			if err != nil {
				return
			}
			r.Op, r.Key, r.HasKey = wire.OpAdd, key[:], true
			r.Body = d.Seal(nil, q.ledger, q.entry, -1, 1<<40, []byte("from a writer that does not know that it is fenced"))
		}
		if out, err = wire.AppendRequest(out, &r); err != nil {
			return
		}
	}
	go func() { _, _ = nc.Write(out) }()
	for range questions {
		r, ok := readResponse(nc)
		if !ok {
			return
		}
		q := questions[min(int(r.TxnID), len(questions)-1)] //nolint:gosec // our own small numbers
		if q.must && r.Code != wire.OK && m.kept {
			c.h.Break("I20", "%s has never lost anything and answers %v for entry %d of ledger %d, which it has acknowledged", m.name, r.Code, q.entry, q.ledger)
			return
		}
	}
}

func readResponse(r io.Reader) (wire.Response, bool) {
	var resp wire.Response
	head := make([]byte, wire.LengthSize)
	if _, err := io.ReadFull(r, head); err != nil {
		return resp, false
	}
	size, err := wire.FrameSize(head, frameLimit)
	if err != nil {
		return resp, false
	}
	packet := make([]byte, size-wire.LengthSize)
	if _, err := io.ReadFull(r, packet); err != nil {
		return resp, false
	}
	return resp, wire.DecodeResponse(wire.V3, packet, &resp) == nil
}

// questions chooses what to ask a bookie.
func (c *Checker) questions(name string, kept bool, rng *rand.Rand) []question {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.bookie(name)
	var all []question
	for id, entries := range b.acked {
		l := c.ledgers[id]
		if l == nil || l.record == nil || l.gone {
			continue
		}
		closed := l.record.State == ledger.StateClosed
		if closed && !l.record.Names(ledger.BookieID(name)) {
			continue
		}
		for e := range entries {
			all = append(all, question{ledger: id, entry: e, must: kept && !closed})
		}
	}
	sort.Slice(all, func(i, j int) bool {
		return all[i].ledger < all[j].ledger || all[i].ledger == all[j].ledger && all[i].entry < all[j].entry
	})
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = all[:min(len(all), probeEntries)]
	fenced := make([]int64, 0, len(b.fenced))
	for id := range b.fenced {
		fenced = append(fenced, id)
	}
	sort.Slice(fenced, func(i, j int) bool { return fenced[i] < fenced[j] })
	for _, id := range fenced {
		all = append(all, question{ledger: id, entry: 1 << 40, add: true})
	}
	return all
}

// audit asks every bookie for what it has acknowledged.
func (c *Cluster) audit() {
	for i, m := range c.members {
		if m.up {
			c.probe(m, c.cfg.Seed+uint64(i)) //nolint:gosec // a small number
		}
	}
}
