//go:build !linux

package loadgen

import "time"

// sleepUntil waits for t.
func sleepUntil(t time.Time) {
	if d := time.Until(t); d > 0 {
		time.Sleep(d) //nolint:forbidigo // keeping to a schedule is what an open loop is
	}
}
