// Package integration tests the ledger client against real bookies in one process: metadata in memory, bookies on crashable
// file systems in memory, the network over loopback. It is where the promises of the whole are checked with power loss at
// any instant: what was acknowledged is there afterwards, and what was fenced stays fenced. The tier is tried with folders on disk and with
// buckets of a real S3 server behind proxies that fail.
//
// It holds tests only. Bookies and clients are started by the tests and stopped at their end.
package integration
