package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/spf13/cobra"
)

// quickOptions are the flags of `iobench quick`.
type quickOptions struct {
	duration        time.Duration
	fileMiB         int64
	seed            uint64
	output          string
	outFile         string
	allowUnsuitable bool
	labels          []string
}

func newQuickCommand() *cobra.Command {
	var o quickOptions
	c := &cobra.Command{
		Use:   "quick DIR...",
		Short: "Durable write latency by group size and method, and sequential bandwidth, in about half a minute",
		Long: "Measures, in a file that it makes in DIR and unlinks at once, how long a durable write of 4 KiB to 1 MiB takes\n" +
			"with each method that a journal can use, and what sequential 1 MiB writing and reading give. Writes at most a few\n" +
			"GiB. Needs no root.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args) },
	}
	f := c.Flags()
	f.DurationVar(&o.duration, "duration", 30*time.Second, "measured time per directory")
	f.Int64Var(&o.fileMiB, "file-mib", 512, "size of the test file")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the data written")
	f.StringVar(&o.output, "output", "table", "table or json")
	f.StringVar(&o.outFile, "out", "", "write the JSON report to this file too")
	f.BoolVar(&o.allowUnsuitable, "allow-unsuitable", false, "run on tmpfs, overlay and network file systems; the report is stamped NOT REPRESENTATIVE")
	f.StringArrayVar(&o.labels, "label", nil, "k=v to carry in the report (repeatable)")
	return c
}

func (o *quickOptions) validate() error {
	switch {
	case o.output != "table" && o.output != "json":
		return fmt.Errorf("--output %q is neither table nor json", o.output)
	case o.duration < time.Second || o.duration > time.Hour:
		return fmt.Errorf("--duration %v is outside 1s to 1h", o.duration)
	case o.fileMiB < 16 || o.fileMiB > 1<<20:
		return fmt.Errorf("--file-mib %d is outside 16 to 1048576", o.fileMiB)
	}
	return nil
}

// report is what `quick` prints as JSON. Field names carry units; the schema changes only by addition.
type report struct {
	Schema      string            `json:"schema"`
	Tool        string            `json:"tool_version"`
	Started     time.Time         `json:"started"`
	Seed        uint64            `json:"seed"`
	Labels      []string          `json:"labels,omitempty"`
	Environment environment       `json:"environment"`
	Directories []directoryReport `json:"directories"`
	Complete    bool              `json:"complete"`
}

type environment struct {
	Kernel string `json:"kernel"`
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	Cores  int    `json:"cores"`
}

type directoryReport struct {
	Dir               string          `json:"dir"`
	FileSystem        string          `json:"file_system"`
	NotRepresentative string          `json:"not_representative,omitempty"` // why
	TotalBytes        int64           `json:"total_bytes"`
	AvailableBytes    int64           `json:"available_bytes"`
	Unsupported       []unsupported   `json:"unsupported,omitempty"`
	Sync              []syncResult    `json:"sync"`
	Bandwidth         []bandwidth     `json:"bandwidth"`
	Recommendation    *recommendation `json:"recommendation,omitempty"`
	WrittenBytes      int64           `json:"written_bytes"`
}

type unsupported struct {
	Method string `json:"method"`
	Error  string `json:"error"`
}

func (o *quickOptions) run(c *cobra.Command, dirs []string) error {
	if err := o.validate(); err != nil {
		return exit(exitUsage, err)
	}
	rep := report{
		Schema: "iobench/1", Tool: version, Started: time.Now().UTC(), Seed: o.seed, Labels: o.labels,
		Environment: environment{Kernel: kernelVersion(), OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU()},
		Complete:    true,
	}
	// All directories are looked at before the first is measured: half a report is no answer.
	for _, dir := range dirs {
		d, err := o.inspect(dir)
		if err != nil {
			return err
		}
		rep.Directories = append(rep.Directories, d)
	}
	for i := range rep.Directories {
		err := o.measure(c.Context(), &rep.Directories[i])
		if errors.Is(err, context.Canceled) {
			rep.Complete = false
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", rep.Directories[i].Dir, err)
		}
	}
	if o.outFile != "" {
		data, err := json.MarshalIndent(rep, "", "  ")
		if err != nil {
			return err
		}
		if err := vfs.WriteFileAtomic(vfs.OS(), o.outFile, append(data, '\n')); err != nil {
			return err
		}
	}
	if o.output == "json" {
		e := json.NewEncoder(c.OutOrStdout())
		e.SetIndent("", "  ")
		if err := e.Encode(rep); err != nil {
			return err
		}
	} else if err := rep.print(c.OutOrStdout()); err != nil {
		return err
	}
	if !rep.Complete {
		return exit(exitPartial, errors.New("interrupted; the report holds what was measured until then"))
	}
	return nil
}

// inspect refuses directories whose figures would mislead.
func (o *quickOptions) inspect(dir string) (directoryReport, error) {
	path, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return directoryReport{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return directoryReport{}, err
	}
	if !info.IsDir() {
		return directoryReport{}, fmt.Errorf("%s is not a directory", dir)
	}
	d := directoryReport{Dir: path}
	if d.FileSystem, err = vfs.FSType(path); err != nil {
		d.FileSystem = "unknown"
	}
	if why := vfs.UnsuitableFS(d.FileSystem); why != "" {
		if !o.allowUnsuitable {
			return d, exit(exitRefused, fmt.Errorf("%s is on %s: %s; --allow-unsuitable measures it all the same", dir, d.FileSystem, why))
		}
		d.NotRepresentative = why
	}
	u, err := vfs.OS().Usage(path)
	if err != nil {
		return d, err
	}
	d.TotalBytes, d.AvailableBytes = u.Total, u.Available
	if need := o.fileMiB << 20; u.Available < 2*need {
		return d, exit(exitRefused, fmt.Errorf("%s has %d MiB left; the test file of %d MiB may take at most half of it (--file-mib)", dir, u.Available>>20, o.fileMiB))
	}
	return d, nil
}

// measure runs the chapters of one directory. Two thirds of the time go to durable writes.
func (o *quickOptions) measure(ctx context.Context, d *directoryReport) error {
	b := &bench{fs: vfs.OS(), dir: d.Dir, size: o.fileMiB << 20, seed: o.seed, report: d}
	if err := b.open(); err != nil {
		return err
	}
	defer b.close()
	if err := b.syncCurves(ctx, o.duration*2/3); err != nil {
		return err
	}
	if err := b.bandwidths(ctx, o.duration/3); err != nil {
		return err
	}
	d.WrittenBytes = b.written.Load()
	d.Recommendation = recommend(d.Sync)
	return nil
}

func kernelVersion() string {
	data, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return string(data[:max(len(data)-1, 0)])
}
