// Package ledger holds the rules of one replicated ledger: what its metadata record means, on which bookies an
// entry lives, when an entry is acknowledged, how an ensemble is changed, how a dead writer's ledger is recovered,
// what a reader may infer, and what one bookie may answer for it.
//
// Everything here is pure: no I/O, no clock, no goroutine, no map iteration. A core is a small state machine that is
// fed one event at a time and appends what has to be done next to a caller's output slice:
//
//	Writer    adds, ordered acknowledgement, ensemble change, force, close      (one live writer)
//	Recovery  fence, agree the end, write the tail back, seal                    (any client that opens with recovery)
//	Reader    last-add-confirmed reads, entry reads, long polls                  (any reader)
//	Replica   key, fence, limbo, tombstone, verification, deferred sync          (one bookie's part of one ledger)
//
// The running client and the running bookie drive these cores; so do the simulator and the model checker, which is
// why each core can be cloned, appends a canonical encoding of its whole state, and behaves the same for the same
// sequence of events.
//
// Terms: E ensemble size, Qw write quorum, Qa ack quorum (E >= Qw >= Qa >= 1); LAC last add confirmed; LAP last add
// pushed. An answer is negative when a bookie said that it does not hold the entry or the ledger, and unknown when it
// said anything else but success, or nothing.
//
// Invariants that the cores keep between them:
//   - The application sees success in entry order, without gaps, and never while an ensemble change is pending.
//   - An entry that is reported acknowledged has Qa copies on the ensemble that the stored record names for it.
//   - A fragment that the writer adds starts at LAC+1 at the moment of its compare-and-set.
//   - Recovery writes nothing to the record before the one compare-and-set that closes it.
//   - The header LAC of a packet sent for entry e is below e, and recovery never sends its own progress as LAC.
//   - Nothing is inferred from an unknown answer.
//
// The package imports neither net nor os, and keeps no goroutine. Callers serialise access to each core.
package ledger
