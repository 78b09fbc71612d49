package main

import (
	"fmt"
	"os"
	"strings"
)

// markdown renders the report.
func (r *report) markdown() string {
	var w strings.Builder
	fmt.Fprintf(&w, "## %s\n\n", r.Date.Format("2006-01-02"))
	fmt.Fprintf(&w, "%s. %d cores (%s), kernel %s, %s, %s, Go %s. %d rounds; a closed loop is measured for %g s, an open one for %g s, after %g s of warming up; storage.memory = %s, load generator on the same cores. Median, then the range over the rounds.\n\n",
		strings.Join(r.Settings.Versions, ", "), r.Machine.Cores, r.Machine.Processor, r.Machine.Kernel, r.Machine.FileSystem, r.Machine.OS, r.Machine.Go,
		r.Settings.Rounds, r.Settings.Seconds, r.Settings.Open, r.Settings.Warmup, r.Settings.Memory)
	if len(r.Settings.Args) > 0 {
		fmt.Fprintf(&w, "Flags: `%s`.\n\n", strings.Join(r.Settings.Args, " "))
	}
	if len(r.Settings.LeftOut) > 0 {
		fmt.Fprintf(&w, "**Left out for lack of time:** %s.\n\n", strings.Join(r.Settings.LeftOut, "; "))
	}
	if len(r.Settings.Failed) > 0 {
		fmt.Fprintf(&w, "**Not measured:** %s.\n\n", strings.Join(r.Settings.Failed, "; "))
	}
	if len(r.Settings.Flags) > 0 {
		fmt.Fprintf(&w, "Apache's bookies: DbLedgerStorage, journal synced, `%s`, the rest as shipped; metadata in ZooKeeper.\n\n", strings.Join(r.Settings.Flags, " "))
	}
	fmt.Fprintf(&w, "Disk, one durable write at a time, best method of each round (`iobench sync`):\n\n| group | p50 us | MB/s |\n|---|---|---|\n")
	for _, d := range r.Disk {
		fmt.Fprintf(&w, "| %d KiB | %s | %s |\n", d.Group>>10, d.P50.Text(0), d.MB.Text(1))
	}
	r.writeLoads(&w)
	r.writeRatios(&w)
	r.writeRest(&w)
	r.writeTier(&w)
	fmt.Fprintf(&w, "\nHighest steal of any figure: %.1f %%.\n", 100*r.Steal)
	if r.Packages != "" {
		fmt.Fprintf(&w, "\nThe packages' own benchmarks, with allocations:\n\n```\n%s\n```\n", r.Packages)
	}
	return w.String()
}

func (r *report) writeLoads(w *strings.Builder) {
	fmt.Fprintf(w, "\n| load | on | /s | MB/s | share of the disk's best | p50 ms | p99 ms | p99.9 ms | CPU s per million | resident MB | disk bytes per payload byte |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	tails := false
	for _, l := range r.Loads {
		tails = tails || l.Tail
		for _, p := range l.Peers {
			name, v := p.Peer, p.Values
			if !p.Clean {
				name += " (NOT CLEAN)"
			}
			cpu, rss, written := p.figure("cpu_s_per_million", 1), p.figure("resident_mb", 0), p.figure("disk_bytes_per_byte", 2)
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", l.Name, name, v["adds_per_s"].Text(0), v["payload_mb_per_s"].Text(1), v["share_of_disk"].Text(2),
				v["p50_ms"].Text(2), v["p99_ms"].Text(2), v["p99.9_ms"].Text(2), cpu, rss, written)
		}
	}
	if tails {
		fmt.Fprintf(w, "\nLatencies of the rows `tail` are from an add's acknowledgement until a reader that follows its ledger has the entry. A bookie tells readers of an entry with the next one.\n")
	}
}

// figure is a value as text, or nothing if it was not measured.
func (p *peerRow) figure(key string, digits int) string {
	if p.Values[key].Max == 0 {
		return ""
	}
	return p.Values[key].Text(digits)
}

// writeRatios sets the peers beside ours: their figure divided by ours of the same round. Above 1 ours is the smaller one.
func (r *report) writeRatios(w *strings.Builder) {
	head := false
	for _, l := range r.Loads {
		for _, p := range l.Peers {
			if p.Ratios == nil {
				continue
			}
			if !head {
				head = true
				fmt.Fprintf(w, "\nRatios within the same round, the peer's figure to bindery's: below 1 for adds and above 1 for all others says that bindery is ahead.\n\n"+
					"| load | peer | adds/s | p50 | p99 | p99.9 | CPU per add | resident | disk bytes |\n|---|---|---|---|---|---|---|---|---|\n")
			}
			adds := p.Ratios["adds_per_s"].Text(2)
			if l.OpenLoop {
				adds = "given"
			}
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", l.Name, p.Peer, adds, p.ratio("p50_ms", 1), p.ratio("p99_ms", 1), p.ratio("p99.9_ms", 1),
				p.ratio("cpu_s_per_million", 1), p.ratio("resident_mb", 1), p.ratio("disk_bytes_per_byte", 2))
		}
	}
}

// ratio is a ratio as text, or nothing if it was not measured.
func (p *peerRow) ratio(key string, digits int) string {
	if v, ok := p.Ratios[key]; ok {
		return v.Text(digits)
	}
	return ""
}

func (r *report) writeRest(w *strings.Builder) {
	if len(r.Starts) > 0 {
		fmt.Fprintf(w, "\nA start after kill -9 under full load, and an idle server (ours with the embedded metadata store):\n\n| on | s until it serves | MB of journal replayed | idle, MB resident |\n|---|---|---|---|\n")
	}
	for _, p := range r.Starts {
		replayed := "not told"
		if p.Values["replayed_mb"].Max > 0 {
			replayed = p.Values["replayed_mb"].Text(0)
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", p.Peer, p.Values["seconds"].Text(2), replayed, p.Values["idle_resident_mb"].Text(0))
	}
	if len(r.Reads) > 0 {
		fmt.Fprintf(w, "\nCatch-up read of a cold ledger of 64 KiB entries through our client, and writers (5,000/s of 1 KiB) beside %d such readers:\n\n"+
			"| on | MB/s | direct sequential reads of the same logs, MB/s | share | writers' p99 ms alone | with readers | ratio | readers, MB/s together |\n|---|---|---|---|---|---|---|---|\n", catchUpReaders)
	}
	for _, p := range r.Reads {
		v := p.Values
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", p.Peer, v["read_mb_per_s"].Text(0), v["disk_mb_per_s"].Text(0), v["share_of_disk"].Text(2), v["writers_p99_ms"].Text(2), v["writers_p99_ms_readers"].Text(2), v["writers_p99_ratio"].Text(1), v["readers_mb_per_s"].Text(0))
	}
	if len(r.Collect) > 0 {
		fmt.Fprintf(w, "\nGarbage collection, looked for every 10 s, after %d of %d ledgers that share logs of 64 MiB were deleted, with writers (5,000/s of 1 KiB) beside it:\n\n"+
			"| on | MB of logs freed | s until it begins | s from the first to the last | MB/s | writers' p99 ms before | meanwhile | ratio |\n|---|---|---|---|---|---|---|---|\n", collectLedgers-1, collectLedgers)
	}
	for _, p := range r.Collect {
		v := p.Values
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", p.Peer, v["freed_mb"].Text(0), v["wait_s"].Text(0), v["seconds"].Text(1), v["freed_mb_per_s"].Text(0), v["writers_p99_ms"].Text(2), v["writers_p99_ms_gc"].Text(2), v["writers_p99_gc_ratio"].Text(1))
	}
}

// writeTier says what an offload costs those who follow a ledger.
func (r *report) writeTier(w *strings.Builder) {
	for i, p := range r.Tier {
		if i == 0 {
			fmt.Fprintf(w, "\nReaders that follow a ledger of 1,000 adds of 1 KiB a second (3/3/2), alone and while another ledger moves from the same bookies to six folders on the same disk (4+2, read at %d MiB/s at most):\n\n"+
				"| on | offload, MB/s | readers' p50 ms alone | beside it | p99 ms alone | beside it | ratio |\n|---|---|---|---|---|---|---|\n", tierRate>>20)
		}
		v := p.Values
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s |\n", p.Peer, v["offload_mb_per_s"].Text(0), v["tail_p50_ms"].Text(2), v["tail_p50_ms_offload"].Text(2), v["tail_p99_ms"].Text(2), v["tail_p99_ms_offload"].Text(2), v["tail_p99_ratio"].Text(1))
	}
}

// Text is the median and, if the rounds differ visibly, their range.
func (v value) Text(digits int) string {
	out := fmt.Sprintf("%.*f", digits, v.Median)
	low, high := fmt.Sprintf("%.*f", digits, v.Min), fmt.Sprintf("%.*f", digits, v.Max)
	if low != high {
		out += " (" + low + "-" + high + ")"
	}
	return out
}

// best is the most durable bytes per second that the disk gave at any group size.
func (d disk) best() float64 {
	best := 0.0
	for _, mb := range d.MB {
		best = max(best, mb)
	}
	return best
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

// fileSystem names the file system that a directory is on, with its mount options.
func fileSystem(dir string) string {
	best, name := "", "unknown"
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return name
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		below := f[1] == "/" || dir == f[1] || strings.HasPrefix(dir, f[1]+"/")
		if below && len(f[1]) >= len(best) {
			best, name = f[1], f[2]+" ("+f[3]+")"
		}
	}
	return name
}
