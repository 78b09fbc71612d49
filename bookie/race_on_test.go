//go:build race

package bookie

// raceEnabled: the race detector drops pooled objects at random, so allocations can not be counted.
const raceEnabled = true
