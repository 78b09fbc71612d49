//go:build !unix

package bookie

// deviceOf is not known here.
func deviceOf(string) (dev uint64, root, ok bool) { return 0, false, false }
