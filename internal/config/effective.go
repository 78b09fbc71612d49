package config

import (
	"fmt"
	"strconv"
	"time"
)

// Effective is what the "auto" settings come to on one machine. Sizes are of the whole process; Share divides them.
type Effective struct {
	Memory     int64 // the budget
	WriteCache int64 // off the Go heap
	ReadCache  int64
	InFlight   int64
	GoMemLimit int64 // what is left for the Go heap with the read cache on it, stacks and the runtime
	GoMaxProcs int
	GroupWait  time.Duration
	GCRate     int64 // 0 = adaptive

	reason map[string]string // by key: how the figure came about
}

// Floors of the Go heap besides the read cache, so that a small budget does not end in a collector that never rests. They are kept even where
// the budget is smaller than its parts; Resolve then shrinks the caches.
const (
	heapFloor         = 32 * mib // one bookie
	heapFloorMetadata = 64 * mib // the embedded metadata member, on top
	inFlightFloor     = 16 * mib
	writeCacheFloor   = 4 * mib
	readCacheFloor    = 1 * mib
)

// Resolve computes the figures for a process that runs the given number of bookies. Without any there are no caches and no
// requests in flight, and all of the budget is the heap's.
func (c *Config) Resolve(m Machine, bookies int) Effective {
	if bookies == 0 {
		e := c.Resolve(m, 1)
		e.WriteCache, e.ReadCache, e.InFlight = 0, 0, 0
		e.GoMemLimit, e.GoMaxProcs = e.Memory, m.Cores
		return e
	}
	e := Effective{reason: map[string]string{}}
	e.Memory = c.Storage.Memory.Bytes(m.Memory / 2)
	if c.Storage.Memory == AutoSize {
		e.reason["storage.memory"] = fmt.Sprintf("half of the %s's %s", m.MemorySource, Size(m.Memory).Approx())
	}
	e.InFlight = c.Limits.InFlight.Bytes(max(e.Memory/10, inFlightFloor))
	if c.Limits.InFlight == AutoSize {
		e.reason["limits.in_flight"] = "10 % of storage.memory, at least 16MiB"
	}
	heap := heapFloor * int64(bookies)
	if c.HasRole("metadata") {
		heap += heapFloorMetadata
	}
	room := max(e.Memory-e.InFlight-heap, 0) // most that the caches may take together
	e.WriteCache = c.Storage.CacheWrite.Bytes(e.Memory / 100 * 45)
	e.ReadCache = c.Storage.CacheRead.Bytes(e.Memory / 100 * 35)
	shrunk := ""
	if over := e.WriteCache + e.ReadCache - room; over > 0 {
		shrunk = ", less what the heap needs"
		if c.Storage.CacheWrite == AutoSize && c.Storage.CacheRead == AutoSize {
			e.WriteCache = room / 80 * 45
			e.ReadCache = room / 80 * 35
		} else if c.Storage.CacheRead == AutoSize {
			e.ReadCache = room - e.WriteCache
		} else if c.Storage.CacheWrite == AutoSize {
			e.WriteCache = room - e.ReadCache
		}
	}
	e.WriteCache = max(e.WriteCache, writeCacheFloor*int64(bookies))
	e.ReadCache = max(e.ReadCache, readCacheFloor*int64(bookies))
	if c.Storage.CacheWrite == AutoSize {
		e.reason["storage.cache.write"] = "45 % of storage.memory" + shrunk
	}
	if c.Storage.CacheRead == AutoSize {
		e.reason["storage.cache.read"] = "35 % of storage.memory" + shrunk
	}
	e.GoMemLimit = max(e.Memory-e.WriteCache-e.InFlight, e.ReadCache+heap) // a full read cache must leave room, or the collector never rests
	e.GoMaxProcs = m.Cores + bookies*c.Expert.GroupsInFlight*max(len(c.Storage.JournalDirs), 1)
	e.GroupWait = c.Journal.MaxGroupWait.D(0)
	if c.Journal.MaxGroupWait == AutoDuration {
		e.reason["journal.max_group_wait"] = "0: groups fill while another one is in flight"
	}
	if c.GC.Rate != AutoSize {
		e.GCRate = int64(c.GC.Rate)
	} else {
		e.reason["gc.rate"] = "adaptive: backs off while reads or flushes are late"
	}
	return e
}

// Share is one bookie's part of the process's budget.
func (e Effective) Share(bookies int) Effective {
	n := int64(max(bookies, 1))
	e.WriteCache /= n
	e.ReadCache /= n
	e.InFlight = max(e.InFlight/n, inFlightFloor)
	return e
}

// Value is the effective value of a setting as TOML, and the reason for it where it was computed.
func (l *Loaded) Value(s *Setting, e Effective) (value, reason string) {
	reason = e.reason[s.Key]
	switch s.Key {
	case "storage.memory":
		if l.Storage.Memory == AutoSize {
			return strconv.Quote(Size(e.Memory).Approx()), reason
		}
		return quoted(e.Memory), reason
	case "storage.cache.write":
		return quoted(e.WriteCache), reason
	case "storage.cache.read":
		return quoted(e.ReadCache), reason
	case "limits.in_flight":
		return quoted(e.InFlight), reason
	case "journal.max_group_wait":
		return strconv.Quote(Duration(e.GroupWait).String()), reason
	}
	return s.Format(&l.Config), reason
}

func quoted(n int64) string { return strconv.Quote(Size(n).String()) }
