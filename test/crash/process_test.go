//go:build crash

package crash

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// bookies is how many bookies the process under test runs.
const bookies = 2

// startTimeout is how long a start, replay included, may take.
const startTimeout = 3 * time.Minute

// smallFiles makes segments, logs and caches so small that each round fills several, and collection quick.
const smallFiles = "journal.segment=2097152,entrylog.size=4194304,write-cache.size=2097152,gc.grace-ms=100,intent.segment=1500"

// buildBinary builds the program with crash points.
func buildBinary(t *testing.T) string {
	t.Helper()
	if bin := os.Getenv("CRASH_BIN"); bin != "" {
		return bin
	}
	bin := filepath.Join(t.TempDir(), "bindery")
	cmd := exec.Command("go", "build", "-tags", "crashpoints", "-o", bin, "./cmd/bindery")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return bin
}

// endpoints is what the program writes for its clients.
type endpoints struct {
	Metadata string   `json:"metadata"`
	Bookies  []string `json:"bookies"`
	Admin    string   `json:"admin"`
}

// process is one life of the program.
type process struct {
	cmd   *exec.Cmd
	dir   string
	log   string
	ready chan struct{} // closed when it has said that it serves
	dead  chan struct{} // closed when it has ended
	endpoints
	killedByUs atomic.Bool // set before the signal is sent
}

// start starts the program with the crash points armed ("" = none).
func start(bin, dir, log, points string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	fmt.Fprintf(out, "=== start, armed: %q\n", points)
	p := &process{dir: dir, log: log, ready: make(chan struct{}), dead: make(chan struct{})}
	p.cmd = exec.Command(bin, "standalone", "--data-dir", dir, "--bookies", fmt.Sprint(bookies), "--ports", "auto")
	p.cmd.Env = append(os.Environ(),
		"BINDERY_CRASHPOINTS="+points,
		"BINDERY_OVERRIDES="+smallFiles,
		"BINDERY_STORAGE__MEMORY=128MiB",
		"BINDERY_STORAGE__FLUSH_INTERVAL=1s",
		"BINDERY_GC__INTERVAL=1s",
		"BINDERY_GC__MINOR__EVERY=2s",
		"BINDERY_GC__MAJOR__EVERY=4s",
		"BINDERY_DISK__ALLOW_SHARED=true",
		"BINDERY_DISK__ALLOW_ANY_FS=true",
	)
	p.cmd.Stderr = out
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.dead)
		lines := bufio.NewScanner(stdout)
		said := false
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "ready") && !said {
				said = true
				close(p.ready)
			}
		}
		_ = p.cmd.Wait() // its state is looked at below
	}()
	return p, nil
}

// awaitReady waits until the program serves. alive is false if it died before.
func (p *process) awaitReady() (alive bool, err error) {
	select {
	case <-p.dead:
		return false, nil
	case <-time.After(startTimeout):
		p.kill()
		return false, fmt.Errorf("it did not serve within %v", startTimeout)
	case <-p.ready:
	}
	data, err := os.ReadFile(filepath.Join(p.dir, "endpoints.json"))
	if err != nil {
		return false, err
	}
	p.endpoints = endpoints{}
	if err := json.Unmarshal(data, &p.endpoints); err != nil {
		return false, err
	}
	if len(p.Bookies) != bookies {
		return false, fmt.Errorf("endpoints.json names %d bookies, not %d", len(p.Bookies), bookies)
	}
	return true, nil
}

// kill kills the program and waits for its end.
func (p *process) kill() {
	select {
	case <-p.dead:
	default:
		p.killedByUs.Store(true)
		_ = p.cmd.Process.Signal(syscall.SIGKILL)
		<-p.dead
	}
}

// dies says whether the program has ended or is about to.
func (p *process) dies() bool {
	select {
	case <-p.dead:
		return true
	case <-time.After(time.Minute):
		return false
	}
}

// stop asks the program to end and waits; it fails if the program does not end with 0.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.dead:
	case <-time.After(startTimeout):
		p.kill()
		return fmt.Errorf("it did not stop within %v", startTimeout)
	}
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("a clean stop ends with %v", p.cmd.ProcessState)
	}
	return nil
}

// diedAtPoint says whether a crash point ended the program. It fails if anything but SIGKILL did.
func (p *process) diedAtPoint() (bool, error) {
	if p.killedByUs.Load() {
		return false, nil
	}
	ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
		return false, fmt.Errorf("it ended by itself: %v", p.cmd.ProcessState)
	}
	return true, nil
}

// post calls a path of one bookie's admin API. Errors are of no interest: the program may be dying.
func (p *process) post(ctx context.Context, bookie int, path string) int {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	url := fmt.Sprintf("%s/bookies/%d%s", p.Admin, bookie+1, path)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return 0
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// tail returns the last lines of the program's log.
func tail(log string, lines int) string {
	data, err := os.ReadFile(log)
	if err != nil {
		return errors.Join(errors.New("no log"), err).Error()
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
