package metadata

import (
	"errors"
	"fmt"
)

// Errors of a Store. All but ErrUnknownOutcome say that nothing was written.
var (
	// ErrNotFound is returned when a key does not exist.
	ErrNotFound = errors.New("metadata: no such key")
	// ErrExists is matched by a *ConflictError when a key that was to be created exists.
	ErrExists = errors.New("metadata: key exists")
	// ErrVersion is matched by every *ConflictError: a condition did not hold. Read again and decide anew.
	ErrVersion = errors.New("metadata: version conflict")
	// ErrUnavailable is returned when the store could not be reached within the time-out. Nothing was written.
	ErrUnavailable = errors.New("metadata store unavailable")
	// ErrUnknownOutcome is returned when a write was sent and its answer did not come. It may have happened, and it may
	// still happen after any read that follows. Only a later compare-and-set of one's own, or a higher version read, tells.
	ErrUnknownOutcome = errors.New("metadata: outcome of the write unknown")
	// ErrSessionLost is returned for an ephemeral write whose session has ended. Ask for a new session.
	ErrSessionLost = errors.New("metadata: session lost")
	// ErrTooLarge is returned for a key, value or transaction beyond the limits.
	ErrTooLarge = errors.New("metadata: over the size limit")
	// ErrNotEmpty is returned for the deletion of a key that others lie below, by engines that keep keys in directories.
	// Delete those first.
	ErrNotEmpty = errors.New("metadata: key has others below it")
	// ErrBadTxn is returned for a transaction that names a key twice or an empty key.
	ErrBadTxn = errors.New("metadata: malformed transaction")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("metadata: store closed")
	// ErrNoLedger is returned when a ledger has no record.
	ErrNoLedger = errors.New("metadata: no such ledger")
	// ErrNotInitialized is returned when the store holds no cluster under the root. `bindery cluster init` makes one.
	ErrNotInitialized = errors.New("metadata: no cluster at this root (create one with `bindery cluster init`)")
)

// ConflictError says which condition of a write did not hold.
type ConflictError struct {
	Key  string
	Want Version // what the condition asked for
	Have Version // what the store held: a version, or Absent
}

// Error implements error.
func (e *ConflictError) Error() string {
	switch {
	case e.Want == Absent:
		return fmt.Sprintf("metadata: %s exists (version %d)", e.Key, e.Have)
	case e.Have == Absent:
		return fmt.Sprintf("metadata: %s does not exist (expected version %d)", e.Key, e.Want)
	}
	return fmt.Sprintf("metadata: %s has version %d, expected %d", e.Key, e.Have, e.Want)
}

// Is makes a conflict match ErrVersion, and ErrExists or ErrNotFound where that is what happened.
func (e *ConflictError) Is(target error) bool {
	switch target {
	case ErrVersion:
		return true
	case ErrExists:
		return e.Want == Absent
	case ErrNotFound:
		return e.Have == Absent
	}
	return false
}

// CheckLimits returns an error if a transaction is malformed or exceeds the limits. Drivers call it first.
func CheckLimits(t Txn) error {
	n := len(t.Checks) + len(t.Puts) + len(t.Deletes)
	if n == 0 || n > TxnMax {
		return fmt.Errorf("%w: %d operations in a transaction (1 to %d)", ErrTooLarge, n, TxnMax)
	}
	seen := make(map[string]struct{}, n)
	key := func(k string) error {
		if k == "" || len(k) > KeyMax {
			return fmt.Errorf("%w: key of %d bytes (1 to %d)", ErrTooLarge, len(k), KeyMax)
		}
		if _, dup := seen[k]; dup {
			return fmt.Errorf("%w: key %s twice", ErrBadTxn, k)
		}
		seen[k] = struct{}{}
		return nil
	}
	for _, c := range t.Checks {
		if err := key(c.Key); err != nil {
			return err
		}
		if c.Version == Any {
			return fmt.Errorf("%w: check of %s without a condition", ErrBadTxn, c.Key)
		}
	}
	size := 0
	for _, p := range t.Puts {
		if err := key(p.Key); err != nil {
			return err
		}
		if size += len(p.Value); len(p.Value) > ValueMax || size > ValueMax {
			return fmt.Errorf("%w: %d bytes of values (at most %d)", ErrTooLarge, size, ValueMax)
		}
	}
	for _, d := range t.Deletes {
		if err := key(d.Key); err != nil {
			return err
		}
		if d.Version == Absent {
			return fmt.Errorf("%w: delete of %s expects it to be absent", ErrBadTxn, d.Key)
		}
	}
	return nil
}
