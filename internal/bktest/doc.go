// Package bktest runs whole clusters of the product's own parts in one process and in virtual time: bookies with their
// journals, storage and collectors on file systems in memory, ledger clients on a network in memory, and a metadata store,
// while a schedule drawn from a seed gives them every kind of trouble. Checker watches what passes and breaks the run when
// an invariant of the protocol does not hold; what applications saw is checked for linearizability.
//
// Invariants: a run follows from its seed as far as the scheduler of goroutines lets it: the faults, their times, the
// workload and what a power failure takes are the seed's; the order of goroutines that are ready at the same instant is
// not. Time is the bubble's (testing/synctest), and nothing outside of it is used.
//
// Goroutines: all run inside the bubble of Run, which joins them. Limits: the end of a history is kept, not all of it.
package bktest
