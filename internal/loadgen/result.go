package loadgen

import (
	"fmt"
	"io"
	"sort"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what came of a load. Its JSON form has stable field names with the units in them.
type Result struct {
	Driver      string             `json:"driver"` // raw or cluster
	Target      string             `json:"target"`
	Loop        string             `json:"loop"` // open or closed
	Rate        float64            `json:"asked_adds_per_s,omitempty"`
	TickMicros  float64            `json:"tick_us,omitempty"`
	Outstanding int                `json:"outstanding"`
	Connections int                `json:"connections,omitempty"`
	Ledgers     int                `json:"ledgers"`
	Quorum      string             `json:"quorum,omitempty"`
	SizeBytes   int                `json:"payload_bytes"`
	Seconds     float64            `json:"measured_s"`
	Adds        int64              `json:"adds"`
	WarmupAdds  int64              `json:"warmup_adds"`
	AddsPerSec  float64            `json:"adds_per_s"`
	MBPerSec    float64            `json:"payload_mb_per_s"` // decimal megabytes
	Unanswered  int64              `json:"unanswered"`
	Overruns    int64              `json:"overruns,omitempty"` // open loop: adds sent late because the window was full
	Errors      map[string]int64   `json:"errors,omitempty"`   // by code
	LatencyUs   map[string]float64 `json:"latency_us"`
	Histogram   string             `json:"latency_hdr_v2_base64,omitempty"`
	Tail        *TailReads         `json:"tail,omitempty"`
	Server      *Usage             `json:"server,omitempty"`
	Generator   Usage              `json:"generator"`
	StealShare  float64            `json:"steal_share"` // of all processor time, taken by the hypervisor
	hist        *hdr.Histogram
}

const (
	latencyMinUs = 1
	latencyMaxUs = int64(5 * time.Minute / time.Microsecond)
	latencyDigit = 3
)

func newHistogram() *hdr.Histogram { return hdr.New(latencyMinUs, latencyMaxUs, latencyDigit) }

// record counts one latency; what is off the scale counts as its end.
func record(h *hdr.Histogram, d time.Duration) {
	us := min(max(int64(d/time.Microsecond), latencyMinUs), latencyMaxUs)
	_ = h.RecordValue(us) // in range, so it can not fail
}

// quantiles of a report, by name.
var quantiles = []struct {
	name string
	q    float64
}{{"p50", 50}, {"p90", 90}, {"p95", 95}, {"p99", 99}, {"p99.9", 99.9}, {"p99.99", 99.99}, {"max", 100}}

// finish computes rates and percentiles.
func (r *Result) finish(h *hdr.Histogram, elapsed time.Duration, keepHistogram bool) {
	r.hist = h
	r.Seconds = elapsed.Seconds()
	if r.Seconds > 0 {
		r.AddsPerSec = float64(r.Adds) / r.Seconds
		r.MBPerSec = r.AddsPerSec * float64(r.SizeBytes) / 1e6
	}
	r.LatencyUs = percentiles(h)
	if keepHistogram {
		if b, err := h.Encode(hdr.V2CompressedEncodingCookieBase); err == nil {
			r.Histogram = string(b) // base64 already
		}
	}
	for _, u := range []*Usage{&r.Generator, r.Server} {
		if u != nil && r.Adds > 0 {
			u.CPUPerMillion = u.CPUSeconds / (float64(r.Adds) / 1e6)
		}
	}
}

// percentiles are those of a report, and the mean; none of an empty histogram.
func percentiles(h *hdr.Histogram) map[string]float64 {
	m := map[string]float64{}
	if h.TotalCount() > 0 {
		for _, q := range quantiles {
			m[q.name] = float64(h.ValueAtQuantile(q.q))
		}
		m["mean"] = h.Mean()
	}
	return m
}

// Latency is the latency at a percentile from 0 to 100.
func (r *Result) Latency(percentile float64) time.Duration {
	return time.Duration(r.hist.ValueAtQuantile(percentile)) * time.Microsecond
}

// Failed is the number of adds that were refused or not answered.
func (r *Result) Failed() int64 {
	n := r.Unanswered
	if r.Tail != nil {
		n += r.Tail.Missing
	}
	for _, c := range r.Errors {
		n += c
	}
	return n
}

// Print writes the result for people.
func (r *Result) Print(w io.Writer) {
	shape := fmt.Sprintf("closed loop, %d outstanding", r.Outstanding)
	if r.Loop == "open" {
		shape = fmt.Sprintf("open loop, %.0f adds/s asked", r.Rate)
	}
	per := "per ledger"
	if r.Driver == "raw" {
		per = fmt.Sprintf("on each of %d connections", r.Connections)
	}
	if r.Loop == "closed" {
		shape += " " + per
	}
	fmt.Fprintf(w, "%s %s: %s, %d ledgers, %d B", r.Driver, r.Target, shape, r.Ledgers, r.SizeBytes)
	if r.Quorum != "" {
		fmt.Fprintf(w, ", E/Qw/Qa %s", r.Quorum)
	}
	fmt.Fprintf(w, "\n  %d adds in %.1f s: %.0f adds/s, %.1f MB/s\n", r.Adds, r.Seconds, r.AddsPerSec, r.MBPerSec)
	printLatency(w, "latency", r.LatencyUs)
	if r.Tail != nil {
		printLatency(w, "from the acknowledgement to a reader that follows", r.Tail.LatencyUs)
	}
	if r.Failed() > 0 || r.Overruns > 0 {
		codes := make([]string, 0, len(r.Errors))
		for c := range r.Errors {
			codes = append(codes, c)
		}
		sort.Strings(codes)
		fmt.Fprintf(w, "  NOT CLEAN: %d unanswered, %d sent late", r.Unanswered, r.Overruns)
		if r.Tail != nil && r.Tail.Missing > 0 {
			fmt.Fprintf(w, ", %d not read", r.Tail.Missing)
		}
		for _, c := range codes {
			fmt.Fprintf(w, ", %d x %s", r.Errors[c], c)
		}
		fmt.Fprintln(w)
	}
	if r.Server != nil {
		fmt.Fprintf(w, "  server: %.1f CPU s (%.1f s per million adds), %d MB resident\n", r.Server.CPUSeconds, r.Server.CPUPerMillion, r.Server.RSSBytes/1e6)
	}
	fmt.Fprintf(w, "  generator: %.1f CPU s; steal %.1f %%\n", r.Generator.CPUSeconds, 100*r.StealShare)
}

func printLatency(w io.Writer, what string, us map[string]float64) {
	if len(us) == 0 {
		return
	}
	fmt.Fprintf(w, "  %s ms: mean %.2f", what, us["mean"]/1e3)
	for _, q := range quantiles {
		fmt.Fprintf(w, "  %s %.2f", q.name, us[q.name]/1e3)
	}
	fmt.Fprintln(w)
}
