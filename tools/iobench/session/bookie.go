package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/binderylog/bindery/tools/iobench/advice"
	"github.com/binderylog/bindery/tools/iobench/device"
	"github.com/binderylog/bindery/tools/iobench/engine"
)

// The directory of a bookie that is measured has a name while it runs; a kill leaves it behind.
const verifyPrefix = engine.TempPrefix + "verify-"

// bookieWait is how long a bookie may take to start or to stop.
const bookieWait = 60 * time.Second

// bookieMemory is its storage.memory: so little that write caches are flushed all the time, as in the long run, and not
// now and then.
const bookieMemory = "256MiB"

// bookie is a process of its own, in a directory of its own.
type bookie struct {
	program string
	dir     string
	cancel  context.CancelFunc
	gone    chan struct{} // closed when the process has ended; nil: it never started
	died    error         // how it ended; read after gone
	pid     int
	address string
}

// startBookie starts one below parent. A bookie that was not stopped goes when ctx ends or this process dies.
func startBookie(ctx context.Context, program, parent string, env ...string) (b *bookie, err error) {
	b = &bookie{program: program}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.stop())
		}
	}()
	if b.dir, err = os.MkdirTemp(parent, verifyPrefix); err != nil {
		return b, err
	}
	ctx, b.cancel = context.WithCancel(ctx)
	server := exec.CommandContext(ctx, program, "standalone", "--data-dir", b.dir, "--bookies", "1")
	server.Env = append(append(os.Environ(), "BINDERY_STORAGE__MEMORY="+bookieMemory), env...)
	server.Cancel = func() error { return server.Process.Signal(os.Interrupt) }
	server.WaitDelay = bookieWait
	var said tail
	server.Stderr = &said
	endWithParent(server)
	if err := server.Start(); err != nil {
		return b, fmt.Errorf("start %s: %w", program, err)
	}
	b.gone = make(chan struct{})
	go func() {
		defer close(b.gone)
		if err := server.Wait(); err != nil {
			b.died = fmt.Errorf("%w: %s", err, said.text)
		}
	}()
	return b, b.wait(ctx)
}

// wait waits until the bookie serves.
func (b *bookie) wait(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(bookieWait)
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-b.gone:
			return fmt.Errorf("the bookie in %s ended by itself: %w", b.dir, b.died)
		case <-late.C:
			return fmt.Errorf("the bookie in %s did not start in %v", b.dir, bookieWait)
		case <-tick.C:
		}
		data, err := os.ReadFile(filepath.Join(b.dir, "endpoints.json"))
		if err != nil {
			continue // not yet
		}
		var e struct {
			PID     int      `json:"pid"`
			Bookies []string `json:"bookies"`
		}
		if json.Unmarshal(data, &e) == nil && len(e.Bookies) > 0 {
			b.pid, b.address = e.PID, e.Bookies[0]
			return nil
		}
	}
}

// stop ends the bookie and removes its directory.
func (b *bookie) stop() error {
	if b.cancel != nil {
		b.cancel()
	}
	if b.gone != nil {
		<-b.gone // it was told to end
	}
	if b.dir == "" {
		return nil
	}
	return os.RemoveAll(b.dir)
}

// tail keeps the end of what a process said.
type tail struct{ text []byte }

const tailMax = 500

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if n := len(t.text) - tailMax; n > 0 {
		t.text = append(t.text[:0], t.text[n:]...)
	}
	return len(p), nil
}

// measured is what `bindery bench cluster` prints.
type measured struct {
	AddsPerS float64            `json:"adds_per_s"`
	Adds     int64              `json:"adds"`
	Latency  map[string]float64 `json:"latency_us"`
	Hist     string             `json:"latency_hdr_v2_base64"`
	Tick     float64            `json:"tick_us"`
	Server   *struct {
		CPUPerMillion float64 `json:"cpu_s_per_million_adds"`
		WrittenBytes  int64   `json:"disk_bytes"`
	} `json:"server"`
	Generator struct {
		CPUPerMillion float64 `json:"cpu_s_per_million_adds"`
	} `json:"generator"`

	pauses advice.Pauses // of the machine meanwhile
}

// processor is the time that bookie and generator take of an add, together.
func (m *measured) processor() time.Duration {
	if m.Server == nil {
		return 0
	}
	return time.Duration((m.Server.CPUPerMillion + m.Generator.CPUPerMillion) * 1e3)
}

func (m *measured) String() string {
	return fmt.Sprintf("%.0f adds/s, p50 %.0f us, p99 %.0f us, %.1f us of processors per add, machine paused %.1f %%",
		m.AddsPerS, m.Latency["p50"], m.Latency["p99"], float64(m.processor())/1e3, 100*m.pauses.Share())
}

// load is what a bookie is driven with.
type load struct {
	entry       int
	connections int
	rate        float64 // 0: full speed, with verifyWindow adds in flight
	duration    time.Duration
}

// warmShare is the part of a load's time that comes before it and is not measured.
const warmShare = 0.25

func (b *bookie) args(l load) []string {
	args := []string{
		"bench", "cluster", "--raw", b.address, "--pid", strconv.Itoa(b.pid), "--connections", strconv.Itoa(l.connections), "--size", fmt.Sprintf("%dB", l.entry),
		"--duration", l.duration.String(), "--warmup", time.Duration(warmShare * float64(l.duration)).String(), "--histogram", "--output", "json",
	}
	if l.rate > 0 {
		return append(args, "--rate", strconv.FormatFloat(l.rate, 'f', 0, 64))
	}
	return append(args, "--outstanding", strconv.Itoa(max(verifyWindow/l.connections, 1)))
}

// bench runs a load.
func (b *bookie) bench(ctx context.Context, l load) (m measured, err error) {
	c := exec.CommandContext(ctx, b.program, b.args(l)...)
	endWithParent(c)
	out, err := c.Output()
	if err != nil {
		var exited *exec.ExitError
		if errors.As(err, &exited) && len(exited.Stderr) > 0 {
			err = fmt.Errorf("%w: %s", err, exited.Stderr[:min(len(exited.Stderr), 500)])
		}
		return m, fmt.Errorf("bindery bench cluster: %w", errors.Join(err, ctx.Err()))
	}
	return m, json.Unmarshal(out, &m)
}

// FindBindery looks for the program beside this one, then on the path.
func FindBindery(name string) (string, error) {
	if name != "" {
		return exec.LookPath(name)
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "bindery")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath("bindery")
	if err != nil {
		return "", &device.RefusedError{What: "no bindery program beside this one or on the path", Hint: "name it with --bindery"}
	}
	return path, nil
}

func say(w io.Writer, format string, args ...any) {
	if w != nil {
		fmt.Fprintf(w, format+"\n", args...)
	}
}
