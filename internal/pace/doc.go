// Package pace keeps work to a rate or a schedule: token buckets of bytes, waits that a context ends, and waits finer than the
// runtime's timers for open loops.
//
// It has no goroutines. A Bucket may be used by several at once.
package pace
