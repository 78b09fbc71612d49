package gc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/binderylog/bindery/entrylog"
)

// Record is what a collector needs to know of a ledger's metadata record.
type Record struct {
	Exists bool
	Closed bool // in state CLOSED
	Here   bool // this bookie is in some ensemble
}

// Metadata is the cluster's metadata as the collector sees it.
type Metadata interface {
	// BeginPass announces a pass, and makes sure that the store is the cluster's that the directories belong to and that
	// it was not rolled back. Only after nil may anything be deleted.
	BeginPass(ctx context.Context) error
	// List returns up to limit ids above after of all ledgers, ascending; an empty page is the end. It leaves none out
	// that existed before the call, or fails.
	List(ctx context.Context, after int64, limit int) ([]int64, error)
	// Read reads one record linearizably. Only a certain absence has Exists false and a nil error.
	Read(ctx context.Context, id int64) (Record, error)
	// Lock takes the ledger's replication lock; ok is false if somebody holds it. release gives it back.
	Lock(ctx context.Context, id int64) (release func(), ok bool, err error)
}

// Ledgers is the storage as far as ledgers are concerned.
type Ledgers interface {
	// Ledgers returns up to limit ids above after of ledgers that exist here, ascending; an empty page is the end.
	Ledgers(after int64, limit int) ([]int64, error)
	// Generation returns what Delete is given; ok is false if the ledger does not exist here.
	Generation(id int64) (generation uint32, ok bool, err error)
	// Delete deletes ledgers whose generation is still the given one, and returns how many.
	Delete(ctx context.Context, ids []int64, generations []uint32) (deleted int, err error)
}

// Logs is the storage as far as entry logs are concerned. Directories are numbered from 0.
type Logs interface {
	Dirs() int
	// DirLevel returns a directory's path and how full it is: 0 fine, 1 above the warning mark, 2 full, 3 failed.
	DirLevel(dir int) (path string, level int)
	// CollectableLogs returns the logs that may be removed or compacted.
	CollectableLogs(dir int) ([]entrylog.LogID, error)
	// LogUsage says how much of a log is alive.
	LogUsage(dir int, id entrylog.LogID) (bytes, live int64, ledgers int, damaged bool, err error)
	// RemoveLog removes a log that holds nothing alive.
	RemoveLog(ctx context.Context, dir int, id entrylog.LogID) error
	// Compact moves what is alive to a new log and removes the sources. limit may block.
	Compact(ctx context.Context, dir int, sources []entrylog.LogID, limit func(context.Context, int) error) (copied int64, skipped map[entrylog.LogID]error, err error)
	// RetryRemovals tries again to delete files of removed logs and returns how many are left.
	RetryRemovals(dir int) (left int, err error)
}

// Compaction says which logs are compacted, and how often that is looked at.
type Compaction struct {
	Below float64       // share of live bytes
	Every time.Duration // 0: never
}

// Options configure a Collector. The zero value means the defaults.
type Options struct {
	Interval time.Duration // between passes; default 15 min
	Minor    Compaction    // default below 0.2 every 1 h
	Major    Compaction    // default below 0.5 every 24 h
	// Rate bounds the bytes a second that compaction reads. Default 64 MiB/s, a quarter of it while Busy says so.
	Rate int64
	// Busy reports that reads or flushes are late. Nil: never.
	Busy func() bool
	// Grace is the least time between a listing that does not have a ledger and the read that confirms it. Default 1 min.
	Grace time.Duration
	// OverReplicatedEvery is how often copies too many are looked for. Default 24 h; negative: never.
	OverReplicatedEvery time.Duration
	// Quiet is how long such a copy must have been seen without a recovery add. Default 24 h.
	Quiet time.Duration
	// MetadataRate bounds the records read a second. Default 1,000.
	MetadataRate int
	// OutputBytes is how much live data of several logs one compaction gathers. Default 512 MiB.
	OutputBytes int64
	Logger      *slog.Logger // default slog.Default()
}

// EnsureDefaults fills in what is zero.
func (o *Options) EnsureDefaults() {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.Interval, 15*time.Minute)
	def(&o.Grace, time.Minute)
	def(&o.OverReplicatedEvery, 24*time.Hour)
	def(&o.Quiet, 24*time.Hour)
	if o.Minor == (Compaction{}) {
		o.Minor = Compaction{Below: 0.2, Every: time.Hour}
	}
	if o.Major == (Compaction{}) {
		o.Major = Compaction{Below: 0.5, Every: 24 * time.Hour}
	}
	if o.Rate == 0 {
		o.Rate = 64 << 20
	}
	if o.MetadataRate == 0 {
		o.MetadataRate = 1000
	}
	if o.OutputBytes == 0 {
		o.OutputBytes = 512 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
}

// Validate reports what can not work, in the words of the configuration file.
func (o *Options) Validate() error {
	for name, c := range map[string]Compaction{"gc.minor": o.Minor, "gc.major": o.Major} {
		if c.Below < 0 || c.Below >= 1 || c.Every < 0 {
			return fmt.Errorf("%s: below = %v must be at least 0 and less than 1, every = %v must not be negative", name, c.Below, c.Every)
		}
	}
	switch {
	case o.Interval < time.Second:
		return fmt.Errorf("gc.interval = %v: must be at least 1s", o.Interval)
	case o.Rate < 1<<10:
		return fmt.Errorf("gc.rate = %d bytes a second: must be at least 1 KiB", o.Rate)
	case o.Grace < 0 || o.Quiet < 0:
		return errors.New("gc: a waiting time is negative")
	case o.MetadataRate < 1:
		return fmt.Errorf("gc: %d metadata reads a second: must be at least 1", o.MetadataRate)
	}
	return nil
}
