package intent

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const childDir = "BINDERY_INTENT_KILL_DIR"

// TestKillChild is the process that TestKillAndReopen kills. It says on standard output what it is about to do and what
// it was told was done.
func TestKillChild(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		t.Skip("runs as a child of TestKillAndReopen")
	}
	l, err := Open(dir, Options{SegmentBytes: 2 << 10})
	require.NoError(t, err)
	for i := 0; ; i++ {
		text := fmt.Sprintf("%d of %s", i, os.Getenv("BINDERY_INTENT_KILL_ROUND"))
		fmt.Printf("> asked %s\n", text)
		id, err := l.Append(context.Background(), []byte(text))
		require.NoError(t, err)
		fmt.Printf("> pending %s\n", text)
		if i%10 == 0 {
			continue
		}
		fmt.Printf("> finishing %s\n", text)
		require.NoError(t, l.Done(context.Background(), id))
		fmt.Printf("> done %s\n", text)
	}
}

func TestKillAndReopen(t *testing.T) {
	rounds := 15
	if testing.Short() {
		rounds = 3
	}
	dir := filepath.Join(t.TempDir(), "i")
	rng := rand.New(rand.NewPCG(7, 7))
	var h history
	for round := range rounds {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKillChild$")
		cmd.Env = append(os.Environ(), childDir+"="+dir, fmt.Sprintf("BINDERY_INTENT_KILL_ROUND=%d", round))
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		killed := false
		limit := 1 + rng.IntN(300)
		for n := 0; lines.Scan(); n++ { // to the end: what was said before the kill counts
			rest, ok := strings.CutPrefix(lines.Text(), "> ")
			if !ok {
				require.Empty(t, strings.TrimSpace(lines.Text()), "the child failed")
				continue
			}
			state, text, _ := strings.Cut(rest, " ")
			h.set(text, state)
			if n >= limit && !killed {
				killed = true
				require.NoError(t, cmd.Process.Kill())
			}
		}
		_ = cmd.Wait() // killed
		require.True(t, killed)
		l, err := Open(dir, Options{SegmentBytes: 2 << 10})
		require.NoError(t, err)
		h.check(t, l, fmt.Sprintf("round %d", round))
		require.NoError(t, l.Close())
	}
	require.Greater(t, len(h.order), rounds)
}
