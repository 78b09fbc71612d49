// Command iobench tells what a disk can promise to a bookie: how long durable writes take by size, method and state of the
// blocks, what else a bookie does to them, for how long a disk keeps its speed, and which settings follow.
//
// Every durable figure names its method, every other one is stamped NOT DURABLE. The rounds of what is compared are
// interleaved, so that a change of the machine hits all of it, and nothing is ranked inside the spread of the rounds.
// Data is random, each write advances, and test files have no name, so that nothing is left behind however the run ends.
//
// Exit codes: 0 done, 1 failed, 2 usage, 3 refused (a file system whose figures mean nothing for a bookie, a disk in use,
// no space), 4 partly done (interrupted; what was measured is printed), 5 a threshold was missed.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
