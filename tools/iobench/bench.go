package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"github.com/binderylog/bindery/internal/vfs"
)

const (
	kib = 1 << 10
	mib = 1 << 20

	rounds       = 5
	opsMin       = 8 // of a cell in a round, whatever the time
	streamBytes  = mib
	streamDepth  = 4
	latencyMaxUs = int64(time.Minute / time.Microsecond)
)

// groupSizes are the sizes that a journal's groups have.
var groupSizes = []int{4 * kib, 8 * kib, 16 * kib, 32 * kib, 64 * kib, 128 * kib, 256 * kib, 512 * kib, mib}

// bench is the measuring of one directory: one file, zeroed ahead as a journal's segments are, opened once per method.
type bench struct {
	fs      vfs.FS
	dir     string
	size    int64
	seed    uint64
	report  *directoryReport
	methods []method
	plain   vfs.File // direct, not synced by itself
	data    []byte   // random, aligned
	at      int64    // next offset in the file
	written atomic.Int64
}

// method is one way to make a write durable.
type method struct {
	name  string // as in journal.io
	file  vfs.File
	write func(p []byte, off int64) error
}

// open makes the file, opens it for each method and unlinks it.
func (b *bench) open() (err error) {
	name := filepath.Join(b.dir, fmt.Sprintf(".iobench-%016x", rand.Uint64()))
	defer func() {
		if rerr := b.fs.Remove(name); err == nil {
			err = rerr
		}
		if err != nil {
			b.close()
		}
	}()
	if b.plain, err = b.fs.Open(name, vfs.Mode{Write: true, Create: true, Exclusive: true, Direct: true}); err != nil {
		return err
	}
	b.data = vfs.AlignedBytes(2 * mib)
	rng := rand.NewChaCha8([32]byte{byte(b.seed), byte(b.seed >> 8), byte(b.seed >> 16), byte(b.seed >> 24)})
	_, _ = rng.Read(b.data) // never fails
	if err = b.plain.Preallocate(b.size); err != nil {
		return err
	}
	zeros := vfs.AlignedBytes(mib)
	for off := int64(0); off < b.size; off += mib {
		if _, err = b.plain.WriteAt(zeros, off); err != nil {
			return err
		}
	}
	if err = b.plain.Sync(); err != nil {
		return err
	}
	b.addMethod(name, "dsync", vfs.Mode{Write: true, Direct: true, DSync: true}, func(f vfs.File) (func([]byte, int64) error, error) {
		return func(p []byte, off int64) error { _, err := f.WriteAt(p, off); return err }, nil
	})
	b.addMethod(name, "fdatasync", vfs.Mode{Write: true, Direct: true}, func(f vfs.File) (func([]byte, int64) error, error) {
		return func(p []byte, off int64) error {
			if _, err := f.WriteAt(p, off); err != nil {
				return err
			}
			return f.Sync()
		}, nil
	})
	b.addMethod(name, "rwf_dsync", vfs.Mode{Write: true, Direct: true}, func(f vfs.File) (func([]byte, int64) error, error) {
		w, ok := f.(vfs.DSyncWriter)
		if !ok {
			return nil, errors.ErrUnsupported
		}
		return func(p []byte, off int64) error { _, err := w.WriteAtDSync(p, off); return err }, nil
	})
	if len(b.methods) == 0 {
		return fmt.Errorf("no method of durable writing works here: %s", b.report.Unsupported[0].Error)
	}
	return nil
}

// addMethod opens the file for a method and tries it once; one that does not work is reported, never replaced by another.
func (b *bench) addMethod(name, label string, m vfs.Mode, build func(vfs.File) (func([]byte, int64) error, error)) {
	fail := func(err error) {
		b.report.Unsupported = append(b.report.Unsupported, unsupported{label, err.Error()})
	}
	f, err := b.fs.Open(name, m)
	if err != nil {
		fail(err)
		return
	}
	write, err := build(f)
	if err == nil {
		err = write(b.data[:4*kib], 0)
	}
	if err != nil {
		f.Close()
		fail(err)
		return
	}
	b.methods = append(b.methods, method{label, f, write})
}

func (b *bench) close() {
	for _, m := range b.methods {
		m.file.Close()
	}
	b.methods = nil
	if b.plain != nil {
		b.plain.Close()
		b.plain = nil
	}
}

// next is where the following write of n bytes goes: always forward, from the start again at the end.
func (b *bench) next(n int) int64 {
	if b.at+int64(n) > b.size {
		b.at = 0
	}
	off := b.at
	b.at += int64(n)
	return off
}

// payload is n random bytes, others than the last time.
func (b *bench) payload(n int) []byte {
	off := int(b.at/vfs.Align*7) % ((len(b.data) - n) / vfs.Align) * vfs.Align
	return b.data[off : off+n]
}

// syncCurves measures every method at every size, the rounds interleaved.
func (b *bench) syncCurves(ctx context.Context, budget time.Duration) error {
	type cell struct {
		rounds []*hdr.Histogram
	}
	cells := make([][]cell, len(b.methods))
	for i := range cells {
		cells[i] = make([]cell, len(groupSizes))
	}
	slice := budget / time.Duration(rounds*len(b.methods)*len(groupSizes))
	for range rounds {
		for s, size := range groupSizes {
			for m := range b.methods {
				h, err := b.syncCell(ctx, b.methods[m], size, slice)
				if err != nil {
					return err
				}
				cells[m][s].rounds = append(cells[m][s].rounds, h)
			}
		}
	}
	for m := range b.methods {
		for s, size := range groupSizes {
			b.report.Sync = append(b.report.Sync, newSyncResult(b.methods[m].name, size, cells[m][s].rounds))
		}
	}
	return nil
}

func (b *bench) syncCell(ctx context.Context, m method, size int, slice time.Duration) (*hdr.Histogram, error) {
	h := hdr.New(1, latencyMaxUs, 3)
	end := time.Now().Add(slice)
	for n := 0; n < opsMin || time.Now().Before(end); n++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p, off := b.payload(size), b.next(size)
		start := time.Now()
		if err := m.write(p, off); err != nil {
			return nil, fmt.Errorf("%s write of %d bytes: %w", m.name, size, err)
		}
		_ = h.RecordValue(min(max(time.Since(start).Microseconds(), 1), latencyMaxUs)) // in range
		b.written.Add(int64(size))
	}
	return h, nil
}

// bandwidth is a figure of sequential 1 MiB streams.
type bandwidth struct {
	Name        string  `json:"name"` // write or read
	Durable     bool    `json:"durable"`
	Depth       int     `json:"depth"`
	BlockBytes  int     `json:"block_bytes"`
	MBPerSecond float64 `json:"mb_per_s"` // decimal
}

// bandwidths measures sequential writing with one sync at the end of it, and reading, at depth 1 and 4.
func (b *bench) bandwidths(ctx context.Context, budget time.Duration) error {
	slice := budget / 4
	for _, depth := range []int{1, streamDepth} {
		for _, write := range []bool{true, false} {
			rate, err := b.stream(ctx, write, depth, slice)
			if err != nil {
				return err
			}
			name := "read"
			if write {
				name = "write"
			}
			b.report.Bandwidth = append(b.report.Bandwidth, bandwidth{name, write, depth, streamBytes, rate / 1e6})
		}
	}
	return nil
}

// stream moves 1 MiB blocks one after another with depth of them in flight and returns bytes per second. Writing counts
// until the final sync has returned.
func (b *bench) stream(ctx context.Context, write bool, depth int, slice time.Duration) (float64, error) {
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		total atomic.Int64
		first atomic.Pointer[error]
	)
	start := time.Now()
	end := start.Add(slice)
	for range depth {
		wg.Go(func() {
			buf := vfs.AlignedBytes(streamBytes)
			copy(buf, b.data)
			for time.Now().Before(end) && ctx.Err() == nil && first.Load() == nil {
				mu.Lock()
				off := b.next(streamBytes)
				mu.Unlock()
				var err error
				if write {
					_, err = b.plain.WriteAt(buf, off)
					b.written.Add(streamBytes)
				} else {
					_, err = b.plain.ReadAt(buf, off)
				}
				if err != nil {
					first.CompareAndSwap(nil, &err)
					return
				}
				total.Add(streamBytes)
			}
		})
	}
	wg.Wait()
	if p := first.Load(); p != nil {
		return 0, *p
	}
	if write {
		if err := b.plain.Sync(); err != nil {
			return 0, err
		}
	}
	return float64(total.Load()) / time.Since(start).Seconds(), ctx.Err()
}
