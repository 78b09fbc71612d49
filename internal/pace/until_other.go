//go:build !linux

package pace

import "time"

// SleepUntil waits for t.
func SleepUntil(t time.Time) { <-time.After(time.Until(t)) }
