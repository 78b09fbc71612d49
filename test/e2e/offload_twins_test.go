//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/freeport"
)

// TestOffloadTwins runs processes with the role offload that are alike: on one directory of intents the second is refused and told whose it
// is; with one of its own it shares the work, while one of the two is killed again and again.
func TestOffloadTwins(t *testing.T) {
	dir := t.TempDir()
	uri := standalone(t, dir, "--offload-dir", "tier").endpoints().Metadata
	config := func(name, intents string) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, fmt.Appendf(nil, `[run]
roles = ["offload"]
[metadata]
uri = %q
[http]
listen = "127.0.0.1:%d"
[offload]
targets = %q
dir = %q
after_age = "1ms"
deletion_lag = "0s"
rate = "4MiB"
`, uri, freeport.Test(t), filepath.Join(dir, "bindery-data", "offload-targets.toml"), filepath.Join(dir, intents)), 0o600))
		return name
	}
	input, data := randomFile(t, dir, 2<<20)
	var ids []string
	for range 12 {
		ids = append(ids, strings.TrimSpace(ok(t, dir, "ledger", "write", "--split", "16KiB", input)))
	}
	one := config("one.toml", "intents")
	first := start(t, dir, "", "run", "--config", one)
	require.Eventually(t, func() bool {
		select {
		case <-first.exited:
			t.Fatalf("it ended:\n%s", first.stderr)
		default:
		}
		return strings.Contains(ok(t, dir, "offload", "ls"), "UPLOADING") || strings.Contains(ok(t, dir, "offload", "ls"), "RELEASED")
	}, startTimeout, 100*time.Millisecond, "%s", first.stderr)
	r := command(t, dir, nil, "run", "--config", config("same.toml", "intents"))
	require.Equal(t, 11, r.code, r.stderr)
	line := r.complaint(t)
	require.Contains(t, line, filepath.Join(dir, "intents"))
	require.Contains(t, line, fmt.Sprintf("(process %d) has it open", first.cmd.Process.Pid))

	second := start(t, dir, "", "run", "--config", config("two.toml", "intents-2"))
	for range 3 {
		time.Sleep(700 * time.Millisecond)
		first.kill()
		first = start(t, dir, "", "run", "--config", one)
	}
	require.Eventually(t, func() bool {
		return strings.Count(ok(t, dir, "offload", "ls"), "RELEASED") == len(ids)
	}, startTimeout, 500*time.Millisecond, "%s\n%s", first.stderr, second.stderr)
	require.Zero(t, first.stop(syscall.SIGTERM), first.stderr)
	require.Zero(t, second.stop(syscall.SIGTERM), second.stderr)
	require.Contains(t, ok(t, dir, "offload", "verify", "--all", "--level", "full"), "12 ledgers looked at, 0 findings")
	for _, id := range ids {
		require.True(t, ok(t, dir, "ledger", "read", id) == string(data), id)
	}
	ok(t, dir, "offload", "clean", "--grace", "1ms")
	ok(t, dir, "offload", "clean", "--grace", "1ms")
	require.Equal(t, "[]\n", ok(t, dir, "offload", "orphans", "--output", "json"))
}
