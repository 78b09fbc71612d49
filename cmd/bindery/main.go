// Command bindery runs, inspects and drives a distributed log store that speaks Apache BookKeeper's protocol.
//
// Every subcommand lives in a file of its own: a constructor newXCommand that binds flags to an options struct, and a
// plain function that does the work. What a command prints for a program goes to standard output, everything meant for
// a person to standard error. A command that fails prints one line and ends with the exit code of its exitError
// (the table is in docs/operations/troubleshooting.md).
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
