//go:build !mutants

package bktest

// plant does nothing: this build has no planted bugs.
func plant() error { return nil }
