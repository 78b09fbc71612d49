//go:build crash

package crash

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lifeMax is how many rounds one data directory lives.
const lifeMax = 12

// plan is one round, drawn from the seed.
type plan struct {
	point    string // armed, or ""
	count    int
	duration time.Duration // of the load
	killAt   time.Duration // kill so long after the start, serving or not; 0 = not
	stop     bool          // end with SIGTERM instead, if no point was met
	seed     uint64
}

func (p plan) String() string {
	s := "no point"
	if p.point != "" {
		s = fmt.Sprintf("%s=%d", p.point, p.count)
	}
	if p.killAt > 0 {
		s += fmt.Sprintf(", killed %v after the start", p.killAt)
	}
	if p.stop {
		s += ", stopped cleanly"
	}
	return s
}

// reach returns how often a point may be passed before it kills: points that are passed often get larger counts.
func reach(point string) int {
	switch {
	case strings.HasPrefix(point, "journal.group"), point == "journal.before-ack":
		return 200
	case strings.HasPrefix(point, "index.tx"), strings.HasPrefix(point, "storage.flush"), strings.HasPrefix(point, "entrylog.checkpoint"):
		return 8
	case strings.HasPrefix(point, "intent."):
		return 6
	case strings.HasPrefix(point, "bookie.stop-"), strings.HasPrefix(point, "identity.stop-"):
		return bookies // each passes once
	case strings.HasPrefix(point, "bookie.fence"):
		return 4
	}
	return 3
}

// elsewhere are the points that this test does not arm, since nothing in it leads there, and the test that does.
var elsewhere = map[string]string{
	"bookie.limbo-marked":  "TestCrashInALoss",
	"bookie.loss-accepted": "TestCrashInALoss",
	"bookie.order-written": "TestCrashInAnOrder",
}

// deck deals the points in random order, each once before any comes again.
type deck struct {
	points, rest []string
}

// atPreparation says whether a point is passed only when a data directory is new.
func atPreparation(point string) bool {
	return slices.Contains([]string{"identity.directory-stamped", "identity.record-written", "index.create.before-rename"}, point)
}

// next deals a point that can be met: those of the preparation only for a new directory.
func (d *deck) next(rng *rand.Rand, fresh bool) string {
	for range 2 {
		for i, p := range d.rest {
			if fresh || !atPreparation(p) {
				d.rest = slices.Delete(d.rest, i, i+1)
				return p
			}
		}
		more := slices.Clone(d.points)
		rng.Shuffle(len(more), func(i, j int) { more[i], more[j] = more[j], more[i] })
		d.rest = append(d.rest, more...)
	}
	return ""
}

func draw(rng *rand.Rand, d *deck, fresh bool) plan {
	p := plan{seed: rng.Uint64(), duration: time.Duration(1500+rng.IntN(3500)) * time.Millisecond}
	if rng.IntN(10) != 0 {
		if p.point = d.next(rng, fresh); p.point != "" {
			p.count = 1 + rng.IntN(reach(p.point))
		}
	}
	switch rng.IntN(12) {
	case 0:
		p.killAt = time.Duration(1+rng.IntN(800)) * time.Millisecond
	case 1:
		p.stop = true
	}
	if strings.Contains(p.point, ".stop-") {
		p.stop, p.killAt = true, 0
	}
	return p
}

func number(t *testing.T, name string, byDefault uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return byDefault
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, "%s", name)
	return n
}

func TestCrash(t *testing.T) {
	rounds := int(number(t, "CRASH_ROUNDS", 20))
	seed := number(t, "CRASH_SEED", uint64(time.Now().UnixNano()))
	t.Logf("%d rounds; run this plan again with: make crash CRASH_ROUNDS=%d CRASH_SEED=%d", rounds, rounds, seed)
	points := slices.DeleteFunc(slices.Sorted(maps.Keys(usedPoints(t))), func(p string) bool { return elsewhere[p] != "" })
	if only := os.Getenv("CRASH_POINTS"); only != "" { // comma-separated prefixes
		points = slices.DeleteFunc(points, func(p string) bool {
			return !slices.ContainsFunc(strings.Split(only, ","), func(prefix string) bool { return strings.HasPrefix(p, prefix) })
		})
		require.NotEmpty(t, points, "CRASH_POINTS=%s", only)
	}
	bin := buildBinary(t)
	base, err := os.MkdirTemp("", "bindery-crashtest-")
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("data and logs are kept in %s", base)
			return
		}
		_ = os.RemoveAll(base)
	})
	rng := rand.New(rand.NewPCG(seed, 1))
	h := &harness{t: t, bin: bin, base: base, hits: map[string]int{}, totals: map[string]int64{}}
	d := &deck{points: points}
	for round := 1; round <= rounds; round++ {
		if h.world == nil || h.age >= lifeMax {
			h.renew(round, seed)
		}
		p := draw(rng, d, h.age == 0)
		h.age++
		h.round(round, p)
		if t.Failed() {
			t.Fatalf("round %d (%s) of seed %d failed; the end of the program's log:\n%s", round, p, seed, tail(h.log, 60))
		}
	}
	h.finish(points)
}

// harness runs rounds.
type harness struct {
	t         *testing.T
	bin, base string
	dir, log  string
	world     *world
	age       int
	hits      map[string]int
	totals    map[string]int64
}

// renew begins with an empty data directory.
func (h *harness) renew(round int, seed uint64) {
	if h.world != nil {
		h.collect()
		_ = os.RemoveAll(h.dir)
	}
	h.dir = filepath.Join(h.base, fmt.Sprintf("data-%d", round))
	h.log = filepath.Join(h.base, fmt.Sprintf("log-%d", round))
	h.world = newWorld(seed^uint64(round)<<32, bookies)
	h.age = 0
}

func (h *harness) collect() {
	for what, n := range h.world.stats {
		h.totals[what] += n
	}
}

// round is one life of the program.
func (h *harness) round(n int, p plan) {
	t, w := h.t, h.world
	w.round = n
	armed := ""
	if p.point != "" {
		armed = fmt.Sprintf("%s=%d", p.point, p.count)
	}
	began := time.Now()
	proc, err := start(h.bin, h.dir, h.log, armed)
	require.NoError(t, err)
	defer proc.kill()
	if p.killAt > 0 {
		timer := time.AfterFunc(p.killAt, proc.kill)
		defer timer.Stop()
	}
	alive, err := proc.awaitReady()
	if err != nil {
		t.Errorf("round %d: %v", n, err)
		return
	}
	verified := false
	if alive {
		err := w.verifyAll(proc.Bookies, p.seed)
		verified = err == nil
		if verified && len(w.broken()) == 0 {
			h.drive(proc, p)
			err = w.takeLost()
		}
		if err != nil && !proc.dies() {
			t.Errorf("round %d: a connection ended, and the program lives: %v", n, err)
		}
	}
	outcome := "survived"
	if p.stop && verified {
		select {
		case <-proc.dead:
		default:
			if err := proc.stop(); err == nil {
				outcome = "stopped"
			} else if _, other := proc.diedAtPoint(); other != nil {
				t.Errorf("round %d: %v", n, err)
			}
		}
	}
	proc.kill()
	if outcome != "stopped" {
		atPoint, err := proc.diedAtPoint()
		if err != nil {
			t.Errorf("round %d: %v", n, err)
		}
		if atPoint {
			outcome = "died at the point"
			h.hits[p.point]++
		} else if proc.killedByUs.Load() {
			outcome = "killed"
		}
	}
	w.forget()
	for _, line := range w.broken() {
		t.Error(line)
	}
	t.Logf("round %d: %s: %s after %.1f s (checked before: %v)", n, p, outcome, time.Since(began).Seconds(), verified)
}

// drive creates and deletes ledgers, loads the bookies and stirs their maintenance until the time is up or they die.
func (h *harness) drive(proc *process, p plan) {
	w := h.world
	rng := rand.New(rand.NewPCG(p.seed, 2))
	ctx, cancel := context.WithTimeout(h.t.Context(), p.duration)
	defer cancel()
	go func() {
		select {
		case <-proc.dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	r, err := openRecords(ctx, proc.Metadata)
	if err != nil {
		return // it died meanwhile, which the round finds out
	}
	defer r.store.Close()
	if err := r.replenish(ctx, w, rng); err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.maintain(ctx, proc, r, rng)
	}()
	w.load(ctx, proc.Bookies, p.seed)
	cancel()
	<-done
}

// maintain asks for checkpoints and collections and deletes a ledger now and then.
func (h *harness) maintain(ctx context.Context, proc *process, r *records, rng *rand.Rand) {
	tick := time.NewTicker(150 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		bookie := rng.IntN(bookies)
		switch p := rng.IntN(10); {
		case p < 4:
			proc.post(ctx, bookie, "/api/v2/flush")
		case p < 8:
			proc.post(ctx, bookie, "/api/v2/gc")
		case p == 8:
			if active := h.world.active(); len(active) > 2 {
				r.remove(ctx, h.world, active[rng.IntN(len(active))])
			}
		}
	}
}

// finish says what was reached.
func (h *harness) finish(points []string) {
	h.collect()
	for _, what := range slices.Sorted(maps.Keys(h.totals)) {
		h.t.Logf("%d %s", h.totals[what], what)
	}
	var never []string
	for _, p := range points {
		h.t.Logf("%4d times died at %s", h.hits[p], p)
		if h.hits[p] == 0 {
			never = append(never, p)
		}
	}
	if len(never) > 0 {
		h.t.Logf("never reached in this run: %s", strings.Join(never, ", "))
	}
	require.Positive(h.t, h.totals["adds acknowledged"])
}
