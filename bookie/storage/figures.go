package storage

import (
	"sync"

	"github.com/binderylog/bindery/entrylog"
)

// DirFigures are counters and gauges of one ledger directory, for pages of metrics under other names than ours.
type DirFigures struct {
	Ledger, Index string // the directories as configured

	Flushes, FlushNanos, FlushedEntries, FlushedBytes uint64
	WriteCacheHits, WriteCacheMisses                  uint64
	ReadCacheHits, ReadCacheMisses                    uint64
	ReadAheads, ReadAheadEntries, ReadAheadBytes      uint64
	CacheFull, CacheWaits                             uint64 // adds refused, and adds that waited, for room in the write cache
	Deleted                                           uint64 // ledgers

	CacheEntries, CacheBytes int64 // in both write caches
	Logs                     int
	LogBytes                 int64
}

// Figures reads what the storage counts. It remembers how many entries each sealed log holds.
type Figures struct {
	s  *Storage
	mu sync.Mutex
	// entries of sealed logs by directory; guarded by mu, which is held while a few footers are read.
	entries []map[entrylog.LogID]int64
}

// NewFigures returns the figures of s.
func NewFigures(s *Storage) *Figures {
	f := &Figures{s: s}
	for range s.dirs {
		f.entries = append(f.entries, map[entrylog.LogID]int64{})
	}
	return f
}

// Dirs returns the figures of each directory.
func (f *Figures) Dirs() []DirFigures {
	out := make([]DirFigures, len(f.s.dirs))
	for i, d := range f.s.dirs {
		write := d.cacheHits.Load() + d.flushHits.Load()
		st := d.log.Stats()
		out[i] = DirFigures{
			Ledger: d.path, Index: d.path,
			Flushes: d.flushes.Load(), FlushNanos: d.flushNanos.Load(), FlushedEntries: d.flushedEntries.Load(), FlushedBytes: d.flushedBytes.Load(),
			WriteCacheHits: write, WriteCacheMisses: d.readHits.Load() + d.diskReads.Load(),
			ReadCacheHits: d.readHits.Load(), ReadCacheMisses: d.diskReads.Load(), ReadAheads: d.prefetched.Load(),
			ReadAheadEntries: d.aheadEntries.Load(), ReadAheadBytes: d.aheadBytes.Load(),
			CacheFull: d.cacheFull.Load(), CacheWaits: d.stalls.Load(), Deleted: d.deleted.Load(),
			Logs: st.Logs, LogBytes: st.Bytes,
		}
		if index := f.s.o.Dirs[d.index].Index; index != "" {
			out[i].Index = index
		}
		for _, c := range []*writeCache{d.current.Load(), d.flushing.Load()} {
			if c != nil {
				out[i].CacheEntries += c.entries.Load()
				out[i].CacheBytes += c.used.Load() - cacheStart
			}
		}
	}
	return out
}

// footersAtOnce bounds the footers that one call of Entries reads of one directory.
const footersAtOnce = 8

// Entries estimates the entries of each directory: those in the write caches and in the entry logs, with what collection has
// not removed yet. Few footers are read at a time; logs not looked at yet count by their size.
func (f *Figures) Entries() []int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]int64, len(f.s.dirs))
	for i, d := range f.s.dirs {
		known, here := f.entries[i], map[entrylog.LogID]int64{}
		var counted, countedBytes, otherBytes int64
		reads := 0
		for _, info := range d.log.Logs() {
			n, ok := known[info.ID]
			if !ok && info.Sealed && reads < footersAtOnce {
				reads++
				if footer, err := d.log.Footer(info.ID); err == nil {
					n, ok = footer.Entries, true
				}
			}
			if !ok {
				otherBytes += info.Size
				continue
			}
			here[info.ID] = n
			counted += n
			countedBytes += info.Size
		}
		f.entries[i] = here
		switch {
		case countedBytes > 0:
			counted += int64(float64(counted) / float64(countedBytes) * float64(otherBytes))
		case otherBytes > 0:
			if st := d.log.Stats(); st.Written > 0 { // no log has been sealed yet: as dense as what this process wrote
				counted = int64(float64(st.Entries) / float64(st.Written) * float64(otherBytes))
			}
		}
		out[i] = counted
		for _, c := range []*writeCache{d.current.Load(), d.flushing.Load()} {
			if c != nil {
				out[i] += c.entries.Load()
			}
		}
	}
	return out
}

// ReadCacheBytes returns how much the read cache holds, of the bookie as a whole. What is new is in the window and, most of
// it, in the main part too, so the larger one counts.
func (f *Figures) ReadCacheBytes() int64 {
	c := f.s.cache
	var window int64
	for i := range c.window {
		w := &c.window[i]
		w.mu.Lock()
		for _, b := range w.ring {
			if b != nil {
				window += int64(cap(b.data))
			}
		}
		w.mu.Unlock()
	}
	return max(window, c.main.MaxCost()-c.main.RemainingCost())
}
