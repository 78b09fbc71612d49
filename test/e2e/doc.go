// Package e2e drives the real binaries from outside, on real files and real ports, as a person or a script would.
//
// The tests carry the build tag e2e; `make e2e` builds the binaries and runs them. They look at exit codes, at what
// appears on standard output and standard error, at files, and at HTTP and wire answers, never at anything inside. What
// each one promises stands in its name: the quick start of the README line by line, a kill -9 of everything with a byte
// for byte comparison, and every way a start can be refused with its exit code and its one line.
//
// Everything listens on the loopback interface and lives in the test's own temporary directory.
package e2e
