package wire

import "strconv"

// Proto is the form of a packet.
type Proto uint8

// The two forms. The values are the numbers that the protocol itself gives them.
const (
	V2 Proto = 2
	V3 Proto = 3
)

// Op is an operation, in one numbering for both forms.
type Op uint8

// The operations. OpUnsupported stands for a V3 operation that has no implementation in V3 (range read, range add, batch
// read) or that is unknown; RawOp holds its number.
const (
	OpUnsupported Op = iota
	OpAdd
	OpRead
	OpBatchRead // V2 only
	OpAuth
	OpReadLAC     // V3 only, as all below
	OpWriteLAC    //
	OpBookieInfo  //
	OpStartTLS    //
	OpForce       //
	OpListEntries //
	opCount
)

// ops gives the numbers of each operation on the wire; 0 = the form does not have it.
var ops = [opCount]struct {
	v2, v3 uint8
	name   string
}{
	OpUnsupported: {0, 0, "unsupported"},
	OpAdd:         {1, 2, "add"},
	OpRead:        {2, 1, "read"},
	OpBatchRead:   {7, 0, "batch read"},
	OpAuth:        {3, 5, "auth"},
	OpReadLAC:     {0, 7, "read LAC"},
	OpWriteLAC:    {0, 6, "write LAC"},
	OpBookieInfo:  {0, 8, "bookie info"},
	OpStartTLS:    {0, 9, "start TLS"},
	OpForce:       {0, 10, "force ledger"},
	OpListEntries: {0, 11, "list entries"},
}

// String returns the name of the operation.
func (o Op) String() string {
	if o < opCount {
		return ops[o].name
	}
	return "op " + strconv.Itoa(int(o))
}

func opOfV2(n uint32) Op {
	switch n {
	case 1:
		return OpAdd
	case 2:
		return OpRead
	case 3:
		return OpAuth
	case 7:
		return OpBatchRead
	}
	return OpUnsupported
}

func opOfV3(n uint64) Op {
	for op := OpUnsupported + 1; op < opCount; op++ {
		if v3 := ops[op].v3; v3 != 0 && uint64(v3) == n {
			return op
		}
	}
	return OpUnsupported
}

// Flags of a request. The values are the bits of the V2 flags field; V3 says the same in other fields.
type Flags uint8

// The flags.
const (
	Fence        Flags = 1 // read: fence the ledger first; Key is required
	RecoveryAdd  Flags = 2 // add: accepted although the ledger is fenced
	HighPriority Flags = 4 // use the reserved lane
	flagsKnown         = Fence | RecoveryAdd | HighPriority
)

// DeferredSync is the bit of Request.WriteFlags that lets an add be acknowledged before it is synced.
const DeferredSync int32 = 1

// The bits of Request.Requested (bookie info).
const (
	WantTotalCapacity int64 = 1
	WantFreeSpace     int64 = 2
)

// Sizes of the protocol.
const (
	// LengthSize is the size in bytes of the length in front of a packet.
	LengthSize = 4
	// DefaultFrameLimit is BookKeeper's default limit for a whole frame, length included.
	DefaultFrameLimit = 5 << 20
	// PulsarFrameLimit is what a bookie that serves Pulsar brokers with their defaults must accept.
	PulsarFrameLimit = 5<<20 + 10<<10
	// MasterKeySize is the size of a master key; V2 has room for exactly that.
	MasterKeySize = 20
	// BodyHeaderSize is the size of the ids, LAC and length in front of an entry body.
	BodyHeaderSize = 32
	// BodyMin is the least size of an entry body that a bookie takes: ids and LAC.
	BodyMin = 24
	// LACBodyMin is the least size of an explicit-LAC body: ledger and LAC.
	LACBodyMin = 16
	// AuthDisabledPlugin is the plugin name with which a server without authentication answers any AUTH.
	AuthDisabledPlugin = "AuthDisabledPlugin"
	// ContextBookieID is the key in the context of a connection's first V3 request whose value is the id of the bookie that
	// the client means to talk to. A bookie of ours answers UA if that is another one; Apache's ignore it.
	ContextBookieID = "bindery.bookie-id"
	// priorityHigh is what Java sends as the priority of a V3 request in the reserved lane.
	priorityHigh = 100
	// contextMax bounds the context pairs kept of one request; more are ignored.
	contextMax = 16
)
