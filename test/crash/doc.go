// Package crash kills the real program at named points, on real files, and checks what it promised.
//
// TestCrash (build tag crash; `make crash`) builds cmd/bindery with crash points, and then, round after round: starts
// `bindery standalone` with one point armed, checks everything that any bookie answered in earlier rounds, drives it over
// the wire until it dies or its time is up, and kills it with SIGKILL if it still lives. What is checked after each
// start, against each bookie by itself:
//
//   - every acknowledged entry reads back byte for byte, and entry -1 is no older than the last of them;
//   - an entry that was sent and not answered reads back as it was sent or not at all, and what it was found to be it
//     stays: neither does it vanish later, nor come back;
//   - a ledger whose fencing was answered refuses adds, also one that the bookie had never heard of; recovery adds go on;
//   - an explicit LAC that was answered is not read back lower; deferred adds that were answered before a force was sent,
//     and that force was answered, are kept as other entries are;
//   - a master key, once an add or a fence with it was answered, is the only one that is taken;
//   - a deleted ledger's entries read back as they were sent or not at all.
//
// Everything is derived from one seed, which is printed, and with which the plan (points, counts, loads, kills) runs
// again; the interleaving within a round is the machine's. TestPointsAreListed, which needs no tag, holds the points of the
// source and docs/CRASHPOINTS.md together.
package crash
