// Command iobench tells what a disk can promise to a bookie: how long a durable write takes at each group size, by each
// way of making it durable, and what sequential writing and reading give.
//
// Every durable figure names its method, every other one is called not durable. The rounds of the methods are
// interleaved, so that a change of the machine during the run hits all of them; the spread between rounds is shown, and
// no method is recommended for a lead inside it. Data is random, each write advances, and the file is unlinked as soon
// as it is open, so that nothing is left behind however the run ends.
//
// Exit codes: 0 done, 1 failed, 2 usage, 3 refused (a file system whose figures mean nothing for a bookie), 4 partly
// done (interrupted; what was measured is printed).
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
