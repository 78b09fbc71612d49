package ledger

import (
	"bytes"
	"encoding/binary"
)

// Verdict is what a bookie's per-ledger rules say about a request that would change the ledger.
type Verdict uint8

// The verdicts, with the answer that they lead to on the wire.
const (
	Accepted       Verdict = iota
	BadKey                 // EUA: another key is bound to the ledger, or the request carries none
	RefusedLimbo           // EIO: this bookie may have lost part of the ledger; the writer replaces it and lives on
	RefusedFenced          // EFENCED
	RefusedDeleted         // ENOLEDGER: deleted here; only explicit LAC writes get this
	NeedsVerify            // read the metadata record linearizably with no lock held, call Verify, ask again
)

func (v Verdict) String() string {
	switch v {
	case Accepted:
		return "accepted"
	case BadKey:
		return "bad key"
	case RefusedLimbo:
		return "limbo"
	case RefusedFenced:
		return "fenced"
	case RefusedDeleted:
		return "deleted"
	case NeedsVerify:
		return "needs verification"
	}
	return "unknown verdict"
}

// ReadVerdict is what a bookie's per-ledger rules say about a read.
type ReadVerdict uint8

// The verdicts of a read, with the answer on the wire.
const (
	Serve         ReadVerdict = iota // the entry
	NoEntry                          // ENOENTRY: the ledger is known and this bookie vouches for the absence
	NoLedger                         // ENOLEDGER: never seen, or deleted
	UnknownAnswer                    // 507 on V3, 101 on V2: something may have been lost, nothing is claimed
)

func (v ReadVerdict) String() string {
	switch v {
	case Serve:
		return "serve"
	case NoEntry:
		return "no entry"
	case NoLedger:
		return "no ledger"
	case UnknownAnswer:
		return "unknown"
	}
	return "unknown verdict"
}

// Replica is what one bookie knows of one ledger besides its entries. Every field is durable state; the zero value is
// a ledger never seen. A method that returns changed asks its caller to make the new state durable before the request
// is answered. All methods run under the ledger's lock, the same lock under which the entry is stored and the journal
// position is taken; that one lock is what makes a fence hold.
//
// Tests of a normal add, in this order: key, tombstone, limbo, fence, unverified. A recovery add is tested for its key
// only.
type Replica struct {
	Key        []byte // master key, bound by the first add, fence or explicit LAC
	HasKey     bool
	Fenced     bool
	Limbo      bool // entries or fences may be missing here: absence is never claimed
	Tombstone  bool // deleted locally; kept for ever, and nothing else is kept with it
	Deferred   bool // some deferred add may be acknowledged but not synced
	ForceLost  bool // an unclean stop met the Deferred mark: FORCE can not succeed any more
	LossEpoch  uint64
	Generation uint32 // raised by every recovery add, fence and delete; see Delete and Verify

	ExplicitLAC []byte // body of the newest explicit LAC (ledger id, LAC, digest), nil if none
}

// Known reports whether the ledger exists here, with or without entries.
func (r *Replica) Known() bool { return r.HasKey || r.Fenced || r.Limbo }

// keyFits reports whether a request with this key may touch the ledger: the bound key, or any key if none is bound.
func (r *Replica) keyFits(key []byte) bool {
	return key != nil && (!r.HasKey || bytes.Equal(r.Key, key))
}

// CheckAdd says whether an add may be stored. lossEpoch is the bookie's own epoch of its last loss, 0 for a bookie of
// incarnation 1 that never lost anything: such a bookie verifies nothing but tombstones. The answer changes nothing;
// if it is Accepted the caller stores the entry and calls Accept in the same critical section.
func (r *Replica) CheckAdd(key []byte, recovery bool, lossEpoch uint64) Verdict {
	switch {
	case !r.keyFits(key):
		return BadKey
	case recovery:
		return Accepted
	case r.Tombstone:
		return NeedsVerify
	case r.Limbo && mutant == MutantLimboTakesAdds:
		return Accepted
	case r.Limbo:
		return RefusedLimbo
	case r.Fenced && mutant != MutantFenceIgnored:
		return RefusedFenced
	case r.LossEpoch < lossEpoch && mutant != MutantStaleEpochAccepted:
		return NeedsVerify
	}
	return Accepted
}

// Accept records that an add was stored. The first add binds the key. A recovery add raises the generation, and on a
// tombstone it re-creates the ledger fenced; elsewhere it does not fence, since a writer may choose this bookie next.
func (r *Replica) Accept(key []byte, recovery bool) (changed bool) {
	changed = r.bind(key)
	if recovery {
		r.Generation++
		if r.Tombstone {
			r.Tombstone, r.Fenced = false, mutant != MutantReaddUnfencesTombstone
		}
		changed = true
	}
	return changed
}

// bind takes the key on first contact.
func (r *Replica) bind(key []byte) bool {
	if r.HasKey {
		return false
	}
	r.Key, r.HasKey = bytes.Clone(key), true
	return true
}

// Ticket identifies the state on which a verification was started.
func (r *Replica) Ticket() uint32 { return r.Generation }

// Verify takes the result of a linearizable read of the metadata record that was begun after CheckAdd said
// NeedsVerify. ticket is what Ticket returned then; openHere says that the record is OPEN and, for a tombstone, that
// it names this bookie. If the ledger was fenced, deleted or re-created since, the read proves nothing about the
// present state and the verdict stays as it is. On Accepted the caller tests CheckAdd again in the same critical
// section: the fence may have come meanwhile.
func (r *Replica) Verify(ticket uint32, openHere bool, lossEpoch uint64) (v Verdict, changed bool) {
	if !openHere {
		return RefusedFenced, false
	}
	if ticket != r.Generation {
		return RefusedFenced, false
	}
	changed = r.Tombstone || r.LossEpoch < lossEpoch
	r.Tombstone = false
	r.LossEpoch = max(r.LossEpoch, lossEpoch)
	return Accepted, changed
}

// Fence closes the ledger to normal adds for ever and binds the key if none is bound. Neither a positive nor a
// negative answer to the request may leave before the change is durable (and, when changed is false because an earlier
// fence set it, before that earlier change is durable).
func (r *Replica) Fence(key []byte) (v Verdict, changed bool) {
	if !r.keyFits(key) {
		return BadKey, false
	}
	changed = r.bind(key)
	if !r.Fenced || r.Tombstone {
		r.Fenced, r.Tombstone = true, false
		r.Generation++
		changed = true
	}
	return Accepted, changed
}

// Read judges a read of one entry that was, or was not, found in storage.
func (r *Replica) Read(found bool) ReadVerdict {
	switch {
	case found:
		return Serve
	case r.Limbo && mutant != MutantLimboDenies:
		return UnknownAnswer
	case r.Known():
		return NoEntry
	}
	return NoLedger
}

// ReadLast judges every read whose answer depends on which entry is the highest or which entries exist: entry -1,
// READ_LAC, long poll, the list of entries. In limbo there is no such answer, even if entries are there.
func (r *Replica) ReadLast(found bool) ReadVerdict {
	if r.Limbo && mutant != MutantLimboDenies {
		return UnknownAnswer
	}
	return r.Read(found)
}

// SetExplicitLAC stores an explicit LAC body (ledger id, LAC, digest). A LAC below the stored one is accepted and
// ignored, so that what this bookie serves never goes back. Fenced ledgers take explicit LACs, unknown ones are
// created by them, deleted ones are not.
func (r *Replica) SetExplicitLAC(key, body []byte) (v Verdict, changed bool) {
	switch {
	case !r.keyFits(key):
		return BadKey, false
	case r.Tombstone:
		return RefusedDeleted, false
	case r.Limbo:
		return RefusedLimbo, false
	}
	changed = r.bind(key)
	if explicitLAC(body) > explicitLAC(r.ExplicitLAC) {
		r.ExplicitLAC = bytes.Clone(body)
		changed = true
	}
	return Accepted, changed
}

// LAC returns the LAC of the stored explicit LAC body, InvalidEntry if there is none.
func (r *Replica) LAC() EntryID { return explicitLAC(r.ExplicitLAC) }

func explicitLAC(body []byte) EntryID {
	if len(body) < 16 {
		return InvalidEntry
	}
	return EntryID(binary.BigEndian.Uint64(body[8:16]))
}

// MarkDeferred notes that a deferred add is about to be acknowledged before its sync. The mark must be durable before
// that first acknowledgement.
func (r *Replica) MarkDeferred() (changed bool) {
	changed = !r.Deferred
	r.Deferred = true
	return changed
}

// ClearDeferred drops the mark. The caller holds the ledger's lock and has seen that no deferred add is un-synced.
func (r *Replica) ClearDeferred() (changed bool) {
	changed = r.Deferred
	r.Deferred = false
	return changed
}

// CheckForce says whether a FORCE may succeed. In limbo, after an unclean stop that met the Deferred mark, and on a
// ledger that a bookie with losses has not verified since, entries that this bookie acknowledged may be gone, so no
// sync can vouch for them: RefusedLimbo, EIO on the wire.
func (r *Replica) CheckForce(lossEpoch uint64) Verdict {
	if r.Limbo || r.ForceLost || r.LossEpoch < lossEpoch {
		return RefusedLimbo
	}
	return Accepted
}

// UncleanStop applies an unclean stop to a ledger whose un-synced deferred adds may be gone: it is fenced, and force
// fails for ever. It is not in limbo, since nothing was promised about those entries.
func (r *Replica) UncleanStop() (changed bool) {
	if !r.Deferred || r.ForceLost || mutant == MutantUncleanStopIgnored {
		return false
	}
	r.Fenced, r.ForceLost = true, true
	r.Generation++
	return true
}

// Lose puts a ledger of which this bookie may have lost entries or fences in limbo and fences it. The result must be
// durable before the bookie's first answer about the ledger.
func (r *Replica) Lose() (changed bool) {
	if r.Limbo && r.Fenced {
		return false
	}
	r.Limbo, r.Fenced = true, true
	r.Generation++
	return true
}

// EndLimbo ends limbo after the proof: a linearizable read made after the loss was recorded shows CLOSED and every
// entry that the record stores here is durable here. The fence stays.
func (r *Replica) EndLimbo() (changed bool) {
	changed = r.Limbo
	r.Limbo = false
	return changed
}

// Delete forgets the ledger and leaves a tombstone. generation is what the collector read before it looked at the
// metadata; if a recovery add, a fence or anything else came since, nothing is deleted and done is false.
func (r *Replica) Delete(generation uint32) (done bool) {
	if r.Generation != generation {
		return false
	}
	*r = Replica{Tombstone: mutant != MutantDeleteForgets, Generation: generation + 1}
	return true
}
