//go:build mutants

package explore

import "github.com/binderylog/bindery/internal/ledger"

// CanPlant says whether this build can plant bugs.
const CanPlant = true

// Plant chooses the bug for the searches that follow.
func Plant(m ledger.Mutant) { ledger.Plant(m) }
