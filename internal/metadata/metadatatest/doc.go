// Package metadatatest is the conformance suite of metadata stores: one set of tests that every driver passes, and the
// typed views' tests that only make sense on a real store.
//
// A driver's test calls Run with a Cluster, which opens independent clients of one store and can cut a client's session.
// The package starts no goroutine that outlives a test.
package metadatatest
