package explore

import "github.com/binderylog/bindery/internal/ledger"

// Planted is a bug with the world in which it shows.
type Planted struct {
	Mutant ledger.Mutant
	Name   string
	World  string
}

// Mutants lists the planted bugs. Each must be found in its world.
func Mutants() []Planted {
	return []Planted{
		{ledger.MutantReleaseDuringChange, "acks released during an ensemble change", "changes"},
		{ledger.MutantAckShort, "one ack short of the quorum is enough", "changes"},
		{ledger.MutantAcksNotUnset, "acks of a replaced bookie are not unset", "changes"},
		{ledger.MutantStaleAcks, "answers of replaced bookies count", "changes"},
		{ledger.MutantChangeStartsTooLate, "a new fragment starts after the pending adds", "changes"},
		{ledger.MutantCloseFromRecovery, "the writer closes a ledger in recovery", "recovery"},
		{ledger.MutantDoubtDropped, "a write of unknown outcome is forgotten", "unknown"},
		{ledger.MutantSentEnsembleAdopted, "a write of unknown outcome counts as stored", "unknown"},
		{ledger.MutantLACFromUnacked, "LAC of an add that was not acknowledged", "recoverers"},
		{ledger.MutantForceIgnoresConnections, "a force counts any connection", "forced-unmarked"},
		{ledger.MutantBlindChange, "ensemble change without compare-and-set", "recovery"},
		{ledger.MutantRecoverySendsOwnLAC, "re-adds carry the recoverer's progress", "recoverers"},
		{ledger.MutantRecoveryStartsAtLAC, "earlier fragments are recovered again", "two-fragments"},
		{ledger.MutantRecoveryClosesAtLAC, "recovery closes at the LAC", "recovery"},
		{ledger.MutantRecoveryWritesNothing, "recovered entries are not written back", "recovery"},
		{ledger.MutantRecoveryDoesNotWait, "the close does not wait for the re-adds", "ahead"},
		{ledger.MutantRecoveryClosesAnyVersion, "a refused close is repeated at any version", "recoverers"},
		{ledger.MutantIncarnationsNotChecked, "the close does not check incarnations", "wipe-2"},
		{ledger.MutantOneDenialLess, "wrong coverage: one denial less proves absence", "recovery"},
		{ledger.MutantUnknownIsDenial, "an unknown answer counts as a denial", "recovery"},
		{ledger.MutantFenceIgnored, "a fenced ledger takes adds", "recovery"},
		{ledger.MutantLimboTakesAdds, "a ledger in limbo takes adds", "wipe-2"},
		{ledger.MutantLimboDenies, "limbo is treated as no entry", "wipe-2"},
		{ledger.MutantDeleteForgets, "delete forgets the tombstone", "deleted"},
		{ledger.MutantStaleEpochAccepted, "adds accepted with a stale loss epoch", "wipe-2"},
		{ledger.MutantReaddUnfencesTombstone, "a re-add on a tombstone unfences", "deleted"},
		{ledger.MutantUncleanStopIgnored, "a force after an unclean stop", "forced"},
		{ledger.MutantReadsDoNotFence, "recovery reads do not fence", "recovery"},
		{ledger.MutantAckBeforeSync, "ack before the sync", "split"},
		{ledger.MutantFenceNotWaitedFor, "fence answered before it is durable", "split"},
		{ledger.MutantNegativeFenceNotWaitedFor, "negative fence answers do not wait", "split"},
		{ledger.MutantReaddNotSynced, "a re-add is answered before any sync", "split-readd"},
		{ledger.MutantReadableAfterSync, "entries are readable only after the sync", "split"},
		{ledger.MutantFaultIsAbsence, "a disk error reads as absence", "faults"},
		{ledger.MutantReplayCountsAsSynced, "replayed records count as synced", "split-readd"},
		{ledger.MutantLossNotListed, "a bookie that lost something just serves", "wipe-2"},
		{ledger.MutantVerifyIgnoresTicket, "a verification outlives a fence", "verify"},
		{ledger.MutantCollectorIgnoresGeneration, "a collector ignores the generation", "collector"},
		{ledger.MutantPublishIsBlind, "a publish without compare-and-set", "live-replicator"},
		{ledger.MutantPublishIgnoresIncarnation, "a publish ignores its target's incarnation", "collector"},
		{ledger.MutantPublishIgnoresLock, "a publish ignores a lost lock", "collector"},
		{ledger.MutantReplicatesTheLastFragment, "the last fragment of an open ledger is replaced", "live-replicator"},
		{ledger.MutantOffloadReleaseUnchecked, "a release without a look at the objects", "tier-damage"},
		{ledger.MutantOffloadReleaseAnyVersion, "a release deletes the ledger at any version", "tier-replicator"},
		{ledger.MutantOffloadNoLag, "a release does not wait for the lag", "tier-replicator"},
		{ledger.MutantOffloadUnverified, "a commit without read-back", "tier-damage"},
		{ledger.MutantOffloadCommitStale, "a commit on an old record of the ledger", "tier-damage"},
		{ledger.MutantOffloadNamedAnew, "an attempt is named again", "tier-deleted"},
		{ledger.MutantOffloadOnePass, "the janitor does not wait for the grace", "tier-workers"},
		{ledger.MutantOffloadCleansUnclear, "a worker cleans up after an unclear commit", "tier-unknown"},
		{ledger.MutantOffloadRecordsFirst, "orphans: records are read before targets are listed", "tier-workers"},
		{ledger.MutantOffloadDeleteBlind, "a deletion does not see the tier", "tier-unknown"},
	}
}
