// Package session turns a plan into a run: it looks at the directories, refuses what must be refused before anything is
// written, runs the chapters one after the other, and draws up what follows from them.
//
// Invariants:
//   - All directories are looked at and locked before the first is written to.
//   - A run that is interrupted, or whose disk fails, still returns what was measured, marked as incomplete.
//   - The chapters together write no more than the plan allows.
//
// The package starts no goroutine of its own.
package session
