//go:build mutants

package ledger

var mutant Mutant

// Planted returns the bug that is planted.
func Planted() Mutant { return mutant }

// Plant chooses a bug. Nothing else may run meanwhile.
func Plant(m Mutant) { mutant = m }
