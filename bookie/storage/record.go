package storage

// Kinds of journal records. The journal does not know what they mean; the tag of each is the ledger id.
const (
	// KindEntry is an entry; the payload is its body.
	KindEntry uint8 = 1
	// KindState is what is known of a ledger besides its entries; the payload is Ledger.AppendState. It is the record of
	// every change of rules: key, fence, explicit LAC, limbo, verification, re-creation.
	KindState uint8 = 2
)

// Record is a journal record given to Replay.
type Record struct {
	Journal  int    // index into Options.Journals
	Position uint64 // group sequence number in that journal
	Kind     uint8
	Tag      uint64
	Payload  []byte // only read during the call
}
