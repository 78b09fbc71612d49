package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// ours is a standalone: all bookies and the metadata store in one process.
type ours struct {
	b         *benchmark
	p         *program
	collects  bool
	folders   string // of the tier; "": none
	endpoints struct {
		PID      int
		Metadata string
		Bookies  []string
		Admin    string
	}
}

func (o *ours) name() string        { return "bindery" }
func (o *ours) data() string        { return filepath.Join(o.b.dir, "bindery-data") }
func (o *ours) pids() []int         { return []int{o.endpoints.PID} }
func (o *ours) addresses() []string { return o.endpoints.Bookies }
func (o *ours) metadata() string    { return o.endpoints.Metadata }

func (o *ours) start(ctx context.Context, bookies int) error {
	_ = os.Remove(filepath.Join(o.data(), "endpoints.json"))
	args := []string{"standalone", "--data-dir", o.data(), "--ports", "auto", "--bookies", strconv.Itoa(bookies), "--set", "storage.memory=" + o.b.memory, "--set", "log.level=info"}
	if o.collects {
		for _, s := range collectSettings {
			args = append(args, "--set", s)
		}
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(o.b.bin, "bindery"), args...)
	if o.folders != "" {
		cmd.Args = append(cmd.Args, "--offload-dir", o.folders)
	}
	var err error
	if o.p, err = launch(cmd, filepath.Join(o.b.dir, "bindery.log")); err != nil {
		return err
	}
	if err := o.p.await(ctx, func() bool { return o.ready(ctx) }); err != nil {
		o.remove()
		return err
	}
	return nil
}

func (o *ours) ready(ctx context.Context) bool {
	data, err := os.ReadFile(filepath.Join(o.data(), "endpoints.json"))
	if err != nil || json.Unmarshal(data, &o.endpoints) != nil || len(o.endpoints.Bookies) == 0 || o.endpoints.PID != o.p.cmd.Process.Pid {
		return false
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, o.endpoints.Admin+"/api/v2/health/ready", nil)
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

// collectSettings have a standalone look for garbage every few seconds; its logs are of 64 MiB anyway.
var collectSettings = []string{"gc.interval=10s", "gc.minor.every=10s"}

func (o *ours) collectSoon() { o.collects = true }

func (o *ours) stop() { stopAll([]*program{o.p}) }
func (o *ours) kill() { killAll([]*program{o.p}) }

func (o *ours) remove() {
	o.kill()
	if o.folders != "" {
		_ = os.RemoveAll(o.folders)
	}
	o.p, o.collects, o.folders = nil, false, ""
	_ = os.RemoveAll(o.data())
}
