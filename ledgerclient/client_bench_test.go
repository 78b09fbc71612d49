package ledgerclient

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkAppend measures the client against three bookies in this process that answer at once and store nothing: the
// figures include their share of the CPU, and are an upper bound of what this client can drive.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 64 << 10} {
		for _, window := range []int{1, 64, 4096} {
			b.Run(fmt.Sprintf("entry=%d/in-flight=%d", size, window), func(b *testing.B) {
				c := newCluster(b, 3)
				for _, x := range c.bookies {
					x.discard = true
				}
				client, _ := c.client(func(o *Options) { o.MaxPendingBytes = 256 << 20 })
				w, err := client.Create(context.Background(), CreateOptions{})
				require.NoError(b, err)
				data := make([]byte, size)
				room := make(chan struct{}, window)
				var wg sync.WaitGroup
				done := func(_ EntryID, err error) {
					if err != nil {
						b.Error(err)
					}
					<-room
					wg.Done()
				}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				cpu := cpuTime()
				b.ResetTimer()
				for range b.N {
					room <- struct{}{}
					wg.Add(1)
					w.AppendAsync(data, done)
				}
				wg.Wait()
				b.StopTimer()
				b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N), "cpu-ns/op")
				require.NoError(b, w.Close(context.Background()))
			})
		}
	}
}

// cpuTime is the processor time of this process, in nanoseconds: unlike the time on the wall it does not depend on what else
// the machine does.
func cpuTime() int64 {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return r.Utime.Nano() + r.Stime.Nano()
}

// BenchmarkAddForm compares the two forms of the protocol for adds.
func BenchmarkAddForm(b *testing.B) {
	for _, v3 := range []bool{false, true} {
		b.Run(fmt.Sprintf("v3=%v/entry=1024/in-flight=4096", v3), func(b *testing.B) {
			c := newCluster(b, 3)
			for _, x := range c.bookies {
				x.discard = true
			}
			client, _ := c.client(func(o *Options) { o.MaxPendingBytes = 256 << 20 })
			client.addsV3 = v3
			w, err := client.Create(context.Background(), CreateOptions{})
			require.NoError(b, err)
			data := make([]byte, 1<<10)
			room := make(chan struct{}, 4096)
			var wg sync.WaitGroup
			done := func(EntryID, error) { <-room; wg.Done() }
			b.ReportAllocs()
			cpu := cpuTime()
			b.ResetTimer()
			for range b.N {
				room <- struct{}{}
				wg.Add(1)
				w.AppendAsync(data, done)
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkAppendSync is one caller that waits for each entry.
func BenchmarkAppendSync(b *testing.B) {
	c := newCluster(b, 3)
	for _, x := range c.bookies {
		x.discard = true
	}
	client, _ := c.client()
	ctx := context.Background()
	w, err := client.Create(ctx, CreateOptions{})
	require.NoError(b, err)
	data := make([]byte, 1<<10)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if _, err := w.Append(ctx, data); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRead reads a closed ledger from front to end.
func BenchmarkRead(b *testing.B) {
	for _, q := range []Quorum{quorum(3, 3, 2), quorum(3, 2, 2)} {
		b.Run(fmt.Sprintf("E%d/Qw%d/entry=1024", q.Ensemble, q.Write), func(b *testing.B) {
			ctx := context.Background()
			c := newCluster(b, 3)
			client, _ := c.client()
			w, err := client.Create(ctx, CreateOptions{Quorum: q})
			require.NoError(b, err)
			const n = 20000
			data := make([]byte, 1<<10)
			var wg sync.WaitGroup
			for range n {
				wg.Add(1)
				w.AppendAsync(data, func(EntryID, error) { wg.Done() })
			}
			wg.Wait()
			require.NoError(b, w.Close(ctx))
			r, err := client.Open(ctx, w.ID(), OpenOptions{})
			require.NoError(b, err)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; {
				for _, err := range r.Entries(ctx, 0, n-1) {
					if err != nil {
						b.Fatal(err)
					}
					if done++; done == b.N {
						break
					}
				}
			}
		})
	}
}
