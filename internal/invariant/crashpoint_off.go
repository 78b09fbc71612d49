//go:build !crashpoints

package invariant

// CrashPoint marks a named place where the crash tests may kill the process. It is empty unless the binary is
// built with the tag crashpoints.
func CrashPoint(string) {}
