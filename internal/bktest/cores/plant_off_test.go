//go:build !mutants

package cores

// plant does nothing: this build has no planted bugs.
func plant() error { return nil }
