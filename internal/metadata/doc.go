// Package metadata is the cluster's shared memory: which ledgers exist and who stores them, which bookies are up, what
// their identity is.
//
// It has two halves. Store is a small versioned tree that three kinds of engine can offer (in memory, etcd,
// ZooKeeper); a driver implements nothing else. The typed views on top (Ledgers, Bookies, Cookies, Cluster,
// Incarnations) and their codecs are written once and are the same bytes under the same paths on every engine, so that
// Java clients, Pulsar brokers and Apache bookies can share the cluster.
//
// Invariants every driver keeps (package metadatatest checks them):
//   - Reads are linearizable: a read that starts after a write returned sees it, or something later.
//   - A write either happens as a whole or not at all, and only if every condition held at that instant.
//   - A nil error means that the write happened. ErrUnknownOutcome means that it may have happened, and may still happen
//     later. Every other error means that it did not happen and never will.
//   - A key that an ephemeral Put made goes away by itself some time after its session ended, never before.
//   - Versions of one key do not repeat while the key exists. They are compared for equality only.
//
// A record that cannot be decoded is a *corrupt.Error with the key as its path. It is never "not found": a bookie deletes
// the data of ledgers that are gone, so a reader that took damage for absence would destroy data.
//
// The views start no goroutines except those of their Watch functions, which end with the context. Everything may be used
// concurrently. Limits: ValueMax bytes per value, TxnMax operations per transaction, KeyMax bytes per key.
package metadata
