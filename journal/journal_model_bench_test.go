//go:build linux

package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/metrics"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/vfs/memfs"
)

// modelDisk is a disk whose writes of groups take a fixed time and so much per byte, any number of them at once. They
// block the thread as a durable write does. What a journal makes of it does not depend on anybody else's use of a disk.
//
// With real set the writes go to the file system inside, and are only counted.
type modelDisk struct {
	vfs.FS
	base    time.Duration
	perByte float64 // nanoseconds
	real    bool

	mu       sync.Mutex
	inflight int
	changed  time.Time
	busy     [GroupsInFlightMax + 1]time.Duration // time spent with so many writes in flight
	writes   int64
}

func (d *modelDisk) Open(name string, m vfs.Mode) (vfs.File, error) {
	f, err := d.FS.Open(name, m)
	return &modelFile{f, d}, err
}

// count notes that a write begins or ends.
func (d *modelDisk) count(by int) {
	d.mu.Lock()
	now := time.Now()
	if !d.changed.IsZero() {
		d.busy[d.inflight] += now.Sub(d.changed)
	}
	d.changed = now
	d.inflight += by
	if by > 0 {
		d.writes++
	}
	d.mu.Unlock()
}

// used returns the average number of writes in flight since the last call.
func (d *modelDisk) used() (average, none float64) {
	d.count(0)
	d.mu.Lock()
	defer d.mu.Unlock()
	var total, sum time.Duration
	for n, t := range d.busy {
		total += t
		sum += time.Duration(n) * t
	}
	none = float64(d.busy[0]) / float64(total)
	d.busy = [GroupsInFlightMax + 1]time.Duration{}
	return float64(sum) / float64(total), none
}

func (d *modelDisk) write(n int) {
	left := syscall.NsecToTimespec(int64(d.base) + int64(float64(n)*d.perByte))
	for errors.Is(syscall.Nanosleep(&left, &left), syscall.EINTR) { // the runtime's preemption
	}
}

type modelFile struct {
	vfs.File
	disk *modelDisk
}

func (f *modelFile) WriteAt(p []byte, off int64) (int, error) {
	group := binary.LittleEndian.Uint32(p) == groupMagic // otherwise a header, or zeroes
	if group {
		f.disk.count(1)
		defer f.disk.count(-1)
	}
	if f.disk.real {
		return f.File.WriteAt(p, off)
	}
	if group {
		f.disk.write(len(p))
	}
	return len(p), nil
}

// switches returns how often goroutines were put on a processor, and threads gave theirs up, so far.
func switches() (goroutines, threads int64) {
	s := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(s)
	for _, n := range s[0].Value.Float64Histogram().Counts {
		goroutines += 8 * int64(n) // one in eight is sampled
	}
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) == nil {
		threads = u.Nvcsw
	}
	return goroutines, threads
}

// benchLoads calls run for the loads of BenchmarkModel and BenchmarkRealDisk.
func benchLoads(b *testing.B, run func(b *testing.B, entry, outstanding, dirs int)) {
	for _, entry := range []int{100, 1 << 10, 4 << 10, 64 << 10} {
		for _, outstanding := range []int{1, 64, 1000, 8000} {
			for _, dirs := range []int{1, 2} {
				if entry*outstanding > 64<<20 || outstanding == 8000 && dirs == 2 {
					continue
				}
				b.Run(fmt.Sprintf("entry=%s/outstanding=%d/dirs=%d", size(entry), outstanding, dirs), func(b *testing.B) {
					if b.N > 1 { // one record tells nothing
						run(b, entry, outstanding, dirs)
					}
				})
			}
		}
	}
}

// BenchmarkModel is a closed loop on a model of a disk (150 us a write and 3 ns a byte, two at once). It reports what a
// record and a group cost in counts, and how much of the disk's time is used: 2 groups in flight would be all of it.
func BenchmarkModel(b *testing.B) {
	benchLoads(b, func(b *testing.B, entry, outstanding, dirs int) {
		benchCounts(b, entry, outstanding, dirs, func(int) (*modelDisk, string) {
			return &modelDisk{FS: memfs.New(), base: 150 * time.Microsecond, perByte: 3}, "/j"
		}, nil)
	})
}

// BenchmarkRealDisk is the same on a directory of a disk, in turns with the raw pattern: as many writes of the same size
// at once as groups may be in flight. of-raw is the share of the raw rate that the groups reach.
func BenchmarkRealDisk(b *testing.B) {
	benchLoads(b, func(b *testing.B, entry, outstanding, dirs int) {
		benchCounts(b, entry, outstanding, dirs, func(int) (*modelDisk, string) {
			return &modelDisk{FS: vfs.OS(), real: true}, benchDir(b)
		}, rawDisk)
	})
}

// benchCounts drives one journal per directory. raw, if not nil, is measured in turns with them.
func benchCounts(b *testing.B, entry, outstanding, dirs int, disk func(i int) (*modelDisk, string), raw func(b *testing.B, n, width int, d time.Duration) float64) {
	disks := make([]*modelDisk, dirs)
	journals := make([]*Journal, dirs)
	for i := range dirs {
		dir := ""
		disks[i], dir = disk(i)
		o := Options{IO: IODSync, SegmentSize: 64 << 20}
		if err := zeroedSpares(disks[i], dir, o.SegmentSize); err != nil {
			b.Fatal(err)
		}
		j, err := Open(disks[i], dir, o)
		if err == nil {
			err = j.Start()
		}
		if err != nil {
			b.Fatal(err)
		}
		defer j.Close()
		defer recycler(j)()
		journals[i] = j
	}
	turns := 1
	if raw != nil {
		turns = 4
	}
	var c counts
	var rawRate float64
	b.SetBytes(int64(entry))
	b.ReportAllocs()
	b.ResetTimer()
	for turn := range turns {
		n := b.N * (turn + 1) / turns
		group := c.measure(b, journals, disks, entry, outstanding, n-b.N*turn/turns)
		if raw != nil {
			b.StopTimer()
			rawRate += raw(b, group, 2, 100*time.Millisecond)
			b.StartTimer()
		}
	}
	b.StopTimer()
	c.report(b, entry, dirs)
	if raw != nil {
		b.ReportMetric(c.written/c.took.Seconds()/(rawRate/float64(turns))/float64(dirs), "of-raw")
	}
}

// counts is what a number of appends cost.
type counts struct {
	groups, written, records float64
	goroutines, threads      int64
	cpu, took                time.Duration
	used, none               float64 // of all directories, times took
}

// measure appends n records and returns the average size of a group.
func (c *counts) measure(b *testing.B, journals []*Journal, disks []*modelDisk, entry, outstanding, n int) int {
	var before []Stats
	for i, j := range journals {
		before = append(before, j.Stats())
		disks[i].used()
	}
	start, cpu := time.Now(), cpuTime()
	g0, t0 := switches()
	conns := min(4, outstanding)
	runJournals(b, journals, entry, conns, outstanding/conns, n)
	g1, t1 := switches()
	took := time.Since(start)
	c.cpu += cpuTime() - cpu
	c.took += took
	c.goroutines += g1 - g0
	c.threads += t1 - t0
	groups, written := 0.0, 0.0
	for i, j := range journals {
		used, none := disks[i].used()
		c.used += used * took.Seconds()
		c.none += none * took.Seconds()
		s := j.Stats()
		groups += float64(s.Groups - before[i].Groups)
		written += float64(s.WrittenBytes - before[i].WrittenBytes)
		c.records += float64(s.Records - before[i].Records)
	}
	c.groups += groups
	c.written += written
	return int(written / groups)
}

func (c *counts) report(b *testing.B, entry, dirs int) {
	b.ReportMetric(float64(c.cpu)/c.records, "cpu-ns/op")
	b.ReportMetric(c.written/c.records-float64(entry), "extra-B/op")
	b.ReportMetric(c.records/c.groups, "op/group")
	b.ReportMetric(float64(c.goroutines)/c.groups, "gosched/group")
	b.ReportMetric(float64(c.threads)/c.groups, "csw/group")
	b.ReportMetric(c.used/c.took.Seconds()/float64(dirs), "in-flight")
	b.ReportMetric(c.none/c.took.Seconds()/float64(dirs), "idle")
}

// zeroedSpares makes files as a long run would have left them.
func zeroedSpares(d *modelDisk, dir string, segment int64) error {
	if err := d.MkdirAll(filepath.Join(dir, currentDir)); err != nil {
		return err
	}
	zeroes := vfs.AlignedBytes(4 << 20)
	for id := range uint64(4) {
		f, err := d.FS.Open(fileName(dir, id+1, zeroSuffix), vfs.Mode{Write: true, Create: true})
		if err != nil {
			return err
		}
		err = f.Preallocate(segment)
		for off := int64(0); d.real && err == nil && off < segment; off += int64(len(zeroes)) {
			_, err = f.WriteAt(zeroes, off)
		}
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// runJournals is runConns over several journals at once, n records in all.
func runJournals(b *testing.B, journals []*Journal, entry, conns, inflight, n int) {
	var wg sync.WaitGroup
	each := n / (conns * len(journals))
	for i, j := range journals {
		for c := range conns {
			w := &benchWindow{tokens: make(chan struct{}, inflight), epoch: time.Now()}
			for range inflight {
				w.tokens <- struct{}{}
			}
			mine := each
			if i == 0 && c == 0 {
				mine = n - each*(conns*len(journals)-1)
			}
			wg.Go(func() { drive(b, j, w, entry, inflight, mine, uint64(c)) })
		}
	}
	wg.Wait()
}
