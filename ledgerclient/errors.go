package ledgerclient

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/wire"
	"github.com/binderylog/bindery/ledgerclient/placement"
)

// Errors for use with errors.Is. What the text says after the dash is what to do next.
var (
	// ErrFenced is returned when another client recovers or has closed the ledger: go on in a new one.
	ErrFenced = errors.New("ledger is fenced by another client")
	// ErrClosed is returned for calls on a closed Client, Writer or Reader.
	ErrClosed = errors.New("closed")
	// ErrNoSuchLedger is returned when the metadata store has no record of the ledger.
	ErrNoSuchLedger = errors.New("no such ledger")
	// ErrOffloaded is matched, besides ErrNoSuchLedger, when only the object stores have the ledger and this client knows none.
	ErrOffloaded = errors.New("offloaded: only the object stores have the ledger, and none is named; set BINDERY_OFFLOAD__TARGETS, or Options.Offload in a program")
	// ErrNoSuchEntry is returned for an entry beyond the end, or when every bookie of its write set denies having it.
	ErrNoSuchEntry = errors.New("no such entry")
	// ErrNotEnoughBookies is returned when an ensemble, or an ack quorum, can not be had from the bookies that are up.
	ErrNotEnoughBookies = placement.ErrNotEnoughBookies
	// ErrUnauthorized is returned for a wrong password.
	ErrUnauthorized = errors.New("unauthorized: wrong password")
	// ErrReadOnly is matched by the answer of a bookie that takes no adds.
	ErrReadOnly = errors.New("bookie is read-only")
	// ErrTooManyRequests is matched by the answer of a bookie that has no room at the moment.
	ErrTooManyRequests = errors.New("bookie has no room for the request")
	// ErrDigestMismatch is matched by an answer that is not what the writer sealed.
	ErrDigestMismatch = errors.New("digest mismatch")
	// ErrVersionConflict is returned when the stored record contradicts this client: re-open the ledger to learn its end.
	ErrVersionConflict = errors.New("ledger metadata was changed by another client")
	// ErrUnknownState is matched by the answer of a bookie that may have lost part of the ledger.
	ErrUnknownState = errors.New("bookie can not vouch for the ledger")
	// ErrTimeout is matched when a bookie did not answer in time.
	ErrTimeout = errors.New("no answer in time")
	// ErrLedgerExists is returned when the id asked for is taken.
	ErrLedgerExists = errors.New("ledger exists")
	// ErrDuplicateEntry is returned when an entry id was given to an AdvancedWriter before.
	ErrDuplicateEntry = errors.New("entry id was given before")
	// ErrTooLarge is returned for an entry that does not fit a frame.
	ErrTooLarge = errors.New("entry is too large")
	// ErrTooManyFragments is returned when the ensemble of a ledger was changed too often.
	ErrTooManyFragments = errors.New("ensemble changed too often")
	// ErrForceFailed is returned when a force could not make every acknowledged entry durable.
	ErrForceFailed = errors.New("force failed")
	// ErrMetadata is returned when the metadata store did not answer in time; what it last was told may still happen.
	ErrMetadata = errors.New("metadata store did not answer in time")
)

// BookieError is what one bookie did to one request.
type BookieError struct {
	Bookie BookieID
	Op     string
	Code   string // of the answer; "" if there was none
	Err    error  // one of the errors above, or of the network
}

// Error implements error.
func (e *BookieError) Error() string {
	if e.Code != "" {
		return fmt.Sprintf("bookie %s: %s: %s", e.Bookie, e.Op, e.Code)
	}
	return fmt.Sprintf("bookie %s: %s: %v", e.Bookie, e.Op, e.Err)
}

// Unwrap returns the cause.
func (e *BookieError) Unwrap() error { return e.Err }

// QuorumError says that too few bookies could do what was asked, and what each of those that could not answered.
type QuorumError struct {
	Ledger LedgerID
	Entry  EntryID // -1 if the request was not about one entry
	Need   int     // good answers that were needed; 0 if it was not a matter of numbers
	Got    int     // good answers that came
	Reason string  // what could not be had, in words; "" = Got of Need bookies
	Causes []error // *BookieError each, and the sentinel that sums them up
}

// Error implements error.
func (e *QuorumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ledger %d", e.Ledger)
	if e.Entry >= 0 {
		fmt.Fprintf(&b, " entry %d", e.Entry)
	}
	b.WriteString(": ")
	if e.Reason != "" {
		b.WriteString(e.Reason)
	} else {
		fmt.Fprintf(&b, "%d of %d bookies needed", e.Got, e.Need)
	}
	sep := ": "
	for _, c := range e.Causes {
		if c == ErrNotEnoughBookies || c == ErrNoSuchEntry { //nolint:errorlint // the bare sentinel, which the text before says already
			continue
		}
		b.WriteString(sep)
		b.WriteString(c.Error())
		sep = "; "
	}
	return b.String()
}

// Unwrap returns the causes.
func (e *QuorumError) Unwrap() []error { return e.Causes }

// codeError returns the sentinel for a bookie's answer, nil for success.
func codeError(c wire.Code) error {
	switch c {
	case wire.OK:
		return nil
	case wire.NoLedger:
		return ErrNoSuchLedger
	case wire.NoEntry:
		return ErrNoSuchEntry
	case wire.UA:
		return ErrUnauthorized
	case wire.Fenced:
		return ErrFenced
	case wire.ReadOnly:
		return ErrReadOnly
	case wire.TooMany:
		return ErrTooManyRequests
	case wire.UnknownState:
		return ErrUnknownState
	}
	return fmt.Errorf("answer %v", c)
}

// causeError returns the sentinel for what ended a core.
func causeError(c ledger.Cause) error {
	switch c {
	case ledger.CauseNone:
		return nil
	case ledger.CauseFenced:
		return ErrFenced
	case ledger.CauseUnauthorized:
		return ErrUnauthorized
	case ledger.CauseNotEnoughBookies, ledger.CauseNotCovered, ledger.CauseUnreadable, ledger.CauseDeferred:
		return ErrNotEnoughBookies
	case ledger.CauseTooManyFragments:
		return ErrTooManyFragments
	case ledger.CauseForce:
		return ErrForceFailed
	case ledger.CauseMetadata:
		return ErrMetadata
	case ledger.CauseGone:
		return ErrNoSuchLedger
	case ledger.CauseConflict:
		return ErrVersionConflict
	}
	return ErrClosed
}

// about says what was being done to which ledger, unless the error names the ledger itself.
func about(verb string, id LedgerID, err error) error {
	var q *QuorumError
	if errors.As(err, &q) && q.Ledger == id {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return fmt.Errorf("%s ledger %d: %w", verb, id, err)
}

// kindError adds a sentinel to an error, whose text it changes no more than is needed.
type kindError struct {
	text      string
	kind, err error
}

func (e *kindError) Error() string   { return e.text }
func (e *kindError) Unwrap() []error { return []error{e.kind, e.err} }

// kinded returns err, matching kind too. The text names the kind first, once.
func kinded(kind, err error) error {
	text := err.Error()
	if !strings.Contains(text, kind.Error()) {
		text = kind.Error() + ": " + text
	}
	return &kindError{text: text, kind: kind, err: err}
}

// storeVerb is how the typed records of the metadata store begin their errors. This package says on its own what it was
// doing, and to which ledger.
var storeVerb = regexp.MustCompile(`^((create|read|write|delete) ledger -?\d+|list ledgers): `)

// metaError adds the sentinel that fits an error of the metadata store.
func metaError(err error) error {
	text := storeVerb.ReplaceAllString(err.Error(), "")
	with := func(kind error, text string) error { return &kindError{text: text, kind: kind, err: err} }
	switch {
	case errors.Is(err, metadata.ErrNoLedger):
		return with(ErrNoSuchLedger, ErrNoSuchLedger.Error())
	case errors.Is(err, metadata.ErrVersion):
		return with(ErrVersionConflict, ErrVersionConflict.Error()+": "+text)
	case errors.Is(err, metadata.ErrUnavailable), errors.Is(err, metadata.ErrUnknownOutcome):
		return with(ErrMetadata, ErrMetadata.Error()+": "+text)
	case errors.Is(err, metadata.ErrClosed):
		return with(ErrClosed, text)
	}
	return with(err, text)
}

// isDamage reports whether a record can not be decoded.
func isDamage(err error) bool {
	var e *corrupt.Error
	return errors.As(err, &e)
}
