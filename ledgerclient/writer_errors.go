package ledgerclient

import (
	"errors"
	"fmt"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
)

// refused notes an answer that is not OK, for error messages and placement.
func (l *writerLoop) refused(ln *lane, code wire.Code) {
	p := ln.conn.peer
	err := &BookieError{Bookie: p.id, Op: "add", Code: code.String(), Err: codeError(code)}
	l.note(err)
	switch code {
	case wire.Fenced, wire.UA:
	default:
		p.quarantine(err)
	}
}

// note remembers the newest error of each bookie.
func (l *writerLoop) note(err error) {
	var be *BookieError
	if errors.As(err, &be) {
		for i, old := range l.errs {
			var o *BookieError
			if errors.As(old, &o) && o.Bookie == be.Bookie {
				l.errs[i] = err
				return
			}
		}
	}
	if len(l.errs) >= 16 {
		l.errs = append(l.errs[:0], l.errs[1:]...)
	}
	l.errs = append(l.errs, err)
}

// causeErr says why the core gave up, with what the bookies said.
func (l *writerLoop) causeErr(cause ledger.Cause, e EntryID) error {
	sentinel := causeError(cause)
	switch cause {
	case ledger.CauseNone:
		return nil
	case ledger.CauseNotEnoughBookies, ledger.CauseDeferred, ledger.CauseForce:
		q := l.core.Record().Quorum()
		return &QuorumError{Ledger: l.w.id, Entry: e, Need: q.Ack, Got: max(0, q.Write-l.core.Failed().Len()), Causes: append([]error{sentinel}, l.errs...)}
	}
	if e >= 0 {
		return fmt.Errorf("ledger %d entry %d: %w", l.w.id, e, sentinel)
	}
	return fmt.Errorf("ledger %d: %w", l.w.id, sentinel)
}

// closeError is the result of Close.
func (l *writerLoop) closeError() error {
	if l.closed.Cause == ledger.CauseNone {
		return nil
	}
	return fmt.Errorf("close ledger %d at entry %d: %w", l.w.id, l.closed.Entry, errors.Join(causeError(l.closed.Cause), l.meta.err))
}
