package bookie

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/internal/wire"
)

// diskBookie starts a bookie on the disk that holds the test's temporary directory.
func diskBookie(t testing.TB, mod func(*Options)) *testBookie {
	t.Helper()
	dir := t.TempDir()
	fs := vfs.OS()
	for _, d := range []string{"journal", "ledgers"} {
		if err := fs.MkdirAll(dir + "/" + d + "/current"); err != nil {
			t.Fatal(err)
		}
	}
	return startBookie(t, bookieConfig{fs: fs, mod: func(o *Options) {
		o.JournalDirs, o.LedgerDirs = []string{dir + "/journal"}, []string{dir + "/ledgers"}
		o.Journal.SegmentSize = 64 << 20
		o.Storage.WriteCacheBytes = 128 << 20
		o.Storage.Log.LogSize = 256 << 20
		o.InFlightBytes = 32 << 20
		if mod != nil {
			mod(o)
		}
	}})
}

// load is the adds of one connection: window of them are outstanding at a time.
type load struct {
	c      net.Conn
	frame  []byte // one add; ids are patched in
	ledger int64
	next   int64
}

func newLoad(t testing.TB, b *testBookie, ledger int64, size int) *load {
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &load{c: c, ledger: ledger, frame: encode(t, addReq(wire.V2, ledger, 0, -1, string(make([]byte, size))))}
}

// run sends n adds with window outstanding. It allocates what it needs once.
func (l *load) run(n, window int) error {
	r := bufio.NewReaderSize(l.c, 64<<10)
	var answer [28]byte
	batch := make([]byte, 0, min(window, 256)*len(l.frame))
	sent, done := 0, 0
	for done < n {
		batch = batch[:0]
		for sent < n && sent-done < window && len(batch)+len(l.frame) <= cap(batch) {
			binary.BigEndian.PutUint64(l.frame[4+4+20+8:], uint64(l.next))
			batch = append(batch, l.frame...)
			l.next++
			sent++
		}
		if len(batch) > 0 {
			if _, err := l.c.Write(batch); err != nil {
				return err
			}
		}
		for first := true; first || r.Buffered() >= len(answer); first = false {
			if _, err := io.ReadFull(r, answer[:]); err != nil {
				return err
			}
			if rc := binary.BigEndian.Uint32(answer[8:]); rc != 0 {
				return fmt.Errorf("add: rc %d", rc)
			}
			if done++; done == sent {
				break
			}
		}
	}
	return nil
}

// runLoads measures b.N requests, divided among loads that run side by side.
func runLoads[L interface{ run(n, window int) error }](b *testing.B, loads []L, window int, what string) {
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	var failed atomic.Value
	for i, l := range loads {
		n := b.N / len(loads)
		if i < b.N%len(loads) {
			n++
		}
		wg.Go(func() {
			if err := l.run(n, window); err != nil {
				failed.Store(err)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	if err := failed.Load(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), what+"/s")
}

// BenchmarkBookieAdd measures adds over loopback. conns connections have window adds outstanding each.
func BenchmarkBookieAdd(b *testing.B) {
	for _, shape := range []struct{ conns, window, size int }{
		{1, 1, 1024}, {64, 1, 1024}, {4, 512, 1024}, {4, 2000, 100},
	} {
		b.Run(fmt.Sprintf("conns=%d/window=%d/entry=%d", shape.conns, shape.window, shape.size), func(b *testing.B) {
			bk := diskBookie(b, nil)
			loads := make([]*load, shape.conns)
			for i := range loads {
				loads[i] = newLoad(b, bk, int64(i+1), shape.size)
				if err := loads[i].run(2*shape.window, shape.window); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(shape.size))
			runLoads(b, loads, shape.window, "adds")
		})
	}
}

// TestAddAllocatesNothing: the whole path of an add, client included, allocates nothing amortised.
func TestAddAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates: runs in builds without -race")
	}
	b := diskBookie(t, nil)
	l := newLoad(t, b, 1, 1024)
	if err := l.run(20_000, 200); err != nil {
		t.Fatal(err)
	}
	const n = 20_000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := l.run(n, 200); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	perAdd := float64(after.Mallocs-before.Mallocs) / n
	t.Logf("%.4f allocations per add", perAdd)
	if perAdd > 0.05 {
		t.Errorf("%.3f allocations per add", perAdd)
	}
}
