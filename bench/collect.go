package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/binderylog/bindery/internal/pace"
)

// collected is what a garbage collection gave in a round.
type collected struct {
	Freed         float64 // bytes of entry logs
	Wait          float64 // s from the deletion of the ledgers until the first space was free
	Seconds       float64 // from then until the last was
	Alone, Beside float64 // median p99 in us of writers before that, and meanwhile
}

// Of collectLedgers ledgers that share their entry logs all but one are deleted, so that most of each log is garbage and the
// rest has to be copied.
const (
	collectLedgers = 10
	collectWindow  = 2 * time.Second        // writers are measured in windows of this length
	collectLook    = 200 * time.Millisecond // between looks at the logs
	collectMax     = 3 * time.Minute        // from the deletion on
	collectQuiet   = 20 * time.Second       // without anything freed, after much was: that is the end
)

// collect fills a peer with ledgers, deletes most of them and looks how fast their space comes back, and what that costs writers.
func (b *benchmark) collect(ctx context.Context, p peer) error {
	p.collectSoon()
	if err := p.start(ctx, 1); err != nil {
		return err
	}
	if _, err := b.command(ctx, p, "bindery", "bench", "cluster", "--ledgers", fmt.Sprint(collectLedgers), "--outstanding", "8", "--size", "64KiB", "--keep-ledgers",
		"--ensemble", "1", "--write-quorum", "1", "--ack-quorum", "1", "--warmup", "0s", "--duration", (primeTimes * b.duration).String()); err != nil {
		return err
	}
	out, err := b.command(ctx, p, "bindery", "ledger", "ls")
	if err != nil {
		return err
	}
	ids := strings.Fields(string(out))
	if len(ids) < collectLedgers {
		return fmt.Errorf("there are %d ledgers, want %d", len(ids), collectLedgers)
	}
	if _, err := b.command(ctx, p, "bindery", append([]string{"ledger", "rm", "--yes"}, ids[1:]...)...); err != nil {
		return err
	}
	c, err := b.watchCollection(ctx, p)
	if err != nil {
		return err
	}
	b.collections[p.name()] = append(b.collections[p.name()], c)
	b.say("collection: %.0f MB freed in %.1f s, %.0f s after the deletion; p99 of writers %.2f ms before, %.2f ms meanwhile  %s", c.Freed/1e6, c.Seconds, c.Wait, c.Alone/1e3, c.Beside/1e3, p.name())
	return nil
}

// window is what writers measured in a stretch of time.
type window struct {
	from, to time.Time
	p99      float64
}

// watchCollection looks at the entry logs until what was deleted is gone, with writers beside.
func (b *benchmark) watchCollection(ctx context.Context, p peer) (c collected, err error) {
	ctx, cancel := context.WithTimeout(ctx, collectMax)
	defer cancel()
	writing, stop := context.WithCancel(ctx)
	defer stop()
	type written struct {
		windows []window
		err     error
	}
	done := make(chan written, 1)
	go func() {
		var w written
		for writing.Err() == nil && w.err == nil {
			from := time.Now()
			var f figure
			if f, w.err = b.measure(writing, p, load{args: writersBeside().args, time: collectWindow}); w.err == nil {
				w.windows = append(w.windows, window{from, time.Now(), f.Latency["p99"]})
			}
		}
		if writing.Err() != nil {
			w.err = nil
		}
		done <- w
	}()
	begun := time.Now()
	first, last, freed := watchLogs(ctx, p.data())
	stop()
	w := <-done
	if w.err != nil {
		return c, w.err
	}
	if freed == 0 {
		return c, errors.Join(context.Cause(ctx), fmt.Errorf("nothing was freed in %s", time.Since(begun).Round(time.Second)))
	}
	c = collected{Freed: float64(freed), Wait: first.Sub(begun).Seconds(), Seconds: (last.Sub(first) + collectLook).Seconds()}
	c.Alone, c.Beside = besideCollection(w.windows, first, last)
	return c, nil
}

// besideCollection returns the median p99 of the windows before the first space was freed, and of those that saw some freed.
func besideCollection(list []window, first, last time.Time) (alone, beside float64) {
	var before, during []float64
	for _, w := range list {
		switch {
		case w.to.Before(first):
			before = append(before, w.p99)
		case w.from.Before(last):
			during = append(during, w.p99)
		}
	}
	return median(before).Median, median(during).Median
}

// watchLogs looks at the entry logs until nothing more is freed, or ctx ends, and returns when bytes were freed and how many.
func watchLogs(ctx context.Context, dir string) (first, last time.Time, freed int64) {
	sizes := logSizes(dir)
	for ctx.Err() == nil && (freed == 0 || time.Since(last) < collectQuiet) {
		_ = pace.Sleep(ctx, collectLook)
		now := logSizes(dir)
		if n := shrunk(sizes, now); n > 0 {
			last = time.Now()
			if freed == 0 {
				first = last.Add(-collectLook)
			}
			freed += n
		}
		sizes = now
	}
	return first, last, freed
}

// shrunk is how many bytes of logs that went, or are going, were freed between two looks. A log that is cut when it is sealed
// is not counted, nor what was added elsewhere.
func shrunk(before, after map[string]logSize) (n int64) {
	for name, was := range before {
		if is, there := after[name]; !there || is.going {
			n += max(was.bytes-is.bytes, 0)
		}
	}
	return n
}

// logSize is the size of an entry log; going says that it is being deleted in steps.
type logSize struct {
	bytes int64
	going bool
}

// logSizes are the sizes of the entry logs below dir, by their ids: a log that is being deleted may have got another name.
func logSizes(dir string) map[string]logSize {
	sizes := map[string]logSize{}
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil //nolint:nilerr // files come and go meanwhile
		}
		parts := strings.Split(e.Name(), ".")
		if i := slices.Index(parts, "log"); i > 0 && !slices.Contains(parts, "compacting") && !slices.Contains(parts, "compacted") {
			if info, err := e.Info(); err == nil {
				sizes[filepath.Join(filepath.Dir(path), parts[0])] = logSize{info.Size(), slices.Contains(parts, "removing")}
			}
		}
		return nil
	})
	return sizes
}
