package bktest

import (
	"sync"

	"github.com/binderylog/bindery/ledgerclient"
)

type opKind uint8

const (
	opAppend opKind = iota // wants to be entry n; done with n
	opLAC                  // reads the LAC; done with it
	opEnd                  // closes or recovers; done with the last entry
)

// op is one operation of an application, as it saw it.
type op struct {
	log       *opLog
	client    string
	kind      opKind
	ledger    ledgerclient.LedgerID
	n         int64 // append: its number
	result    int64
	call, ret int64 // places in the order of all calls and returns; ret 0: the outcome is unknown
}

// opLog is the history of the applications, for the check that it is linearizable.
type opLog struct {
	mu    sync.Mutex
	clock int64
	ops   []*op
}

// begin notes the call of an operation, whose outcome is unknown until done.
func (l *opLog) begin(client string, kind opKind, id ledgerclient.LedgerID, n int64) *op {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock++
	o := &op{log: l, client: client, kind: kind, ledger: id, n: n, call: l.clock}
	l.ops = append(l.ops, o)
	return o
}

func (o *op) done(result int64) {
	o.log.mu.Lock()
	defer o.log.mu.Unlock()
	o.log.clock++
	o.result, o.ret = result, o.log.clock
}

// acked counts the appends that succeeded.
func (l *opLog) acked() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := int64(0)
	for _, o := range l.ops {
		if o.kind == opAppend && o.ret != 0 {
			n++
		}
	}
	return n
}
