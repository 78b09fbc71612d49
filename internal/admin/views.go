package admin

import (
	"context"
	"errors"
	"io"
)

// State is what a bookie is doing.
type State struct {
	ID                string `json:"id"`
	Phase             string `json:"phase"` // starting, replaying, serving, stopping, stopped or failed
	Running           bool   `json:"running"`
	ReadOnly          bool   `json:"read_only"`
	ShuttingDown      bool   `json:"shutting_down"`
	TakesHighPriority bool   `json:"available_for_high_priority_writes"`
	Reason            string `json:"reason,omitempty"` // why it is read-only or failed
	Replay            Replay `json:"replay"`
}

// Replay is how far the replay of the journals is.
type Replay struct {
	DoneBytes  int64 `json:"done_bytes"`
	TotalBytes int64 `json:"total_bytes"`
}

// Mark is the position in one journal from which a restart would replay.
type Mark struct {
	Journal int   `json:"journal"`
	Segment int64 `json:"segment"`
	Offset  int64 `json:"offset"`
}

// Disk is one directory.
type Disk struct {
	Path           string  `json:"path"`
	Kind           string  `json:"kind"` // journal, ledger or index
	TotalBytes     int64   `json:"total_bytes"`
	AvailableBytes int64   `json:"available_bytes"`
	UsedShare      float64 `json:"used_share"`
	State          string  `json:"state"` // ok, warn, full or failed
	Error          string  `json:"error,omitempty"`
}

// GCDetail is the garbage collector of one ledger directory. Times are milliseconds since 1970.
type GCDetail struct {
	Directory           string `json:"-"`
	ForceCompacting     bool   `json:"forceCompacting"`
	MajorCompacting     bool   `json:"majorCompacting"`
	MinorCompacting     bool   `json:"minorCompacting"`
	LastMajorCompaction int64  `json:"lastMajorCompactionTime"`
	LastMinorCompaction int64  `json:"lastMinorCompactionTime"`
	MajorCompactions    int64  `json:"majorCompactionCounter"`
	MinorCompactions    int64  `json:"minorCompactionCounter"`
	ReclaimableBytes    int64  `json:"reclaimableBytes"`
	CurrentLog          string `json:"currentLog,omitempty"`
	Progress            string `json:"progress,omitempty"`
}

// StateView is the one view that every bookie has.
type StateView interface {
	State() State
}

// ReadOnlySwitch sets the manual read-only state, which survives restarts.
type ReadOnlySwitch interface {
	SetReadOnly(ctx context.Context, readOnly bool) error
}

// DiskView shows directories.
type DiskView interface {
	Disks() []Disk
	// Files lists the files of a kind: journal, entrylog or index.
	Files(kind string) ([]string, error)
}

// JournalView shows journals.
type JournalView interface {
	Marks() []Mark
	// Journals returns a value that encodes to JSON, one element per journal.
	Journals() any
}

// GCView shows and drives garbage collection.
type GCView interface {
	Details() []GCDetail
	// InForce says whether a triggered pass is under way.
	InForce() bool
	Trigger(major, minor bool) error
	Suspended() (major, minor bool)
	Suspend(major, minor bool) error
	Resume(major, minor bool) error
	// Summary returns the collector's figures, a value that encodes to JSON.
	Summary() any
	// AcceptRollback lets collection go on after the metadata store was restored from a backup.
	AcceptRollback(ctx context.Context) error
}

// Flusher takes a checkpoint now.
type Flusher interface {
	Flush(ctx context.Context) error
}

// MetricsWriter writes metrics in the Prometheus text format.
type MetricsWriter interface {
	WritePrometheus(w io.Writer)
}

// ClusterBookie is a bookie as the metadata store lists it.
type ClusterBookie struct {
	ID       string
	Hostname string
	ReadOnly bool
}

// ClusterView shows what the metadata store knows.
type ClusterView interface {
	Bookies(ctx context.Context) ([]ClusterBookie, error)
}

// ConfigView shows the configuration of the process.
type ConfigView interface {
	// Explicit returns the settings that are not defaults, under their own and under BookKeeper's keys.
	Explicit() map[string]string
	// Effective returns the whole configuration as TOML with computed values.
	Effective() string
}

// OffloadView shows the tier that closed ledgers move to.
type OffloadView interface {
	// Offload returns what the process knows with at most limit ledgers behind after, a value that encodes to JSON; ErrNoRole if it does not
	// take part.
	Offload(ctx context.Context, after int64, limit int) (any, error)
}

// ErrNoRole is returned by a view of something that the process does not do.
var ErrNoRole = errors.New("this process does not have that role")

// Reloader reads the configuration again, puts in force what can change, and returns what is different: a value that
// encodes to JSON. An error means that nothing has changed.
type Reloader func() (any, error)

// Bookie bundles the views of one bookie. Every one but State may be nil.
type Bookie struct {
	State    StateView
	ReadOnly ReadOnlySwitch
	Disks    DiskView
	Journal  JournalView
	GC       GCView
	Flush    Flusher
	Metrics  MetricsWriter
}
