package ledgerclient

import (
	"errors"
	"fmt"
	"slices"

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
func (l *writerLoop) note(err error) { l.errs = noteError(l.errs, err) }

// errorsKept bounds what an error says of single bookies.
const errorsKept = 16

// noteError appends err and drops what the same bookie did before.
func noteError(errs []error, err error) []error {
	var be, old *BookieError
	if errors.As(err, &be) {
		errs = slices.DeleteFunc(errs, func(e error) bool { return errors.As(e, &old) && old.Bookie == be.Bookie })
	}
	if len(errs) >= errorsKept {
		errs = slices.Delete(errs, 0, 1)
	}
	return append(errs, err)
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
	who := fmt.Sprintf("ledger %d", l.w.id)
	if e >= 0 {
		who += fmt.Sprintf(" entry %d", e)
	}
	for _, err := range slices.Backward(l.errs) { // the bookie that said so
		if errors.Is(err, sentinel) {
			return fmt.Errorf("%s: %w", who, &kindError{text: sentinel.Error() + " (" + err.Error() + ")", kind: sentinel, err: err})
		}
	}
	return fmt.Errorf("%s: %w", who, sentinel)
}

// closeError is the result of Close.
func (l *writerLoop) closeError() error {
	if l.closed.Cause == ledger.CauseNone {
		return nil
	}
	return fmt.Errorf("close ledger %d at entry %d: %w", l.w.id, l.closed.Entry, closeCause(l.closed.Cause, l.meta.err))
}

func closeCause(c ledger.Cause, err error) error {
	if c == ledger.CauseMetadata && err != nil {
		return metaError(err)
	}
	return causeError(c)
}
