// Package collect runs `iobench quick` on one host after the other over ssh and gathers the results.
//
// The system's ssh does the talking: keys, ports, users and jump hosts are those of its configuration. It never asks for
// anything: a host that would is a host that fails. A host that fails, hangs or answers nonsense is noted, and the next one
// is asked.
//
// Invariants:
//   - One host at a time: disks behind one controller or network would measure each other.
//   - What a host sends is bounded, decoded and tested like any result before it is written; each host has a file of its own,
//     replaced as a whole.
//   - Nothing of a host's answer reaches the terminal with a control character in it.
//
// The package starts no goroutine but those of os/exec, which end with the command.
package collect
