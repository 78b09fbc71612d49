//go:build e2e

package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReadmeQuickStart pastes the quick start of the README line by line into a shell. Only the two lines that build are
// left out: the binary that they would make is there.
func TestReadmeQuickStart(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(readme), "## Quick start")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var script []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		for line := range strings.Lines(block[1]) {
			line = strings.TrimSpace(line)
			if line != "make build" && !strings.HasPrefix(line, "export PATH=") {
				script = append(script, line)
			}
		}
	}
	require.Greater(t, len(script), 10)

	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "bin"), 0o700))
	require.NoError(t, os.Symlink(bindery, filepath.Join(dir, "bin", "bindery")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "README.md"), readme, 0o600))
	cmd := exec.Command("bash", "-u")
	cmd.Dir = dir
	cmd.Env = append(environment(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	cmd.Stdin = strings.NewReader(strings.Join(script, "\n") + "\n")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	killAll := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	timer := time.AfterFunc(6*time.Minute, killAll)
	defer timer.Stop()
	defer killAll()
	require.NoError(t, cmd.Wait(), "stdout:\n%s\nstderr:\n%s", &out, &errs)

	require.Contains(t, out.String(), "the very same bytes")
	sums := regexp.MustCompile(`(?m)^([0-9a-f]{64})  -$`).FindAllStringSubmatch(out.String(), -1)
	require.Len(t, sums, 2)
	require.Equal(t, sums[0][1], sums[1][1])
	require.Contains(t, out.String(), "ready: 3 bookies")
	require.Contains(t, out.String(), "adds/s")
	require.NotContains(t, errs.String(), "bindery:", "no command of the quick start complains")
	_, err = os.Stat(filepath.Join(dir, "bindery-data", "endpoints.json"))
	require.ErrorIs(t, err, os.ErrNotExist, "a clean stop takes the file away")
}

// randomFile makes a file that does not compress.
func randomFile(t *testing.T, dir string, size int) (string, []byte) {
	t.Helper()
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(data)
	name := filepath.Join(dir, fmt.Sprintf("input-%d", size))
	require.NoError(t, os.WriteFile(name, data, 0o600))
	return name, data
}

func TestKillNineOfEverythingKeepsEveryByte(t *testing.T) {
	dir := t.TempDir()
	s := standalone(t, dir)
	sizes := []int{0, 1, 65536, 65537, 3<<20 + 17}
	ids := map[int]string{}
	contents := map[int][]byte{}
	for round := range 3 {
		for _, size := range sizes {
			key := round<<28 | size
			name, data := randomFile(t, dir, size)
			ids[key] = strings.TrimSpace(ok(t, dir, "ledger", "write", name))
			contents[key] = data
		}
		s.kill()
		r := command(t, dir, nil, "ledger", "ls")
		require.Equal(t, 1, r.code)
		require.Contains(t, r.complaint(t), "which is gone")
		s = standalone(t, dir)
		for key, id := range ids {
			require.Equal(t, sha256.Sum256(contents[key]), sha256.Sum256([]byte(ok(t, dir, "ledger", "read", id))), "round %d, ledger %s", round, id)
		}
	}
	require.Equal(t, 0, s.stop(syscall.SIGTERM), s.stderr)
}

// TestKillNineWhileWriting cuts the power under a writer: what the writer was told is written is there, and the rest is
// a prefix of what it sent.
func TestKillNineWhileWriting(t *testing.T) {
	dir := t.TempDir()
	s := standalone(t, dir)
	name, data := randomFile(t, dir, 256<<20)
	w := exec.Command(bindery, "ledger", "write", "--split", "16KiB", name)
	w.Dir, w.Env = dir, environment()
	var werr bytes.Buffer
	w.Stderr = &werr
	require.NoError(t, w.Start())
	require.Eventually(t, func() bool { return strings.TrimSpace(ok(t, dir, "ledger", "ls")) != "" }, time.Minute, 50*time.Millisecond)
	time.Sleep(time.Second) // it writes
	s.kill()
	_ = w.Process.Kill() // the client dies with the machine
	_ = w.Wait()

	s = standalone(t, dir)
	ids := strings.Fields(ok(t, dir, "ledger", "ls"))
	require.Len(t, ids, 1)
	before := ok(t, dir, "ledger", "read", ids[0]) // up to what was confirmed, without sealing
	require.True(t, bytes.HasPrefix(data, []byte(before)))
	ok(t, dir, "ledger", "recover", ids[0])
	after := ok(t, dir, "ledger", "read", ids[0])
	require.True(t, strings.HasPrefix(after, before), "recovery keeps everything that was confirmed")
	require.True(t, bytes.HasPrefix(data, []byte(after)))
	require.NotEmpty(t, after)
	require.Equal(t, 0, s.stop(syscall.SIGINT))
}

func TestStandaloneKeepsItsPortsAndTellsThem(t *testing.T) {
	dir := t.TempDir()
	s := standalone(t, dir)
	e := s.endpoints()
	require.Equal(t, s.cmd.Process.Pid, e.PID)
	require.Len(t, e.Bookies, 3)
	require.Equal(t, 0, s.stop(syscall.SIGINT), s.stderr)
	ready := 0
	for _, l := range s.lines {
		if strings.HasPrefix(l, "ready") {
			ready++
		}
	}
	require.Equal(t, 1, ready)
	require.Len(t, s.lines, 1, "nothing else is printed")
	for _, b := range e.Bookies {
		refusesConnections(t, b)
	}

	s = standalone(t, dir, "--bookies", "4")
	again := s.endpoints()
	require.Equal(t, e.Bookies, again.Bookies[:3])
	require.Len(t, again.Bookies, 4)
	require.Equal(t, e.Admin, again.Admin)
	require.Equal(t, e.Metadata, again.Metadata)
	s.stop(syscall.SIGTERM)

	r := command(t, dir, nil, "standalone", "--bookies", "2")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.complaint(t), "has 4 bookies")
}

func TestStandaloneAdmin(t *testing.T) {
	dir := t.TempDir()
	s := standalone(t, dir)
	e := s.endpoints()
	for _, path := range []string{"/heartbeat", "/api/v2/health/live", "/api/v2/health/ready", "/api/v1/bookie/is_ready", "/bookies/3/api/v1/bookie/is_ready"} {
		code, body := get(t, e.Admin+path)
		require.Equal(t, 200, code, "%s: %s", path, body)
	}
	code, _ := get(t, e.Admin+"/bookies/4/metrics")
	require.Equal(t, 404, code)
	_, body := get(t, e.Admin+"/api/v1/bookie/list_bookies")
	require.JSONEq(t, `{"standalone-1":null,"standalone-2":null,"standalone-3":null}`, body)
	_, body = get(t, e.Admin+"/metrics")
	require.Contains(t, body, "bindery_")
	require.Contains(t, body, "process_resident_memory_bytes")
	require.Contains(t, ok(t, dir, "status"), "standalone-2")

	var status []map[string]any
	require.NoError(t, json.Unmarshal([]byte(ok(t, dir, "status", "--output", "json")), &status))
	require.Len(t, status, 3)
}
