package entrylog

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
)

// killDir names the directory in which the test binary, started again, plays the process that is killed.
const killDir = "BINDERY_ENTRYLOG_KILL_DIR"

func killOptions() Options {
	return Options{LogSize: 2 << 20, BufferSize: 256 << 10, PreallocateSize: 1 << 20, Logger: smallOptions().Logger}
}

// killBatch is what checkpoint n of the victim holds.
func killBatch(n int64) *batch {
	b := &batch{}
	for ledger := range int64(7) {
		for e := range int64(40) {
			b.add(ledger, n*40+e, 200+int(e)*50, uint64(n))
		}
	}
	b.state(n%7, fmt.Sprint("state ", n))
	return b
}

// TestKillVictim writes checkpoints until it is killed, saying how far it got. It does nothing unless started by
// TestKillAndReopen.
func TestKillVictim(t *testing.T) {
	dir := os.Getenv(killDir)
	if dir == "" {
		t.Skip("runs as a process of its own")
	}
	var from int64
	_, err := fmt.Sscan(os.Getenv(killDir+"_FROM"), &from)
	require.NoError(t, err)
	s, _, err := Open(vfs.OS(), dir, killOptions())
	require.NoError(t, err)
	m := newModel()
	for n := from; ; n++ {
		require.NoError(t, m.write(s, killBatch(n)))
		d := s.Durable()
		if _, err := fmt.Println("durable", n, uint32(d.Log), d.Offset); err != nil {
			return
		}
	}
}

// TestKillAndReopen kills a process that writes real files, at any moment, and finds everything it had made durable.
func TestKillAndReopen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "current")
	require.NoError(t, os.Mkdir(dir, 0o755))
	if _, err := vfs.ProbeDirect(vfs.OS(), dir); err != nil {
		t.Skipf("no direct I/O here: %v", err)
	}
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	next := int64(0)
	o := killOptions()
	for round := range rounds {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKillVictim$")
		cmd.Env = append(os.Environ(), killDir+"="+dir, fmt.Sprint(killDir, "_FROM=", next))
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		// The first victim is killed at any time, the others once they have finished something.
		kill := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		after := time.Duration(80+round*61) * time.Millisecond
		if round == 0 {
			kill.Reset(after)
		}
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var n, off int64
			var log uint32
			if _, err := fmt.Sscanf(lines.Text(), "durable %d %d %d", &n, &log, &off); err == nil {
				next, o.Durable = n+1, Position{LogID(log), off}
				if after > 0 && round > 0 {
					kill.Reset(after)
					after = 0
				}
			} else if strings.Contains(lines.Text(), "FAIL") {
				t.Errorf("the victim failed: %s", lines.Text())
			}
		}
		_ = cmd.Wait()
		kill.Stop()

		s, r, err := Open(vfs.OS(), dir, o)
		require.NoError(t, err)
		require.Empty(t, r.Damage)
		c, err := readAll(s)
		require.NoError(t, err)
		m := newModel()
		for n := range next {
			b := killBatch(n)
			for _, e := range b.bodies {
				m.entries[e.id] = e.body
			}
			for _, st := range b.states {
				m.states[st.Ledger] = string(st.Data)
			}
		}
		for _, st := range killBatch(next).states { // of the checkpoint under way
			if c.states[st.Ledger] == string(st.Data) {
				delete(m.states, st.Ledger)
			}
		}
		m.holds(t, s, c, fmt.Sprint("round ", round))
		require.NoError(t, s.Close())
	}
	t.Logf("%d checkpoints in %d rounds", next, rounds)
	require.Positive(t, next)
}
