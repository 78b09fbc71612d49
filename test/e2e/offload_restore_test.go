//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRestoreThatDoesNotEnd is killed, or has its ledger deleted and cleaned away under it: what is left of the first says what it is, and of
// the second nothing is left, unless it was whole by then.
func TestRestoreThatDoesNotEnd(t *testing.T) {
	dir := t.TempDir()
	standalone(t, dir, "--offload-dir", "tier")
	input, data := randomFile(t, dir, 40<<20)
	id := strings.TrimSpace(ok(t, dir, "ledger", "write", "--split", "4KiB", input))
	ok(t, dir, "offload", "ledger", id, "--release-now")
	ledgers := func() []string {
		return strings.Fields(strings.ReplaceAll(ok(t, dir, "ledger", "ls"), " RELEASED", ""))
	}
	require.Equal(t, []string{id}, ledgers())
	begin := func() (*server, string) {
		before := ledgers()
		s := start(t, dir, "", "offload", "restore", id)
		var made []string
		require.Eventually(t, func() bool {
			made = slices.DeleteFunc(ledgers(), func(x string) bool { return slices.Contains(before, x) })
			return len(made) == 1
		}, startTimeout, 10*time.Millisecond, "%s", s.stderr)
		return s, made[0]
	}
	whole := func(copied string) {
		require.True(t, ok(t, dir, "ledger", "read", copied) == string(data))
		ok(t, dir, "ledger", "rm", "--yes", copied)
	}

	s, part := begin()
	s.kill()
	require.Contains(t, ok(t, dir, "ledger", "show", part), `bindery.restored-from = "`+id+`"`)
	ok(t, dir, "ledger", "rm", "--yes", part)
	whole(strings.TrimSpace(ok(t, dir, "offload", "restore", id)))

	s, part = begin()
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGSTOP)) // what it has read ahead is a part
	ok(t, dir, "offload", "delete", id, "--yes")
	for range 3 {
		ok(t, dir, "offload", "clean", "--grace", "1ms")
	}
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGCONT))
	select {
	case <-s.exited:
	case <-time.After(startTimeout):
		t.Fatal("it does not end")
	}
	s.wg.Wait()
	t.Logf("beside the deletion it ended with %d: %s", s.cmd.ProcessState.ExitCode(), s.stderr)
	if s.cmd.ProcessState.ExitCode() == 0 { // it was faster
		whole(part)
	} else {
		require.Contains(t, s.stderr.String(), "ledger "+id)
	}
	require.Empty(t, ledgers())
}
