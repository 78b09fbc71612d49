package main

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/bookie/gc"
	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/internal/config"
	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/journal"
)

func diskLimits(l *config.Loaded) storage.DiskLimits {
	return storage.DiskLimits{FullAt: l.Disk.FullAt, WarnAt: l.Disk.WarnAt, ResumeBelow: l.Disk.ResumeBelow, ReadOnlyWhen: l.Disk.ReadOnlyWhen}
}

func gcLimits(l *config.Loaded, share config.Effective) gc.Options {
	return gc.Options{
		Interval: l.GC.Interval.D(0),
		Minor:    gc.Compaction{Below: l.GC.MinorBelow, Every: l.GC.MinorEvery.D(0)},
		Major:    gc.Compaction{Below: l.GC.MajorBelow, Every: l.GC.MajorEvery.D(0)},
		Rate:     share.GCRate, // 0: adaptive
	}
}

// bookieTuning is the part of bookieOptions that can change while the bookie runs.
func bookieTuning(l *config.Loaded, share config.Effective) bookie.Tuning {
	return bookie.Tuning{
		GC: gcLimits(l, share), Disk: diskLimits(l), InFlightBytes: share.InFlight,
		SlowClientTimeout: l.Limits.SlowClientTimeout.D(0), GroupWait: share.GroupWait,
	}
}

// bookieOptions translates a configuration into the options of one bookie. share is that bookie's part of the budget.
func bookieOptions(l *config.Loaded, p bookiePlan, share config.Effective, views *metadata.Views, drain time.Duration, log *slog.Logger) bookie.Options {
	o := bookie.Options{
		ID:             ledger.BookieID(p.id),
		Listen:         p.listen,
		Advertised:     p.advertised,
		AdminAddress:   p.admin,
		Domain:         cmp.Or(p.domain, l.Bookie.Domain),
		JournalDirs:    p.journalDirs,
		LedgerDirs:     p.ledgerDirs,
		IndexDirs:      p.indexDirs,
		AllowExpansion: l.Storage.AllowExpansion,
		Prepare:        p.prepare,
		Durability:     bookie.Durability(l.Journal.Durability),
		Journal: journal.Options{
			SegmentSize:    int64(l.Journal.SegmentSize),
			MaxGroupWait:   share.GroupWait,
			MaxGroupBytes:  int(l.Journal.MaxGroupBytes),
			GroupsInFlight: l.Expert.GroupsInFlight,
			IO:             journal.IOMethod(l.Journal.IO),
		},
		Storage: storage.Options{
			WriteCacheBytes: share.WriteCache,
			ReadCacheBytes:  share.ReadCache,
			FlushInterval:   l.Storage.FlushInterval.D(0),
			Disk:            diskLimits(l),
		},
		GC:                gcLimits(l, share),
		Metadata:          views,
		MetadataTimeout:   l.Metadata.Timeout.D(0),
		InFlightBytes:     share.InFlight,
		SlowClientTimeout: l.Limits.SlowClientTimeout.D(0),
		FrameLimit:        int(l.Expert.MaxFrame),
		ReadOnly:          p.readOnly,
		Drain:             drain,
		FullMetrics:       l.Metrics.Profile == "full",
		Logger:            log,
	}
	o.Storage.Log.LogSize = int64(l.Expert.EntryLogSize)
	if p.prepare {
		o.Storage.ReserveBytes = int64(l.Expert.EntryLogSize) // standalone: a reserve of one log
	}
	// Only builds for the crash tests have overrides: small files make every step come up within seconds.
	o.Journal.SegmentSize = invariant.Override("journal.segment", o.Journal.SegmentSize)
	o.Storage.Log.LogSize = invariant.Override("entrylog.size", o.Storage.Log.LogSize)
	o.Storage.WriteCacheBytes = invariant.Override("write-cache.size", o.Storage.WriteCacheBytes)
	o.GC.Grace = time.Duration(invariant.Override("gc.grace-ms", 0)) * time.Millisecond
	o.Logger = log.With("bookie", cmp.Or(p.id, p.advertised))
	return o
}
