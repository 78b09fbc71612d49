package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
)

// catchUp is what reading a cold ledger gave in a round, in MB/s of payload, beside what the disk gives for the same bytes.
type catchUp struct {
	Disk, Read float64
}

// catchUpBytes is what the ledger holds; more than the server's caches.
const catchUpBytes = 1 << 30

// catchUp writes a ledger of 64 KiB entries and reads it with the client after a restart. Both it and the direct reads of
// the same entry logs begin with nothing in the page cache, as far as the system lets this process see to that.
func (b *benchmark) catchUp(ctx context.Context, s *server) error {
	write := exec.CommandContext(ctx, filepath.Join(b.bin, "bindery"), "ledger", "write", "--ensemble", "1", "--write-quorum", "1", "--ack-quorum", "1", "--split", "64KiB", "-")
	write.Dir = b.dir
	write.Stdin = io.LimitReader(endless{}, catchUpBytes)
	id, err := write.Output()
	if err != nil {
		return fmt.Errorf("write the cold ledger: %w", err)
	}
	s.stop()
	var r catchUp
	if r.Disk, err = readDirect(filepath.Join(s.dir, "bookie-1"), catchUpBytes/2); err != nil {
		return err
	}
	dropCaches()
	if s, err = b.startServer(ctx, "1"); err != nil {
		return err
	}
	defer s.stop()
	start := time.Now()
	read := exec.CommandContext(ctx, filepath.Join(b.bin, "bindery"), "ledger", "read", strings.TrimSpace(string(id)))
	read.Dir = b.dir
	var n counter
	read.Stdout = &n
	if err := read.Run(); err != nil {
		return fmt.Errorf("read the cold ledger: %w", err)
	}
	if n != catchUpBytes {
		return fmt.Errorf("the cold ledger has %d bytes, %d were written", n, catchUpBytes)
	}
	r.Read = float64(n) / 1e6 / time.Since(start).Seconds()
	b.reads = append(b.reads, r)
	fmt.Fprintf(os.Stderr, "  catch-up read: %.0f MB/s, the disk itself %.0f MB/s\n", r.Read, r.Disk)
	return nil
}

// endless yields bytes that do not repeat soon.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	x := uint64(time.Now().UnixNano())
	for i := range p {
		x = x*6364136223846793005 + 1442695040888963407
		p[i] = byte(x >> 56)
	}
	return len(p), nil
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// readDirect reads entry logs with direct I/O, 1 MiB at a time, up to n bytes, and returns MB/s.
func readDirect(dir string, n int64) (float64, error) {
	osfs := vfs.OS()
	buf := vfs.AlignedBytes(1 << 20)
	total, start := int64(0), time.Now()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".log") {
			return err
		}
		f, err := osfs.Open(path, vfs.Mode{Direct: true})
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // read only
		for off := int64(0); total < n; off += int64(len(buf)) {
			k, err := f.ReadAt(buf, off)
			total += int64(k)
			if err != nil || k < len(buf) {
				break // the end of the file
			}
		}
		return nil
	})
	return float64(total) / 1e6 / time.Since(start).Seconds(), err
}

// dropCaches empties the page cache. Only root may; without it the figures are better than the disk.
func dropCaches() {
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("1\n"), 0o200); err != nil {
		fmt.Fprintf(os.Stderr, "  the page cache could not be emptied: %v\n", err)
	}
}
