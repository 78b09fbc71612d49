package ledger

import (
	"errors"
	"fmt"
	"strconv"
)

// ID names a ledger. Valid ids are 0 and up; the whole 63-bit range is in use by some deployments.
type ID int64

// EntryID is the position of an entry in its ledger. The first entry is 0.
type EntryID int64

// InvalidEntry stands for "no entry": the LAC of an empty ledger, the id of a read for the last entry.
const InvalidEntry EntryID = -1

// BookieID is the name under which a bookie registers, such as "10.0.0.7:3181" or any other stable text.
type BookieID string

// State is the state of a ledger's metadata record. The numbers are those of the stored record.
type State uint8

// The states, in the only order in which a ledger may pass through them.
const (
	StateOpen       State = 1 // a writer may add
	StateInRecovery State = 2 // some client agrees the end; the writer is fenced
	StateClosed     State = 3 // last entry and length are final
)

func (s State) String() string {
	switch s {
	case StateOpen:
		return "OPEN"
	case StateInRecovery:
		return "IN_RECOVERY"
	case StateClosed:
		return "CLOSED"
	}
	return "State(" + strconv.Itoa(int(s)) + ")"
}

// Valid reports whether s is one of the three states.
func (s State) Valid() bool { return s >= StateOpen && s <= StateClosed }

// DigestType says which digest the entries of a ledger carry. The numbers are those of the stored record.
type DigestType uint8

// The digest types with the length of the digest in an entry body.
const (
	DigestCRC32  DigestType = 1 // 8 bytes
	DigestHMAC   DigestType = 2 // 20 bytes, keyed with the ledger's password
	DigestCRC32C DigestType = 3 // 4 bytes
	DigestDummy  DigestType = 4 // none
)

func (d DigestType) String() string {
	switch d {
	case DigestCRC32:
		return "CRC32"
	case DigestHMAC:
		return "HMAC"
	case DigestCRC32C:
		return "CRC32C"
	case DigestDummy:
		return "DUMMY"
	}
	return "DigestType(" + strconv.Itoa(int(d)) + ")"
}

// Valid reports whether d is one of the four digest types.
func (d DigestType) Valid() bool { return d >= DigestCRC32 && d <= DigestDummy }

// Quorum is the replication of a ledger: how many bookies an ensemble has, how many of them get each entry, and how
// many of those must hold it before it counts as acknowledged. Valid when Ensemble >= Write >= Ack >= 1.
type Quorum struct{ Ensemble, Write, Ack int }

// EnsembleMax bounds the ensemble size. Index sets are 64-bit masks; deployments use 2 to 10 bookies.
const EnsembleMax = 64

// ErrBadQuorum is returned for sizes that are not Ensemble >= Write >= Ack >= 1 or exceed EnsembleMax.
var ErrBadQuorum = errors.New("ledger: quorum sizes must satisfy ensemble >= write >= ack >= 1")

// Validate returns an error wrapping ErrBadQuorum for impossible sizes.
func (q Quorum) Validate() error {
	if q.Ack < 1 || q.Write < q.Ack || q.Ensemble < q.Write || q.Ensemble > EnsembleMax {
		return fmt.Errorf("%w, and ensemble at most %d (got E=%d Qw=%d Qa=%d)", ErrBadQuorum, EnsembleMax, q.Ensemble, q.Write, q.Ack)
	}
	return nil
}
