//go:build !race

package etcdmeta

// raceEnabled shortens what is slow under the race detector.
const raceEnabled = false
