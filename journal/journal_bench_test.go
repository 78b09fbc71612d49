package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// benchDir is a directory on a real disk: BINDERY_BENCH_DIR, or a temporary one.
func benchDir(b *testing.B) string {
	if d := os.Getenv("BINDERY_BENCH_DIR"); d != "" {
		d, err := os.MkdirTemp(d, "journal-bench-")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { os.RemoveAll(d) })
		return d
	}
	return b.TempDir()
}

// window is a sink that keeps a fixed number of records in flight.
type benchWindow struct {
	tokens chan struct{}
	freed  int // by JournalDone, handed on by JournalFlush: as a connection that writes its replies in one go
	failed atomic.Bool
	times  []int64 // latency of every record, filled up to its capacity
	epoch  time.Time
}

func (w *benchWindow) JournalDone(t Token, err error) {
	if err != nil {
		w.failed.Store(true)
	}
	if len(w.times) < cap(w.times) {
		w.times = append(w.times, int64(time.Since(w.epoch))-t.A)
	}
	w.freed++
}

func (w *benchWindow) JournalFlush() {
	for range w.freed {
		w.tokens <- struct{}{}
	}
	w.freed = 0
}

// BenchmarkAppend is a closed loop: conns goroutines, each with inflight records outstanding. It reports payload bytes a
// second, the share of what the disk itself does with writes of the same size, and latencies.
func BenchmarkAppend(b *testing.B) {
	for _, entry := range []int{100, 1 << 10, 64 << 10} {
		for _, load := range []struct{ conns, inflight int }{{1, 1}, {64, 1}, {4, 64}, {4, 2000}} {
			if entry == 64<<10 && load.inflight > 64 {
				continue // 256 MiB are not in flight anywhere
			}
			b.Run(fmt.Sprintf("entry=%s/conns=%d/inflight=%d", size(entry), load.conns, load.inflight), func(b *testing.B) {
				benchAppend(b, entry, load.conns, load.inflight)
			})
		}
	}
}

// warmUp waits until the journal is in the state of the long run: writing into a zeroed segment, with zeroed spares.
func warmUp(b *testing.B, j *Journal) {
	l := newListener()
	for n := 1; ; n++ {
		if s := j.Stats(); s.SegmentsZeroed > 0 && s.Spares > 0 && s.SparesZeroed == s.Spares {
			return
		}
		if _, err := j.Append(1, 0, make([]byte, 8), l, Token{}); err != nil {
			b.Fatal(err)
		}
		j.Commit()
		l.wait(n)
		time.Sleep(50 * time.Millisecond) // the preparer writes zeroes while nothing else is written
	}
}

func size(n int) string {
	if n >= 1<<10 {
		return fmt.Sprintf("%dk", n>>10)
	}
	return fmt.Sprint(n)
}

func benchAppend(b *testing.B, entry, conns, inflight int) {
	if b.N == 1 {
		return // the warm-up costs seconds; one add tells nothing
	}
	j, err := Open(vfs.OS(), benchDir(b), Options{IO: IODSync, SegmentSize: 64 << 20})
	if err == nil {
		err = j.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	warmUp(b, j)
	stop := recycler(j)
	defer stop()

	before := j.Stats()
	b.SetBytes(int64(entry))
	b.ReportAllocs()
	b.ResetTimer()
	start := time.Now()
	times := runConns(b, j, entry, conns, inflight)
	took := time.Since(start)
	b.StopTimer()
	after := j.Stats()

	groups := after.Groups - before.Groups
	slices.Sort(times)
	if len(times) > 0 {
		b.ReportMetric(float64(times[len(times)/2])/1e3, "p50-us")
		b.ReportMetric(float64(times[len(times)*99/100])/1e3, "p99-us")
	}
	b.ReportMetric(float64(b.N)/took.Seconds(), "adds/s")
	if groups > 0 {
		per := int(after.WrittenBytes-before.WrittenBytes) / int(groups)
		b.ReportMetric(float64(per), "B/group")
		wrote := float64(after.WrittenBytes-before.WrittenBytes) / took.Seconds()
		if b.N > 1 {
			raw := rawDisk(b, per, 2, 300*time.Millisecond)
			b.ReportMetric(raw/1e6, "disk-MB/s")
			b.ReportMetric(wrote/raw, "of-disk")
		}
	}
}

// runConns appends b.N records from conns goroutines, each with inflight of them outstanding, and returns the latencies.
func runConns(b *testing.B, j *Journal, entry, conns, inflight int) (times []int64) {
	windows := make([]*benchWindow, conns)
	for i := range windows {
		windows[i] = &benchWindow{tokens: make(chan struct{}, inflight), times: make([]int64, 0, min(b.N, 1<<20)), epoch: time.Now()}
		for range inflight {
			windows[i].tokens <- struct{}{}
		}
	}
	var wg sync.WaitGroup
	for c, w := range windows {
		n := b.N / conns
		if c < b.N%conns {
			n++
		}
		wg.Go(func() { drive(b, j, w, entry, inflight, n, uint64(c)) })
	}
	wg.Wait()
	for _, w := range windows {
		times = append(times, w.times...)
	}
	return times
}

// drive appends n records in batches of what the window allows.
func drive(b *testing.B, j *Journal, w *benchWindow, entry, inflight, n int, tag uint64) {
	payload := make([]byte, entry)
	for i := range payload {
		payload[i] = byte(i * 7)
	}
	for sent := 0; sent < n; {
		<-w.tokens
		batch := 1
		for batch < 256 && sent+batch < n {
			select {
			case <-w.tokens:
				batch++
				continue
			default:
			}
			break
		}
		if err := j.Reserve(batch*entry, time.Minute); err != nil {
			b.Error(err)
			return
		}
		at := int64(time.Since(w.epoch))
		for range batch {
			if _, err := j.Append(1, tag, payload, w, Token{A: at}); err != nil {
				b.Error(err)
				return
			}
		}
		j.Commit()
		sent += batch
	}
	for range inflight {
		<-w.tokens
	}
	if w.failed.Load() {
		b.Error("an append failed")
	}
}

// recycler trims the journal ten times a second, as checkpoints would.
func recycler(j *Journal) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(100 * time.Millisecond)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				_ = j.Trim(j.Mark() - 1)
			}
		}
	}()
	return func() { close(done); <-ended }
}

// rawDisk is what the disk does with direct durable writes of n bytes into zeroed blocks, width of them at once.
func rawDisk(b *testing.B, n, width int, d time.Duration) float64 {
	n = extent(n)
	name := filepath.Join(benchDir(b), "raw")
	f, err := vfs.OS().Open(name, vfs.Mode{Write: true, Create: true, Direct: true, DSync: true})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	total := int64(64 << 20)
	chunk := vfs.AlignedBytes(1 << 20)
	for off := int64(0); off < total; off += int64(len(chunk)) {
		if _, err := f.WriteAt(chunk, off); err != nil {
			b.Fatal(err)
		}
	}
	var at atomic.Int64
	var bytes atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range width {
		wg.Go(func() {
			p := vfs.AlignedBytes(n)
			for time.Since(start) < d {
				off := at.Add(int64(n)) - int64(n)
				off %= total - total%int64(n)
				if _, err := f.WriteAt(p, off); err != nil {
					b.Error(err)
					return
				}
				bytes.Add(int64(n))
			}
		})
	}
	wg.Wait()
	return float64(bytes.Load()) / time.Since(start).Seconds()
}

// BenchmarkDisk is the disk's own limit: durable direct writes into zeroed blocks.
func BenchmarkDisk(b *testing.B) {
	for _, n := range []int{4 << 10, 64 << 10, 512 << 10} {
		for _, width := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("write=%s/inflight=%d", size(n), width), func(b *testing.B) {
				for b.Loop() {
					r := rawDisk(b, n, width, 500*time.Millisecond)
					b.ReportMetric(r/1e6, "disk-MB/s")
					b.ReportMetric(1e6*float64(n)*float64(width)/r, "us/write")
				}
			})
		}
	}
}

// nullFS is a file system whose writes cost nothing, to see what the journal itself costs.
type nullFS struct{ vfs.FS }

func (f nullFS) Open(name string, m vfs.Mode) (vfs.File, error) {
	file, err := f.FS.Open(name, m)
	return nullFile{file}, err
}

type nullFile struct{ vfs.File }

func (f nullFile) WriteAt(p []byte, off int64) (int, error) { return len(p), nil }

// BenchmarkCPU is the journal without a disk: what an append costs in processor time, callbacks included.
func BenchmarkCPU(b *testing.B) {
	for _, entry := range []int{100, 1 << 10, 16 << 10} {
		for _, conns := range []int{1, 4} {
			b.Run(fmt.Sprintf("entry=%s/conns=%d/inflight=1000", size(entry), conns), func(b *testing.B) {
				j, err := Open(nullFS{memfs.New()}, "/j", Options{IO: IODSync, SegmentSize: 64 << 20})
				if err == nil {
					err = j.Start()
				}
				if err != nil {
					b.Fatal(err)
				}
				defer j.Close()
				defer recycler(j)()
				b.SetBytes(int64(entry))
				b.ReportAllocs()
				b.ResetTimer()
				start := cpuTime()
				runConns(b, j, entry, conns, 1000)
				b.ReportMetric(float64(cpuTime()-start)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// cpuTime is the processor time of this process so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkReplay reads a journal of 256 MiB that is not in the page cache, beside what the disk reads in the same run.
func BenchmarkReplay(b *testing.B) {
	for _, entry := range []int{100, 1 << 10, 64 << 10} {
		b.Run("entry="+size(entry), func(b *testing.B) {
			dir := benchDir(b)
			o := Options{IO: IODSync, SegmentSize: 64 << 20}
			j, err := Open(vfs.OS(), dir, o)
			if err == nil {
				err = j.Start()
			}
			if err != nil {
				b.Fatal(err)
			}
			const total = 256 << 20
			w := &benchWindow{tokens: make(chan struct{}, total/entry+1), epoch: time.Now()}
			for range 16 << 20 / entry {
				w.tokens <- struct{}{}
			}
			drive(b, j, w, entry, 16<<20/entry, total/entry, 1)
			if err := j.Close(); err != nil {
				b.Fatal(err)
			}
			d, err := readDirectory(vfs.OS(), dir)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(total)
			var read, took, cpu time.Duration
			for b.Loop() {
				b.StopTimer()
				start := time.Now()
				n := readFiles(b, d)
				read += time.Duration(float64(time.Since(start)) / float64(n) * total)
				for _, s := range d.segments {
					if err := vfs.DropCache(vfs.OS(), s.name); err != nil {
						b.Fatal(err)
					}
				}
				b.StartTimer()
				start = time.Now()
				used := cpuTime()
				k, err := Open(vfs.OS(), dir, o)
				if err != nil {
					b.Fatal(err)
				}
				r, err := k.Replay(0, func(Record) error { return nil })
				if err != nil || r.Records != total/int64(entry) {
					b.Fatal(r.Records, err)
				}
				took += time.Since(start)
				cpu += cpuTime() - used
				k.Close()
			}
			b.ReportMetric(float64(b.N)*total/read.Seconds()/1e6, "disk-MB/s")
			b.ReportMetric(float64(read)/float64(took), "of-disk")
			b.ReportMetric(cpu.Seconds()/float64(b.N)*1e3/0.25, "cpu-ms/GiB")
		})
	}
}

// readFiles reads the segments with large direct reads.
func readFiles(b *testing.B, d *directory) (n int64) {
	buf := vfs.AlignedBytes(1 << 20)
	for _, s := range d.segments {
		f, err := vfs.OS().Open(s.name, vfs.Mode{Direct: true})
		if err != nil {
			b.Fatal(err)
		}
		for off := int64(0); off < s.size; off += int64(len(buf)) {
			if _, err := f.ReadAt(buf, off); err != nil {
				b.Fatal(err)
			}
		}
		n += s.size
		f.Close()
	}
	return n
}
