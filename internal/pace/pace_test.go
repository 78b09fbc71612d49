package pace

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBucket(t *testing.T) {
	b := NewBucket(1000, 5*time.Millisecond)
	at := time.Now()
	b.last = at
	at = at.Add(time.Hour)
	require.Zero(t, b.take(5, at), "a 200th of a second may pass at once")
	require.Equal(t, 500*time.Millisecond, b.take(500, at))
	require.Equal(t, time.Second, b.take(500, at), "the next one waits behind it")
	require.Equal(t, 100*time.Millisecond, b.take(100, at.Add(time.Second)))
	b.SetRate(-1)
	require.Zero(t, b.take(1<<30, at))
}

// TestWait: bytes pass at the rate, those spent elsewhere count, and the end of a context ends a wait with its cause.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBucket(1000, 0)
		begun := time.Now()
		for range 4 {
			require.NoError(t, b.Wait(t.Context(), 500))
		}
		require.Equal(t, 2*time.Second, time.Since(begun))
		b.Spend(700)
		require.NoError(t, b.Wait(t.Context(), 300))
		require.Equal(t, 3*time.Second, time.Since(begun))
		b.Spend(1000)
		b.Spend(-600)
		require.NoError(t, b.Wait(t.Context(), 100))
		require.Equal(t, 3500*time.Millisecond, time.Since(begun), "what was given back is not waited for")

		enough := errors.New("enough")
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(enough) })
		require.ErrorIs(t, b.Wait(ctx, 1<<20), enough)
		require.Equal(t, 4500*time.Millisecond, time.Since(begun))
		require.ErrorIs(t, Sleep(ctx, 0), enough, "an ended context is said without a wait, too")
	})
}

func TestSleepUntil(t *testing.T) {
	due := time.Now().Add(3 * time.Millisecond)
	SleepUntil(due)
	require.False(t, time.Now().Before(due))
	SleepUntil(due.Add(-time.Hour))
}
