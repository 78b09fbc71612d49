package offload

import "errors"

// Errors that callers test for.
var (
	// ErrVersion is returned for something that a newer version wrote and this one must not guess at.
	ErrVersion = errors.New("offload: written by a newer version")
	// ErrUnavailable is returned when fewer targets than are needed answered. Try again; it never means that an entry is absent.
	ErrUnavailable = errors.New("offload: too few targets can be reached")
	// ErrNotOffloaded is returned when a ledger has no copy in the tier that may be read.
	ErrNotOffloaded = errors.New("offload: the ledger is not in the tier")
	// ErrNoEntry is returned for an entry behind the ledger's end.
	ErrNoEntry = errors.New("offload: no such entry")
)
