// Command guard holds the hot paths against a recorded run: appending to a journal, adding to a bookie over the wire, adding through
// the client. Objects allocated and system calls made per add are limits, since they do not depend on the machine; times
// are only shown, by benchstat where it is at hand.
//
// A path that exceeds its limit is run again before it counts: on a busy machine an answer may come in two pieces and take
// two reads, so the least of several runs is what the code needs.
//
// Usage: make bench-guard; make bench-guard-record writes a new recorded run.
//
// The program starts no goroutine.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// paths are the packages whose BenchmarkGuard is run.
var paths = []string{"./journal", "./bookie", "./ledgerclient"}

const (
	operations   = "1024x"
	retries      = 2
	benchstatMax = 2 * time.Minute // it may have to be built first
)

func main() {
	record := flag.Bool("record", false, "write the recorded run anew instead of holding this one against it")
	file := flag.String("file", "bench/guard/recorded.txt", "the recorded run, as `go test -bench` prints it")
	flag.Parse()
	if err := run(context.Background(), *file, *record); err != nil {
		fmt.Fprintln(os.Stderr, "bench-guard:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(ctx context.Context, file string, record bool) error {
	out, err := bench(ctx)
	if err != nil {
		return err
	}
	now, err := parse(bytes.NewReader(out))
	if err != nil {
		return err
	}
	if record {
		return os.WriteFile(file, out, 0o644) //nolint:gosec // it is part of the source
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("%w; make bench-guard-record writes it", err)
	}
	old, err := parse(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	over := exceeded(old, now)
	for range retries {
		if len(over) == 0 {
			break
		}
		fmt.Fprintf(os.Stderr, "%d limits exceeded, once more\n", len(over))
		again, err := bench(ctx)
		if err != nil {
			return err
		}
		out = append(out, again...)
		if now, err = parse(bytes.NewReader(out)); err != nil {
			return err
		}
		over = exceeded(old, now)
	}
	table(os.Stdout, old, now)
	if err := times(ctx, file, out); err != nil {
		fmt.Fprintln(os.Stdout, "benchstat is not at hand, no table of times:", err)
	}
	if len(over) > 0 {
		for _, o := range over {
			fmt.Fprintln(os.Stderr, o)
		}
		return errors.New("the hot path does more than it did; if that is meant, record it: make bench-guard-record")
	}
	return nil
}

// bench runs the benchmarks. What they print goes to standard error, too: it takes a minute.
func bench(ctx context.Context) ([]byte, error) {
	var out bytes.Buffer
	args := append([]string{"test", "-run", "^$", "-bench", "^BenchmarkGuard$", "-benchmem", "-benchtime", operations, "-count", "6", "-timeout", "10m"}, paths...)
	c := exec.CommandContext(ctx, "go", args...)
	c.Stdout, c.Stderr = io.MultiWriter(&out, os.Stderr), os.Stderr
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("go test: %w", err)
	}
	return out.Bytes(), nil
}

// times has benchstat compare both runs.
func times(ctx context.Context, file string, out []byte) (err error) {
	ctx, cancel := context.WithTimeout(ctx, benchstatMax)
	defer cancel()
	dir, err := os.MkdirTemp("", "bench-guard-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	now := filepath.Join(dir, "now.txt")
	if err := os.WriteFile(now, out, 0o600); err != nil {
		return err
	}
	c := exec.CommandContext(ctx, "go", "tool", "-modfile=tools/lint/go.mod", "benchstat", "recorded="+file, "now="+now)
	c.Stdout = os.Stdout
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, said.Bytes()[:min(said.Len(), 300)])
	}
	return nil
}
