package index

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/entrylog"
)

// flushRuns are the runs of a log as flushes of interleaved ledgers make them: each flush is sorted by ledger.
func flushRuns(log entrylog.LogID, ledgers, perFlush, flushes int, uniform bool) (runs []entrylog.Run, entries int) {
	rng := rand.New(rand.NewPCG(uint64(log), 7))
	base := int64(log-1) * int64(flushes*perFlush)
	offsets := make([]int64, flushes)
	for f := range offsets {
		offsets[f] = 4096 + int64(f)<<26
	}
	for ledger := range int64(ledgers) {
		for f := range int64(flushes) {
			r := entrylog.Run{Ledger: ledger, First: base + f*int64(perFlush), Log: log, Offset: offsets[f], Count: uint32(perFlush), Sizes: []uint32{1024}}
			if !uniform {
				r.Sizes = nil
				for range perFlush {
					r.Sizes = append(r.Sizes, uint32(800+rng.IntN(400)))
				}
			}
			offsets[f] += r.Bytes()
			entries += perFlush
			runs = append(runs, r)
		}
	}
	return runs, entries
}

// TestBytesPerEntry holds design target: at most 4 bytes of index an entry, 1,000 ledgers interleaved, 32 entries of each in
// a flush of 32 MiB of 1 KiB entries.
func TestBytesPerEntry(t *testing.T) {
	if testing.Short() {
		t.Skip("writes an index of 100 MB")
	}
	for _, uniform := range []bool{true, false} {
		x, err := OpenBolt(filepath.Join(t.TempDir(), FileName), Options{})
		require.NoError(t, err)
		entries := 0
		for log := entrylog.LogID(1); log <= 4; log++ {
			runs, n := flushRuns(log, 1000, 32, 32, uniform)
			entries += n
			ingestRuns(t, x, logInfo(log), runs...)
		}
		st, err := x.Stats()
		require.NoError(t, err)
		require.Equal(t, int64(entries), st.Entries)
		per := func(n int64) float64 { return float64(n) / float64(entries) }
		t.Logf("uniform sizes %t: %d entries; bytes of each: %.2f keys and values, %.2f pages in use, %.2f free pages, %.2f file", uniform, entries, per(st.KeyValueBytes), per(st.UsedBytes), per(st.FreeBytes), per(st.FileBytes))
		require.LessOrEqual(t, per(st.UsedBytes), 4.0)
		require.NoError(t, x.Close())
	}
}

func BenchmarkIngest(b *testing.B) {
	x, err := OpenBolt(filepath.Join(b.TempDir(), FileName), Options{})
	require.NoError(b, err)
	log := entrylog.LogID(0)
	runs := 0
	for b.Loop() {
		log++
		b.StopTimer()
		r, _ := flushRuns(log, 1000, 32, 32, true)
		b.StartTimer()
		if err := x.Ingest(context.Background(), logInfo(log), seqOf(r), nil); err != nil {
			b.Fatal(err)
		}
		runs += len(r)
	}
	b.ReportMetric(float64(runs)/b.Elapsed().Seconds(), "runs/s")
	require.NoError(b, x.Close())
}

func BenchmarkLocate(b *testing.B) {
	x, err := OpenBolt(filepath.Join(b.TempDir(), FileName), Options{})
	require.NoError(b, err)
	var entries int
	for log := entrylog.LogID(1); log <= 4; log++ {
		r, n := flushRuns(log, 1000, 32, 32, true)
		entries += n
		require.NoError(b, x.Ingest(context.Background(), logInfo(log), seqOf(r), nil))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	per := int64(entries / 1000)
	for _, what := range []string{"hit", "miss"} {
		b.Run(fmt.Sprintf("ledgers=1000/entries=%d/%s", entries, what), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				entry := rng.Int64N(per)
				if what == "miss" {
					entry += per
				}
				if _, err := x.Locate(rng.Int64N(1000), entry); err != nil && what == "hit" {
					b.Fatal(err)
				}
			}
		})
	}
	require.NoError(b, x.Close())
}

// BenchmarkLedgers lists a million ledgers in pages, as the collector does.
func BenchmarkLedgers(b *testing.B) {
	x, err := OpenBolt(filepath.Join(b.TempDir(), FileName), Options{})
	require.NoError(b, err)
	defer x.Close() //nolint:errcheck // the end
	const ledgers = 1_000_000
	states := make([]entrylog.LedgerState, ledgers)
	for i := range states {
		states[i] = entrylog.LedgerState{Ledger: int64(i) * 3, Data: []byte("the state of a ledger, about forty bytes")}
	}
	require.NoError(b, x.Ingest(b.Context(), logInfo(1), seqOf(nil), states))
	for b.Loop() {
		n := 0
		for after := int64(-1); ; {
			ids, err := x.Ledgers(after, 4096)
			require.NoError(b, err)
			if len(ids) == 0 {
				break
			}
			n += len(ids)
			after = ids[len(ids)-1]
		}
		require.Equal(b, ledgers, n)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/ledgers, "ns/ledger")
}
