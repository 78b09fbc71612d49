// Package index finds entries in sealed entry logs: (ledger, entry) to location, by runs of consecutive entries, and keeps the
// newest state of each ledger that those logs carry.
//
// The meaning of keys and values is written once, above a small ordered key-value store (keyValue) with two implementations:
// bbolt on the operating system's files, and a twin in memory with its files on vfs, for simulations and fault tests. One
// conformance suite covers both. docs/formats/index.md has the encoding.
//
// Invariants:
//   - Runs of one ledger never overlap, and each names the last entry of the one before it; the ledger's record names the last
//     one of all. ErrNotFound is answered only if what stands around the entry agrees with that; otherwise the answer is a
//     *corrupt.Error, and the index fails.
//   - A failed index answers nothing but ErrFailed until it is opened again: neither "not found" nor a location could be
//     believed. A full disk is not a failure.
//   - Where an entry or a state is offered twice, the one from the newer log stays (entrylog.LogInfo.Before, then the offset), in
//     whatever order they come. So adding a log again changes nothing.
//   - Relocate changes only what is still where the compaction found it.
//   - Neither a panic of bbolt nor a fault on its mapping leaves this package.
//
// Goroutines: none. Look-ups may run at once, at most half of the cores' number at a time, since each may block its thread in a
// page fault; changes are serialised by the store.
//
// Limits: runs of 128 entries, transactions of 16 MiB, keys of small values of 256 bytes.
package index
