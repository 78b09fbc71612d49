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
	"syscall"
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
		for _, l := range loads() {
			if !strings.Contains(l.name, b.only) {
				continue
			}
			f, err := b.measure(ctx, l)
			if err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			b.figures[l.name] = append(b.figures[l.name], f)
			fmt.Fprintf(os.Stderr, "  %-48s %9.0f/s  p99 %.2f ms\n", l.name, f.PerSecond, f.Latency["p99"]/1e3)
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

// measure runs one load, against a fresh server if it needs one.
func (b *benchmark) measure(ctx context.Context, l load) (figure, error) {
	args := append(append([]string{}, l.args...), "--duration", b.duration.String(), "--output", "json")
	var pid string
	if l.server != "" {
		bookies := map[string]string{"one": "1", "three": "3"}[l.server]
		s, err := b.startServer(ctx, bookies)
		if err != nil {
			return figure{}, err
		}
		defer s.stop()
		pid = fmt.Sprint(s.endpoints.PID)
		args = append(args, "--pid", pid, "--warmup", "2s")
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

// server is a standalone in a directory of its own.
type server struct {
	cmd       *exec.Cmd
	exited    chan struct{}
	dir       string
	endpoints struct {
		PID     int
		Bookies []string
	}
}

// startServer starts a standalone with its data where the client commands look for it.
func (b *benchmark) startServer(ctx context.Context, bookies string) (*server, error) {
	s := &server{dir: filepath.Join(b.dir, "bindery-data")}
	s.cmd = exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(b.bin, "bindery"), "standalone", "--bookies", bookies, "--set", "storage.memory="+b.memory)
	s.cmd.Dir = b.dir
	var errs bytes.Buffer
	s.cmd.Stderr = &errs
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.exited = make(chan struct{})
	go func() {
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		data, err := os.ReadFile(filepath.Join(s.dir, "endpoints.json"))
		if err == nil && json.Unmarshal(data, &s.endpoints) == nil && len(s.endpoints.Bookies) > 0 {
			return s, nil
		}
		select {
		case <-s.exited:
			return nil, fmt.Errorf("the server ended: %s", errs.String())
		case <-ctx.Done():
			s.stop()
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	s.stop()
	return nil, errors.New("the server did not become ready within a minute")
}

// stop ends the server and takes its data away.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(20 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
	_ = os.RemoveAll(s.dir)
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
