//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var bindery, iobench string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "bindery-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	bindery, err = binary("BINDERY_BIN", dir, "./cmd/bindery")
	if err == nil {
		iobench, err = binary("IOBENCH_BIN", dir, "./tools/iobench")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// binary takes a program from the environment or builds it.
func binary(env, dir, pkg string) (string, error) {
	if name := os.Getenv(env); name != "" {
		return filepath.Abs(name)
	}
	name := filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-o", name, pkg)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return name, nil
}

// result is what one command left.
type result struct {
	code           int
	stdout, stderr string
}

const commandTimeout = 5 * time.Minute

// command runs bindery to its end in dir.
func command(t *testing.T, dir string, stdin io.Reader, args ...string) result {
	t.Helper()
	return program(t, bindery, dir, stdin, args...)
}

func program(t *testing.T, name, dir string, stdin io.Reader, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdin = dir, stdin
	cmd.Env = environment()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	require.NoError(t, ctx.Err(), "%v hangs; stderr:\n%s", args, errs.String())
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// environment is the test's own without anything that would steer the program.
func environment() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "BINDERY_") && !strings.HasPrefix(kv, "GOMEMLIMIT=") {
			env = append(env, kv)
		}
	}
	return env
}

// ok runs a command that has to succeed and returns what it printed.
func ok(t *testing.T, dir string, args ...string) string {
	t.Helper()
	r := command(t, dir, nil, args...)
	require.Equal(t, 0, r.code, "%v: %s", args, r.stderr)
	return r.stdout
}

// complaint is the one line that a failing command says to people; log lines are JSON and do not count.
func (r result) complaint(t *testing.T) string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(r.stderr) {
		if !strings.HasPrefix(line, "{") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	require.Len(t, lines, 1, "stderr:\n%s", r.stderr)
	require.True(t, strings.HasPrefix(lines[0], "bindery: "), lines[0])
	require.NotContains(t, lines[0], "goroutine")
	return strings.TrimPrefix(lines[0], "bindery: ")
}

// endpoints is DATA/endpoints.json.
type endpoints struct {
	PID      int      `json:"pid"`
	Metadata string   `json:"metadata"`
	Bookies  []string `json:"bookies"`
	Admin    string   `json:"admin"`
}

// server is a running standalone or run.
type server struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr *bytes.Buffer
	lines  []string // standard output
	wg     sync.WaitGroup
	exited chan struct{}
	dir    string
}

const startTimeout = 3 * time.Minute

// start starts a server and waits until its standard output has a line that starts with ready, or, with an empty ready,
// returns at once.
func start(t *testing.T, dir, ready string, args ...string) *server {
	t.Helper()
	s := &server{t: t, stderr: &bytes.Buffer{}, exited: make(chan struct{}), dir: dir}
	s.cmd = exec.Command(bindery, args...)
	s.cmd.Dir, s.cmd.Env, s.cmd.Stderr = dir, environment(), s.stderr
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	found := make(chan struct{})
	s.wg.Go(func() {
		sc := bufio.NewScanner(out)
		told := false
		for sc.Scan() {
			s.lines = append(s.lines, sc.Text())
			if ready != "" && !told && strings.HasPrefix(sc.Text(), ready) {
				told = true
				close(found)
			}
		}
		_ = s.cmd.Wait()
		close(s.exited)
	})
	t.Cleanup(s.kill)
	if ready == "" {
		return s
	}
	select {
	case <-found:
	case <-s.exited:
		t.Fatalf("%v ended with %d before it was ready:\n%s", args, s.cmd.ProcessState.ExitCode(), s.stderr)
	case <-time.After(startTimeout):
		_ = s.cmd.Process.Signal(syscall.SIGQUIT)
		<-s.exited
		t.Fatalf("%v is not ready after %v:\n%s", args, startTimeout, s.stderr)
	}
	return s
}

// standalone starts `bindery standalone` in dir, with its data in dir/bindery-data.
func standalone(t *testing.T, dir string, args ...string) *server {
	t.Helper()
	return start(t, dir, "ready", append([]string{"standalone"}, args...)...)
}

// kill ends the process as a power cut would end it.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	s.wg.Wait()
}

// stop ends the process with a signal and returns its exit code.
func (s *server) stop(sig syscall.Signal) int {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(sig))
	select {
	case <-s.exited:
	case <-time.After(startTimeout):
		_ = s.cmd.Process.Signal(syscall.SIGQUIT)
		<-s.exited
		s.t.Fatalf("does not stop:\n%s", s.stderr)
	}
	return s.cmd.ProcessState.ExitCode()
}

// endpoints reads the file that a standalone writes.
func (s *server) endpoints() endpoints {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, "bindery-data", "endpoints.json"))
	require.NoError(s.t, err)
	var e endpoints
	require.NoError(s.t, json.Unmarshal(data, &e))
	return e
}

// get fetches a page of the admin server.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	resp, err := client.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

// refusesConnections checks that nothing listens on an address.
func refusesConnections(t *testing.T, address string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		c.Close()
	}
	require.Error(t, err, "something still listens on %s", address)
}
