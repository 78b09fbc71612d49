//go:build offloadbig

package offload

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload"
)

var (
	sizeFlag = flag.String("offload.size", "64MiB", "how large the ledger is")
	rounds   = flag.Int("offload.rounds", 4, "how often something is killed")
	seedFlag = flag.Uint64("offload.seed", 0, "of the content and the kills; 0: a new one")
)

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// TestStandaloneWithFolders kills the whole cluster, worker included.
func TestStandaloneWithFolders(t *testing.T) {
	lifeOfABigLedger(t, func(c *cluster) {
		c.kill(c.standalone) // it begins to offload when it starts
		c.inFolders()
	})
}

// TestFleetWithBuckets kills offload workers; bookies and metadata live on.
func TestFleetWithBuckets(t *testing.T) {
	lifeOfABigLedger(t, func(c *cluster) { c.inBuckets(3) })
}

func lifeOfABigLedger(t *testing.T, tier func(*cluster)) {
	size, err := parseSize(*sizeFlag)
	require.NoError(t, err)
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d, %s, %d kills", seed, human(size), *rounds)
	c := newCluster(t, seed, size)
	c.startStandalone()

	sum := newDigest()
	var id ledger.ID
	c.timed("write", size, func() {
		r := c.command(newContent(seed, size, sum), nil, 0, "ledger", "write", "--split", "64KiB", "--ensemble", "3", "--write-quorum", "2", "--ack-quorum", "2", "-")
		require.Equal(t, 0, r.code, r.stderr)
		n, err := strconv.ParseInt(strings.TrimSpace(r.stdout), 10, 64)
		require.NoError(t, err)
		id = ledger.ID(n)
	})
	name := strconv.FormatInt(int64(id), 10)
	same := func(args ...string) {
		t.Helper()
		got := newDigest()
		c.timed(strings.Join(args[:2], " "), size, func() {
			r := c.command(nil, got, 0, args...)
			require.Equal(t, 0, r.code, r.stderr)
		})
		require.Equal(t, sum.String(), got.String())
	}
	w := c.watch(id)
	tier(c)

	// Out, killed all the time.
	start := time.Now()
	kills := c.out(w, size)
	c.say("offload until released, with %d kills: %.1f s", kills, time.Since(start).Seconds())
	record := w.stop()
	require.Equal(t, offload.Geometry{Data: 4, Parity: 2}, record.Geometry)
	require.Equal(t, size, record.Length)
	c.say("attempts: %d", record.Number)
	require.NotContains(t, c.ok("offload", "orphans"), "o1/", "every object is named by a record")

	// With as many targets lost as may be, mended, killed meanwhile.
	order := c.rng.Perm(6)
	target := func(i int) string { return fmt.Sprint("t", order[i]+1) }
	c.wipe(target(0), target(1))
	same("ledger", "read", name)
	c.timed("repair of two shards, with kills", size, func() { c.repair(size) })
	c.timed("offload verify", size, func() {
		require.Contains(t, c.ok("offload", "verify", "--all", "--level", "full"), "1 ledger looked at, 0 findings")
	})

	c.clean()
	r := c.record(id)
	stored := c.stored()
	require.ElementsMatch(t, slices.Collect(maps.Keys(named(id, r))), slices.Collect(maps.Keys(stored)), "exactly what the record names")
	total := int64(0)
	for _, n := range stored {
		total += n
	}
	c.say("%s stored for %s: %.4f", human(total), human(size), float64(total)/float64(size))

	c.wipe(target(2), target(3)) // two others: nothing of the first ones' loss is left
	same("offload", "read", name)

	c.ok("ledger", "rm", name, "--yes")
	c.clean()
	require.Empty(t, c.stored())
	require.NotContains(t, c.ok("offload", "ls"), name)
	for _, p := range c.workers {
		c.kill(p)
	}
	c.kill(c.standalone)
	for _, what := range slices.Sorted(maps.Keys(c.memory)) {
		c.say("most memory of %s: %s", what, human(c.memory[what]))
	}
	t.Log("\n" + strings.Join(c.lines, "\n"))
}

func (c *cluster) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	c.lines = append(c.lines, line)
	c.t.Log(line)
}

func (c *cluster) timed(what string, size int64, f func()) {
	start := time.Now()
	f()
	took := time.Since(start)
	c.say("%s: %.1f s, %s/s", what, took.Seconds(), human(int64(float64(size)/took.Seconds())))
}

// gap draws how long something lives: so that the kills are spread over the whole run, on a machine that moves 64 MiB a second.
func (c *cluster) gap(size int64) time.Duration {
	expected := max(2*time.Second, time.Duration(size>>26)*time.Second*2/time.Duration(max(*rounds, 1)))
	return time.Duration(c.rng.Int64N(int64(2 * expected)))
}

// out starts the workers and kills one after the other until the ledger is in the tier and the bookies have given it up, and no more often
// than was asked for. It returns how often.
func (c *cluster) out(w *watcher, size int64) int {
	for _, p := range c.workers {
		c.startWorker(p)
	}
	kills := 0
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	deadline := time.NewTimer(c.patience)
	defer deadline.Stop()
	next := time.NewTimer(c.gap(size))
	defer next.Stop()
	for w.state() != offload.StateReleased {
		select {
		case <-tick.C:
		case <-next.C:
			if kills == *rounds {
				continue
			}
			kills++
			victim := c.workers[c.rng.IntN(len(c.workers))]
			c.kill(victim)
			c.t.Logf("kill %d: %s, in state %v", kills, victim.name, w.state())
			c.startWorker(victim)
			next.Reset(c.gap(size))
		case <-deadline.C:
			c.t.Fatalf("the ledger is in state %v after %v", w.state(), c.patience)
		}
		for _, p := range c.workers {
			select {
			case <-p.exited:
				c.t.Fatalf("%s ended by itself: %s", p.name, c.logOf(p.name))
			default:
			}
		}
	}
	return kills
}

// repair runs the command and kills it, until it is let finish.
func (c *cluster) repair(size int64) {
	for range *rounds / 2 {
		c.command(nil, nil, max(c.gap(size), time.Second), "offload", "repair", "--all")
	}
	deadline := time.Now().Add(c.patience)
	for {
		r := c.command(nil, nil, 0, "offload", "repair", "--all")
		if r.code == 0 {
			return
		}
		require.Contains(c.t, r.stderr, "another attempt is under way", "only the lock of one that was killed may be in the way")
		require.True(c.t, time.Now().Before(deadline), r.stderr)
		time.Sleep(time.Second)
	}
}

// clean makes two rounds of the janitor, a grace apart: one cycle.
func (c *cluster) clean() {
	for i := range 4 {
		if i > 0 {
			time.Sleep(1100 * time.Millisecond)
		}
		c.ok("offload", "clean", "--grace", "1s")
	}
}

func (c *cluster) record(id ledger.ID) *offload.Record {
	w := c.watch(id)
	require.Eventually(c.t, func() bool { return w.state() != 0 }, time.Minute, lookEvery)
	return w.stop()
}
