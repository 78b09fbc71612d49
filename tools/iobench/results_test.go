package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/tools/iobench/result"
)

const exampleFile = "result/testdata/full.json"

// runIobench runs the program's command line.
func runIobench(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = execute(t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

// slowerRun is the example's sync chapter with every operation twice as long, in a file.
func slowerRun(t *testing.T) string {
	t.Helper()
	runs, err := result.ReadFile(exampleFile)
	require.NoError(t, err)
	r := runs[0]
	r.RunID = "slower"
	r.Environment.Host = "bookie-02"
	r.Chapters = r.Chapters[:1]
	for i := range r.Chapters[0].Cells {
		c := &r.Chapters[0].Cells[i]
		h, err := c.Latency.Decode()
		require.NoError(t, err)
		twice := result.NewHistogram()
		for _, b := range h.Distribution() {
			if b.Count > 0 {
				require.NoError(t, twice.RecordValues(2*b.From, b.Count))
			}
		}
		c.Latency, c.WritePart, c.SyncPart = result.NewLatency(twice), nil, nil
		for j := range c.Rounds {
			rd := &c.Rounds[j]
			rd.P50US, rd.P99US, rd.MaxUS = 2*rd.P50US, 2*rd.P99US, 2*rd.MaxUS
		}
	}
	var b bytes.Buffer
	require.NoError(t, result.Encode(&b, r))
	name := filepath.Join(t.TempDir(), "slower.json")
	require.NoError(t, os.WriteFile(name, b.Bytes(), 0o644))
	return name
}

func TestReportCommand(t *testing.T) {
	html := filepath.Join(t.TempDir(), "out.html")
	code, stdout, stderr := runIobench(t, "report", exampleFile, "--html", html)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "1 runs")
	page, err := os.ReadFile(html)
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(page, []byte("<!DOCTYPE html>")))
	code, _, stderr = runIobench(t, "report", exampleFile, "--html", html, "--run", "2")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "there are runs 1 to 1")
	code, _, stderr = runIobench(t, "report", "main.go", "--html", html)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "main.go: run 1")
}

// TestReportPrintsWhatTheRunPrinted, to the letter.
func TestReportPrintsWhatTheRunPrinted(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "run.json")
	code, printed, stderr := run(short("sync", dir, "--out", file)...)
	require.Zero(t, code, stderr)
	code, again, stderr := run("report", file)
	require.Zero(t, code, stderr)
	require.Equal(t, printed, again)
	code, both, stderr := run("report", file, exampleFile)
	require.Zero(t, code, stderr)
	require.True(t, strings.HasPrefix(both, printed+"\niobench "), "one after the other")
}

func TestCompareCommand(t *testing.T) {
	slow := slowerRun(t)
	html := filepath.Join(t.TempDir(), "out.html")
	code, stdout, stderr := runIobench(t, "compare", exampleFile, slow, "--fail-if", "p99+300%", "--html", html)
	require.Zero(t, code, stderr)
	require.Regexp(t, `sync dsync/4096 p99 +61.5 µs +123 µs \+100 % WORSE\n`, stdout)
	require.FileExists(t, html)

	code, stdout, stderr = runIobench(t, "compare", exampleFile, slow, "--fail-if", "sync/dsync/4096:p99+20%")
	require.Equal(t, exitFindings, code)
	require.Contains(t, stdout, "missed sync/dsync/4096:p99+20%: bookie-02:/data/journal: sync dsync/4096 p99: +100 %")
	require.Contains(t, stderr, "thresholds missed: 1")

	code, stdout, _ = runIobench(t, "compare", exampleFile, slow, "--fail-if", "sync/dsync/4096:p99+20%", "--output", "json")
	require.Equal(t, exitFindings, code)
	var doc struct {
		Groups []struct {
			Figures []struct {
				Chapter, Cell, Metric, Unit string
				Values                      []struct {
					Value   float64
					Verdict string
				}
			}
		}
		Findings []struct{ Run string }
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &doc))
	require.Equal(t, "bookie-02:/data/journal", doc.Findings[0].Run)
	first := doc.Groups[0].Figures[0]
	require.Equal(t, []string{"sync", "dsync/4096", "p50", "us", "worse"}, []string{first.Chapter, first.Cell, first.Metric, first.Unit, first.Values[1].Verdict})

	for _, args := range [][]string{{"--fail-if", "p99"}, {"--by", "colour"}, {"--output", "yaml"}} {
		code, _, _ = runIobench(t, append([]string{"compare", exampleFile, slow}, args...)...)
		require.Equal(t, exitUsage, code, args)
	}
	code, _, stderr = runIobench(t, "compare", exampleFile)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "at least two runs")
	code, _, stderr = runIobench(t, "compare", exampleFile, slow, "--fail-if", "outlier")
	require.Equal(t, exitFailed, code, "what was not judged did not pass")
	require.Contains(t, stderr, "5 runs")
}

func TestCollectCommand(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a shell script plays ssh: runs on every system but Windows")
	}
	dir := t.TempDir()
	abs, err := filepath.Abs(exampleFile)
	require.NoError(t, err)
	script := "#!/bin/sh\ncase \"$*\" in *down*) echo 'Connection refused' >&2; exit 255;; esac\ncat '" + abs + "'\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ssh"), []byte(script), 0o755))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	hosts := filepath.Join(dir, "hosts")
	list := func(text string) { require.NoError(t, os.WriteFile(hosts, []byte(text), 0o644)) }
	out := filepath.Join(dir, "out")

	list("b1\ndown\nb2 /data/j\n")
	code, stdout, stderr := runIobench(t, "collect", "--hosts", hosts, "--dir", "/data/journal", "--out", out, "--", "--duration", "20s")
	require.Equal(t, exitPartial, code, stderr)
	require.Contains(t, stdout, "down: ssh: Connection refused")
	require.Contains(t, stderr, "1/3 b1: /data/journal\n2/3 down: /data/journal\n3/3 b2: /data/j\n")
	require.Contains(t, stderr, "1 of 3 hosts did not give all results")
	require.FileExists(t, filepath.Join(out, "b1.json"))
	require.FileExists(t, filepath.Join(out, "b2.json"))

	list("b1 /d\n")
	code, stdout, _ = runIobench(t, "collect", "--hosts", hosts, "--out", out, "--output", "json")
	require.Zero(t, code)
	require.Contains(t, stdout, `"outcome": "ok"`)
	list("down /d\n")
	code, _, stderr = runIobench(t, "collect", "--hosts", hosts, "--out", out)
	require.Equal(t, exitFailed, code, stderr)
	for _, args := range [][]string{{}, {"--hosts", hosts, "/data"}, {"--hosts", hosts, "--", "--out", "x"}, {"--hosts", hosts, "--timeout", "0s"}} {
		code, _, stderr = runIobench(t, append([]string{"collect"}, args...)...)
		require.Equal(t, exitUsage, code, strings.Join(args, " ")+": "+stderr)
	}
	list("-oProxyCommand=x /d\n")
	code, _, _ = runIobench(t, "collect", "--hosts", hosts)
	require.Equal(t, exitUsage, code)
}
