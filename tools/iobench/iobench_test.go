package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func run(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = execute(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// suitable skips where the test's own directory is on a file system without direct I/O.
func suitable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := vfs.ProbeDirect(vfs.OS(), dir); err != nil {
		t.Skipf("no direct I/O here: %v", err)
	}
	return dir
}

func TestQuick(t *testing.T) {
	dir := suitable(t)
	out := filepath.Join(t.TempDir(), "r.json")
	code, stdout, stderr := run("quick", dir, "--duration", "1s", "--file-mib", "16", "--output", "json", "--out", out, "--allow-unsuitable", "--label", "rack=1")
	require.Equal(t, 0, code, stderr)
	var r report
	require.NoError(t, json.Unmarshal([]byte(stdout), &r))
	require.Equal(t, "iobench/1", r.Schema)
	require.True(t, r.Complete)
	require.Equal(t, []string{"rack=1"}, r.Labels)
	d := r.Directories[0]
	require.NotEmpty(t, d.Sync)
	for _, s := range d.Sync {
		require.GreaterOrEqual(t, s.Count, int64(rounds*opsMin))
		require.LessOrEqual(t, s.P50, s.P99)
		require.LessOrEqual(t, s.P99, s.Max)
		require.Len(t, s.RoundP50, rounds)
	}
	require.Len(t, d.Bandwidth, 4)
	for _, b := range d.Bandwidth {
		require.Positive(t, b.MBPerSecond)
	}
	require.Positive(t, d.WrittenBytes)
	require.NotNil(t, d.Recommendation)
	file, err := os.ReadFile(out)
	require.NoError(t, err)
	require.JSONEq(t, stdout, string(file))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "nothing stays behind")
}

func TestTable(t *testing.T) {
	dir := suitable(t)
	code, stdout, stderr := run("quick", dir, "--duration", "1s", "--file-mib", "16", "--allow-unsuitable")
	require.Equal(t, 0, code, stderr)
	for _, want := range []string{"durable writes", "p99.9", "sequential", "max_group_bytes"} {
		require.Contains(t, stdout, want)
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no directory", []string{"quick"}, 2, "requires at least 1 arg"},
		{"missing directory", []string{"quick", filepath.Join(dir, "none")}, 1, "no such file"},
		{"a file", []string{"quick", "iobench_test.go"}, 1, "is not a directory"},
		{"output", []string{"quick", dir, "--output", "xml"}, 2, "neither table nor json"},
		{"duration", []string{"quick", dir, "--duration", "1ms"}, 2, "outside 1s to 1h"},
		{"file size", []string{"quick", dir, "--file-mib", "1"}, 2, "outside 16"},
		{"command", []string{"quik"}, 2, "unknown command"},
		{"flag", []string{"quick", "--nope", dir}, 2, "unknown flag"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, _, stderr := run(tc.args...)
			require.Equal(t, tc.code, code, stderr)
			require.Contains(t, stderr, tc.want)
		})
	}
}

func TestUnsuitableFileSystemIsRefused(t *testing.T) {
	const shm = "/dev/shm"
	if kind, err := vfs.FSType(shm); err != nil || vfs.UnsuitableFS(kind) == "" {
		t.Skip("no tmpfs to refuse")
	}
	code, stdout, stderr := run("quick", shm)
	require.Equal(t, exitRefused, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "--allow-unsuitable")
}

func TestInterruptedRunReportsWhatItHas(t *testing.T) {
	dir := suitable(t)
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	o := quickOptions{duration: time.Hour, fileMiB: 16, seed: 1}
	d := directoryReport{Dir: dir}
	err := o.measure(ctx, &d)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func histogram(us ...int64) *hdr.Histogram {
	h := hdr.New(1, latencyMaxUs, 3)
	for _, v := range us {
		_ = h.RecordValue(v)
	}
	return h
}

func TestRecommendation(t *testing.T) {
	cell := func(name string, size int, perRound ...int64) syncResult {
		var hs []*hdr.Histogram
		for _, v := range perRound {
			hs = append(hs, histogram(v, v, v))
		}
		return newSyncResult(name, size, hs)
	}
	ahead := recommend([]syncResult{
		cell("dsync", 4*kib, 70, 71, 72, 73, 74), cell("dsync", 256*kib, 100, 100, 100, 100, 100), cell("dsync", mib, 300, 300, 300, 300, 300),
		cell("fdatasync", 4*kib, 110, 112, 111, 119, 118),
	})
	require.Equal(t, "dsync", ahead.IO)
	require.Equal(t, 256*kib, ahead.GroupMax)
	noisy := recommend([]syncResult{cell("dsync", 4*kib, 70, 71, 72, 73, 120), cell("fdatasync", 4*kib, 110, 112, 111, 119, 118)})
	require.Equal(t, "auto", noisy.IO, "no ranking inside the spread")
	require.Nil(t, recommend(nil))
}
