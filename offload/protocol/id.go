package protocol

import (
	"encoding/hex"
	"fmt"
)

// AttemptID names one try to offload a ledger: 16 random bytes. The zero value names none.
type AttemptID [16]byte

// String returns 32 lower-case hex digits.
func (a AttemptID) String() string { return hex.EncodeToString(a[:]) }

// Zero reports whether a names no attempt.
func (a AttemptID) Zero() bool { return a == AttemptID{} }

// ParseAttemptID reads what String returns.
func ParseAttemptID(s string) (AttemptID, error) {
	var a AttemptID
	if len(s) != 2*len(a) {
		return a, fmt.Errorf("attempt id %q: must be %d hex digits", s, 2*len(a))
	}
	if _, err := hex.Decode(a[:], []byte(s)); err != nil {
		return a, fmt.Errorf("attempt id %q: %w", s, err)
	}
	return a, nil
}
