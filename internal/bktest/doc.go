// Package bktest simulates whole clusters: bookies, ledger clients and the metadata store, the product's own code, in one
// process and in virtual time (testing/synctest). Run draws a run from a seed, makes trouble, ends it, and expects that
// every promise of the protocol was kept and that every ledger can be recovered and read. docs/simulation.md tells what is
// simulated, what is checked, and what a seed does not decide.
//
//	Config     what a run has: drawn from the seed
//	Net        streams in memory that can be slow, blocked, reset or silent; one lock, so one order of everything
//	member     a bookie: a disk that outlives its processes, and the process that runs now
//	work       what applications do; nemesis, what is done to them
//	Checker    sees every frame (Tap) and every version of every record; the invariants
//	probe      asks a bookie that came back for what it has acknowledged, and tries its fences
//	tier       object stores and the processes that move ledgers there
//	opLog      what applications saw, judged by porcupine
//
// Locks: the network's or the metadata tree's, then the checker's, then the history's or an object store's. The checker calls nobody else.
//
// Goroutines: those of the product, per simulated client one that writes and one that reads, and one that lets late requests of the tier
// arrive; Run waits for them.
package bktest
