package index

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/entrylog"
)

// killDir names the directory in which the test binary, started again, plays the process that is killed.
const killDir = "BINDERY_INDEX_KILL_DIR"

// killRun is what log n of the victim holds.
func killRun(n int) entrylog.Run {
	return run(int64(n%7), int64(n)*100, 100, entrylog.LogID(n), 4096, 64)
}

// TestKillVictim ingests logs until it is killed, saying each that is done. It does nothing unless started by
// TestKillAndReopen.
func TestKillVictim(t *testing.T) {
	dir := os.Getenv(killDir)
	if dir == "" {
		t.Skip("runs as a process of its own")
	}
	x, err := OpenBolt(filepath.Join(dir, FileName), Options{})
	require.NoError(t, err)
	logs, err := x.Logs()
	require.NoError(t, err)
	for n := len(logs) + 1; ; n++ {
		require.NoError(t, x.Ingest(context.Background(), logInfo(entrylog.LogID(n)), seqOf([]entrylog.Run{killRun(n)}), nil))
		if _, err := fmt.Println("done", n); err != nil {
			return
		}
	}
}

// TestKillAndReopen kills a process in the middle of its transactions and finds all that it had finished.
func TestKillAndReopen(t *testing.T) {
	dir := t.TempDir()
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	done := 0
	for round := range rounds {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKillVictim$")
		cmd.Env = append(os.Environ(), killDir+"="+dir)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		// The first victim is killed at any time, the others once they have finished something.
		kill := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		after := time.Duration(50+round*37) * time.Millisecond
		if round == 0 {
			kill.Reset(after)
		}
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var n int
			if _, err := fmt.Sscanf(lines.Text(), "done %d", &n); err == nil {
				done = n
				if after > 0 && round > 0 {
					kill.Reset(after)
					after = 0
				}
			}
		}
		_ = cmd.Wait()
		kill.Stop()

		x, err := OpenBolt(filepath.Join(dir, FileName), Options{})
		require.NoError(t, err)
		for n := 1; n <= done; n++ {
			ok, err := x.Ingested(entrylog.LogID(n))
			require.NoError(t, err)
			require.True(t, ok, "log "+strconv.Itoa(n))
			r := killRun(n)
			loc, err := x.Locate(r.Ledger, r.Last())
			require.NoError(t, err)
			require.Equal(t, r.Location(99), loc)
		}
		checked(t, x)
		require.NoError(t, x.Close())
	}
	t.Logf("%d logs in %d rounds", done, rounds)
}
