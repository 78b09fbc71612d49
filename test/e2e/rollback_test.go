//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// notedIDs is what the bookies have noted of the ids drawn in their store, by file.
func notedIDs(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "bindery-data", "bookie-*", "*", "current", "IDS"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	noted := map[string]string{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		noted[name] = string(text)
	}
	return noted
}

// TestMetadataFromABackup puts an older backup of the metadata under bookies that hold ledgers made since. They are stopped
// cleanly, or killed a moment after those ledgers were made. Nothing is written until an operator has said that the store is
// right as it is, and a ledger made then is a new one: its id was never used, and it holds what was written to it.
func TestMetadataFromABackup(t *testing.T) {
	for _, end := range []string{"stopped", "killed"} {
		t.Run(end, func(t *testing.T) {
			dir := t.TempDir()
			write := func(text string) int64 {
				t.Helper()
				name := filepath.Join(dir, "input")
				require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
				id, err := strconv.ParseInt(strings.TrimSpace(ok(t, dir, "ledger", "write", "--split", "lines", "input")), 10, 64)
				require.NoError(t, err)
				return id
			}
			s := standalone(t, dir)
			kept := write("kept\n")
			require.Zero(t, s.stop(syscall.SIGTERM), s.stderr)
			metadata, backup := filepath.Join(dir, "bindery-data", "metadata"), filepath.Join(dir, "backup")
			require.NoError(t, os.CopyFS(backup, os.DirFS(metadata)))

			s = standalone(t, dir)
			before := notedIDs(t, dir)
			newest := int64(-1)
			for n := range 5 {
				newest = max(newest, write(fmt.Sprintf("lost %d\n", n)+strings.Repeat("an entry that must not come back\n", 20)))
			}
			if end == "killed" {
				require.Eventually(t, func() bool { // each bookie has noted that ids were drawn
					now := notedIDs(t, dir)
					for name, text := range before {
						if now[name] == text {
							return false
						}
					}
					return true
				}, time.Minute, 20*time.Millisecond)
				s.kill()
			} else {
				require.Zero(t, s.stop(syscall.SIGTERM), s.stderr)
			}
			require.NoError(t, os.RemoveAll(metadata))
			require.NoError(t, os.CopyFS(metadata, os.DirFS(backup)))

			s = standalone(t, dir)
			r := command(t, dir, nil, "status")
			require.Equal(t, 5, r.code, r.stderr)
			require.Equal(t, 3, strings.Count(r.stdout, "restored from an older backup"), r.stdout)
			require.Equal(t, "kept\n", ok(t, dir, "ledger", "read", strconv.FormatInt(kept, 10), "--format", "raw"))
			r = command(t, dir, nil, "ledger", "write", "input")
			require.NotZero(t, r.code)
			require.Contains(t, r.complaint(t), "not enough bookies")
			r = command(t, dir, nil, "gc", "accept-rollback")
			require.Equal(t, 3, r.code)
			require.Equal(t, "accepted by 3 bookies: the metadata store is right as it is now\n", ok(t, dir, "gc", "accept-rollback", "--yes"))

			deadline := time.Now().Add(time.Minute)
			for r = command(t, dir, nil, "ledger", "write", "input"); r.code != 0 && time.Now().Before(deadline); r = command(t, dir, nil, "ledger", "write", "input") {
				time.Sleep(100 * time.Millisecond) // until the bookies are registered as writable
			}
			fresh := write("fresh\n")
			require.Greater(t, fresh, newest, "no id of a lost ledger is given out again")
			require.Equal(t, "fresh\n", ok(t, dir, "ledger", "read", strconv.FormatInt(fresh, 10)))
			require.Zero(t, s.stop(syscall.SIGTERM), s.stderr)
		})
	}
}
