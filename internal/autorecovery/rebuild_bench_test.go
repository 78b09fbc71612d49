package autorecovery

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/ledgerclient"
)

// fill makes closed ledgers with a copy on bk1 and returns how many bytes each copy of all of them has.
func (k *kit) fill(ledgers, entries, size int) (bytes int64) {
	data := make([]byte, size)
	for range ledgers {
		w := k.create(quorum(3, 3, 2), 0, "bk1")
		var wg sync.WaitGroup
		for range entries {
			wg.Add(1)
			w.AppendAsync(data, func(_ ledger.EntryID, err error) {
				require.NoError(k.t, err)
				wg.Done()
			})
		}
		wg.Wait()
		require.NoError(k.t, w.Close(k.ctx()))
		bytes += int64(entries) * int64(size)
	}
	return bytes
}

// BenchmarkRebuild measures how fast a lost bookie is made up for: at the rate limit, or at what bookies and client can do.
func BenchmarkRebuild(b *testing.B) {
	for _, rate := range []int64{-1, 16 << 20} {
		name := "rate=none"
		if rate > 0 {
			name = fmt.Sprintf("rate=%dMiB", rate>>20)
		}
		b.Run(name, func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				k := newKit(b, 4, func(o *bookie.Options) { o.Storage.ReadCacheBytes = 32 << 20 })
				bytes := k.fill(6, 1000, 4<<10)
				k.members[1].stop()
				n := k.node("n1", workerOnly, func(o *Options) { o.Rate = rate })
				require.NoError(b, n.auditor.auditBookies(k.ctx()))
				b.StartTimer()
				started, cpu := time.Now(), cpuTime()
				k.unmarked()
				b.ReportMetric(float64(bytes)/(1<<20)/time.Since(started).Seconds(), "MiB/s")
				b.ReportMetric((cpuTime()-cpu).Seconds()*1000/(float64(bytes)/(1<<20)), "cpu-ms/MiB")
				b.StopTimer()
				n.stop()
			}
		})
	}
}

// cpuTime is the processor time of this process, which does not depend on what else the machine does.
func cpuTime() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkWritersBesideRebuild reports the p99 of a writer with one entry in flight, alone and while a bookie is rebuilt at
// a rate, and their ratio. It changes between the two several times, so that a machine that changes meanwhile changes both.
// Everything shares the machine's processors: a rate near what they can do is bound to show.
func BenchmarkWritersBesideRebuild(b *testing.B) {
	for _, rate := range []int64{8 << 20, DefaultRate, 64 << 20} {
		b.Run(fmt.Sprintf("rate=%dMiB", rate>>20), func(b *testing.B) { besideRebuild(b, rate) })
	}
}

// besideRounds and besideTime are how often, and how long each time, a writer is measured beside a rebuild.
const (
	besideRounds = 5
	besideTime   = 1500 * time.Millisecond
)

func besideRebuild(b *testing.B, rate int64) {
	for range b.N {
		k := newKit(b, 5, func(o *bookie.Options) { o.Storage.ReadCacheBytes = 32 << 20 })
		k.fill(max(12, int(2*besideRounds*rate*int64(besideTime)/int64(time.Second)/(4<<20))), 1000, 4<<10)
		w, err := k.client.Create(context.Background(), ledgerclient.CreateOptions{Quorum: quorum(3, 3, 2)})
		require.NoError(b, err)
		k.members[1].stop()
		data := make([]byte, 1<<10)
		write := func() (took []time.Duration) {
			for end := time.Now().Add(besideTime); time.Now().Before(end) || len(took) < 100; {
				at := time.Now()
				_, err := w.Append(context.Background(), data)
				require.NoError(b, err)
				took = append(took, time.Since(at))
			}
			return took
		}
		write() // if bk1 has to be replaced, that is not what is measured
		audit := k.node("audit", func(o *Options) { o.private.noWorker, o.private.noAuditor = true, true })
		require.NoError(b, audit.auditor.auditBookies(context.Background()))
		var alone, beside []time.Duration
		var ratios []float64
		var copied int
		var copying time.Duration
		for range besideRounds {
			a := write()
			n := k.node("worker", workerOnly, func(o *Options) { o.Rate = rate })
			require.Eventually(b, func() bool { return n.m.bytesWritten.Get() > 0 }, time.Minute, time.Millisecond)
			before, started := n.m.bytesWritten.Get(), time.Now()
			c := write()
			copied += int(n.m.bytesWritten.Get() - before)
			copying += time.Since(started)
			n.stop()
			ratios = append(ratios, float64(p99(c))/float64(p99(a)))
			alone, beside = append(alone, a...), append(beside, c...)
		}
		slices.Sort(ratios)
		b.ReportMetric(float64(p99(alone).Microseconds()), "alone-p99-us")
		b.ReportMetric(float64(p99(beside).Microseconds()), "beside-p99-us")
		b.ReportMetric(float64(p99(beside))/float64(p99(alone)), "ratio")
		b.ReportMetric(ratios[0], "ratio-min")
		b.ReportMetric(ratios[len(ratios)/2], "ratio-median")
		b.ReportMetric(ratios[len(ratios)-1], "ratio-max")
		b.ReportMetric(float64(copied)/(1<<20)/copying.Seconds(), "MiB/s")
	}
}

func p99(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)*99/100]
}
