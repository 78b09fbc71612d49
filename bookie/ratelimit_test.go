package bookie

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/wire"
)

// TestDamagedReadsAreLoggedOncePerFile: the first read of each damaged file is logged at once, then one line a minute says how
// many there were; the metric counts them all.
func TestDamagedReadsAreLoggedOncePerFile(t *testing.T) {
	b := startBookie(t, bookieConfig{})
	b.dial().add(1, 0, "x")
	l, err := b.eng.st.Ledger(1, false)
	require.NoError(t, err)
	defer l.Release()
	lines := func() int { return strings.Count(b.logs.String(), "an entry could not be read") }
	damage := func(log string, n int) {
		for i := range n {
			err := fmt.Errorf("ledger 1 entry %d: %w", i, corrupt.New(log, int64(i), "entry log record", errors.New("made up")))
			require.Equal(t, wire.IO, b.srv.readCode(l, err))
		}
	}
	damage("/ledgers/current/1.log", 100)
	require.Equal(t, 1, lines())
	damage("/ledgers/current/2.log", 100)
	require.Equal(t, 2, lines(), "another file")
	for range 50 {
		require.Equal(t, wire.IO, b.srv.readCode(l, errors.New("names no file")))
	}
	require.Equal(t, 3, lines())
	require.EqualValues(t, 250, b.srv.m.readErrors.Load())

	r := b.srv.damaged.of["/ledgers/current/1.log"]
	r.mu.Lock()
	r.last = r.last.Add(-time.Minute)
	r.mu.Unlock()
	damage("/ledgers/current/1.log", 10)
	require.Equal(t, 4, lines())
	require.Contains(t, b.logs.String(), "not_logged_of_this_file=99")

	for i := range 2 * fileLimitsMax {
		damage(fmt.Sprintf("/ledgers/current/%x.log", 16+i), 1)
	}
	require.Len(t, b.srv.damaged.of, fileLimitsMax)
	require.Less(t, lines(), fileLimitsMax+10)
}
