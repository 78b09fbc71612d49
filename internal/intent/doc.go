// Package intent keeps small durable lists of what is about to be done, so that a step that a crash interrupted is
// finished or undone at the next start.
//
// Open returns a log on tidwall/wal in a directory of its own; OpenVFS returns its twin on a vfs.FS for tests and the
// simulator.
package intent
