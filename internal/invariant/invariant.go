// Package invariant holds assertions that only test builds pay for.
//
// Built with the tag invariants, Check panics on a broken assumption; without it, it compiles to nothing.
// Built with the tag crashpoints, CrashPoint kills the process at a named place, so that the crash tests can stop a
// real bookie in the middle of anything, and Override lets them make files small.
//
// The package starts no goroutine.
package invariant
