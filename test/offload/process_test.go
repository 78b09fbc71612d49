//go:build offloadbig

package offload

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
)

const startTimeout = 5 * time.Minute

// process is a server that is killed and started again.
type process struct {
	name   string
	args   []string
	cmd    *exec.Cmd
	wg     sync.WaitGroup
	exited chan struct{}
}

// start starts a server in the cluster's directory and waits until it prints a line that begins with ready, if that is not empty.
func (c *cluster) start(p *process, ready string) {
	c.t.Helper()
	log, err := os.OpenFile(filepath.Join(c.dir, p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(c.t, err)
	defer log.Close()
	p.cmd = exec.Command(c.program, p.args...)
	p.cmd.Dir, p.cmd.Env, p.cmd.Stderr = c.dir, c.environment(false), log
	out, err := p.cmd.StdoutPipe()
	require.NoError(c.t, err)
	require.NoError(c.t, p.cmd.Start())
	found := make(chan struct{})
	exited := make(chan struct{})
	p.exited = exited
	p.wg.Go(func() {
		told := false
		for s := bufio.NewScanner(out); s.Scan(); {
			if ready != "" && !told && strings.HasPrefix(s.Text(), ready) {
				told = true
				close(found)
			}
		}
		_ = p.cmd.Wait()
		close(exited)
	})
	if ready == "" {
		return
	}
	select {
	case <-found:
	case <-exited:
		c.t.Fatalf("%s ended before it was ready: %s", p.name, c.logOf(p.name))
	case <-time.After(startTimeout):
		_ = p.cmd.Process.Kill()
		c.t.Fatalf("%s is not ready after %v: %s", p.name, startTimeout, c.logOf(p.name))
	}
}

// kill ends a server as a power cut would and notes how much memory it took.
func (c *cluster) kill(p *process) {
	if p.cmd == nil {
		return
	}
	c.noteMemory(p.name, residentPeak(p.cmd.Process.Pid))
	_ = p.cmd.Process.Kill()
	p.wg.Wait()
	p.cmd = nil
}

func (c *cluster) logOf(name string) string {
	b, _ := os.ReadFile(filepath.Join(c.dir, name+".log"))
	return string(b[max(0, len(b)-4000):])
}

// residentPeak is the most memory that a process ever had resident, in bytes.
func residentPeak(pid int) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}

func (c *cluster) noteMemory(what string, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memory[what] = max(c.memory[what], bytes)
}

// environment is the test's own without anything that would steer the program; commands are told where the cluster is.
func (c *cluster) environment(command bool) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "BINDERY_") && !strings.HasPrefix(kv, "GOMEMLIMIT=") {
			env = append(env, kv)
		}
	}
	env = append(env, "TMPDIR="+filepath.Join(c.dir, "tmp"))
	env = append(env, c.keys...)
	if command {
		env = append(env, "BINDERY_METADATA__URI="+c.uri, "BINDERY_OFFLOAD__TARGETS="+c.targets)
	}
	return env
}

// result is what a command left.
type result struct {
	code   int
	stdout string
	stderr string
}

// command runs bindery to its end, or until it is killed after a while that is not zero.
func (c *cluster) command(stdin io.Reader, stdout io.Writer, killAfter time.Duration, args ...string) result {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), c.patience)
	defer cancel()
	if killAfter > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, killAfter) // exec kills with SIGKILL
		defer stop()
	}
	cmd := exec.CommandContext(ctx, c.program, args...)
	cmd.Dir, cmd.Env, cmd.Stdin = c.dir, c.environment(true), stdin
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if stdout != nil {
		cmd.Stdout = stdout
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && killAfter == 0 {
		require.NoError(c.t, err, "%v: %s", args, errs.String())
	}
	if ctx.Err() != nil && killAfter == 0 {
		c.t.Fatalf("%v is not done after %v: %s", args, c.patience, errs.String())
	}
	code := -1
	if cmd.ProcessState != nil {
		code = cmd.ProcessState.ExitCode()
		if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			c.noteMemory(strings.Join(args[:min(2, len(args))], " "), u.Maxrss<<10)
		}
	}
	return result{code, out.String(), errs.String()}
}

// ok runs a command that has to succeed.
func (c *cluster) ok(args ...string) string {
	c.t.Helper()
	r := c.command(nil, nil, 0, args...)
	require.Equal(c.t, 0, r.code, "%v: %s%s", args, r.stdout, r.stderr)
	return r.stdout
}
