package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// server is a standalone in a directory of its own.
type server struct {
	cmd       *exec.Cmd
	exited    chan struct{}
	dir       string
	log       bytes.Buffer // to be read once the process has ended, or is ready
	endpoints struct {
		PID     int
		Bookies []string
		Admin   string
	}
}

// startServer starts a standalone with its data where the client commands look for it, and waits until it is ready.
func (b *benchmark) startServer(ctx context.Context, bookies string) (*server, error) {
	s := &server{dir: filepath.Join(b.dir, "bindery-data")}
	_ = os.Remove(filepath.Join(s.dir, "endpoints.json"))
	s.cmd = exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(b.bin, "bindery"), "standalone", "--bookies", bookies, "--set", "storage.memory="+b.memory, "--set", "log.level=info")
	s.cmd.Dir = b.dir
	s.cmd.Stderr = &s.log
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.exited = make(chan struct{})
	go func() {
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); {
		if s.ready(ctx) {
			return s, nil
		}
		select {
		case <-s.exited:
			return nil, fmt.Errorf("the server ended: %s", s.log.String())
		case <-ctx.Done():
			s.remove()
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	s.remove()
	return nil, errors.New("the server did not become ready within five minutes")
}

func (s *server) ready(ctx context.Context) bool {
	data, err := os.ReadFile(filepath.Join(s.dir, "endpoints.json"))
	if err != nil || json.Unmarshal(data, &s.endpoints) != nil || len(s.endpoints.Bookies) == 0 || s.endpoints.PID != s.cmd.Process.Pid {
		return false
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.endpoints.Admin+"/api/v2/health/ready", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// stop ends the server as an operator does.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(time.Minute):
		s.kill()
	}
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.exited
}

// remove ends the server and takes its data away.
func (s *server) remove() {
	s.stop()
	_ = os.RemoveAll(s.dir)
}
