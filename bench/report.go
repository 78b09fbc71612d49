package main

import (
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/binderylog/bindery/internal/apache"
)

// report is a run in figures: what the tables, the page and other programs are made from.
type report struct {
	Schema   string    `json:"schema"` // bindery-bench/2
	Date     time.Time `json:"date"`
	Machine  machine   `json:"machine"`
	Settings settings  `json:"settings"`
	Disk     []diskRow `json:"disk"`
	Loads    []loadRow `json:"loads"`
	Starts   []peerRow `json:"starts"`
	Reads    []peerRow `json:"catch_up"`
	Collect  []peerRow `json:"collection"`
	Tier     []peerRow `json:"offload"`
	Steal    float64   `json:"highest_steal_share"`
	Packages string    `json:"packages,omitempty"` // output of the packages' own benchmarks
}

type machine struct {
	Cores      int    `json:"cores"`
	Processor  string `json:"processor"`
	Kernel     string `json:"kernel"`
	OS         string `json:"os"`
	Go         string `json:"go"`
	FileSystem string `json:"file_system"`
}

type settings struct {
	Rounds   int      `json:"rounds"`
	Seconds  float64  `json:"closed_loop_s"`
	Open     float64  `json:"open_loop_s"`
	Warmup   float64  `json:"warmup_s"`
	Args     []string `json:"flags"`              // of the run
	LeftOut  []string `json:"left_out,omitempty"` // for lack of time
	Failed   []string `json:"failed,omitempty"`   // what could not be measured, and why
	Memory   string   `json:"storage_memory"`
	Versions []string `json:"versions"`
	Flags    []string `json:"apache_jvm_flags,omitempty"`
}

// value is the median over the rounds and their range.
type value struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

type diskRow struct {
	Group int   `json:"group_bytes"`
	P50   value `json:"p50_us"`
	MB    value `json:"durable_mb_per_s"`
}

// loadRow is one load on all peers.
type loadRow struct {
	Name     string    `json:"name"`
	OpenLoop bool      `json:"open_loop,omitempty"` // the rate was given
	Tail     bool      `json:"tail,omitempty"`      // latency is from an add's acknowledgement to a reader that follows
	Peers    []peerRow `json:"peers"`
}

// peerRow is what one peer gave. A ratio is formed within each round: this peer's figure to that of the first one.
type peerRow struct {
	Peer   string           `json:"peer,omitempty"`
	Clean  bool             `json:"clean"`
	Values map[string]value `json:"values"`
	Ratios map[string]value `json:"ratios,omitempty"`
}

// median returns the median and the range of what a round gave.
func median(v []float64) value {
	s := slices.Sorted(slices.Values(v))
	if len(s) == 0 {
		return value{}
	}
	return value{s[len(s)/2], s[0], s[len(s)-1]}
}

// columns are the figures of a load.
var columns = []struct {
	key string
	of  func(figure) float64
}{
	{"adds_per_s", func(f figure) float64 { return f.PerSecond }},
	{"payload_mb_per_s", func(f figure) float64 { return f.MB }},
	{"p50_ms", func(f figure) float64 { return f.Latency["p50"] / 1e3 }},
	{"p99_ms", func(f figure) float64 { return f.Latency["p99"] / 1e3 }},
	{"p99.9_ms", func(f figure) float64 { return f.Latency["p99.9"] / 1e3 }},
	{"cpu_s_per_million", func(f figure) float64 { return f.CPU }},
	{"resident_mb", func(f figure) float64 { return f.RSS / 1e6 }},
	{"disk_bytes_per_byte", func(f figure) float64 { return f.Written }},
}

// report sums up the rounds.
func (b *benchmark) report(packages string) *report {
	r := &report{
		Schema: "bindery-bench/2", Date: time.Now().UTC().Truncate(time.Second), Packages: packages,
		Machine: machine{runtime.NumCPU(), processor(), firstLine("/proc/sys/kernel/osrelease"), runtime.GOOS + "/" + runtime.GOARCH, strings.TrimPrefix(runtime.Version(), "go"), fileSystem(b.dir)},
		Settings: settings{
			Rounds: b.rounds, Seconds: b.duration.Seconds(), Open: b.open.Seconds(), Warmup: b.warmup.Seconds(), Memory: b.memory,
			Versions: []string{b.version}, Args: b.args, LeftOut: b.leftOut, Failed: b.failures,
		},
	}
	names := []string{"", (&ours{}).name()}
	if b.apache {
		names = append(names, (&apacheBookies{}).name())
		r.Settings.Versions = append(r.Settings.Versions, "Apache BookKeeper "+apache.BookKeeperVersion, "Apache ZooKeeper "+apache.ZooKeeperVersion, "bookkeeper-perf "+apache.PerfVersion)
		r.Settings.Flags = bookieFlags
	}
	for _, size := range []int{4 << 10, 64 << 10, 256 << 10, 512 << 10, 1 << 20} {
		var p50, mb []float64
		for _, d := range b.disk {
			p50, mb = append(p50, d.P50[size]), append(mb, d.MB[size])
		}
		if row := (diskRow{size, median(p50), median(mb)}); row.MB.Max > 0 {
			r.Disk = append(r.Disk, row)
		}
	}
	for _, l := range append(loads(), perfLoads()...) {
		row := loadRow{Name: l.name, OpenLoop: l.open, Tail: l.tail}
		var first []figure
		for _, name := range names {
			fs := b.figures[l.name][name]
			if len(fs) == 0 {
				continue
			}
			p := peerRow{Peer: name, Clean: !slices.ContainsFunc(fs, func(f figure) bool { return f.Failed }), Values: map[string]value{}}
			for _, c := range columns {
				p.Values[c.key] = median(each(fs, c.of))
			}
			for _, f := range fs {
				r.Steal = max(r.Steal, f.Steal)
			}
			p.Values["share_of_disk"] = median(each(fs, func(f figure) float64 { return f.MB / max(f.Disk, 1) }))
			if first == nil {
				first = fs
			} else {
				p.Ratios = ratios(first, fs)
			}
			row.Peers = append(row.Peers, p)
		}
		if len(row.Peers) > 0 {
			r.Loads = append(r.Loads, row)
		}
	}
	for _, name := range names {
		if s := b.starts[name]; len(s) > 0 {
			r.Starts = append(r.Starts, peerRow{Peer: name, Clean: true, Values: map[string]value{
				"seconds":          median(each(s, func(s started) float64 { return s.Seconds })),
				"replayed_mb":      median(each(s, func(s started) float64 { return s.Replayed / 1e6 })),
				"idle_resident_mb": median(each(s, func(s started) float64 { return s.Idle / 1e6 })),
			}})
		}
		if c := b.reads[name]; len(c) > 0 {
			r.Reads = append(r.Reads, peerRow{Peer: name, Clean: true, Values: map[string]value{
				"read_mb_per_s":          median(each(c, func(c catchUp) float64 { return c.Read })),
				"disk_mb_per_s":          median(each(c, func(c catchUp) float64 { return c.Disk })),
				"share_of_disk":          median(each(c, func(c catchUp) float64 { return c.Read / c.Disk })),
				"writers_p99_ms":         median(each(c, func(c catchUp) float64 { return c.Alone / 1e3 })),
				"writers_p99_ms_readers": median(each(c, func(c catchUp) float64 { return c.Beside / 1e3 })),
				"writers_p99_ratio":      median(each(c, func(c catchUp) float64 { return c.Beside / max(c.Alone, 1) })),
				"readers_mb_per_s":       median(each(c, func(c catchUp) float64 { return c.BesideRead })),
			}})
		}
		if c := b.collections[name]; len(c) > 0 {
			r.Collect = append(r.Collect, peerRow{Peer: name, Clean: true, Values: map[string]value{
				"freed_mb":             median(each(c, func(c collected) float64 { return c.Freed / 1e6 })),
				"wait_s":               median(each(c, func(c collected) float64 { return c.Wait })),
				"seconds":              median(each(c, func(c collected) float64 { return c.Seconds })),
				"freed_mb_per_s":       median(each(c, func(c collected) float64 { return c.Freed / 1e6 / max(c.Seconds, 0.1) })),
				"writers_p99_ms":       median(each(c, func(c collected) float64 { return c.Alone / 1e3 })),
				"writers_p99_ms_gc":    median(each(c, func(c collected) float64 { return c.Beside / 1e3 })),
				"writers_p99_gc_ratio": median(each(c, func(c collected) float64 { return c.Beside / max(c.Alone, 1) })),
			}})
		}
		if t := b.tiers[name]; len(t) > 0 {
			r.Tier = append(r.Tier, peerRow{Peer: name, Clean: true, Values: map[string]value{
				"offload_mb_per_s":    median(each(t, func(t besideTier) float64 { return t.Rate / 1e6 })),
				"tail_p50_ms":         median(each(t, func(t besideTier) float64 { return t.AloneP50 / 1e3 })),
				"tail_p50_ms_offload": median(each(t, func(t besideTier) float64 { return t.BesideP50 / 1e3 })),
				"tail_p99_ms":         median(each(t, func(t besideTier) float64 { return t.Alone / 1e3 })),
				"tail_p99_ms_offload": median(each(t, func(t besideTier) float64 { return t.Beside / 1e3 })),
				"tail_p99_ratio":      median(each(t, func(t besideTier) float64 { return t.Beside / max(t.Alone, 1) })),
			}})
		}
	}
	return r
}

// ratios are those of a peer's figures to the first peer's, round by round.
func ratios(first, fs []figure) map[string]value {
	m := map[string]value{}
	for _, c := range columns {
		var list []float64
		for _, f := range fs {
			i := slices.IndexFunc(first, func(o figure) bool { return o.Round == f.Round })
			if i < 0 {
				continue
			}
			if a, b := c.of(first[i]), c.of(f); a > 0 && b > 0 {
				list = append(list, b/a)
			}
		}
		if len(list) > 0 {
			m[c.key] = median(list)
		}
	}
	return m
}

func each[T any](list []T, f func(T) float64) []float64 {
	out := make([]float64, len(list))
	for i, x := range list {
		out[i] = f(x)
	}
	return out
}
