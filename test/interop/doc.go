// Package interop lets Apache BookKeeper judge: its Java client works on our bookies, our client on its bookies, both on fleets
// of both kinds, and its shell on our cluster, all in one ZooKeeper.
//
// The tests carry the build tag interop; `make interop` builds the binary and runs them all, `make interop-short` a part that
// takes a few minutes. They need Java 17, javac and Maven, which fetches the jars once into .cache/interop at the root of
// the repository; without these tools they are skipped. At the end a table says what ran against what.
//
// Everything listens on the loopback interface and lives in the tests' own temporary directory. Java programs are compiled from
// java/ at test time and told what to do by lines on their standard input. Decision 44 of the design says what Apache's bookies
// may not be asked: no test kills one of them around a fence.
package interop
