// Package interop lets Apache's software judge: BookKeeper's Java client works on our bookies, our client on its bookies, both on
// fleets of both kinds, its shell and its auto-recovery on our cluster; a fleet moves from one kind to the other and back; and
// Pulsar's broker lives on our bookies. All of it with the metadata in ZooKeeper, and in etcd with Pulsar's drivers on Java's side.
//
// The tests carry the build tag interop; `make interop` builds the binary and runs them all, `make interop-short` a part that
// takes a few minutes. They need Java 17, javac and Maven, which fetches the jars once into .cache/interop at the root of
// the repository; without these tools they are skipped. At the end a table says what ran against what.
//
// Everything listens on the loopback interface and lives in the tests' own temporary directory. Java programs are compiled from
// java/ at test time, the one with Pulsar's Go client is a module of its own in pulsar/; both are told what to do by lines on their
// standard input. Decision 44 of the design says what Apache's bookies may not be asked: no test kills one of them around a fence.
package interop
