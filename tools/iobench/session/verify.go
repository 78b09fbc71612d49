package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/binderylog/bindery/tools/iobench/advice"
	"github.com/binderylog/bindery/tools/iobench/device"
	"github.com/binderylog/bindery/tools/iobench/engine"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// VerifyOptions are what `verify` needs beside a plan of one chapter, sync.
type VerifyOptions struct {
	Bindery     string        // program
	Connections int           // to the bookie
	Each        time.Duration // measured time of a load
	Log         io.Writer     // what is going on, for people; may be nil
}

// The directory of the bookie that is measured has a name while it runs; a kill leaves it behind.
const verifyPrefix = engine.TempPrefix + "verify-"

// Verify measures the disk, starts one bookie on it, predicts what that will do and measures what it does: at full speed
// and at 10, 50 and 80 % of the predicted peak. What an add costs the processor is taken from the bookie itself at full
// speed, before anything is predicted; what a request and its answer take beside the journal, from echoes over loopback.
func Verify(ctx context.Context, p Plan, o VerifyOptions) (*result.Run, error) {
	run, err := Run(ctx, p)
	if err != nil {
		return run, err
	}
	chapter := run.Chapter(result.ChapterSync, 0)
	method, _, ok := advice.Method(&run.Device, chapter)
	if !ok {
		return run, errors.New("no durable writes were measured: nothing can be predicted")
	}
	m, ok := advice.NewModel(chapter, string(method))
	if !ok {
		return run, errors.New("no durable writes were measured: nothing can be predicted")
	}
	v := &verifier{o: o, run: run}
	if m.Trip, err = echoes(ctx, p.EntryBytes); err != nil {
		return run, err
	}
	if err := v.start(ctx, run.Device.Dir, string(method)); err != nil {
		return run, errors.Join(err, v.stop())
	}
	err = v.verify(ctx, &m, p.EntryBytes)
	return run, errors.Join(err, v.stop())
}

type verifier struct {
	o      VerifyOptions
	run    *result.Run
	dir    string
	server *exec.Cmd
	pid    int
	bookie string
	cancel context.CancelFunc
}

func (v *verifier) say(format string, args ...any) {
	if v.o.Log != nil {
		fmt.Fprintf(v.o.Log, format+"\n", args...)
	}
}

// verifyWait is how long the bookie may take to start or to stop.
const verifyWait = 60 * time.Second

// start runs one bookie in a directory of its own on the measured disk.
func (v *verifier) start(ctx context.Context, parent, method string) (err error) {
	if v.dir, err = os.MkdirTemp(parent, verifyPrefix); err != nil {
		return err
	}
	ctx, v.cancel = context.WithCancel(ctx)
	v.server = exec.CommandContext(ctx, v.o.Bindery, "standalone", "--data-dir", v.dir, "--bookies", "1")
	v.server.Env = append(os.Environ(), "BINDERY_JOURNAL__IO="+method)
	v.server.Cancel = func() error { return v.server.Process.Signal(os.Interrupt) }
	v.server.WaitDelay = verifyWait
	if err := v.server.Start(); err != nil {
		return fmt.Errorf("start %s: %w", v.o.Bindery, err)
	}
	v.say("bookie of process %d in %s", v.server.Process.Pid, v.dir)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(verifyWait)
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return fmt.Errorf("the bookie in %s did not start in %v", v.dir, verifyWait)
		case <-tick.C:
		}
		data, err := os.ReadFile(filepath.Join(v.dir, "endpoints.json"))
		if err != nil {
			continue // not yet
		}
		var e struct {
			PID     int      `json:"pid"`
			Bookies []string `json:"bookies"`
		}
		if json.Unmarshal(data, &e) == nil && len(e.Bookies) > 0 {
			v.pid, v.bookie = e.PID, e.Bookies[0]
			return nil
		}
	}
}

// stop ends the bookie and removes its directory.
func (v *verifier) stop() error {
	if v.cancel != nil {
		v.cancel()
	}
	if v.server != nil && v.server.Process != nil {
		_ = v.server.Wait() // it was told to end
	}
	if v.dir == "" {
		return nil
	}
	return os.RemoveAll(v.dir)
}

// measured is what `bindery bench cluster` prints.
type measured struct {
	AddsPerS float64            `json:"adds_per_s"`
	Latency  map[string]float64 `json:"latency_us"`
	Tick     float64            `json:"tick_us"`
	Server   *struct {
		CPUPerMillion float64 `json:"cpu_s_per_million_adds"`
	} `json:"server"`
	Generator struct {
		CPUPerMillion float64 `json:"cpu_s_per_million_adds"`
	} `json:"generator"`
}

// bench runs one load. rate 0 is full speed with that many adds in flight on each connection.
func (v *verifier) bench(ctx context.Context, entry int, rate float64, outstanding int) (m measured, command string, err error) {
	args := []string{
		"bench", "cluster", "--raw", v.bookie, "--pid", strconv.Itoa(v.pid), "--connections", strconv.Itoa(v.o.Connections), "--size", fmt.Sprintf("%dB", entry),
		"--duration", v.o.Each.String(), "--warmup", (v.o.Each / 4).String(), "--output", "json",
	}
	if rate > 0 {
		args = append(args, "--rate", strconv.FormatFloat(rate, 'f', 0, 64))
	} else {
		args = append(args, "--outstanding", strconv.Itoa(outstanding))
	}
	command = v.o.Bindery
	for _, a := range args {
		command += " " + a
	}
	v.say("%s", command)
	c := exec.CommandContext(ctx, v.o.Bindery, args...)
	out, err := c.Output()
	if err != nil {
		var exited *exec.ExitError
		if errors.As(err, &exited) && len(exited.Stderr) > 0 {
			err = fmt.Errorf("%w: %s", err, exited.Stderr[:min(len(exited.Stderr), 500)])
		}
		return m, command, fmt.Errorf("bindery bench cluster: %w", err)
	}
	return m, command, json.Unmarshal(out, &m)
}

// verifyWindow is how many adds are in flight at full speed, over all connections.
const verifyWindow = 1000

// How close a prediction must come.
const p50Within = 0.20

func (v *verifier) verify(ctx context.Context, m *advice.Model, entry int) error {
	peak, command, err := v.bench(ctx, entry, 0, verifyWindow/v.o.Connections)
	if err != nil {
		return err
	}
	if peak.Server != nil {
		// The generator runs on the same processors.
		m.CPU = time.Duration((peak.Server.CPUPerMillion + peak.Generator.CPUPerMillion) * 1e3)
		m.Cores = float64(v.run.Environment.Cores)
	}
	out := &result.Verification{Command: command, PeakMeasuredPerS: peak.AddsPerS, Rows: []result.Verified{}, Within: true}
	o := m.Closed(verifyWindow, entry, 300_000, 1)
	out.PeakPredictedPerS = o.AddsPerS
	v.run.Verification = out
	// Loads are shares of what the bookie can do, predicted or measured, whichever is less: above it there is no latency to speak of.
	top := math.Min(o.AddsPerS, peak.AddsPerS)
	for _, load := range advice.Loads {
		rate := math.Round(top * load / 100)
		got, _, err := v.bench(ctx, entry, rate, 0)
		if err != nil {
			return err
		}
		m.Tick = time.Duration(got.Tick * 1e3)
		row := result.Verified{Predicted: m.At(entry, load, rate), MeasuredPerS: got.AddsPerS, MeasuredP50US: got.Latency["p50"], MeasuredP99US: got.Latency["p99"]}
		row.P50Within = math.Abs(row.MeasuredP50US-row.Predicted.P50US) <= p50Within*row.MeasuredP50US
		row.P99Within = row.MeasuredP99US >= row.Predicted.P99LowUS && row.MeasuredP99US <= row.Predicted.P99HighUS
		out.Within = out.Within && row.P50Within && row.P99Within
		out.Rows = append(out.Rows, row)
	}
	return nil
}

// echoes measures what a request and its answer of these sizes take over loopback.
func echoes(ctx context.Context, entry int) (*hdr.Histogram, error) {
	const trips, warm, answer = 3000, 200, 32
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		in, out := make([]byte, entry), make([]byte, answer)
		for {
			if _, err := io.ReadFull(c, in); err != nil {
				return
			}
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	}()
	h, err := trip(ctx, l.Addr().String(), entry, answer, warm, trips)
	err = errors.Join(err, l.Close())
	<-done
	return h, err
}

func trip(ctx context.Context, address string, entry, answer, warm, trips int) (*hdr.Histogram, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	h := result.NewHistogram()
	out, in := make([]byte, entry), make([]byte, answer)
	for i := range warm + trips {
		start := time.Now()
		if _, err := c.Write(out); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(c, in); err != nil {
			return nil, err
		}
		if i >= warm {
			result.Record(h, time.Since(start))
		}
	}
	return h, nil
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
