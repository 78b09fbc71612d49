package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// table renders the run as Markdown.
func (b *benchmark) table(allocations string) string {
	var w strings.Builder
	fmt.Fprintf(&w, "## %s\n\n", time.Now().UTC().Format("2006-01-02"))
	fmt.Fprintf(&w, "%d cores (%s), kernel %s, %s/%s, Go %s. %d rounds of %v per figure, storage.memory = %s, load generator on the same cores. Median, then the range over the rounds.\n\n",
		runtime.NumCPU(), processor(), firstLine("/proc/sys/kernel/osrelease"), runtime.GOOS, runtime.GOARCH, strings.TrimPrefix(runtime.Version(), "go"), b.rounds, b.duration, b.memory)

	fmt.Fprintf(&w, "Disk, one durable write at a time, best method of each round (`iobench quick`):\n\n| group | p50 us | MB/s |\n|---|---|---|\n")
	for _, size := range []int{4 << 10, 64 << 10, 256 << 10, 512 << 10, 1 << 20} {
		var p50, mb []float64
		for _, d := range b.disk {
			p50, mb = append(p50, d.P50[size]), append(mb, d.MB[size])
		}
		fmt.Fprintf(&w, "| %d KiB | %s | %s |\n", size>>10, spread(p50, "%.0f"), spread(mb, "%.1f"))
	}

	fmt.Fprintf(&w, "\n| load | /s | MB/s | share of the disk's best | p50 ms | p99 ms | p99.9 ms | CPU s per million | resident MB | disk bytes per payload byte |\n|---|---|---|---|---|---|---|---|---|---|\n")
	steal := 0.0
	for _, l := range loads() {
		fs := b.figures[l.name]
		if len(fs) == 0 {
			continue
		}
		get := func(f func(figure) float64) []float64 {
			out := make([]float64, len(fs))
			for i := range fs {
				out[i] = f(fs[i])
			}
			return out
		}
		var share []float64
		for i, f := range fs {
			share = append(share, f.MB/b.disk[i].best())
			steal = max(steal, f.Steal)
		}
		ms := func(name string) string {
			return spread(get(func(f figure) float64 { return f.Latency[name] / 1e3 }), "%.2f")
		}
		note := ""
		if slices.ContainsFunc(fs, func(f figure) bool { return f.Failed }) {
			note = " (NOT CLEAN)"
		}
		cpu, rss, written := "", "", ""
		if l.server != "" {
			cpu = spread(get(func(f figure) float64 { return f.CPU }), "%.1f")
			rss = spread(get(func(f figure) float64 { return f.RSS / 1e6 }), "%.0f")
			written = spread(get(func(f figure) float64 { return f.Written }), "%.2f")
		}
		fmt.Fprintf(&w, "| %s%s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", l.name, note,
			spread(get(func(f figure) float64 { return f.PerSecond }), "%.0f"), spread(get(func(f figure) float64 { return f.MB }), "%.1f"),
			spread(share, "%.2f"), ms("p50"), ms("p99"), ms("p99.9"), cpu, rss, written)
	}
	b.writeRestart(&w)
	fmt.Fprintf(&w, "\nHighest steal of any figure: %.1f %%.\n", 100*steal)
	if allocations != "" {
		fmt.Fprintf(&w, "\nThe packages' own benchmarks, with allocations:\n\n```\n%s\n```\n", allocations)
	}
	return w.String()
}

func (b *benchmark) writeRestart(w *strings.Builder) {
	if len(b.starts) > 0 {
		var seconds, megabytes, idle []float64
		for _, s := range b.starts {
			seconds, megabytes, idle = append(seconds, s.Seconds), append(megabytes, s.Replayed/1e6), append(idle, s.Idle/1e6)
		}
		fmt.Fprintf(w, "\nStart after kill -9 under full load: %s s until ready, with %s MB of journal to replay. Idle process (one bookie and the embedded metadata store) after a start: %s MB of anonymous memory.\n",
			spread(seconds, "%.2f"), spread(megabytes, "%.0f"), spread(idle, "%.0f"))
	}
	if len(b.reads) > 0 {
		var read, disk, share []float64
		for _, r := range b.reads {
			read, disk, share = append(read, r.Read), append(disk, r.Disk), append(share, r.Read/r.Disk)
		}
		fmt.Fprintf(w, "\nCatch-up read of a cold ledger of 64 KiB entries through the client: %s MB/s; direct sequential reads of the same logs: %s MB/s; ratio %s.\n",
			spread(read, "%.0f"), spread(disk, "%.0f"), spread(share, "%.2f"))
	}
}

// best is the most durable bytes per second that the disk gave at any group size.
func (d disk) best() float64 {
	best := 0.0
	for _, mb := range d.MB {
		best = max(best, mb)
	}
	return best
}

// spread is the median and, if there is more than one value, the range.
func spread(v []float64, format string) string {
	if len(v) == 0 {
		return ""
	}
	s := slices.Sorted(slices.Values(v))
	out := fmt.Sprintf(format, s[len(s)/2])
	if len(s) > 1 {
		out += fmt.Sprintf(" ("+format+"-"+format+")", s[0], s[len(s)-1])
	}
	return out
}

func firstLine(name string) string {
	data, err := os.ReadFile(name)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}

func processor() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.Trim(name, ": \t\n")
		}
	}
	return "unknown"
}
