package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const recorded = `goos: linux
pkg: github.com/binderylog/bindery/journal
BenchmarkGuard/entry=1k/batch=1-2  1024  8000 ns/op  128.00 MB/s  1.100 io-calls/op  12 B/op  0 allocs/op
BenchmarkGuard/entry=1k/batch=1-2  1024  9000 ns/op  128.00 MB/s  1.000 io-calls/op  12 B/op  1 allocs/op
PASS
pkg: github.com/binderylog/bindery/bookie
BenchmarkGuard/entry=1k/batch=1-2  1024  9000 ns/op  7.000 io-calls/op  12 B/op  2 allocs/op
`

func TestLimits(t *testing.T) {
	old, err := parse(strings.NewReader(recorded))
	require.NoError(t, err)
	journal := "github.com/binderylog/bindery/journal.BenchmarkGuard/entry=1k/batch=1"
	require.Equal(t, figures{nanos: 8000, allocs: 0, calls: 1}, old[journal], "the least of both runs")
	require.Len(t, old, 2)
	require.Empty(t, exceeded(old, old))

	for text, want := range map[string]string{
		strings.ReplaceAll(recorded, "0 allocs/op\n", "1 allocs/op\n"):                                              "journal.BenchmarkGuard/entry=1k/batch=1: 1 allocations per add, recorded 0",
		strings.ReplaceAll(recorded, "7.000 io", "8.000 io"):                                                        "bookie.BenchmarkGuard/entry=1k/batch=1: 8.00 system calls per add, recorded 7.00",
		recorded[:strings.Index(recorded, "PASS")]:                                                                  "bookie.BenchmarkGuard/entry=1k/batch=1: it was recorded and is gone",
		recorded + "BenchmarkGuard/entry=9k/batch=1-2  1024  9000 ns/op  7.000 io-calls/op  12 B/op  2 allocs/op\n": "batch=1: it was not recorded",
	} {
		now, err := parse(strings.NewReader(text))
		require.NoError(t, err)
		over := exceeded(old, now)
		require.Len(t, over, 1)
		require.Contains(t, over[0], want)
	}
	// Ten times slower, a call more in a hundred, another number of processors: no limit. Where nobody counts there is none.
	now, err := parse(strings.NewReader(strings.NewReplacer("9000 ns", "90000 ns", "7.000 io", "7.070 io", "batch=1-2", "batch=1-64").Replace(recorded)))
	require.NoError(t, err)
	require.Empty(t, exceeded(old, now))
	now, err = parse(strings.NewReader(strings.NewReplacer("7.000 io-calls/op", "").Replace(recorded)))
	require.NoError(t, err)
	require.Empty(t, exceeded(old, now))

	require.InEpsilon(t, 1.15, limit("x/batch=1", 1), 0.001)
	require.InEpsilon(t, 4.05, limit("x/batch=16", 1), 0.001)

	var b bytes.Buffer
	table(&b, old, old)
	require.Contains(t, b.String(), "journal.BenchmarkGuard/entry=1k/batch=1")
	require.Contains(t, b.String(), "7.000 ->    7.000")

	for _, bad := range []string{"", "BenchmarkX 1 x ns/op\n", "BenchmarkX-2 1 2 ns/op\n"} {
		_, err := parse(strings.NewReader(bad))
		require.Error(t, err, "%q", bad)
	}
}
