package ledger

// Mutant names a protocol bug that is planted on purpose, to see that the model check and the simulator find it. Normal
// builds have none: there the selector is a constant, and the compiler leaves nothing of the bugs.
type Mutant uint8

// The planted bugs. Where the driver of a core keeps the rule (a bookie's journal, the client of the metadata store), the
// bug is planted in the driver of the model check.
const (
	MutantNone Mutant = iota

	// Writer
	MutantReleaseDuringChange     // acks are released while an ensemble change is not stored
	MutantAckShort                // one ack short of the quorum is enough
	MutantAcksNotUnset            // acks of a replaced bookie go on counting
	MutantStaleAcks               // answers of bookies that were replaced count
	MutantChangeStartsTooLate     // the new fragment starts after the pending adds
	MutantCloseFromRecovery       // the writer closes a ledger that is being recovered
	MutantDoubtDropped            // a write of unknown outcome is forgotten when a re-read does not show it
	MutantSentEnsembleAdopted     // a write of unknown outcome counts as stored
	MutantLACFromUnacked          // the header LAC is that of the last add pushed
	MutantForceIgnoresConnections // a force counts answers over any connection
	MutantBlindChange             // driver: the writer's metadata writes are not compare-and-set

	// Recovery
	MutantRecoverySendsOwnLAC      // re-adds carry the recoverer's progress
	MutantRecoveryStartsAtLAC      // fragments before the last are recovered again
	MutantRecoveryClosesAtLAC      // the tail is not read
	MutantRecoveryWritesNothing    // recovered entries are not written back
	MutantRecoveryDoesNotWait      // the close does not wait for the re-adds
	MutantRecoveryClosesAnyVersion // a refused close is tried again at the version found
	MutantIncarnationsNotChecked   // the close does not check the bookies that it newly names
	MutantOneDenialLess            // one denial less proves absence: the write set is not covered
	MutantUnknownIsDenial          // an unknown answer counts as a denial

	// Replica
	MutantFenceIgnored           // a fenced ledger takes adds
	MutantLimboTakesAdds         // a ledger in limbo takes adds
	MutantLimboDenies            // a ledger in limbo answers "no such entry"
	MutantDeleteForgets          // deletion leaves no tombstone
	MutantStaleEpochAccepted     // adds are taken with an old loss epoch
	MutantReaddUnfencesTombstone // a recovery add on a tombstone re-creates the ledger unfenced
	MutantUncleanStopIgnored     // deferred adds may be forced after an unclean stop (and the writer ignores connections)

	// the bookie around Replica: driver
	MutantReadsDoNotFence           // recovery reads do not fence
	MutantAckBeforeSync             // an add is answered before its sync
	MutantFenceNotWaitedFor         // a fence is answered before its sync
	MutantNegativeFenceNotWaitedFor // only negative answers are
	MutantReaddNotSynced            // a re-add of what is in memory is answered at once
	MutantReadableAfterSync         // an entry is readable only when it is synced
	MutantFaultIsAbsence            // a disk error reads as "no such entry"
	MutantReplayCountsAsSynced      // replayed records count as synced without a sync
	MutantLossNotListed             // a bookie that lost something serves without looking for its ledgers
	MutantVerifyIgnoresTicket       // a verification counts although a fence came meanwhile
	MutantCollectorIgnoresGeneration

	// re-replication: driver
	MutantPublishIsBlind            // the publish is not a compare-and-set
	MutantPublishIgnoresIncarnation // the publish does not check its target
	MutantPublishIgnoresLock        // the publish does not depend on the lock
	MutantReplicatesTheLastFragment // of a ledger that is not closed

	// Offload: the cores of offload/protocol, and their drivers
	MutantOffloadReleaseUnchecked  // the bookie copies are given up without a look at the objects
	MutantOffloadReleaseAnyVersion // the ledger's record is deleted at any version
	MutantOffloadNoLag             // the deletion lag is not waited for
	MutantOffloadUnverified        // what was uploaded is not read back before the commit
	MutantOffloadCommitStale       // the commit does not look at the ledger's record
	MutantOffloadNamedAnew         // an attempt that left the record is named again
	MutantOffloadOnePass           // the janitor is done with an attempt at the first pass
	MutantOffloadCleansUnclear     // a worker removes its objects when it does not know whether its commit happened
	MutantOffloadRecordsFirst      // the records are read before the targets are listed, to find what nobody names
	MutantOffloadDeleteBlind       // a ledger that the tier does not know is deleted without a look at the tier in the same transaction

	// What follows only whole clusters show: the model check knows nothing of it.
	MutantModelled
	MutantPublishBeforeCopies // a worker names the new bookie first, and copies then
	MutantCopiesUnchecked     // a worker copies what it reads without looking at the digest
	MutantCopiesEndsOnly      // a worker copies the first and the last entry of a place
	MutantOpenIsFinal         // a worker takes the last fragment of an open ledger for final, and for empty
	MutantLimboEndsEarly      // limbo ends when the ledger is closed, whatever is there

	MutantEnd
)
