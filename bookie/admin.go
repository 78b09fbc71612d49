package bookie

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/binderylog/bindery/bookie/storage"
	"github.com/binderylog/bindery/internal/admin"
	"github.com/binderylog/bindery/journal"
)

// Views returns the bookie as the admin server shows it. They answer from New on, also while the journals are replayed;
// what does not exist yet is empty.
func (b *Bookie) Views() admin.Bookie {
	return admin.Bookie{State: b, ReadOnly: b, Disks: b, Journal: b, GC: gcView{b}, Flush: b, Metrics: b}
}

// SetReadOnly implements admin.ReadOnlySwitch: the order outlives restarts, and only an order ends it.
func (b *Bookie) SetReadOnly(_ context.Context, readOnly bool) error {
	if !readOnly && b.o.ReadOnly {
		return ErrForcedReadOnly
	}
	b.mu.Lock()
	ready := b.identity != nil && !b.stopped
	b.mu.Unlock()
	if !ready {
		return ErrStopped
	}
	b.switchMu.Lock()
	defer b.switchMu.Unlock()
	text, err := writeForced(b.o.FS, b.o.LedgerDirs, readOnly)
	if err != nil {
		return fmt.Errorf("change the read-only order: %w", err)
	}
	b.state.set(ReasonOperator, readOnly, text)
	return nil
}

// ReadOnlyState returns what the bookie takes and why.
func (b *Bookie) ReadOnlyState() ReadOnlyState { return b.state.get() }

// Flush implements admin.Flusher: a checkpoint now.
func (b *Bookie) Flush(ctx context.Context) error {
	eng := b.engine()
	if eng == nil {
		return ErrStopped
	}
	return eng.st.Checkpoint(ctx)
}

// engine returns the running engine, nil before and after.
func (b *Bookie) engine() *engine {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.srv == nil || b.stopped {
		return nil
	}
	return b.eng
}

// Disks implements admin.DiskView.
func (b *Bookie) Disks() []admin.Disk {
	var out []admin.Disk
	add := func(kind, dir, state string, cause error) {
		d := admin.Disk{Path: dir, Kind: kind, State: state}
		if u, err := b.o.FS.Usage(dir); err != nil {
			d.State, d.Error = "failed", err.Error()
		} else {
			d.TotalBytes, d.AvailableBytes = u.Total, u.Available
			if u.Total > 0 {
				d.UsedShare = 1 - float64(u.Available)/float64(u.Total)
			}
		}
		if cause != nil {
			d.Error = cause.Error()
		}
		out = append(out, d)
	}
	eng := b.engine()
	for i, dir := range b.o.JournalDirs {
		if eng != nil && eng.journals[i].Err() != nil {
			add("journal", dir, "failed", eng.journals[i].Err())
			continue
		}
		add("journal", dir, "ok", nil)
	}
	if eng == nil {
		for _, dir := range b.o.LedgerDirs {
			add("ledger", dir, "ok", nil)
		}
	} else {
		for _, s := range eng.lastDisks().Dirs {
			add("ledger", s.Path, s.State.String(), s.Err)
		}
	}
	for _, dir := range b.o.IndexDirs {
		add("index", dir, "ok", nil)
	}
	return out
}

// Files implements admin.DiskView.
func (b *Bookie) Files(kind string) ([]string, error) {
	indexes := b.o.IndexDirs
	if len(indexes) == 0 {
		indexes = b.o.LedgerDirs
	}
	switch kind {
	case "journal":
		return b.files(b.o.JournalDirs, func(name string) bool { return strings.HasSuffix(name, ".jnl") })
	case "entrylog":
		return b.files(b.o.LedgerDirs, func(name string) bool { return strings.HasSuffix(name, ".log") })
	case "index":
		return b.files(indexes, func(name string) bool { return strings.HasPrefix(name, "index") })
	}
	return nil, fmt.Errorf("no kind of file %q: journal, entrylog or index", kind)
}

func (b *Bookie) files(dirs []string, want func(name string) bool) ([]string, error) {
	var out []string
	for _, dir := range dirs {
		current := filepath.Join(dir, "current")
		names, err := b.o.FS.List(current)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if want(name) {
				out = append(out, filepath.Join(current, name))
			}
		}
	}
	return out, nil
}

// Marks implements admin.JournalView. A position of ours is a group's number in its journal, not a file and an offset;
// the number stands in both.
func (b *Bookie) Marks() []admin.Mark {
	eng := b.engine()
	if eng == nil {
		return nil
	}
	var out []admin.Mark
	for i, p := range eng.st.Marks() {
		out = append(out, admin.Mark{Journal: i, Segment: int64(p)}) //nolint:gosec // far below 2^63
	}
	return out
}

// JournalStatus is one journal as the admin views show it.
type JournalStatus struct {
	Directory string        `json:"directory"`
	Error     string        `json:"error,omitempty"`
	Mark      uint64        `json:"mark"` // position from which a restart would replay
	Stats     journal.Stats `json:"stats"`
}

// Journals implements admin.JournalView.
func (b *Bookie) Journals() any {
	eng := b.engine()
	if eng == nil {
		return []JournalStatus{}
	}
	marks := eng.st.Marks()
	out := make([]JournalStatus, len(eng.journals))
	for i, j := range eng.journals {
		out[i] = JournalStatus{Directory: b.o.JournalDirs[i], Mark: marks[i], Stats: j.Stats()}
		if err := j.Err(); err != nil {
			out[i].Error = err.Error()
		}
	}
	return out
}

// Damaged returns the entries that could not be read back, and how many did not fit into the list.
func (b *Bookie) Damaged() (list []storage.Damaged, dropped int64) {
	eng := b.engine()
	if eng == nil {
		return nil, 0
	}
	return eng.st.Damaged()
}

// WritePrometheus implements admin.MetricsWriter.
func (b *Bookie) WritePrometheus(w io.Writer) {
	b.writeState(w)
	b.mu.Lock()
	srv, eng, collector, stopped := b.srv, b.eng, b.gc, b.stopped
	b.mu.Unlock()
	if srv == nil || stopped {
		return
	}
	srv.writeMetrics(w)
	for _, j := range eng.journals {
		j.WritePrometheus(w)
	}
	eng.st.WritePrometheus(w)
	if collector != nil {
		collector.WritePrometheus(w)
	}
	c := compat{w, b.o.FullMetrics}
	c.disks(eng.lastDisks())
	c.storage(eng.figures, eng.st.Stats().CacheCapacity)
	if collector != nil {
		c.collection(collector.Status())
	}
	if c.full {
		c.gauge("bookie_JOURNAL_QUEUE_MAX_SIZE", b.o.Journal.QueueBytes)
	}
}

// writeState writes what is known at any time.
func (b *Bookie) writeState(w io.Writer) {
	phase, _ := b.phase.Load().(string)
	ro := b.state.get()
	status := -1 // not registered
	if phase == phaseServing {
		if status = 1; ro.ReadOnly {
			status = 0
		}
	}
	fmt.Fprintf(w, "# TYPE bookie_SERVER_STATUS gauge\nbookie_SERVER_STATUS %d\n", status)
	fmt.Fprintf(w, "# TYPE bookie_JOURNAL_DIRS gauge\nbookie_JOURNAL_DIRS %d\n", len(b.o.JournalDirs))
	ready := 0
	if phase == phaseServing {
		ready = 1
	}
	fmt.Fprintf(w, "# TYPE bindery_ready gauge\nbindery_ready %d\n", ready)
	fmt.Fprintf(w, "# TYPE bindery_read_only_reason gauge\n")
	for i, name := range reasonNames {
		on := 0
		if ro.Reasons&(1<<i) != 0 {
			on = 1
		}
		fmt.Fprintf(w, "bindery_read_only_reason{reason=%q} %d\n", name, on)
	}
}
