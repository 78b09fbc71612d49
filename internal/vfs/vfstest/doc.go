// Package vfstest is the conformance suite of vfs.FS: what every implementation must do, and what callers may rely on.
//
// Run is called by the tests of each implementation. The package starts no goroutine that outlives a test.
package vfstest
