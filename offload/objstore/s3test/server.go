// Package s3test starts a real S3 server for tests: tools/s3server, which is versitygw's gateway over a folder, built once into the user's cache.
//
// Only tests import it. A server is a process of its own on a free port of the loopback interface; it ends with its test, or when this process does.
package s3test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/binderylog/bindery/internal/freeport"
)

// What every server has.
const (
	AccessKey = "test-access-key"
	SecretKey = "test-secret-key-0123456789"
	Region    = "eu-test-1"
	Bucket    = "bindery-test"
)

const (
	buildTimeout = 8 * time.Minute // cold, on two cores beside other tests
	startTimeout = time.Minute
	startTries   = 5 // another process may take the port first
)

// Server is a running server.
type Server struct {
	URL    string
	Dir    string // an object is the file Dir/data/BUCKET/KEY
	CAFile string // of a server with TLS
}

// Options of a server.
type Options struct {
	TLS bool
}

// Start starts a server with the bucket Bucket and stops it when the test ends. Without Go's modules at hand the test is skipped, except in CI.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	bin, err := build()
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("build tools/s3server: %v", err)
		}
		t.Skipf("this test runs tools/s3server, which the go command has to be able to build: make the Go module proxy reachable: %v", err)
	}
	s := &Server{Dir: t.TempDir()}
	if err := os.MkdirAll(filepath.Join(s.Dir, "data", Bucket), 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{"-dir", s.Dir, "-access", AccessKey, "-secret", SecretKey, "-region", Region}
	scheme := "http"
	if o.TLS {
		scheme = "https"
		cert, key := certificate(t, s.Dir)
		s.CAFile = cert
		args = append(args, "-cert", cert, "-key", key)
	}
	for try := range startTries {
		addr := freeport.Address(freeport.Test(t))
		if err = run(t, bin, addr, args); err == nil {
			s.URL = scheme + "://" + addr
			return s
		}
		t.Logf("start %d: %v", try, err)
	}
	t.Fatalf("the S3 server does not start: %v", err)
	return nil
}

// run starts the process and waits until it takes connections. It ends when its standard input does, so also if this process is killed.
func run(t testing.TB, bin, addr string, args []string) error {
	cmd := exec.CommandContext(context.Background(), bin, append(args, "-listen", addr)...)
	var out tail
	cmd.Stdout, cmd.Stderr = &out, &out
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	gone := make(chan struct{})
	var ended error
	go func() { defer close(gone); ended = cmd.Wait() }()
	stop := func() {
		_ = stdin.Close()
		select {
		case <-gone:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-gone
		}
	}
	deadline := time.NewTimer(startTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-gone:
			return fmt.Errorf("ended: %w: %s", ended, out.String())
		case <-deadline.C:
			stop()
			return fmt.Errorf("no answer at %s: %s", addr, out.String())
		case <-tick.C:
		}
		c, err := (&net.Dialer{Timeout: time.Second}).Dial("tcp", addr) //nolint:noctx // bounded by its time-out
		if err == nil {
			_ = c.Close()
			t.Cleanup(stop)
			return nil
		}
	}
}

// tail keeps the last of what a process says.
type tail struct {
	mu sync.Mutex
	b  []byte
}

// Write implements io.Writer.
func (w *tail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b = append(w.b, p...)
	if len(w.b) > 4096 {
		w.b = w.b[len(w.b)-4096:]
	}
	return len(p), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.b)
}

var build = sync.OnceValues(func() (string, error) {
	src, err := source()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, name := range []string{"main.go", "go.mod", "go.sum"} {
		f, err := os.Open(filepath.Join(src, name))
		if err != nil {
			return "", err
		}
		_, err = io.Copy(sum, f)
		_ = f.Close()
		if err != nil {
			return "", err
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	bin := filepath.Join(cache, "bindery-test", "s3server-"+hex.EncodeToString(sum.Sum(nil))[:16])
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	if err := os.MkdirAll(filepath.Dir(bin), 0o755); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	tmp := fmt.Sprintf("%s.%d", bin, os.Getpid()) // several test binaries may build at once
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", tmp, ".")
	cmd.Dir = src
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -mod=readonly")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return bin, os.Rename(tmp, bin)
})

// source finds tools/s3server above the test's directory.
func source() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		src := filepath.Join(dir, "tools", "s3server")
		if _, err := os.Stat(filepath.Join(src, "go.mod")); err == nil {
			return src, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no tools/s3server above the test's directory")
		}
		dir = up
	}
}
