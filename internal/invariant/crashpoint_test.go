//go:build crashpoints

package invariant

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseArmed(t *testing.T) {
	m := parseArmed("a.b=3,c=1,bad,also=bad,")
	require.Len(t, m, 2)
	require.EqualValues(t, 3, m["a.b"].Load())
	require.EqualValues(t, 1, m["c"].Load())
	require.Empty(t, parseArmed(""))
}

func TestCrashPointChild(t *testing.T) {
	if os.Getenv("BINDERY_CRASHPOINT_CHILD") == "" {
		t.Skip("runs as a child of TestCrashPointKillsAtItsCount")
	}
	for _, step := range []string{"one", "two", "three"} {
		CrashPoint("test.other")
		CrashPoint("test.point")
		_, _ = os.Stdout.WriteString("passed " + step + "\n")
	}
}

func TestCrashPointKillsAtItsCount(t *testing.T) {
	for count, want := range map[string]int{"1": 0, "2": 1, "3": 2, "4": 3, "0": 3} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCrashPointChild$")
		cmd.Env = append(os.Environ(), "BINDERY_CRASHPOINT_CHILD=1", "BINDERY_CRASHPOINTS=test.point="+count)
		out, err := cmd.Output()
		require.Equal(t, want, strings.Count(string(out), "passed "), "count %s", count)
		if want == 3 {
			require.NoError(t, err)
			continue
		}
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
	}
}

func TestParseOverrides(t *testing.T) {
	require.Equal(t, map[string]int64{"a.b": 3, "c": -1}, parseOverrides("a.b=3,c=-1,d=x,e"))
	require.EqualValues(t, 9, Override("not.named", 9))
}
