//go:build !mutants

package ledger

const mutant = MutantNone

// Planted returns the bug that is planted: none.
func Planted() Mutant { return mutant }
