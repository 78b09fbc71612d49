package autorecovery

import (
	"context"
	"fmt"
	"slices"
	"sync"
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
				started := time.Now()
				k.unmarked()
				b.ReportMetric(float64(bytes)/(1<<20)/time.Since(started).Seconds(), "MiB/s")
				b.StopTimer()
				n.stop()
			}
		})
	}
}

// BenchmarkWritersBesideRebuild reports the p99 of a writer with one entry in flight, alone and while a bookie is rebuilt
// at a rate, and their ratio. Everything shares the machine's processors: a rate near what they can do is bound to show.
func BenchmarkWritersBesideRebuild(b *testing.B) {
	for _, rate := range []int64{8 << 20, DefaultRate, 64 << 20} {
		b.Run(fmt.Sprintf("rate=%dMiB", rate>>20), func(b *testing.B) { besideRebuild(b, rate) })
	}
}

func besideRebuild(b *testing.B, rate int64) {
	for range b.N {
		k := newKit(b, 5, func(o *bookie.Options) { o.Storage.ReadCacheBytes = 32 << 20 })
		k.fill(12, 1000, 4<<10)
		w, err := k.client.Create(k.ctx(), ledgerclient.CreateOptions{Quorum: quorum(3, 3, 2)})
		require.NoError(b, err)
		data := make([]byte, 1<<10)
		p99 := func(until func() bool) (time.Duration, int) {
			var took []time.Duration
			for !until() || len(took) < 200 {
				at := time.Now()
				_, err := w.Append(context.Background(), data)
				require.NoError(b, err)
				took = append(took, time.Since(at))
			}
			slices.Sort(took)
			return took[len(took)*99/100], len(took)
		}
		deadline := time.Now().Add(2 * time.Second)
		alone, _ := p99(func() bool { return time.Now().After(deadline) })
		k.members[1].stop()
		_, _ = w.Append(context.Background(), data) // if it has to replace bk1, that is not what is measured
		n := k.node("n1", workerOnly, func(o *Options) { o.Rate = rate })
		require.NoError(b, n.auditor.auditBookies(k.ctx()))
		beside, samples := p99(func() bool { return n.outcomes(OutcomeRepaired) >= 12 })
		b.ReportMetric(float64(alone.Microseconds()), "alone-p99-us")
		b.ReportMetric(float64(beside.Microseconds()), "beside-p99-us")
		b.ReportMetric(float64(beside)/float64(alone), "ratio")
		b.ReportMetric(float64(samples), "appends")
		n.stop()
	}
}
