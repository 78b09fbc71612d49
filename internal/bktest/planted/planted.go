// Package planted lists the protocol bugs that builds with the tag mutants can plant, and which layer of simulation has to
// find each. Plant plants one.
package planted

import "github.com/binderylog/bindery/internal/ledger"

// Layer is one of the two layers of simulation.
type Layer string

// The layers.
const (
	LayerCores   Layer = "cores"   // the pure cores under a scheduler
	LayerCluster Layer = "cluster" // whole bookies and clients in virtual time
)

// Bug is a protocol bug that a build with the tag mutants can plant, and the layer whose simulation has to find it.
type Bug struct {
	Name   string
	Mutant ledger.Mutant
	Layers []Layer
	About  string
}

// Seeds is within how many seeds each of them has to be found.
const Seeds = 2000

var (
	cores   = []Layer{LayerCores}
	cluster = []Layer{LayerCluster}
	both    = []Layer{LayerCores, LayerCluster}
)

// Bugs lists the planted bugs that simulation finds. The model check finds others, which need exact schedules of few parts.
func Bugs() []Bug {
	return []Bug{
		{"release-during-change", ledger.MutantReleaseDuringChange, both, "acks are released while an ensemble change is not stored"},
		{"ack-short", ledger.MutantAckShort, both, "one ack short of the quorum is enough"},
		{"acks-not-unset", ledger.MutantAcksNotUnset, cores, "acks of a replaced bookie go on counting"},
		{"stale-acks", ledger.MutantStaleAcks, cores, "answers of bookies that were replaced count"},
		{"change-starts-too-late", ledger.MutantChangeStartsTooLate, both, "the new fragment starts after the pending adds"},
		{"doubt-dropped", ledger.MutantDoubtDropped, cores, "a write of unknown outcome is forgotten when a re-read does not show it"},
		{"sent-ensemble-adopted", ledger.MutantSentEnsembleAdopted, cores, "a write of unknown outcome counts as stored"},
		{"lac-from-unacked", ledger.MutantLACFromUnacked, both, "the header LAC is that of the last add pushed"},
		{"blind-change", ledger.MutantBlindChange, both, "the writer's metadata writes are not compare-and-set"},
		{"recovery-sends-own-lac", ledger.MutantRecoverySendsOwnLAC, cores, "re-adds carry the recoverer's progress"},
		{"recovery-starts-at-lac", ledger.MutantRecoveryStartsAtLAC, cores, "fragments before the last are recovered again"},
		{"recovery-closes-at-lac", ledger.MutantRecoveryClosesAtLAC, both, "the tail is not read"},
		{"recovery-writes-nothing", ledger.MutantRecoveryWritesNothing, both, "recovered entries are not written back"},
		{"recovery-does-not-wait", ledger.MutantRecoveryDoesNotWait, both, "the close does not wait for the re-adds"},
		{"recovery-closes-any-version", ledger.MutantRecoveryClosesAnyVersion, cores, "a refused close is tried again at the version found"},
		{"incarnations-not-checked", ledger.MutantIncarnationsNotChecked, cores, "the close does not check the bookies that it newly names"},
		{"one-denial-less", ledger.MutantOneDenialLess, both, "one denial less proves absence"},
		{"unknown-is-denial", ledger.MutantUnknownIsDenial, both, "an unknown answer counts as a denial"},
		{"fence-ignored", ledger.MutantFenceIgnored, both, "a fenced ledger takes adds"},
		{"limbo-takes-adds", ledger.MutantLimboTakesAdds, cores, "a ledger in limbo takes adds"},
		{"limbo-denies", ledger.MutantLimboDenies, both, "a ledger in limbo answers that there is no such entry"},
		{"stale-epoch-accepted", ledger.MutantStaleEpochAccepted, cores, "adds are taken with an old loss epoch"},
		{"reads-do-not-fence", ledger.MutantReadsDoNotFence, both, "recovery reads do not fence"},
		{"ack-before-sync", ledger.MutantAckBeforeSync, both, "an add is answered before its sync"},
		{"fence-not-waited-for", ledger.MutantFenceNotWaitedFor, both, "a fence is answered before its sync"},
		{"negative-fence-not-waited-for", ledger.MutantNegativeFenceNotWaitedFor, cores, "a fence is answered before its sync when the read finds nothing"},
		{"fault-is-absence", ledger.MutantFaultIsAbsence, both, "a disk error reads as absence"},
		{"publish-before-copies", ledger.MutantPublishBeforeCopies, cluster, "a worker names the new bookie first, and copies then"},
		{"copies-unchecked", ledger.MutantCopiesUnchecked, cluster, "a worker copies what it reads without looking at the digest"},
		{"copies-ends-only", ledger.MutantCopiesEndsOnly, cluster, "a worker copies the first and the last entry of a place"},
		{"open-is-final", ledger.MutantOpenIsFinal, cluster, "a worker takes an open ledger for closed"},
		{"limbo-ends-early", ledger.MutantLimboEndsEarly, cluster, "limbo ends before everything is there"},
		{"release-without-lag", ledger.MutantOffloadNoLag, cluster, "bookie copies are given up before the deletion lag is over"},
		{"loss-not-listed", ledger.MutantLossNotListed, both, "a bookie that lost its disk serves without looking for its ledgers"},
	}
}
