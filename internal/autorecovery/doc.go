// Package autorecovery keeps every ledger on as many bookies as it asks for.
//
// Each node of it stands for auditor and works as replication worker. One auditor is elected in the cluster; it notices lost
// bookies, looks at all ledgers from time to time, and marks those that lack copies in the metadata store. Workers take marked
// ledgers, one worker each by a lock, copy what is missing and publish it. Marks, locks, votes and switches are Apache
// BookKeeper's own keys and bytes, so that both kinds of node serve one cluster.
//
// What is decided is decided by the pure rules of internal/ledger (PlanCopy, Publish, NextRepair, LossWatch); this package
// reads records, moves bytes and carries verdicts to the store. Rules that it keeps, by the numbers of docs/protocol.md:
//   - A bookie is named in a record only when every entry of the fragment that stripes to its place is durable there, by a
//     compare-and-set that also checks the bookie's incarnation and the lock (39, 40).
//   - Copies carry the very bytes that were read, header and digest included; each was checked.
//   - Only fragments that can not change any more are copied. A last fragment that can still grow is recovered first, after
//     a grace in which its writer may replace the bookie itself.
//   - A bookie that answers, but lacks entries or can not vouch for them, is a target for its own place (34).
//   - A mark goes only when a check after the copies found nothing missing, at the version that was read when the ledger was
//     locked, under the lock; a mark that was added to meanwhile stays.
//   - Nothing is marked while no bookie is registered: the store has lost the sessions then, not the bookies their data.
//
// Every ledger that is taken comes to an end: it is repaired, gone, or held back for a time that doubles with each failure up
// to FailedHold, and its outcome is counted and logged.
//
// Goroutines: the candidate, which becomes the auditor and runs its checks one at a time beside it; the dispatcher; one per
// ledger in hand; one scrubber for the bookies of the process. Close ends and joins them all. Limits: Options.Parallel ledgers
// are worked on at once, Options.InHand are held, copies under way take Options.InFlightBytes, and all copying keeps to
// Options.Rate, or less while it is in the writers' way (governor).
package autorecovery
