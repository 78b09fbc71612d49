package ledgerclient

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// bookiesEnv makes the test program serve so many bookies that keep nothing, for a benchmark in another process.
const bookiesEnv = "BINDERY_BENCH_BOOKIES"

// serveBookies is the other process: it prints an address per bookie and serves until its standard input ends.
func serveBookies(n int) error {
	for i := range n {
		b := newFakeBookie("b" + strconv.Itoa(i))
		b.discard = true
		if err := b.listen(); err != nil {
			return err
		}
		fmt.Println(b.addr)
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// remoteCluster is a cluster whose bookies run in a process of their own, so that what is measured here is the client.
func remoteCluster(b *testing.B, n int) *cluster {
	cmd := exec.CommandContext(context.Background(), os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", bookiesEnv, n))
	stop, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = stop.Close()
		_ = cmd.Wait()
	})
	c := newCluster(b, 0)
	lines := bufio.NewReader(out)
	for i := range n {
		addr, err := lines.ReadString('\n')
		require.NoError(b, err)
		x := newFakeBookie("b" + strconv.Itoa(i))
		x.addr = strings.TrimSpace(addr)
		c.register(x, false)
	}
	return c
}

// BenchmarkThroughput is what this client can drive: E=3 Qw=3 Qa=2, 1 KiB, the window full, against bookies in another
// process that answer at once. Beside time and allocations an add it gives the largest share of the client's processor
// time that any one place spends on a lock, an allocation or a signal; -v says which.
func BenchmarkThroughput(b *testing.B) {
	for _, ledgers := range []int{1, 1000} {
		b.Run(fmt.Sprintf("E3Qw3Qa2/entry=1024/ledgers=%d/in-flight=4000", ledgers), func(b *testing.B) {
			c := remoteCluster(b, 3)
			client, _ := c.client(func(o *Options) { o.MaxPendingBytes = 256 << 20 })
			d := &throughput{data: make([]byte, 1<<10), room: make(chan struct{}, 4000)}
			for range ledgers {
				w, err := client.Create(context.Background(), CreateOptions{Quorum: quorum(3, 3, 2)})
				require.NoError(b, err)
				d.writers = append(d.writers, w)
			}
			d.run(b, 10*ledgers)
			b.SetBytes(1 << 10)
			b.ReportAllocs()
			cpu := cpuTime()
			b.ResetTimer()
			shares := profiled(b, func() { d.run(b, b.N) })
			b.StopTimer()
			b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N), "cpu-ns/op")
			shares.report(b)
		})
	}
}

// throughput drives writers in turn with a common window.
type throughput struct {
	data    []byte
	writers []*Writer
	room    chan struct{}
	wg      sync.WaitGroup
	b       *testing.B
}

func (d *throughput) run(b *testing.B, n int) {
	d.b = b
	done := d.done
	d.wg.Add(n)
	for i := range n {
		d.room <- struct{}{}
		d.writers[i%len(d.writers)].AppendAsync(d.data, done)
	}
	d.wg.Wait()
}

func (d *throughput) done(_ EntryID, err error) {
	if err != nil {
		d.b.Error(err)
	}
	<-d.room
	d.wg.Done()
}
