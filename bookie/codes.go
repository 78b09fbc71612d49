package bookie

import (
	"context"
	"errors"

	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/wire"
	"github.com/binderylog/bindery/journal"
)

// codeOf returns the protocol's code for an error of storage or journal. What it does not know is an I/O error: never
// absence, never success.
func codeOf(err error) wire.Code {
	switch {
	case err == nil:
		return wire.OK
	case errors.Is(err, storage.ErrNoEntry):
		return wire.NoEntry
	case errors.Is(err, storage.ErrNoLedger):
		return wire.NoLedger
	case errors.Is(err, storage.ErrUnknown):
		return wire.UnknownState
	case errors.Is(err, storage.ErrCacheFull), errors.Is(err, journal.ErrBusy):
		return wire.TooMany
	case errors.Is(err, storage.ErrDirFull):
		return wire.ReadOnly
	case errors.Is(err, storage.ErrBadEntry):
		return wire.BadReq
	case errors.Is(err, context.DeadlineExceeded):
		return wire.TooMany
	}
	return wire.IO
}

// codeOfVerdict returns the code for a refusal by a ledger's rules.
func codeOfVerdict(v ledger.Verdict) wire.Code {
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

// codeOfRead returns the code for a judged read, OK for one that is served.
func codeOfRead(v ledger.ReadVerdict) wire.Code {
	switch v {
	case ledger.Serve:
		return wire.OK
	case ledger.NoEntry:
		return wire.NoEntry
	case ledger.NoLedger:
		return wire.NoLedger
	}
	return wire.UnknownState
}
