// Package device finds out what lies below a directory, and keeps runs away from where they would mislead or do harm.
//
// Inspect reads what the kernel says in /proc and /sys: file system, mount options, scheduler, write cache, forced unit
// access, model, firmware, temperature. What it does not say stays empty; nothing is guessed. Serial numbers leave this
// package as a hash only.
//
// Check refuses, before anything is written: what is no directory, what can not be written, too little space, file systems
// in memory, layered ones, network ones and loop devices unless the caller insists, a second run on the same disk, and a
// disk with a live bookie unless it is asked for. CheckRaw refuses a disk that anything uses.
//
// Files wraps vfs.OS with the calls that only measuring needs: direct writes of single sectors, and write-back that is
// started but not waited for.
//
// The package starts no goroutine.
package device
