//go:build !linux

package engine

import (
	"errors"
	"syscall"
	"time"
)

func sleepUntil(t time.Time) { <-time.After(time.Until(t)) }

func isInvalid(err error) bool { return errors.Is(err, syscall.EINVAL) }
