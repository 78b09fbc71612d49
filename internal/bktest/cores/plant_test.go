//go:build mutants

package cores

import (
	"flag"
	"fmt"

	"github.com/binderylog/bindery/internal/bktest/planted"
	"github.com/binderylog/bindery/internal/ledger"
)

var mutantFlag = flag.String("sim.mutant", "", "name of the protocol bug to plant")

// plant plants the bug that the flag names.
func plant() error {
	if *mutantFlag == "" {
		return nil
	}
	m, ok := planted.ByName(*mutantFlag)
	if !ok {
		return fmt.Errorf("no planted bug is called %q", *mutantFlag)
	}
	ledger.Plant(m)
	return nil
}
