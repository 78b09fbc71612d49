package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// benchmark is one run of all loads.
type benchmark struct {
	bin, dir, out, memory, only string
	rounds                      int
	duration                    time.Duration
	packages                    bool

	disk    []disk              // per round
	figures map[string][]figure // per load and round
	starts  []started           // per round
	reads   []catchUp           // per round
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
	b.figures = map[string][]figure{}
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
	table := b.table(allocations)
	if _, err := io.WriteString(os.Stdout, table); err != nil {
		return err
	}
	if b.out == "" {
		return nil
	}
	return os.WriteFile(b.out, []byte(table), 0o644)
}

// command runs one of the programs to its end and returns its standard output. A run that was not clean (exit 1 with a
// report) is no reason to stop: the table marks it.
func (b *benchmark) command(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, name), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Dir = b.workDir()
	if err := cmd.Run(); err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
		return out.Bytes(), err
	}
	return out.Bytes(), nil
}

func (b *benchmark) workDir() string { return b.dir }

func (b *benchmark) measureDisk(ctx context.Context) (disk, error) {
	d := disk{MB: map[int]float64{}, P50: map[int]float64{}}
	out, err := b.command(ctx, "iobench", "quick", b.dir, "--duration", (2 * b.duration).String(), "--output", "json")
	if err != nil {
		return d, err
	}
	var r struct {
		Directories []struct {
			Sync []struct {
				GroupBytes int     `json:"group_bytes"`
				P50        float64 `json:"sync_p50_us"`
				MB         float64 `json:"durable_mb_per_s"`
			} `json:"sync"`
		} `json:"directories"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return d, err
	}
	for _, s := range r.Directories[0].Sync {
		d.MB[s.GroupBytes] = max(d.MB[s.GroupBytes], s.MB)
		if p, ok := d.P50[s.GroupBytes]; !ok || s.P50 < p {
			d.P50[s.GroupBytes] = s.P50
		}
	}
	return d, nil
}

// measureKind runs all loads of one kind of server, and with a single bookie what a start and a catch-up read take.
func (b *benchmark) measureKind(ctx context.Context, kind string) error {
	var list []load
	for _, l := range loads() {
		if l.server == kind && strings.Contains(l.name, b.only) {
			list = append(list, l)
		}
	}
	if len(list) == 0 {
		return nil
	}
	var s *server
	if kind != "" {
		var err error
		if s, err = b.startServer(ctx, map[string]string{"one": "1", "three": "3"}[kind]); err != nil {
			return err
		}
		defer func() { s.remove() }()
		if err := b.prime(ctx, s, kind); err != nil {
			return err
		}
	}
	for _, l := range list {
		f, err := b.measure(ctx, s, l)
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		b.figures[l.name] = append(b.figures[l.name], f)
		fmt.Fprintf(os.Stderr, "  %-48s %9.0f/s  p99 %.2f ms\n", l.name, f.PerSecond, f.Latency["p99"]/1e3)
	}
	if kind != "one" || b.only != "" {
		return nil
	}
	var err error
	if s, err = b.restart(ctx, s); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	return b.catchUp(ctx, s)
}

// prime drives a new server until its journals have used more segments than they keep.
func (b *benchmark) prime(ctx context.Context, s *server, kind string) error {
	args := []string{"bench", "cluster", "--outstanding", "1000", "--duration", (2 * b.duration).String(), "--warmup", "0s"}
	if kind == "one" {
		args = append(args, "--raw", s.endpoints.Bookies[0])
	}
	_, err := b.command(ctx, "bindery", args...)
	return err
}

// measure runs one load.
func (b *benchmark) measure(ctx context.Context, s *server, l load) (figure, error) {
	args := append(append([]string{}, l.args...), "--duration", b.duration.String(), "--output", "json")
	if s != nil {
		args = append(args, "--pid", fmt.Sprint(s.endpoints.PID), "--warmup", "2s")
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "%BOOKIE%", s.endpoints.Bookies[0])
		}
	}
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "%DIR%", b.dir)
	}
	out, err := b.command(ctx, "bindery", args...)
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
