package storage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReadAhead reads a ledger that lies in one piece, and one that lies in many short ones between others. The first is
// read in large pieces, mostly before they are asked for; of the second little more than itself is read.
func TestReadAhead(t *testing.T) {
	for _, c := range []struct {
		name      string
		ledgers   int64
		waitsMax  uint64
		factorMax float64 // bytes read for each byte of the ledger
	}{{"one piece", 1, 60, 1.6}, {"short pieces", 64, 140, 4}} {
		t.Run(c.name, func(t *testing.T) {
			const size, entries = 1000, 4000
			e := newEnv(t, 1, 1, func(o *Options) {
				o.WriteCacheBytes = 2 * (8 << 20)
				o.ReadCacheBytes = 4 << 20
				o.Log.LogSize = 1 << 30
				o.OnCheckpoint = nil
			}).open()
			for entry := range int64(entries) {
				for id := range c.ledgers {
					if c.ledgers == 1 || entry < entries/10 {
						require.NoError(t, e.addQuietly(id, entry, size))
					}
				}
				if entry%40 == 39 && c.ledgers > 1 && entry < entries/10 {
					e.checkpoint()
				}
			}
			e.roll()
			n := int64(entries)
			if c.ledgers > 1 {
				n /= 10
			}
			d := e.s.dirs[0]
			before := d.log.Stats().ReadBytes
			for entry := range n {
				e.requireEntry(c.ledgers/2, entry, size)
				if entry%64 == 0 {
					time.Sleep(time.Millisecond) // a reader that does something with what it reads
				}
			}
			read := float64(d.log.Stats().ReadBytes - before)
			t.Logf("%d waits, %d pieces read ahead, %.2f bytes read for each", d.diskReads.Load(), d.prefetched.Load(), read/float64(n*size))
			require.LessOrEqual(t, d.diskReads.Load(), c.waitsMax)
			require.LessOrEqual(t, read/float64(n*size), c.factorMax)
			e.close()
		})
	}
}

// addQuietly adds an entry that no journal keeps.
func (e *env) addQuietly(id, entry int64, n int) error {
	l, err := e.s.Ledger(id, true)
	if err != nil {
		return err
	}
	defer l.Release()
	body := testBody(id, entry, entry-1, n, 0)
	if err := l.Reserve(len(body), false, 10*time.Second); err != nil {
		return err
	}
	l.Lock()
	defer l.Unlock()
	if err := l.Put(entry, body); err != nil {
		return err
	}
	if l.Replica.Accept(testKey, false) {
		l.StateChanged()
	}
	return nil
}

// TestReadCacheKeepsWhatFits reads a ledger that fits into the cache three times: the third pass reads nothing from disk.
func TestReadCacheKeepsWhatFits(t *testing.T) {
	const size, entries = 1024, 10_000
	e := newEnv(t, 1, 1, func(o *Options) {
		o.WriteCacheBytes = 2 * (32 << 20)
		o.ReadCacheBytes = 64 << 20
		o.Log.LogSize = 1 << 30
		o.OnCheckpoint = nil
	}).open()
	for entry := range int64(entries) {
		require.NoError(t, e.addQuietly(1, entry, size))
	}
	e.roll()
	d := e.s.dirs[0]
	read := uint64(0)
	for pass := range 3 {
		before := d.log.Stats().ReadBytes
		for entry := range int64(entries) {
			e.requireEntry(1, entry, size)
		}
		e.s.cache.main.Wait()
		read = d.log.Stats().ReadBytes - before
		t.Logf("pass %d: %d bytes read", pass, read)
		if pass == 0 {
			require.Less(t, read, uint64(entries*size*13/10))
		}
	}
	require.Less(t, read, uint64(entries*size/20))
	e.close()
}
