package invariant

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCheck(t *testing.T) {
	Check(true, "never said")
	if !Enabled {
		Check(false, "compiled to nothing")
		return
	}
	require.PanicsWithValue(t, "BUG: 3 entries of 2", func() { Check(false, "%d entries of %d", 3, 2) })
}

func TestUnarmedCrashPointDoesNothing(t *testing.T) { CrashPoint("no.such-point") }
