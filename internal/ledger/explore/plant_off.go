//go:build !mutants

package explore

import "github.com/binderylog/bindery/internal/ledger"

// CanPlant says whether this build can plant bugs.
const CanPlant = false

// Plant does nothing in this build.
func Plant(ledger.Mutant) {}
