package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// syncResult is one method at one size. Percentiles are of all rounds together; the rounds' own p50 and p99 show how far
// the machine itself moved.
type syncResult struct {
	Method      string  `json:"method"`
	GroupBytes  int     `json:"group_bytes"`
	Count       int64   `json:"count"`
	P50         int64   `json:"sync_p50_us"`
	P99         int64   `json:"sync_p99_us"`
	P999        int64   `json:"sync_p99_9_us"`
	Max         int64   `json:"sync_max_us"`
	RoundP50    []int64 `json:"round_p50_us"`
	RoundP99    []int64 `json:"round_p99_us"`
	PerSecond   float64 `json:"syncs_per_s"`
	MBPerSecond float64 `json:"durable_mb_per_s"`
	Histogram   string  `json:"latency_hdr_v2_base64"`
}

func newSyncResult(name string, size int, perRound []*hdr.Histogram) syncResult {
	all := hdr.New(1, latencyMaxUs, 3)
	r := syncResult{Method: name, GroupBytes: size}
	for _, h := range perRound {
		all.Merge(h)
		r.RoundP50 = append(r.RoundP50, h.ValueAtQuantile(50))
		r.RoundP99 = append(r.RoundP99, h.ValueAtQuantile(99))
	}
	r.Count = all.TotalCount()
	r.P50, r.P99, r.P999, r.Max = all.ValueAtQuantile(50), all.ValueAtQuantile(99), all.ValueAtQuantile(99.9), all.Max()
	if mean := all.Mean(); mean > 0 {
		r.PerSecond = 1e6 / mean
		r.MBPerSecond = r.PerSecond * float64(size) / 1e6
	}
	if b, err := all.Encode(hdr.V2CompressedEncodingCookieBase); err == nil {
		r.Histogram = base64.StdEncoding.EncodeToString(b)
	}
	return r
}

// recommendation is what follows for the journal, with the reason.
type recommendation struct {
	IO       string   `json:"journal_io"`
	GroupMax int      `json:"journal_max_group_bytes"`
	Reasons  []string `json:"reasons"`
}

// recommend names the method that was better than every other one in each round at 4 KiB, or "auto" if none was, and the
// largest group whose p99 is at most 1.5 times that of 4 KiB.
func recommend(results []syncResult) *recommendation {
	small := map[string]syncResult{}
	var names []string
	for _, r := range results {
		if r.GroupBytes == groupSizes[0] {
			small[r.Method] = r
			names = append(names, r.Method)
		}
	}
	if len(names) == 0 {
		return nil
	}
	rec := &recommendation{IO: "auto"}
	best := slices.MinFunc(names, func(a, b string) int { return int(small[a].P50 - small[b].P50) })
	ahead := len(names) > 1
	for _, other := range names {
		if other == best {
			continue
		}
		for i := range small[best].RoundP50 {
			if small[best].RoundP50[i] >= small[other].RoundP50[i] {
				ahead = false
			}
		}
	}
	if ahead {
		rec.IO = best
		rec.Reasons = append(rec.Reasons, fmt.Sprintf("%s had the lowest 4 KiB p50 in %d of %d rounds (%d us)", best, rounds, rounds, small[best].P50))
	} else {
		rec.Reasons = append(rec.Reasons, fmt.Sprintf("no method was ahead in all %d rounds; the differences are within the noise", rounds))
	}
	base := small[best].P99
	rec.GroupMax = 64 * kib
	for _, r := range results {
		if r.Method == best && r.GroupBytes > rec.GroupMax && float64(r.P99) <= 1.5*float64(base) {
			rec.GroupMax = r.GroupBytes
		}
	}
	rec.Reasons = append(rec.Reasons, fmt.Sprintf("groups up to %d KiB have a p99 of at most 1.5 times that of 4 KiB (%d us), 64 KiB at least", rec.GroupMax/kib, base))
	return rec
}

// print writes the report for people, 80 columns wide.
func (r *report) print(w io.Writer) error {
	fmt.Fprintf(w, "iobench %s, kernel %s, %d cores, %s\n", r.Tool, r.Environment.Kernel, r.Environment.Cores, r.Started.Format("2006-01-02 15:04 MST"))
	for _, d := range r.Directories {
		if err := d.print(w); err != nil {
			return err
		}
	}
	return nil
}

func (d *directoryReport) print(w io.Writer) error {
	fmt.Fprintf(w, "\n%s: %s, %d of %d GB free\n", d.Dir, d.FileSystem, d.AvailableBytes/1e9, d.TotalBytes/1e9)
	if d.NotRepresentative != "" {
		fmt.Fprintf(w, "NOT REPRESENTATIVE: %s\n", d.NotRepresentative)
	}
	for _, u := range d.Unsupported {
		fmt.Fprintf(w, "not supported here: %s (%s)\n", u.Method, u.Error)
	}
	if len(d.Sync) > 0 {
		fmt.Fprintf(w, "\ndurable writes, one at a time, into a zeroed file (us)\n")
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(tw, "method\tKiB\tp50\tp99\tp99.9\tmax\tp50 of rounds\tsyncs/s\tMB/s\t")
		for _, s := range d.Sync {
			p999 := "-" // too few samples to say
			if s.Count >= 1000 {
				p999 = fmt.Sprint(s.P999)
			}
			fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%s\t%d\t%d-%d\t%.0f\t%.1f\t\n", s.Method, s.GroupBytes/kib, s.P50, s.P99, p999, s.Max,
				slices.Min(s.RoundP50), slices.Max(s.RoundP50), s.PerSecond, s.MBPerSecond)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	if len(d.Bandwidth) > 0 {
		fmt.Fprintf(w, "\nsequential, direct, 1 MiB blocks (MB/s)\n")
		for _, b := range d.Bandwidth {
			note := ""
			if b.Durable {
				note = ", synced at the end"
			}
			fmt.Fprintf(w, "  %-5s depth %d: %7.1f%s\n", b.Name, b.Depth, b.MBPerSecond, note)
		}
	}
	if rec := d.Recommendation; rec != nil {
		fmt.Fprintf(w, "\n[journal]\nio = %q%s# %s\nmax_group_bytes = \"%dKiB\"  # %s\n", rec.IO, "  ", rec.Reasons[0], rec.GroupMax/kib, rec.Reasons[1])
	}
	_, err := fmt.Fprintf(w, "\n%.1f GB written\n", float64(d.WrittenBytes)/1e9)
	return err
}
