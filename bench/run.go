package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/binderylog/bindery/internal/apache"
	"github.com/binderylog/bindery/internal/pace"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// benchmark is one run of all loads.
type benchmark struct {
	bin, dir, out, memory, version string
	args                           []string // that the run was given
	only                           *regexp.Regexp
	rounds                         int
	duration, open, warmup, within time.Duration
	packages, apache               bool

	progress progress
	leftOut  []string // for lack of time
	failures []string // steps that failed, with why

	disk        []disk                         // per round
	figures     map[string]map[string][]figure // per load, peer and round
	starts      map[string][]started           // per peer and round
	reads       map[string][]catchUp           // per peer and round
	collections map[string][]collected         // per peer and round
	tiers       map[string][]besideTier        // per peer and round
}

// figure is what a load gave in one round.
type figure struct {
	Round     int
	PerSecond float64            // adds or records
	MB        float64            `json:"payload_mb_per_s"`
	Latency   map[string]float64 `json:"latency_us"`
	CPU       float64            // server seconds per million adds; 0 = not measured
	RSS       float64            // server bytes
	Written   float64            // disk bytes per payload byte
	Disk      float64            // MB/s, the disk's best of this round
	Steal     float64
	Failed    bool
}

// disk is what iobench says in one round, by group size: the best method's durable MB/s and p50.
type disk struct {
	MB  map[int]float64
	P50 map[int]float64 // us
}

func (b *benchmark) run(ctx context.Context) error {
	version, err := b.command(ctx, nil, "bindery", "version")
	if err != nil {
		return err
	}
	b.version = string(bytes.TrimSpace(version))
	if b.apache {
		if err := apacheHere(ctx); errors.Is(err, apache.ErrMissing) {
			fmt.Fprintln(os.Stderr, "without Apache BookKeeper:", err)
			b.apache = false
		} else if err != nil {
			return err
		}
	}
	b.figures, b.starts, b.reads = map[string]map[string][]figure{}, map[string][]started{}, map[string][]catchUp{}
	b.collections, b.tiers = map[string][]collected{}, map[string][]besideTier{}
	b.progress = progress{begun: time.Now(), total: time.Duration(b.rounds) * b.round()}
	for round := range b.rounds {
		name := fmt.Sprintf("round %d of %d", round+1, b.rounds)
		if round > 0 && b.late(name, b.diskTakes()) {
			break
		}
		b.say("%s", name)
		d, err := b.measureDisk(ctx)
		if err != nil {
			return err
		}
		b.disk = append(b.disk, d)
		b.progress.add(b.diskTakes())
		for _, st := range b.stages() {
			if err := b.stage(ctx, st); err != nil {
				return err
			}
		}
	}
	allocations := ""
	if b.packages {
		b.say("the packages' own benchmarks")
		var err error
		if allocations, err = goBenchmarks(ctx); err != nil {
			return err
		}
	}
	if err := b.report(allocations).write(b.out); err != nil {
		return err
	}
	if len(b.failures) > 0 {
		return fmt.Errorf("%d figures are missing: %s", len(b.failures), strings.Join(b.failures, "; "))
	}
	return nil
}

// fail notes that something could not be measured. The rest goes on, unless the run was interrupted.
func (b *benchmark) fail(ctx context.Context, what string, p peer, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if p != nil {
		what += " on " + p.name()
	}
	b.say("FAILED: %s: %v", what, err)
	why, _, _ := strings.Cut(err.Error(), "\n") // what programs said is shown above
	b.failures = append(b.failures, what+": "+why)
	return nil
}

// command runs one of the programs to its end and returns its standard output; clients of it find the cluster of a peer. A run
// that was not clean (exit 1 with a report) is no reason to stop: the table marks it.
func (b *benchmark) command(ctx context.Context, p peer, name string, args ...string) ([]byte, error) {
	cmd := own(exec.CommandContext(ctx, filepath.Join(b.bin, name), args...))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Dir, cmd.Env = b.dir, clientEnv(p)
	if err := cmd.Run(); err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
		return out.Bytes(), err
	}
	return out.Bytes(), nil
}

// clientEnv is the environment in which the client commands find the cluster of a peer.
func clientEnv(p peer) []string {
	env := os.Environ()
	if p != nil {
		env = append(env, "BINDERY_METADATA__URI="+p.metadata())
	}
	return env
}

func (b *benchmark) measureDisk(ctx context.Context) (disk, error) {
	d := disk{MB: map[int]float64{}, P50: map[int]float64{}}
	// Peers are at rest between rounds, but may run.
	out, err := b.command(ctx, nil, "iobench", "sync", b.dir, "--duration", (primeTimes * b.duration).String(), "--output", "json", "--quiet", "--allow-live")
	if err != nil {
		return d, err
	}
	runs, err := result.Decode(bytes.NewReader(out))
	if err != nil {
		return d, err
	}
	c := runs[0].Chapter(result.ChapterSync, 0)
	if c == nil {
		return d, errors.New("iobench measured no durable writes")
	}
	for _, s := range c.Cells {
		if s.Latency == nil {
			continue
		}
		d.MB[s.BlockBytes] = max(d.MB[s.BlockBytes], s.MBPerS)
		if p, ok := d.P50[s.BlockBytes]; !ok || s.Latency.P50US < p {
			d.P50[s.BlockBytes] = s.Latency.P50US
		}
	}
	return d, nil
}

// stage runs the steps of a stage, each on one peer after the other, and takes its servers and their data away.
func (b *benchmark) stage(ctx context.Context, st stage) error {
	first := time.Duration(len(st.peers)) * st.steps[0].takes
	if st.bookies > 0 && b.late("all of "+st.name+" from "+st.steps[0].name+" on", b.begins(st)+first) {
		for _, s := range st.steps[1:] {
			b.progress.add(time.Duration(len(st.peers)) * s.takes)
		}
		return nil
	}
	defer func() {
		for _, p := range st.peers {
			if p != nil {
				p.remove()
			}
		}
		b.settle(ctx)
	}()
	for _, p := range st.peers {
		if st.bookies == 0 {
			break
		}
		err := p.start(ctx, st.bookies)
		if err == nil {
			err = b.prime(ctx, p, st.bookies)
		}
		if err != nil {
			return b.fail(ctx, "all of "+st.name, p, err)
		}
	}
	b.progress.add(b.begins(st))
	for _, s := range st.steps {
		if b.late(s.name, time.Duration(len(st.peers))*s.takes) {
			continue
		}
		for _, p := range st.peers {
			err := s.run(ctx, p)
			if p != nil && st.bookies == 0 {
				p.remove()
				b.settle(ctx)
			}
			if err != nil {
				if err := b.fail(ctx, s.name, p, err); err != nil {
					return err
				}
			}
			b.progress.add(s.takes)
		}
	}
	return nil
}

// settleTime is how long the disk gets after data was removed: a file system mounted with discard hands what becomes free to
// the device, which holds up everybody's writes meanwhile.
const settleTime = 3 * time.Second

// settle lets the disk finish what the removal of data has begun, so that the next figure does not pay for it.
func (b *benchmark) settle(ctx context.Context) {
	if d, err := os.Open(b.dir); err == nil {
		_ = d.Sync() // commits the removal; if it does not, the wait has to do
		_ = d.Close()
	}
	_ = pace.Sleep(ctx, settleTime)
}

// prime drives a new server until its journals have used more segments than they keep.
func (b *benchmark) prime(ctx context.Context, p peer, bookies int) error {
	args := []string{"bench", "cluster", "--outstanding", "1000", "--duration", (primeTimes * b.duration).String(), "--warmup", "0s"}
	if bookies == 1 {
		args = append(args, "--raw", p.addresses()[0])
	}
	_, err := b.command(ctx, p, "bindery", args...)
	return err
}

// load measures a load on a peer and keeps the figure.
func (b *benchmark) load(ctx context.Context, p peer, l load) error {
	f, err := b.measure(ctx, p, l)
	if err != nil {
		return err
	}
	b.keep(l.name, p, f)
	return nil
}

// keep keeps a figure of this round.
func (b *benchmark) keep(name string, p peer, f figure) {
	on := ""
	if p != nil {
		on = p.name()
	}
	f.Round, f.Disk = len(b.disk), b.disk[len(b.disk)-1].best()
	if b.figures[name] == nil {
		b.figures[name] = map[string][]figure{}
	}
	b.figures[name][on] = append(b.figures[name][on], f)
	b.say("%-48s %9.0f/s  p99 %.2f ms  %s", name, f.PerSecond, f.Latency["p99"]/1e3, on)
}

// measure runs one load.
func (b *benchmark) measure(ctx context.Context, p peer, l load) (figure, error) {
	args := append(append([]string{}, l.args...), "--duration", b.measured(l).String(), "--output", "json")
	if p != nil {
		warmup := b.warmup
		if l.time > 0 {
			warmup = 0
		}
		args = append(args, "--warmup", warmup.String())
		for _, pid := range p.pids() {
			args = append(args, "--pid", strconv.Itoa(pid))
		}
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "%BOOKIE%", p.addresses()[0])
		}
	}
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "%DIR%", b.dir)
	}
	out, err := b.command(ctx, p, "bindery", args...)
	var r struct {
		figure
		Adds    float64 `json:"adds_per_s"`
		Records float64 `json:"records_per_s"`
		Total   float64 `json:"adds"`
		Size    float64 `json:"payload_bytes"`
		Server  *struct {
			CPU     float64 `json:"cpu_s_per_million_adds"`
			RSS     float64 `json:"resident_bytes"`
			Written float64 `json:"disk_bytes"`
		} `json:"server"`
		Tail *struct {
			Latency map[string]float64 `json:"latency_us"`
		} `json:"tail"`
		StealShare float64 `json:"steal_share"`
	}
	if jerr := json.Unmarshal(out, &r); jerr != nil {
		return figure{}, errors.Join(err, jerr)
	}
	f := r.figure
	f.PerSecond, f.Steal, f.Failed = r.Adds+r.Records, r.StealShare, err != nil
	if r.Tail != nil {
		f.Latency = r.Tail.Latency
	}
	if r.Server != nil {
		f.CPU, f.RSS = r.Server.CPU, r.Server.RSS
		if bytes := r.Total * r.Size; bytes > 0 {
			f.Written = r.Server.Written / bytes
		}
	}
	return f, context.Cause(ctx)
}

// goBenchmarks runs the packages' own benchmarks, which count allocations.
func goBenchmarks(ctx context.Context) (string, error) {
	var keep []string
	for _, args := range [][]string{
		{"-bench", ".", "-benchtime", "300ms", "./journal/...", "./bookie/...", "./internal/wire/...", "./internal/digest/..."},
		// The client's throughput, with the places where most of its processor time goes into locks, objects and signals: that takes
		// seconds of samples.
		{"-bench", "^BenchmarkThroughput$", "-benchtime", "10s", "-v", "./ledgerclient"},
	} {
		cmd := own(exec.CommandContext(ctx, "go", append([]string{"test", "-run", "^$", "-benchmem", "-timeout", "30m"}, args...)...))
		out, err := cmd.CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("go test -bench: %w\n%s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, "Benchmark") && len(strings.Fields(line)) > 1 || strings.HasPrefix(line, "pkg:") || strings.Contains(line, "shares_test.go") {
				keep = append(keep, strings.TrimRight(line, "\n"))
			}
		}
	}
	return strings.Join(keep, "\n"), nil
}
