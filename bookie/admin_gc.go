package bookie

import (
	"context"
	"fmt"
	"time"

	"github.com/binderylog/bindery/bookie/gc"
	"github.com/binderylog/bindery/internal/admin"
)

// gcView shows and drives the collector. It implements admin.GCView.
type gcView struct{ b *Bookie }

func (v gcView) collector() *gc.Collector {
	v.b.mu.Lock()
	defer v.b.mu.Unlock()
	if v.b.stopped {
		return nil
	}
	return v.b.gc
}

// Details implements admin.GCView.
func (v gcView) Details() []admin.GCDetail {
	c := v.collector()
	if c == nil {
		return nil
	}
	s := c.Status()
	out := make([]admin.GCDetail, len(v.b.o.LedgerDirs))
	for i, dir := range v.b.o.LedgerDirs {
		out[i] = admin.GCDetail{
			Directory: dir, ForceCompacting: s.Running, LastMajorCompaction: millis(s.LastMajor), LastMinorCompaction: millis(s.LastMinor),
			MajorCompactions: int64(s.MajorRuns), MinorCompactions: int64(s.MinorRuns), Progress: s.Step, //nolint:gosec // counts
		}
	}
	return out
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// InForce implements admin.GCView.
func (v gcView) InForce() bool {
	c := v.collector()
	return c != nil && c.Status().Running
}

// Trigger implements admin.GCView. The pass runs in the background.
func (v gcView) Trigger(major, minor bool) error {
	c := v.collector()
	if c == nil {
		return ErrStopped
	}
	kind := gc.Pass
	switch {
	case major:
		kind = gc.Major
	case minor:
		kind = gc.Minor
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // ask, do not wait
	if err := c.Trigger(ctx, kind); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// Suspended implements admin.GCView.
func (v gcView) Suspended() (major, minor bool) {
	c := v.collector()
	if c == nil {
		return false, false
	}
	s := c.Status()
	return s.MajorSuspended, s.MinorSuspended
}

// Suspend implements admin.GCView. A suspension lasts until it is taken back, also across restarts.
func (v gcView) Suspend(major, minor bool) error {
	return v.change(false, func(c *gc.Collector, s *suspension) {
		s.minor, s.major = s.minor || minor, s.major || major
		c.Suspend(minor, major) // at once, whatever becomes of the file
	})
}

// Resume implements admin.GCView.
func (v gcView) Resume(major, minor bool) error {
	return v.change(true, func(c *gc.Collector, s *suspension) {
		s.minor, s.major = s.minor && !minor, s.major && !major
		c.Resume(minor, major)
	})
}

// change changes what is suspended, in the collector and on disk.
func (v gcView) change(back bool, do func(c *gc.Collector, s *suspension)) error {
	c := v.collector()
	if c == nil {
		return ErrStopped
	}
	v.b.switchMu.Lock()
	defer v.b.switchMu.Unlock()
	now := c.Status()
	s := suspension{minor: now.MinorSuspended, major: now.MajorSuspended}
	do(c, &s)
	if err := writeSuspension(v.b.o.FS, v.b.o.LedgerDirs, s, back); err != nil {
		return fmt.Errorf("it is so now, but may not be after a restart: %w", err)
	}
	return nil
}

// gcSummary is gc.Status with stable names.
type gcSummary struct {
	Running         bool      `json:"running"`
	Step            string    `json:"step,omitempty"`
	LastStart       time.Time `json:"last_start"`
	LastEnd         time.Time `json:"last_end"`
	LastSuccess     time.Time `json:"last_success"`
	LastError       string    `json:"last_error,omitempty"`
	Passes          uint64    `json:"passes"`
	FailedPasses    uint64    `json:"failed_passes"`
	LedgersSeen     int       `json:"ledgers_seen"`
	LedgersDeleted  uint64    `json:"ledgers_deleted"`
	LogsRemoved     uint64    `json:"logs_removed"`
	LogsCompacted   uint64    `json:"logs_compacted"`
	BytesCopied     uint64    `json:"copied_bytes"`
	BytesFreed      uint64    `json:"freed_bytes"`
	DamagedLogs     int       `json:"damaged_logs"`
	PendingRemovals int       `json:"pending_removals"`
}

// Summary implements admin.GCView.
func (v gcView) Summary() any {
	c := v.collector()
	if c == nil {
		return nil
	}
	s := c.Status()
	return gcSummary{
		Running: s.Running, Step: s.Step, LastStart: s.LastStart, LastEnd: s.LastEnd, LastSuccess: s.LastSuccess, LastError: s.LastError,
		Passes: s.Passes, FailedPasses: s.FailedRuns, LedgersSeen: s.LedgersSeen, LedgersDeleted: s.LedgersDeleted,
		LogsRemoved: s.LogsRemoved, LogsCompacted: s.LogsCompacted, BytesCopied: s.BytesCopied, BytesFreed: s.BytesFreed,
		DamagedLogs: s.DamagedLogs, PendingRemovals: s.PendingRemovals,
	}
}

// AcceptRollback implements admin.GCView.
func (v gcView) AcceptRollback(ctx context.Context) error {
	if v.collector() == nil {
		return ErrStopped
	}
	return v.b.acceptRollback(ctx)
}
