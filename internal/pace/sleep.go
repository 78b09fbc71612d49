package pace

import (
	"context"
	"time"
)

// Sleep waits for d, or until ctx ends, whose cause it returns then. It does not wait if d is 0 or less.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
