// Package protocol is how a ledger moves between the bookies and the tier: which write to make next, and what an outcome
// means. It is pure: no I/O, no clock, no goroutine, so that a simulator and a model check drive the code that runs.
package protocol
