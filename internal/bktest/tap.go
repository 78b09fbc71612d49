package bktest

import (
	"encoding/binary"

	"github.com/binderylog/bindery/internal/wire"
)

// frameLimit is above every frame of either side.
const frameLimit = 16 << 20

// frames hands every complete frame at the start of buf to fn and returns the rest.
func frames(buf []byte, fn func(packet []byte)) []byte {
	for {
		packet, rest, err := wire.Frame(buf, frameLimit)
		if err != nil {
			return append([]byte(nil), buf...)
		}
		fn(packet)
		buf = rest
	}
}

// call is a request that a bookie has taken and not answered.
type call struct {
	seq           int64 // of its delivery
	flags         wire.Flags
	deferred      bool
	ledger, entry int64
}

// callID matches answers to requests: by transaction in V3, by operation, ledger and entry in V2.
type callID struct {
	op            wire.Op
	number        uint64
	ledger, entry int64
}

// calls holds them. Of equal ids the oldest is taken first, which errs on the side of saying nothing.
type calls map[callID][]call

func (c calls) take(id callID) (call, bool) {
	list := c[id]
	switch len(list) {
	case 0:
		return call{}, false
	case 1:
		delete(c, id)
	default:
		c[id] = list[1:]
	}
	return list[0], true
}

func protoOf(packet []byte) wire.Proto {
	if len(packet) > 0 && packet[0] == 0x0A {
		return wire.V3
	}
	return wire.V2
}

func idOf(proto wire.Proto, op wire.Op, txn uint64, request, ledgerID, entry int64) callID {
	switch {
	case proto == wire.V3:
		return callID{op: op, number: txn}
	case op == wire.OpBatchRead:
		return callID{op: op, number: uint64(request)} //nolint:gosec // an opaque number
	}
	return callID{op: op, ledger: ledgerID, entry: entry}
}

func int64At(b []byte, at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) } //nolint:gosec // two's complement

// Delivered implements Tap.
func (c *Checker) Delivered(p *pair, packet []byte) {
	var d wire.Decoder
	var r wire.Request
	if err := d.Request(packet, &r); err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	x := call{seq: c.seq, flags: r.Flags, deferred: r.WriteFlags&wire.DeferredSync != 0, ledger: r.Ledger, entry: r.Entry}
	switch r.Op {
	case wire.OpAdd:
		if len(r.Body) < bodyHead {
			return
		}
		x.ledger, x.entry = int64At(r.Body, 0), int64At(r.Body, 8)
		c.addDelivered(p, x, r.Body)
	case wire.OpWriteLAC:
		if len(r.Body) >= 16 {
			c.claimed(p.client.name, x.ledger, int64At(r.Body, 8), "an explicit LAC")
		}
	}
	id := idOf(r.Proto, r.Op, r.TxnID, r.RequestID, x.ledger, x.entry)
	p.calls[id] = append(p.calls[id], x)
}

// Answered implements Tap.
func (c *Checker) Answered(p *pair, packet []byte) {
	proto := protoOf(packet)
	var r wire.Response
	if err := wire.DecodeResponse(proto, packet, &r); err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	x, ok := p.calls.take(idOf(proto, r.Op, r.TxnID, r.RequestID, r.Ledger, r.Entry))
	if !ok {
		return
	}
	b := c.bookie(p.server.name)
	switch r.Op {
	case wire.OpAdd:
		c.addAnswered(b, p, x, r.Code)
	case wire.OpRead, wire.OpBatchRead, wire.OpReadLAC:
		c.readAnswered(b, p, x, &r)
	}
}

// fenceStands lists the answers to a fencing read after which the fence must hold: whatever the read found, the fence
// is durable before them.
func fenceStands(code wire.Code) bool {
	return code == wire.OK || code == wire.NoEntry || code == wire.NoLedger || code == wire.UnknownState
}

func denies(code wire.Code) bool { return code == wire.NoEntry || code == wire.NoLedger }

var _ Tap = (*Checker)(nil)
