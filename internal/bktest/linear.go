package bktest

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/binderylog/bindery/ledgerclient"
)

// logState is the specification that applications see: a ledger is a list that grows at its end until it is closed.
type logState struct {
	entries int64
	closed  bool
}

// logModel checks the history of one ledger. Entries have their numbers as contents, so that the length of the list is
// all the state there is.
var logModel = porcupine.Model{
	Init: func() any { return logState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, o := state.(logState), input.(*op)
		switch o.kind {
		case opAppend:
			if s.closed || s.entries != o.n {
				return false, s
			}
			return true, logState{entries: s.entries + 1}
		case opLAC:
			return o.result < s.entries, s
		default:
			return o.result == s.entries-1, logState{entries: s.entries, closed: true}
		}
	},
	Hash: func(state any) uint64 { return uint64(state.(logState).entries) }, //nolint:gosec // not negative
	DescribeOperation: func(input, _ any) string {
		o := input.(*op)
		switch o.kind {
		case opAppend:
			return fmt.Sprintf("append %d", o.n)
		case opLAC:
			return fmt.Sprintf("LAC -> %d", o.result)
		}
		return fmt.Sprintf("end -> %d", o.result)
	},
}

// linearLimit bounds the search in one ledger's history, in real time.
const linearLimit = 20 * time.Second

// linearize checks what the applications saw of every ledger whose end is known. An append of unknown outcome took
// effect, at some time, if the ledger has its entry in the end; otherwise it did not and is left out. Ledgers with
// deferred sync are left out: there an acknowledgement is no promise.
func (l *opLog) linearize(h *History, ends map[ledgerclient.LedgerID]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	histories := map[ledgerclient.LedgerID][]porcupine.Operation{}
	for _, o := range l.ops {
		end, known := ends[o.ledger]
		if !known || o.ret == 0 && (o.kind != opAppend || o.n > end) {
			continue
		}
		ret := o.ret
		if ret == 0 {
			ret = math.MaxInt64
		}
		histories[o.ledger] = append(histories[o.ledger], porcupine.Operation{Input: o, Call: o.call, Return: ret})
	}
	for id, ops := range histories {
		switch porcupine.CheckOperationsTimeout(logModel, ops, linearLimit) {
		case porcupine.Illegal:
			h.Break("linearizability", "the applications' history of ledger %d, which ends at %d, is that of no append-only list", id, ends[id])
			for _, o := range ops {
				x := o.Input.(*op)
				h.Add(x.client, "ledger %d, %d to %d: %s", id, o.Call, o.Return, logModel.DescribeOperation(x, nil))
			}
		case porcupine.Unknown:
			h.Add("run", "the history of ledger %d is too long to be judged", id)
		}
	}
}
