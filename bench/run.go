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
	"strconv"
	"strings"
	"time"

	"github.com/binderylog/bindery/internal/apache"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// benchmark is one run of all loads.
type benchmark struct {
	bin, dir, out, memory, only, version string
	rounds                               int
	duration                             time.Duration
	packages, apache                     bool

	disk    []disk                         // per round
	figures map[string]map[string][]figure // per load, peer and round
	starts  map[string][]started           // per peer and round
	reads   map[string][]catchUp           // per peer and round
}

// figure is what a load gave in one round.
type figure struct {
	PerSecond float64            // adds or records
	MB        float64            `json:"payload_mb_per_s"`
	Latency   map[string]float64 `json:"latency_us"`
	CPU       float64            // server seconds per million adds; 0 = not measured
	RSS       float64            // server bytes
	Written   float64            // disk bytes per payload byte
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
	for round := range b.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, b.rounds)
		d, err := b.measureDisk(ctx)
		if err != nil {
			return err
		}
		b.disk = append(b.disk, d)
		for _, kind := range []string{"", "one", "three"} {
			if err := b.measureKind(ctx, kind); err != nil {
				return err
			}
		}
	}
	allocations := ""
	if b.packages {
		var err error
		if allocations, err = goBenchmarks(ctx); err != nil {
			return err
		}
	}
	return b.report(allocations).write(b.out)
}

// command runs one of the programs to its end and returns its standard output; clients of it find the cluster of a peer. A run
// that was not clean (exit 1 with a report) is no reason to stop: the table marks it.
func (b *benchmark) command(ctx context.Context, p peer, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, name), args...)
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
	out, err := b.command(ctx, nil, "iobench", "sync", b.dir, "--duration", (2 * b.duration).String(), "--output", "json", "--quiet", "--allow-live")
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

// measureKind runs all loads of one kind on all peers, one peer after the other for each load, and with a single bookie what a
// start and a catch-up read take.
func (b *benchmark) measureKind(ctx context.Context, kind string) (err error) {
	var list []load
	for _, l := range loads() {
		if l.server == kind && strings.Contains(l.name, b.only) {
			list = append(list, l)
		}
	}
	if len(list) == 0 {
		return nil
	}
	peers := b.peers()
	if kind == "" {
		peers = []peer{nil}
	}
	for _, p := range peers {
		if p == nil {
			continue
		}
		defer p.remove()
		if err := p.start(ctx, bookiesOf[kind]); err != nil {
			return fmt.Errorf("%s: %w", p.name(), err)
		}
		if err := b.prime(ctx, p, kind); err != nil {
			return fmt.Errorf("%s: %w", p.name(), err)
		}
	}
	for _, l := range list {
		for _, p := range peers {
			name := ""
			if p != nil {
				name = p.name()
			}
			f, err := b.measure(ctx, p, l)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", name, l.name, err)
			}
			if b.figures[l.name] == nil {
				b.figures[l.name] = map[string][]figure{}
			}
			b.figures[l.name][name] = append(b.figures[l.name][name], f)
			fmt.Fprintf(os.Stderr, "  %-48s %9.0f/s  p99 %.2f ms  %s\n", l.name, f.PerSecond, f.Latency["p99"]/1e3, name)
		}
	}
	if kind != "one" || b.only != "" {
		return nil
	}
	for _, p := range peers { // the others would wake up in between
		p.stop()
	}
	for _, p := range peers {
		if err := errors.Join(b.restart(ctx, p), b.catchUp(ctx, p)); err != nil {
			return fmt.Errorf("%s: %w", p.name(), err)
		}
		p.remove()
	}
	return nil
}

// bookiesOf is how many bookies serve a kind of load.
var bookiesOf = map[string]int{"one": 1, "three": 3}

// prime drives a new server until its journals have used more segments than they keep.
func (b *benchmark) prime(ctx context.Context, p peer, kind string) error {
	args := []string{"bench", "cluster", "--outstanding", "1000", "--duration", (2 * b.duration).String(), "--warmup", "0s"}
	if kind == "one" {
		args = append(args, "--raw", p.addresses()[0])
	}
	_, err := b.command(ctx, p, "bindery", args...)
	return err
}

// measure runs one load.
func (b *benchmark) measure(ctx context.Context, p peer, l load) (figure, error) {
	args := append(append([]string{}, l.args...), "--duration", b.duration.String(), "--output", "json")
	if p != nil {
		args = append(args, "--warmup", "2s")
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
		StealShare float64 `json:"steal_share"`
	}
	if jerr := json.Unmarshal(out, &r); jerr != nil {
		return figure{}, errors.Join(err, jerr)
	}
	f := r.figure
	f.PerSecond, f.Steal, f.Failed = r.Adds+r.Records, r.StealShare, err != nil
	if r.Server != nil {
		f.CPU, f.RSS = r.Server.CPU, r.Server.RSS
		if bytes := r.Total * r.Size; bytes > 0 {
			f.Written = r.Server.Written / bytes
		}
	}
	return f, nil
}

// goBenchmarks runs the packages' own benchmarks, which count allocations.
func goBenchmarks(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", ".", "-benchmem", "-benchtime", "300ms", "-timeout", "30m", "./journal/...", "./bookie/...", "./internal/wire/...", "./internal/digest/...")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go test -bench: %w\n%s", err, out)
	}
	var keep []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "Benchmark") || strings.HasPrefix(line, "pkg:") {
			keep = append(keep, strings.TrimRight(line, "\n"))
		}
	}
	return strings.Join(keep, "\n"), nil
}
