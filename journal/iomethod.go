package journal

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
)

// method is a way to make a group durable.
type method struct {
	name  IOMethod
	mode  vfs.Mode
	write func(f vfs.File, p []byte, off int64) error
	sync  bool // what was written is durable only after a sync
}

// writeDurably writes p and syncs it if need be. In relaxed mode it leaves that to the caller.
func (m method) writeDurably(f vfs.File, p []byte, off int64) error {
	if err := m.write(f, p, off); err != nil || !m.sync {
		return err
	}
	return f.Sync()
}

func methodOf(name IOMethod, relaxed bool) method {
	switch name {
	case IOFdatasync:
		return method{name, vfs.Mode{Write: true, Direct: true}, writeWhole, true}
	case IORWFDSync:
		return method{name, vfs.Mode{Write: true, Direct: true}, writeDSync, false}
	case IOBuffered:
		return method{name, vfs.Mode{Write: true}, writeWhole, !relaxed}
	}
	return method{IODSync, vfs.Mode{Write: true, Direct: true, DSync: true}, writeWhole, false}
}

// open opens name for writing with this method. A file system without direct I/O is an error that says what to do;
// there is no silent fallback.
func (m method) open(fs vfs.FS, dir, name string) (vfs.File, error) {
	f, err := fs.Open(name, m.mode)
	if errors.Is(err, vfs.ErrNoDirectIO) {
		return nil, &NoDirectIOError{Dir: dir, Method: m.name, Err: err}
	}
	return f, err
}

func writeWhole(f vfs.File, p []byte, off int64) error {
	n, err := f.WriteAt(p, off)
	if err == nil && n != len(p) {
		err = io.ErrShortWrite
	}
	return err
}

func writeDSync(f vfs.File, p []byte, off int64) error {
	d, ok := f.(vfs.DSyncWriter)
	if !ok {
		return &UnsupportedIOError{Method: IORWFDSync}
	}
	n, err := d.WriteAtDSync(p, off)
	if err == nil && n != len(p) {
		err = io.ErrShortWrite
	}
	return err
}

// Probing: a few one-block writes of each method, interleaved so that a slow moment of the disk hits all alike.
const (
	probeRounds  = 20
	probeWarmups = 2
	probeBudget  = 250 * time.Millisecond // on a slow disk fewer rounds must do
	probeBlocks  = 16
	probeLead    = 0.85 // another method must need at most this share of dsync's time; smaller leads are noise
	probeLeadBuf = 0.70 // buffered also costs page cache and copying
)

// probeResult is one method's figure.
type probeResult struct {
	method method
	times  []time.Duration
	err    error // the method does not work here
	file   vfs.File
}

func (r *probeResult) median() time.Duration {
	if len(r.times) == 0 {
		return 0
	}
	s := slices.Clone(r.times)
	slices.Sort(s)
	return s[len(s)/2]
}

// probe measures the methods on a file whose content does not matter, of at least probeBlocks+1 blocks, and returns the
// best one and a line for the log.
func probe(fs vfs.FS, dir, name string) (best method, line string, err error) {
	results := []*probeResult{
		{method: methodOf(IODSync, false)},
		{method: methodOf(IOFdatasync, false)},
		{method: methodOf(IORWFDSync, false)},
		{method: methodOf(IOBuffered, false)},
	}
	defer func() {
		for _, r := range results {
			if r.file != nil {
				err = errors.Join(err, r.file.Close())
			}
		}
	}()
	block := vfs.AlignedBytes(vfs.Align)
	for _, r := range results {
		if r.file, err = r.method.open(fs, dir, name); err != nil {
			return best, "", err
		}
	}
	// Blocks that were never written would make the first method pay for the others.
	if err := results[0].method.writeDurably(results[0].file, vfs.AlignedBytes(probeBlocks*vfs.Align), vfs.Align); err != nil {
		return best, "", err
	}
	start := time.Now()
	for round := range probeRounds + probeWarmups {
		for i, r := range results {
			if r.err != nil {
				continue
			}
			off := int64(1+(round*len(results)+i)%probeBlocks) * vfs.Align
			t := time.Now()
			err := r.method.writeDurably(r.file, block, off)
			switch {
			case errors.Is(err, errors.ErrUnsupported):
				r.err = err
			case err != nil:
				return best, "", fmt.Errorf("probe journal.io = %q: %w", r.method.name, err)
			case round >= probeWarmups:
				r.times = append(r.times, time.Since(t))
			}
		}
		if round >= probeWarmups+2 && time.Since(start) > probeBudget {
			break
		}
	}
	return choose(results), describe(results), nil
}

// choose picks dsync unless another method is clearly faster: it needs one system call and, where the disk has forced
// unit access, no flush of everything else.
func choose(results []*probeResult) method {
	best, limit := results[0], float64(results[0].median())
	for _, r := range results[1:] {
		lead := probeLead
		if r.method.name == IOBuffered {
			lead = probeLeadBuf
		}
		if r.err == nil && float64(r.median()) < limit*lead {
			best, limit = r, float64(r.median())
		}
	}
	return best.method
}

func describe(results []*probeResult) string {
	var b strings.Builder
	for i, r := range results {
		if i > 0 {
			b.WriteString(", ")
		}
		if r.err != nil {
			fmt.Fprintf(&b, "%s unsupported", r.method.name)
			continue
		}
		fmt.Fprintf(&b, "%s %v", r.method.name, r.median().Round(time.Microsecond))
	}
	return b.String()
}
