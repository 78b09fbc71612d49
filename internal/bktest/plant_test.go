//go:build mutants

package bktest

import (
	"flag"
	"fmt"

	"github.com/binderylog/bindery/internal/ledger"
)

var mutantFlag = flag.String("sim.mutant", "", "name of the protocol bug to plant")

// plant plants the bug that the flag names.
func plant() error {
	if *mutantFlag == "" {
		return nil
	}
	for _, p := range Mutants() {
		if p.Name == *mutantFlag {
			ledger.Plant(p.Mutant)
			return nil
		}
	}
	return fmt.Errorf("no planted bug is called %q", *mutantFlag)
}
