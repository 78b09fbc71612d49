//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLedgerCommands(t *testing.T) {
	dir := t.TempDir()
	standalone(t, dir)

	text := "one\ntwo\n\nlast without end"
	r := command(t, dir, strings.NewReader(text), "ledger", "write", "--split", "lines", "-")
	require.Equal(t, 0, r.code, r.stderr)
	require.Empty(t, r.stderr, "progress is for terminals")
	id := strings.TrimSpace(r.stdout)
	require.Regexp(t, `^\d+$`, id)
	require.Equal(t, text, ok(t, dir, "ledger", "read", id))
	require.Equal(t, "two\n\n", ok(t, dir, "ledger", "read", id, "--from", "1", "--to", "2"))
	require.Equal(t, "last without end", ok(t, dir, "ledger", "read", id, "--from", "3"))

	var entries []string
	for line := range strings.Lines(ok(t, dir, "ledger", "read", id, "--format", "json")) {
		var e struct {
			Entry       int64
			LengthBytes int `json:"length_bytes"`
			Data        string
		}
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		require.EqualValues(t, len(entries), e.Entry)
		data, err := base64.StdEncoding.DecodeString(e.Data)
		require.NoError(t, err)
		require.Len(t, data, e.LengthBytes)
		entries = append(entries, string(data))
	}
	require.Equal(t, []string{"one\n", "two\n", "\n", "last without end"}, entries)

	var shown struct {
		State       string `json:"state"`
		LastEntry   int64  `json:"last_entry"`
		LengthBytes int64  `json:"length_bytes"`
		Fragments   []struct{ Bookies []string }
	}
	require.NoError(t, json.Unmarshal([]byte(ok(t, dir, "ledger", "show", id, "--output", "json")), &shown))
	require.Equal(t, "CLOSED", shown.State)
	require.EqualValues(t, 3, shown.LastEntry)
	require.EqualValues(t, len(text), shown.LengthBytes)
	require.Len(t, shown.Fragments[0].Bookies, 3)
	require.Contains(t, ok(t, dir, "ledger", "ls"), id)
	require.Contains(t, ok(t, dir, "ledger", "ls", "--long"), "CLOSED")
	require.Equal(t, "\nlast without end", ok(t, dir, "ledger", "tail", id, "-n", "2"), "following a sealed ledger ends")

	r = command(t, dir, nil, "ledger", "read", id, "--to", "4")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.complaint(t), "the last confirmed entry is 3")
	r = command(t, dir, nil, "ledger", "rm", id)
	require.Equal(t, 3, r.code, "without a terminal it asks for --yes")
	ok(t, dir, "ledger", "rm", id, "--yes")
	r = command(t, dir, nil, "ledger", "read", id)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.complaint(t), "no such ledger")
	for _, bad := range [][]string{{"ledger", "read", "x"}, {"ledger", "read", "-5"}, {"ledger", "write", "--split", "9GiB", "-"}, {"ledger", "write", "--ack-quorum", "4", "-"}, {"ledger", "write", "--digest", "md5", "-"}, {"ledger", "show"}} {
		r = command(t, dir, nil, bad...)
		require.Equal(t, 2, r.code, "%v: %s", bad, r.stderr)
	}
	r = command(t, dir, nil, "ledger", "write", "--ensemble", "4", "--write-quorum", "3", "--ack-quorum", "2", "-")
	require.Equal(t, 1, r.code, r.stderr)
	require.Contains(t, r.complaint(t), "not enough bookies")
	r = command(t, dir, nil, "ledger", "write", "no-such-file")
	require.Equal(t, 1, r.code)
}

func TestLedgerQuorumsAndDigests(t *testing.T) {
	dir := t.TempDir()
	standalone(t, dir)
	secret := filepath.Join(dir, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("hush\n"), 0o600))
	wrong := filepath.Join(dir, "wrong")
	require.NoError(t, os.WriteFile(wrong, []byte("guess"), 0o600))
	name, data := randomFile(t, dir, 300_000)
	for _, args := range [][]string{
		{"--ensemble", "1", "--write-quorum", "1", "--ack-quorum", "1"},
		{"--ensemble", "3", "--write-quorum", "2", "--ack-quorum", "2", "--split", "10000B"},
		{"--digest", "crc32"},
		{"--digest", "dummy"},
		{"--digest", "hmac", "--password-file", secret},
	} {
		id := strings.TrimSpace(ok(t, dir, append(append([]string{"ledger", "write"}, args...), name)...))
		require.Equal(t, string(data), ok(t, dir, "ledger", "read", id), "%v", args)
		if args[len(args)-1] == secret {
			require.Equal(t, string(data), ok(t, dir, "ledger", "read", id, "--password-file", secret))
			r := command(t, dir, nil, "ledger", "read", id, "--password-file", wrong)
			require.Equal(t, 1, r.code)
			require.Contains(t, r.complaint(t), "unauthorized")
			require.NotContains(t, ok(t, dir, "ledger", "show", id, "--output", "json"), "hush")
		}
	}
}

// TestTailFollows reads lines while they are being written, before the ledger is sealed.
func TestTailFollows(t *testing.T) {
	dir := t.TempDir()
	standalone(t, dir)
	w := exec.Command(bindery, "ledger", "write", "--split", "lines", "-")
	w.Dir, w.Env = dir, environment()
	in, err := w.StdinPipe()
	require.NoError(t, err)
	var out bytes.Buffer
	w.Stdout = &out
	require.NoError(t, w.Start())
	t.Cleanup(func() { _ = w.Process.Kill(); _ = w.Wait() })
	_, err = in.Write([]byte("first\n"))
	require.NoError(t, err)
	var id string
	require.Eventually(t, func() bool {
		id = strings.TrimSpace(ok(t, dir, "ledger", "ls"))
		return id != ""
	}, 30*time.Second, 100*time.Millisecond)

	f := exec.Command(bindery, "ledger", "tail", id, "--from", "0")
	f.Dir, f.Env = dir, environment()
	follow, err := f.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, f.Start())
	t.Cleanup(func() { _ = f.Process.Kill() })
	lines := bufio.NewScanner(follow)
	require.True(t, lines.Scan())
	require.Equal(t, "first", lines.Text())
	for _, word := range []string{"second", "third"} {
		_, err = in.Write([]byte(word + "\n"))
		require.NoError(t, err)
		require.True(t, lines.Scan())
		require.Equal(t, word, lines.Text())
	}
	require.NoError(t, in.Close())
	require.False(t, lines.Scan(), "the end of the ledger is the end of following")
	require.NoError(t, f.Wait())
	require.NoError(t, w.Wait())
	require.Equal(t, id, strings.TrimSpace(out.String()))
}

func TestBenchClusterReports(t *testing.T) {
	dir := t.TempDir()
	s := standalone(t, dir)
	e := s.endpoints()
	type report struct {
		Loop       string             `json:"loop"`
		Adds       int64              `json:"adds"`
		AddsPerSec float64            `json:"adds_per_s"`
		Latency    map[string]float64 `json:"latency_us"`
		Server     *struct {
			CPU float64 `json:"cpu_s"`
		} `json:"server"`
	}
	for _, tc := range []struct {
		loop string
		args []string
	}{
		{"closed", []string{"--ledgers", "2", "--outstanding", "50"}},
		{"open", []string{"--rate", "500"}},
		{"closed", []string{"--raw", e.Bookies[0], "--connections", "2", "--outstanding", "50", "--ledgers", "10"}},
		{"open", []string{"--raw", e.Bookies[0], "--rate", "1000"}},
	} {
		var r report
		for _, duration := range []string{"1s", "5s", "20s"} { // on a busy machine a second may pass without an answer
			out := ok(t, dir, append([]string{"bench", "cluster", "--duration", duration, "--warmup", "200ms", "--output", "json"}, tc.args...)...)
			r = report{}
			require.NoError(t, json.Unmarshal([]byte(out), &r))
			if r.Adds > 10 {
				break
			}
		}
		require.Equal(t, tc.loop, r.Loop)
		require.Positive(t, r.Adds, "%v", tc.args)
		require.Positive(t, r.Latency["p50"])
		require.LessOrEqual(t, r.Latency["p50"], r.Latency["p99.9"])
		if tc.args[0] == "--rate" {
			require.Less(t, r.AddsPerSec, 800.0, "no more than asked for; a busy machine may give less")
			require.NotNil(t, r.Server)
		}
	}
	require.Empty(t, strings.TrimSpace(ok(t, dir, "ledger", "ls")), "the ledgers of a benchmark are deleted")
	r := command(t, dir, nil, "bench", "cluster", "--size", "12")
	require.Equal(t, 2, r.code)
	require.Contains(t, ok(t, dir, "bench", "journal", dir, "--duration", "1s", "--warmup", "100ms", "--segment-size", "16MiB"), "records/s")
	left, err := filepath.Glob(filepath.Join(dir, ".bindery-bench-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestIobenchQuick(t *testing.T) {
	dir := t.TempDir()
	r := program(t, iobench, dir, nil, "quick", dir, "--duration", "2s", "--file-mib", "32", "--output", "json", "--allow-live")
	if r.code == 3 {
		t.Skipf("refused here: %s", r.stderr)
	}
	require.Equal(t, 0, r.code, r.stderr)
	require.Contains(t, r.stdout, `"schema": "iobench/1"`)
	require.Equal(t, 3, program(t, iobench, dir, nil, "quick", "/dev/shm").code)
}
