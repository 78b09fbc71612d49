package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/binderylog/bindery/internal/bktest/planted"
)

type options struct {
	seeds   int
	first   uint64
	layer   string
	jobs    int
	mutants bool
	only    string
}

// stuckAfter is how long a seed may go without an end before its process is given up: a run that waits for a lock which
// is held across virtual time never ends. It is long, since a seed takes seconds of processor time, of which a busy machine may
// have little; the stacks that the process then prints tell what it waits for.
const (
	stuckAfter = 10 * time.Minute
	dumpWithin = 30 * time.Second
)

// layerOf maps layers to the package and the test that runs them.
var layerOf = map[planted.Layer]struct{ pkg, test string }{
	planted.LayerCores:   {"./internal/bktest/cores", "TestSeeds"},
	planted.LayerCluster: {"./internal/bktest", "TestCluster"},
}

// sim is the built test binaries.
type sim struct {
	o   options
	dir string
	out io.Writer
}

func build(o options, out io.Writer) (*sim, error) {
	dir, err := os.MkdirTemp("", "bindery-sim-")
	if err != nil {
		return nil, err
	}
	s := &sim{o: o, dir: dir, out: out}
	for layer, l := range layerOf {
		args := []string{"test", "-c", "-o", s.binary(layer)}
		if o.mutants {
			args = append(args, "-tags", "mutants")
		}
		cmd := exec.CommandContext(context.Background(), "go", append(args, l.pkg)...)
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			s.clean()
			return nil, fmt.Errorf("build %s: %w", l.pkg, err)
		}
	}
	return s, nil
}

func (s *sim) clean() { _ = os.RemoveAll(s.dir) }

func (s *sim) binary(layer planted.Layer) string { return filepath.Join(s.dir, string(layer)+".test") }

// job is one process: some seeds of one layer, perhaps with a planted bug.
type job struct {
	layer  planted.Layer
	first  uint64
	seeds  int
	mutant string
}

// outcome is how a job ended. seed and why are set if some seed failed.
type outcome struct {
	good int
	bad  bool
	seed uint64
	why  string
	text string // the failing seed's history
}

// historyBytes bounds what is kept of a process's output: the end is what tells.
const historyBytes = 4 << 20

// run starts the job's process and reads what it says.
func (s *sim) run(j job) outcome {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	args := []string{"-test.run", "^" + layerOf[j.layer].test + "$", "-test.timeout", "0", "-sim.lines", "-sim.seed", strconv.FormatUint(j.first, 10), "-sim.seeds", strconv.Itoa(j.seeds)}
	if j.mutant != "" {
		args = append(args, "-sim.mutant", j.mutant)
	}
	cmd := exec.CommandContext(ctx, s.binary(j.layer), args...)
	// A run allocates much that dies with it: a quarter of the time would go into collecting that.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=400")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return outcome{bad: true, seed: j.first, why: err.Error()}
	}
	cmd.Stderr = cmd.Stdout
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }
	cmd.WaitDelay = dumpWithin
	if err := cmd.Start(); err != nil {
		return outcome{bad: true, seed: j.first, why: err.Error()}
	}
	o, stuck := listen(out, cancel, j.first)
	err = cmd.Wait()
	switch {
	case o.bad:
	case stuck:
		o.bad, o.why = true, fmt.Sprintf("no end within %v: what it waits for stands above", stuckAfter)
	case err != nil:
		o.bad, o.why = true, "the process ended: "+err.Error()
	}
	return o
}

// listen reads a process's lines until it ends, or ends it if a seed takes too long.
func listen(out io.Reader, end func(), first uint64) (o outcome, stuck bool) {
	o.seed = first
	lines := make(chan string)
	go func() {
		defer close(lines)
		r := bufio.NewReaderSize(out, 1<<16)
		for {
			line, err := r.ReadString('\n')
			if line != "" {
				lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	var text strings.Builder
	t := time.NewTimer(stuckAfter)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			stuck = true
			end()
			t.Reset(stuckAfter)
		case line, ok := <-lines:
			if !ok {
				o.text = text.String()
				return o, stuck
			}
			rest, ours := strings.CutPrefix(line, "sim: seed ")
			if !ours {
				if text.Len() < historyBytes {
					text.WriteString(line)
				}
				continue
			}
			t.Reset(stuckAfter)
			number, what, _ := strings.Cut(strings.TrimSpace(rest), " ")
			o.seed, _ = strconv.ParseUint(number, 10, 64)
			switch {
			case strings.HasPrefix(what, "begins"):
				text.Reset()
			case strings.HasPrefix(what, "is good"):
				o.good++
			case strings.HasPrefix(what, "failed"):
				o.bad, o.why = true, strings.TrimPrefix(what, "failed: ")
			}
		}
	}
}
