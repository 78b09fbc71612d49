package protocol

import "strconv"

// State is the state of an offload record. The numbers are those of the stored record.
type State uint8

// The states. Absent means that there is no record; it is never stored.
const (
	Absent    State = 0
	Uploading State = 1 // an attempt is under way, or was left behind
	Complete  State = 2 // committed: the tier has all of it, and so do the bookies
	Released  State = 3 // the tier alone has it
	Deleting  State = 4 // the ledger is gone for everybody; objects are being removed
)

func (s State) String() string {
	switch s {
	case Absent:
		return "ABSENT"
	case Uploading:
		return "UPLOADING"
	case Complete:
		return "COMPLETE"
	case Released:
		return "RELEASED"
	case Deleting:
		return "DELETING"
	}
	return "State(" + strconv.Itoa(int(s)) + ")"
}

// Valid reports whether s may stand in a record.
func (s State) Valid() bool { return s >= Uploading && s <= Deleting }
