package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/binderylog/bindery/bench/guard/iocalls"
)

// figures are the least of several runs of one benchmark.
type figures struct {
	nanos  float64
	allocs float64
	calls  float64 // of the system; negative: not counted
}

// processors is what go test puts behind a benchmark's name.
var processors = regexp.MustCompile(`-\d+$`)

// parse reads what `go test -bench` prints: figures by package and name.
func parse(r io.Reader) (map[string]figures, error) {
	all := map[string]figures{}
	pkg := ""
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) == 2 && fields[0] == "pkg:":
			pkg = fields[1]
		case len(fields) >= 4 && strings.HasPrefix(fields[0], "Benchmark"):
			name := pkg + "." + processors.ReplaceAllString(fields[0], "")
			got, err := line(fields[2:])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if old, ok := all[name]; ok {
				got = figures{min(old.nanos, got.nanos), min(old.allocs, got.allocs), min(old.calls, got.calls)}
			}
			all[name] = got
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("there is no benchmark in it")
	}
	return all, nil
}

// line reads pairs of a value and its unit.
func line(fields []string) (figures, error) {
	f := figures{nanos: -1, allocs: -1, calls: -1}
	for i := 0; i+1 < len(fields); i += 2 {
		v, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return f, err
		}
		switch fields[i+1] {
		case "ns/op":
			f.nanos = v
		case "allocs/op":
			f.allocs = v
		case iocalls.Unit:
			f.calls = v
		}
	}
	if f.nanos < 0 || f.allocs < 0 {
		return f, errors.New("times or allocations are missing")
	}
	return f, nil
}

// What system calls may be above the recorded ones. One add after the other needs the same each time, but for work in the
// background, such as a flush that falls due. A batch is taken up in as many pieces as it arrives in, which depends on the
// machine; a path that lost its batching needs ten times as many.
const (
	callsShare      = 0.10
	callsShareBatch = 3.0
	callsMore       = 0.05
)

func limit(name string, recorded float64) float64 {
	share := callsShare
	if !strings.HasSuffix(name, "batch=1") {
		share = callsShareBatch
	}
	return recorded*(1+share) + callsMore
}

// exceeded says which limits are exceeded, and which benchmarks are missing.
func exceeded(recorded, now map[string]figures) (over []string) {
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		r := recorded[name]
		n, ok := now[name]
		switch {
		case !ok:
			over = append(over, name+": it was recorded and is gone")
		case n.allocs > r.allocs:
			over = append(over, fmt.Sprintf("%s: %.0f allocations per add, recorded %.0f", name, n.allocs, r.allocs))
		case r.calls >= 0 && n.calls >= 0 && n.calls > limit(name, r.calls):
			over = append(over, fmt.Sprintf("%s: %.2f system calls per add, recorded %.2f", name, n.calls, r.calls))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if _, ok := recorded[name]; !ok {
			over = append(over, name+": it was not recorded")
		}
	}
	return over
}

// table shows limits and figures.
func table(w io.Writer, recorded, now map[string]figures) {
	fmt.Fprintf(w, "%-72s %16s %22s\n", "least of several runs, recorded -> now", "allocations/add", "system calls/add")
	for _, name := range slices.Sorted(maps.Keys(now)) {
		r, n := recorded[name], now[name]
		fmt.Fprintf(w, "%-72s %7.0f -> %5.0f %10.3f -> %8.3f\n", strings.TrimPrefix(name, "github.com/binderylog/bindery/"), r.allocs, n.allocs, r.calls, n.calls)
	}
}
