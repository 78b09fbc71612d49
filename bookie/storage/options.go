package storage

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/binderylog/bindery/bookie/index"
	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/intent"
)

// Sizes that are part of the design.
const (
	// MinEntry is the shortest body: ledger id, entry id and LAC, which the bookie reads.
	MinEntry = entrylog.MinBody
	// MaxEntry is the longest body.
	MaxEntry = entrylog.MaxBody
	// MaxDirs is the largest number of ledger directories.
	MaxDirs = 64

	maxKey         = 1 << 10
	maxExplicitLAC = 32 << 10
)

// DirOptions names one ledger directory.
type DirOptions struct {
	Ledger string // entry logs, marks and tombstones; must exist
	Index  string // the index; empty means Ledger
}

// Options configure a Storage. The zero value of every field but Dirs and Journals means the default.
type Options struct {
	// Dirs are the ledger directories, in any order.
	Dirs []DirOptions
	// Journals are the stable ids of the journal directories (not their paths: those may move). A mark has one position
	// per journal, in this order; marks on disk are stored by id, so the order may change between starts.
	Journals []string
	// WriteCacheBytes is the memory of all write caches together. Default 64 MiB. Each directory has two caches of equal
	// size.
	WriteCacheBytes int64
	// ReadCacheBytes is the memory of the read cache. Default 64 MiB.
	ReadCacheBytes int64
	// FlushInterval is the longest time between two checkpoints of a directory. Default 30 s.
	FlushInterval time.Duration
	// Log configures the entry logs of every directory; OnSealed, Durable, MinLog and Logger are set by Storage.
	Log entrylog.Options
	// Disk says when a directory counts as full.
	Disk DiskLimits
	// ReserveBytes is the ballast kept free for flush and collection on a full disk, per directory. Default two entry
	// logs.
	ReserveBytes int64
	// IdleLedgersMax is the number of handles kept though nobody uses them. Default 16,384.
	IdleLedgersMax int
	// DamagedMax bounds the durable list of damaged entries. Default 65,536; what does not fit is counted.
	DamagedMax int
	// OpenIndex opens a directory's index. Default index.OpenBolt, on the operating system's files.
	OpenIndex func(path string, o index.Options) (index.Index, error)
	// OpenIntents opens a directory's log of collection steps. Default intent.Open, on the operating system's files.
	OpenIntents func(dir string, o intent.Options) (intent.Log, error)
	// OnCheckpoint is called with the usable mark (one position per journal, as Options.Journals orders them) after it
	// advanced and is durable. The journals may drop what lies before it. It runs on a flusher's goroutine, one call at a time; other
	// flushers wait for it at their end.
	OnCheckpoint func(mark []uint64)
	// Rejournal appends to the journals again what a full directory can not flush. Nil: such a directory holds them back.
	Rejournal Rejournal
	// OnDirFailed is called once for each directory that fails. It must not block.
	OnDirFailed func(dir string, err error)
	// Logger receives what operators should know. Default slog.Default().
	Logger *slog.Logger
}

// EnsureDefaults fills in what is zero.
func (o *Options) EnsureDefaults() {
	if o.WriteCacheBytes == 0 {
		o.WriteCacheBytes = 64 << 20
	}
	if o.ReadCacheBytes == 0 {
		o.ReadCacheBytes = 64 << 20
	}
	if o.FlushInterval == 0 {
		o.FlushInterval = 30 * time.Second
	}
	if o.IdleLedgersMax == 0 {
		o.IdleLedgersMax = 16 << 10
	}
	if o.DamagedMax == 0 {
		o.DamagedMax = 64 << 10
	}
	o.Log.EnsureDefaults()
	if o.ReserveBytes == 0 {
		o.ReserveBytes = 2 * o.Log.LogSize
	}
	o.Disk.EnsureDefaults()
	if o.OpenIndex == nil {
		o.OpenIndex = index.OpenBolt
	}
	if o.OpenIntents == nil {
		o.OpenIntents = intent.Open
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
}

// Validate reports what can not work.
func (o *Options) Validate() error {
	switch {
	case len(o.Dirs) == 0 || len(o.Dirs) > MaxDirs:
		return fmt.Errorf("%d ledger directories: 1 to %d are possible", len(o.Dirs), MaxDirs)
	case len(o.Journals) == 0 || len(o.Journals) > maxJournals:
		return fmt.Errorf("%d journals: 1 to %d are possible", len(o.Journals), maxJournals)
	case o.WriteCacheBytes/int64(2*len(o.Dirs)) < minCacheBytes:
		return fmt.Errorf("write cache of %d bytes: every directory needs two caches of at least %d", o.WriteCacheBytes, minCacheBytes)
	case o.FlushInterval < 0:
		return fmt.Errorf("flush interval %v is negative", o.FlushInterval)
	}
	seen := map[string]bool{}
	for _, d := range o.Dirs {
		if d.Ledger == "" || seen[d.Ledger] {
			return fmt.Errorf("ledger directory %q is empty or given twice", d.Ledger)
		}
		seen[d.Ledger] = true
	}
	ids := map[string]bool{}
	for _, id := range o.Journals {
		if id == "" || len(id) > maxJournalID || ids[id] {
			return fmt.Errorf("journal id %q is empty, too long or given twice", id)
		}
		ids[id] = true
	}
	return o.Disk.Validate()
}
