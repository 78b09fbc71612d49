package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
)

// catchUp is what reading a cold ledger gave in a round, in MB/s of payload, beside what the disk gives for the same bytes, and
// what it costs those who write meanwhile.
type catchUp struct {
	Disk, Read    float64
	Alone, Beside float64 // p99 in us of writers, by themselves and beside readers
	BesideRead    float64 // MB/s of all those readers together
}

// catchUpReaders read beside the writers.
const catchUpReaders = 4

// catchUpBytes is what the ledger holds; more than the server's caches.
const catchUpBytes = 1 << 30

// catchUp writes a ledger of 64 KiB entries and reads it with the client after a restart. Both it and the direct reads of
// the same entry logs begin with nothing in the page cache, as far as the system lets this process see to that.
func (b *benchmark) catchUp(ctx context.Context, p peer) error {
	if err := p.start(ctx, 1); err != nil {
		return err
	}
	write := b.clientCommand(ctx, p, "ledger", "write", "--ensemble", "1", "--write-quorum", "1", "--ack-quorum", "1", "--split", "64KiB", "-")
	write.Stdin = io.LimitReader(endless{}, catchUpBytes)
	id, err := write.Output()
	if err != nil {
		return fmt.Errorf("write the cold ledger: %w", err)
	}
	p.stop()
	var r catchUp
	if r.Disk, err = readDirect(p.data(), catchUpBytes/2); err != nil {
		return err
	}
	dropCaches()
	if err := p.start(ctx, 1); err != nil {
		return err
	}
	ledger := strings.TrimSpace(string(id))
	if err := b.checkLength(ctx, p, ledger); err != nil {
		return err
	}
	start := time.Now()
	if err := b.readLedger(ctx, p, ledger); err != nil {
		return err
	}
	r.Read = catchUpBytes / 1e6 / time.Since(start).Seconds()
	if err := b.beside(ctx, p, ledger, &r); err != nil {
		return err
	}
	b.reads[p.name()] = append(b.reads[p.name()], r)
	b.say("catch-up read: %.0f MB/s, the disk itself %.0f MB/s; p99 of writers %.2f ms alone, %.2f ms beside %d readers of %.0f MB/s  %s",
		r.Read, r.Disk, r.Alone/1e3, r.Beside/1e3, catchUpReaders, r.BesideRead, p.name())
	return nil
}

// clientCommand is a client command for a peer's cluster.
func (b *benchmark) clientCommand(ctx context.Context, p peer, args ...string) *exec.Cmd {
	cmd := own(exec.CommandContext(ctx, filepath.Join(b.bin, "bindery"), args...))
	cmd.Dir, cmd.Env = b.dir, clientEnv(p)
	return cmd
}

// readLedger reads the cold ledger whole, every digest checked, and throws the entries away: a pipe would have the same two
// cores copy them twice more.
func (b *benchmark) readLedger(ctx context.Context, p peer, ledger string) error {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()
	return b.readInto(ctx, p, ledger, null)
}

// checkLength refuses a cold ledger that is shorter than what was written: reading it says nothing.
func (b *benchmark) checkLength(ctx context.Context, p peer, ledger string) error {
	out, err := b.clientCommand(ctx, p, "ledger", "show", ledger, "--output", "json").Output()
	if err != nil {
		return fmt.Errorf("look at the cold ledger: %w", err)
	}
	var shown struct {
		Length int64 `json:"length_bytes"`
	}
	if err := json.Unmarshal(out, &shown); err != nil {
		return fmt.Errorf("look at the cold ledger: %w", err)
	}
	if shown.Length != catchUpBytes {
		return fmt.Errorf("the cold ledger has %d bytes, %d were written", shown.Length, catchUpBytes)
	}
	return nil
}

func (b *benchmark) readInto(ctx context.Context, p peer, ledger string, w io.Writer) error {
	read := b.clientCommand(ctx, p, "ledger", "read", ledger)
	read.Stdout = w
	var errs bytes.Buffer
	read.Stderr = &errs
	if err := read.Run(); err != nil {
		return fmt.Errorf("read the cold ledger: %w: %s", err, bytes.TrimSpace(errs.Bytes()))
	}
	return nil
}

// writersBeside are the writers whose p99 says what others cost them.
func writersBeside() load {
	return load{args: []string{"bench", "cluster", "--raw", "%BOOKIE%", "--rate", "5000"}, open: true}
}

// beside measures the p99 of writers at a fixed rate, by themselves and while readers go through the cold ledger.
func (b *benchmark) beside(ctx context.Context, p peer, ledger string, r *catchUp) error {
	f, err := b.measure(ctx, p, writersBeside())
	if err != nil {
		return err
	}
	reading, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var n counter
	var failed atomic.Pointer[error]
	for range catchUpReaders {
		wg.Go(func() {
			for reading.Err() == nil {
				if err := b.readInto(reading, p, ledger, &n); err != nil && reading.Err() == nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
			}
		})
	}
	begun := time.Now()
	g, err := b.measure(ctx, p, writersBeside())
	r.BesideRead = float64(n.Load()) / 1e6 / time.Since(begun).Seconds()
	stop()
	wg.Wait()
	if err == nil && failed.Load() != nil {
		err = *failed.Load()
	}
	r.Alone, r.Beside = f.Latency["p99"], g.Latency["p99"]
	return err
}

// endless yields bytes that do not repeat soon.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	x := uint64(time.Now().UnixNano())
	for i := range p {
		x = x*6364136223846793005 + 1442695040888963407
		p[i] = byte(x >> 56)
	}
	return len(p), nil
}

// counter counts what is written to it.
type counter struct{ atomic.Int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.Add(int64(len(p)))
	return len(p), nil
}

// readDirect reads entry logs with direct I/O, 1 MiB at a time, up to n bytes, and returns MB/s.
func readDirect(dir string, n int64) (float64, error) {
	osfs := vfs.OS()
	buf := vfs.AlignedBytes(1 << 20)
	total, start := int64(0), time.Now()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".log") {
			return err
		}
		f, err := osfs.Open(path, vfs.Mode{Direct: true})
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // read only
		for off := int64(0); total < n; off += int64(len(buf)) {
			k, err := f.ReadAt(buf, off)
			total += int64(k)
			if err != nil || k < len(buf) {
				break // the end of the file
			}
		}
		return nil
	})
	return float64(total) / 1e6 / time.Since(start).Seconds(), err
}

// dropCaches empties the page cache. Only root may; without it the figures are better than the disk.
func dropCaches() {
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("1\n"), 0o200); err != nil {
		fmt.Fprintf(os.Stderr, "  the page cache could not be emptied: %v\n", err)
	}
}
