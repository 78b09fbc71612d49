package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"github.com/binderylog/bindery/internal/config"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/journal"
	"github.com/spf13/cobra"
)

type benchJournalOptions struct {
	size        string
	outstanding int
	duration    time.Duration
	warmup      time.Duration
	io          string
	groups      int
	groupBytes  string
	segment     string
	output      outputFormat
}

func newBenchJournalCommand() *cobra.Command {
	var o benchJournalOptions
	c := &cobra.Command{
		Use:   "journal DIR",
		Short: "Drive one journal engine in a directory of its own under DIR",
		Long: "Appends records to a journal as a bookie does, a number of them in flight, and measures each from its append to the\n" +
			"moment its group is durable. What lies two segments back is let go, as checkpoints do; before anything is measured the\n" +
			"journal is driven until its segments are recycled ones. It is made in a new directory under DIR and removed at the end.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args[0]) },
	}
	addOutputFlag(c, &o.output)
	f := c.Flags()
	f.StringVar(&o.size, "size", "1KiB", "bytes of a record")
	f.IntVar(&o.outstanding, "outstanding", 1000, "records in flight")
	f.DurationVar(&o.duration, "duration", 10*time.Second, "measured time")
	f.DurationVar(&o.warmup, "warmup", time.Second, "time before it that is not measured")
	f.StringVar(&o.io, "io", "auto", "as journal.io")
	f.IntVar(&o.groups, "groups-in-flight", 2, "as expert.groups_in_flight")
	f.StringVar(&o.groupBytes, "max-group-bytes", "512KiB", "as journal.max_group_bytes")
	f.StringVar(&o.segment, "segment-size", "64MiB", "as journal.segment_size")
	return c
}

// journalResult is what `bench journal` prints.
type journalResult struct {
	Directory   string             `json:"directory"`
	IO          string             `json:"journal_io"`
	Outstanding int                `json:"outstanding"`
	SizeBytes   int                `json:"record_bytes"`
	Seconds     float64            `json:"measured_s"`
	Records     int64              `json:"records"`
	PerSecond   float64            `json:"records_per_s"`
	MBPerSecond float64            `json:"payload_mb_per_s"`
	LatencyUs   map[string]float64 `json:"latency_us"`
}

func (o *benchJournalOptions) run(c *cobra.Command, parent string) error {
	var sizes [3]int64
	for i, s := range []string{o.size, o.groupBytes, o.segment} {
		n, err := config.ParseSize(s)
		if err != nil {
			return exit(exitUsage, err)
		}
		sizes[i] = int64(n)
	}
	if sizes[0] > 4<<20 || o.outstanding < 1 || o.outstanding > 1<<20 || o.duration <= 0 || o.warmup < 0 {
		return exit(exitUsage, errors.New("--size is at most 4MiB, --outstanding 1 to 1048576, times are positive"))
	}
	dir, remove, err := tempJournalDir(parent)
	if err != nil {
		return err
	}
	j, err := journal.Open(vfs.OS(), dir, journal.Options{
		SegmentSize: sizes[2], MaxGroupBytes: int(sizes[1]), GroupsInFlight: o.groups, IO: journal.IOMethod(o.io),
		QueueBytes: max(32<<20, 2*o.outstanding*int(sizes[0])),
	})
	if err == nil {
		if _, err = j.Replay(0, func(journal.Record) error { return nil }); err == nil {
			err = j.Start()
		}
	}
	if err != nil {
		return errors.Join(err, remove())
	}
	r, err := o.drive(c.Context(), j, int(sizes[0]), sizes[2])
	err = errors.Join(err, j.Close(), remove())
	if err != nil {
		return err
	}
	r.Directory = parent
	if o.output == outputJSON {
		return printJSON(c.OutOrStdout(), r)
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "journal in %s, io %s: %d records of %d B in flight\n  %d in %.1f s: %.0f records/s, %.1f MB/s\n  latency ms: p50 %.2f  p90 %.2f  p99 %.2f  p99.9 %.2f  max %.2f\n",
		parent, r.IO, r.Outstanding, r.SizeBytes, r.Records, r.Seconds, r.PerSecond, r.MBPerSecond,
		r.LatencyUs["p50"]/1e3, r.LatencyUs["p90"]/1e3, r.LatencyUs["p99"]/1e3, r.LatencyUs["p99.9"]/1e3, r.LatencyUs["max"]/1e3)
	return err
}

// journalSink counts finished records. JournalDone runs on the journal's goroutine, which owns the histogram until Close.
type journalSink struct {
	mu     sync.Mutex
	room   sync.Cond
	free   int
	freed  int // by the group under way; given back at its flush
	hist   *hdr.Histogram
	count  int64
	failed atomic.Pointer[error]
	from   atomic.Int64 // nanoseconds since start; 0 = not measuring
	start  time.Time
}

func newJournalSink(outstanding int) *journalSink {
	s := &journalSink{free: outstanding, hist: hdr.New(1, int64(time.Minute/time.Microsecond), 3), start: time.Now()}
	s.room.L = &s.mu
	return s
}

// drain waits until nothing is in flight.
func (s *journalSink) drain(outstanding int) {
	for got := 0; got < outstanding; {
		got += s.take()
	}
}

// JournalDone implements journal.Sink.
func (s *journalSink) JournalDone(t journal.Token, err error) {
	s.freed++
	if err != nil {
		s.failed.CompareAndSwap(nil, &err)
		return
	}
	if from := s.from.Load(); from > 0 && t.A >= from {
		s.count++
		_ = s.hist.RecordValue(min(max((int64(time.Since(s.start))-t.A)/1000, 1), int64(time.Minute/time.Microsecond))) // in range
	}
}

// JournalFlush implements journal.Sink.
func (s *journalSink) JournalFlush() {
	s.mu.Lock()
	s.free += s.freed
	s.freed = 0
	s.room.Signal()
	s.mu.Unlock()
}

// take waits for room and takes all of it.
func (s *journalSink) take() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.free == 0 {
		s.room.Wait()
	}
	n := s.free
	s.free = 0
	return n
}

// checkpoints lets a journal go of what lies far enough back.
type checkpoints struct {
	j     *journal.Journal
	every int64 // bytes
	bytes int64 // appended since the last
	last  journal.Position
}

// appended counts what was appended. Every so many bytes the journal may forget all that was there before the last time.
func (c *checkpoints) appended(n int) error {
	if c.bytes += int64(n); c.bytes < c.every {
		return nil
	}
	c.bytes = 0
	if err := c.j.Trim(min(c.last, c.j.Stats().Durable)); err != nil {
		return err
	}
	c.last = c.j.Mark()
	return nil
}

// primeRecord and primeOutstanding write as fast as the disk can.
const (
	primeRecord      = 64 << 10
	primeOutstanding = 64
	primeSegments    = 8 // at most
)

// prime writes until the journal goes on in segments that were used before.
func (o *benchJournalOptions) prime(ctx context.Context, c *checkpoints) error {
	s := newJournalSink(primeOutstanding)
	body := make([]byte, primeRecord)
	for n := int64(0); n < primeSegments*c.every && ctx.Err() == nil && s.failed.Load() == nil; {
		st := c.j.Stats()
		if st.SegmentsRecycled > 1 && st.SparesZeroed == st.Spares {
			break
		}
		for range s.take() {
			if err := c.j.Reserve(len(body), time.Second); err != nil {
				return err
			}
			if _, err := c.j.Append(1, uint64(n), body, s, journal.Token{}); err != nil {
				return err
			}
			n += int64(len(body))
			if err := c.appended(len(body)); err != nil {
				return err
			}
		}
		c.j.Commit()
	}
	s.drain(primeOutstanding)
	if p := s.failed.Load(); p != nil {
		return *p
	}
	return nil
}

func (o *benchJournalOptions) drive(ctx context.Context, j *journal.Journal, size int, segment int64) (*journalResult, error) {
	c := &checkpoints{j: j, every: segment}
	if err := o.prime(ctx, c); err != nil {
		return nil, err
	}
	s := newJournalSink(o.outstanding)
	pool := make([]byte, size+1<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(pool) // never fails
	end := s.start.Add(o.warmup + o.duration)
	var measured time.Time
	n := 0
	for time.Now().Before(end) && ctx.Err() == nil && s.failed.Load() == nil {
		if measured.IsZero() && time.Since(s.start) >= o.warmup {
			measured = time.Now()
			s.from.Store(max(int64(time.Since(s.start)), 1))
		}
		for range s.take() {
			if err := j.Reserve(size, time.Second); err != nil {
				return nil, err
			}
			n++
			off := n * 31 & (1<<20 - 1)
			if _, err := j.Append(1, uint64(n), pool[off:off+size], s, journal.Token{A: int64(time.Since(s.start))}); err != nil {
				return nil, err
			}
			if err := c.appended(size); err != nil {
				return nil, err
			}
		}
		j.Commit()
	}
	elapsed := time.Since(measured)
	s.drain(o.outstanding) // everything in flight is durable before the histogram is read
	if p := s.failed.Load(); p != nil {
		return nil, *p
	}
	if measured.IsZero() || ctx.Err() != nil {
		return nil, exit(exitPartial, errors.New("interrupted before anything was measured"))
	}
	r := &journalResult{IO: string(j.Stats().IO), Outstanding: o.outstanding, SizeBytes: size, Seconds: elapsed.Seconds(), Records: s.count, LatencyUs: map[string]float64{}}
	r.PerSecond = float64(r.Records) / r.Seconds
	r.MBPerSecond = r.PerSecond * float64(size) / 1e6
	for name, q := range map[string]float64{"p50": 50, "p90": 90, "p99": 99, "p99.9": 99.9, "max": 100} {
		r.LatencyUs[name] = float64(s.hist.ValueAtQuantile(q))
	}
	return r, nil
}
