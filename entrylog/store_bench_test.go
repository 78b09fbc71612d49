package entrylog

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/internal/vfs"
)

// benchDir is on the disk to be measured: set BINDERY_BENCH_DIR, or it is the test's temporary directory.
func benchDir(b *testing.B) string {
	b.Helper()
	if dir := os.Getenv("BINDERY_BENCH_DIR"); dir != "" {
		dir, err := os.MkdirTemp(dir, "entrylog")
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, os.RemoveAll(dir)) })
		return dir
	}
	return b.TempDir()
}

const benchCheckpoint = 32 << 20 // what a flush writes

// rawWrite writes n bytes with 1 MiB direct writes, two in turn, into a file with space reserved in steps, and syncs each
// benchCheckpoint: what the disk gives a program that does nothing else.
func rawWrite(b *testing.B, dir string, n int64) time.Duration {
	fs := vfs.OS()
	name := filepath.Join(dir, "raw")
	f, err := fs.Open(name, vfs.Mode{Write: true, Create: true, Exclusive: true, Direct: true})
	require.NoError(b, err)
	buf, err := vfs.AllocOffHeap(1 << 20)
	require.NoError(b, err)
	for i := range buf {
		buf[i] = byte(i * 31)
	}
	start := time.Now()
	for off := int64(0); off < n; off += int64(len(buf)) {
		if off%(64<<20) == 0 {
			require.NoError(b, f.Preallocate(off+64<<20))
		}
		_, err := f.WriteAt(buf, off)
		require.NoError(b, err)
		if (off+int64(len(buf)))%benchCheckpoint == 0 {
			require.NoError(b, f.Sync())
		}
	}
	require.NoError(b, f.Sync())
	took := time.Since(start)
	require.NoError(b, vfs.FreeOffHeap(buf))
	require.NoError(b, f.Close())
	require.NoError(b, fs.Remove(name))
	return took
}

// BenchmarkAppend writes entries of 1,000 ledgers as flushes do, in turn with raw writes of as many bytes; the ratio of both
// is what counts.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 1024, 64 << 10} {
		b.Run(fmt.Sprintf("entry=%d/ledgers=1000/checkpoint=32MiB", size), func(b *testing.B) {
			dir := benchDir(b)
			s, _, err := Open(vfs.OS(), dir, Options{})
			require.NoError(b, err)
			perFlush := benchCheckpoint / (size + RecordHeaderSize)
			const ledgers = 1000
			perLedger := max(1, perFlush/ledgers)
			body := makeBody(1, 0, size, 0)
			b.SetBytes(int64(perLedger * ledgers * size))
			b.ReportAllocs()
			var ours, raw time.Duration
			var bytes int64
			next := int64(0)
			for b.Loop() {
				start := time.Now()
				var rb RunBuilder
				for ledger := range int64(ledgers) {
					for e := next; e < next+int64(perLedger); e++ {
						loc, err := s.Append(body)
						if err != nil {
							b.Fatal(err)
						}
						rb.Add(ledger, e, loc)
					}
				}
				next += int64(perLedger)
				if err := s.Checkpoint(rb.Runs(), nil); err != nil {
					b.Fatal(err)
				}
				ours += time.Since(start)
				n := int64(perLedger*ledgers) * int64(size)
				bytes += n
				b.StopTimer()
				raw += rawWrite(b, dir, n)
				b.StartTimer()
			}
			require.NoError(b, s.Close())
			mib := float64(bytes) / (1 << 20)
			b.ReportMetric(mib/ours.Seconds(), "MiB/s")
			b.ReportMetric(mib/raw.Seconds(), "raw-MiB/s")
			b.ReportMetric(raw.Seconds()/ours.Seconds(), "of-raw")
			b.ReportMetric(float64(s.Stats().Written)/float64(bytes), "written/payload")
		})
	}
}

// BenchmarkRead reads single entries, warm.
func BenchmarkRead(b *testing.B) {
	for _, direct := range []bool{false, true} {
		b.Run(fmt.Sprintf("entry=1024/direct=%t", direct), func(b *testing.B) {
			s, _, err := Open(vfs.OS(), benchDir(b), Options{DirectReads: direct})
			require.NoError(b, err)
			var locs []Location
			var rb RunBuilder
			for e := range int64(4096) {
				loc, err := s.Append(makeBody(1, e, 1024, 0))
				require.NoError(b, err)
				rb.Add(1, e, loc)
				locs = append(locs, loc)
			}
			require.NoError(b, s.Checkpoint(rb.Runs(), nil))
			var buf []byte
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if buf, err = s.Read(locs[i%len(locs)], buf); err != nil {
					b.Fatal(err)
				}
				i += 31
			}
			require.NoError(b, s.Close())
		})
	}
}
