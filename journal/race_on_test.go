//go:build race

package journal

// raceEnabled thins the sweeps out: the race detector makes them ten times slower and finds its races in fewer rounds.
const raceEnabled = true
