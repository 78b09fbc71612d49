package storage

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/binderylog/bindery/entrylog"
)

// benchEnv is a storage on the disk that holds the test's temporary directory.
func benchEnv(b *testing.B, cache int64) *env {
	e := osEnv(b, 1)
	old := e.tune
	e.tune = func(o *Options) {
		old(o)
		o.WriteCacheBytes = cache
		o.ReadCacheBytes = 64 << 20
		o.Log = entrylog.Options{LogSize: 256 << 20, BufferedWrites: o.Log.BufferedWrites, DirectReads: !o.Log.BufferedWrites}
		o.OnCheckpoint = nil
		o.FlushInterval = 30 * time.Second
		o.ReserveBytes = 1 << 20
	}
	e.open()
	return e
}

func benchPut(b *testing.B, e *env, id int64, entry int64, body []byte) {
	l, err := e.s.Ledger(id, true)
	if err != nil {
		b.Fatal(err)
	}
	binary.BigEndian.PutUint64(body, uint64(id))
	binary.BigEndian.PutUint64(body[8:], uint64(entry))
	if err := l.Reserve(len(body), false, time.Minute); err != nil {
		b.Fatal(err)
	}
	l.Lock()
	if l.Replica.CheckAdd(testKey, false, 0) != 0 {
		b.Fatal("refused")
	}
	if err := l.Put(entry, body); err != nil {
		b.Fatal(err)
	}
	if l.Replica.Accept(testKey, false) {
		l.StateChanged()
	}
	l.Unlock()
	l.Release()
}

// BenchmarkPut adds entries round robin over ledgers, flushes included: what the storage can take without a journal.
func BenchmarkPut(b *testing.B) {
	for _, c := range []struct {
		name    string
		size    int
		ledgers int64
	}{{"entry=100/ledgers=4", 100, 4}, {"entry=1k/ledgers=4", 1024, 4}, {"entry=1k/ledgers=1000", 1024, 1000}, {"entry=64k/ledgers=4", 64 << 10, 4}} {
		b.Run(c.name, func(b *testing.B) {
			e := benchEnv(b, 128<<20)
			defer e.close()
			var next atomic.Int64
			b.SetBytes(int64(c.size))
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				body := testBody(0, 0, -1, c.size, 0)
				for pb.Next() {
					n := next.Add(1) - 1
					benchPut(b, e, n%c.ledgers, n/c.ledgers, body)
				}
			})
			b.StopTimer()
		})
	}
}

// BenchmarkRead reads from each place; cold reads go through the read cache with nothing in it.
func BenchmarkRead(b *testing.B) {
	const size, entries = 1024, 100_000
	for _, place := range []string{"write_cache", "read_cache", "disk_sequential", "disk_random"} {
		b.Run("entry=1k/"+place, func(b *testing.B) {
			e := benchEnv(b, 512<<20)
			defer e.close()
			body := testBody(0, 0, -1, size, 0)
			for entry := range int64(entries) {
				benchPut(b, e, 1, entry, body)
			}
			n := int64(entries)
			if place != "write_cache" {
				e.roll()
			}
			if place == "read_cache" {
				n = 20_000 // a part that fits
			}
			l, err := e.s.Ledger(1, false)
			if err != nil {
				b.Fatal(err)
			}
			dst := make([]byte, 0, size)
			read := func(entry int64) {
				if dst, err = l.Read(entry, dst); err != nil {
					b.Fatal(err)
				}
			}
			if place == "read_cache" {
				for range 3 {
					for entry := range n {
						read(entry)
					}
				}
			}
			b.SetBytes(size)
			b.ReportAllocs()
			b.ResetTimer()
			entry := int64(0)
			for range b.N {
				if place == "disk_random" {
					entry = rand.Int64N(n)
				} else if entry++; entry == n {
					entry = 0
				}
				read(entry)
			}
			b.StopTimer()
			st := e.s.dirs[0]
			b.ReportMetric(float64(st.diskReads.Load())/float64(b.N), "waits/op")
			l.Release()
		})
	}
}

// BenchmarkFlush measures a checkpoint of a full cache: sorting, appending, syncing, the overlay.
func BenchmarkFlush(b *testing.B) {
	for _, c := range []struct {
		name    string
		ledgers int64
	}{{"entry=1k/ledgers=4", 4}, {"entry=1k/ledgers=1000", 1000}} {
		b.Run(c.name, func(b *testing.B) {
			const size, entries = 1024, 20_000
			e := benchEnv(b, 256<<20)
			defer e.close()
			body := testBody(0, 0, -1, size, 0)
			b.SetBytes(size * entries)
			b.ReportAllocs()
			entry := int64(0)
			for range b.N {
				b.StopTimer()
				for range int64(entries) {
					benchPut(b, e, entry%c.ledgers, entry/c.ledgers, body)
					entry++
				}
				runtime.GC()
				b.StartTimer()
				if err := e.s.Checkpoint(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
