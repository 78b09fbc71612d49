// Package protocol is how a ledger moves between the bookies and the tier: which write of the metadata store comes next, and what its
// outcome means. It is pure: no I/O, no clock, no goroutine, so that a simulation and a model check drive the code that runs.
//
// What counts is two keys of the metadata store: the ledger's own record, whose deletion makes bookies drop the data, and the offload
// record, which alone says what the tier holds. They change together, in one transaction, wherever one must not change without the
// other:
//
//	              create, ledger unchanged          commit, ledger unchanged        release, ledger deleted at that version
//	(no record) ------------------------> UPLOADING ----------------------> COMPLETE ------------------------------------> RELEASED
//	                                       | ^  |                             |                                                 |
//	                                       | +--+ take-over: other attempt,   | ledger re-closed elsewhere: other attempt,      |
//	                                       |      old one becomes garbage     | old one becomes garbage, back to UPLOADING      |
//	                                       +-------------------------> DELETING <-----------------------------------------------+
//	                                                                      | ledger's record deleted in the same transaction
//	                                                                      +-> objects removed, then the record
//
// Attempt takes one ledger from nothing to COMPLETE, Release from COMPLETE to RELEASED, Deletion from anything to DELETING, and
// Janitor says what is left behind. Each is a value with Step: it is given what happened and says what to do next. Every one begins
// with a read and returns to it whenever an outcome was not clear, and decides by what the store says, never by what it remembers
// having sent.
//
// Invariants, checked in every state that the tests reach, with crashes at any step, replies lost and writes that land late:
//
//   - Unless somebody deleted the ledger, its entries are on the bookies or in the tier.
//   - A record that is COMPLETE or RELEASED names an attempt whose objects are whole and hold what the ledger's record says.
//   - An attempt has objects only if the record names it, or names it as garbage; what a displaced worker writes afterwards is found by
//     the second pass of the janitor.
//   - A worker deletes nothing. The janitor deletes only what is garbage or DELETING.
package protocol
