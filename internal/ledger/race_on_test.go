//go:build race

package ledger

// raceEnabled makes the random schedules fewer: they are a tenth as fast under the race detector, and have one goroutine.
const raceEnabled = true
