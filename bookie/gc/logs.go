package gc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/binderylog/bindery/entrylog"
)

// Levels of a directory: see Logs.DirLevel.
const (
	levelWarn   = 1
	levelFailed = 3
)

// groupSourcesMax bounds how many logs one compaction gathers.
const groupSourcesMax = 64

// usage is a log with what is alive in it.
type usage struct {
	id          entrylog.LogID
	bytes, live int64
	ledgers     int
}

// plan decides what to do with a directory's logs: which to remove, and which to compact together, in this order. below
// is the share of live bytes under which a log is compacted, 0 for none. On a tight disk each log is compacted by itself,
// the emptiest first, so that the space of one is free before the next is copied. It is a pure function.
func plan(logs []usage, below float64, outputBytes int64, tight bool) (remove []entrylog.LogID, groups [][]entrylog.LogID) {
	var few []usage
	for _, u := range logs {
		switch {
		case u.ledgers == 0:
			remove = append(remove, u.id)
		case float64(u.live) < below*float64(u.bytes):
			few = append(few, u)
		}
	}
	slices.SortFunc(few, func(a, b usage) int {
		if tight {
			return cmp.Or(cmp.Compare(a.live*max(b.bytes, 1), b.live*max(a.bytes, 1)), cmp.Compare(a.id, b.id))
		}
		return cmp.Compare(a.id, b.id)
	})
	gathered := int64(0)
	for _, u := range few {
		n := len(groups)
		if tight || n == 0 || gathered+u.live > outputBytes || len(groups[n-1]) == groupSourcesMax {
			groups, gathered, n = append(groups, nil), 0, n+1
		}
		groups[n-1] = append(groups[n-1], u.id)
		gathered += u.live
	}
	return remove, groups
}

// collectLogs removes and compacts logs of one directory.
func (c *Collector) collectLogs(dir int, w work) error {
	path, level := c.logs.DirLevel(dir)
	if level >= levelFailed {
		return nil
	}
	c.step("measure logs of " + path)
	left, err := c.logs.RetryRemovals(dir)
	if err != nil {
		c.o.Logger.Warn("files of removed entry logs can not be deleted yet; they are tried again", "dir", path, "left", left, "err", err)
	}
	c.update(func(s *Status) { s.PendingRemovals += left })
	logs, errs := c.measure(dir)
	tight := level >= levelWarn
	below, suspended := c.below(w, tight)
	remove, groups := plan(logs, below, c.o.OutputBytes, tight)
	sizes := map[entrylog.LogID]usage{}
	for _, u := range logs {
		sizes[u.id] = u
	}
	c.step("remove logs of " + path)
	for _, id := range remove {
		if c.ctx.Err() != nil {
			return errs
		}
		if err := c.logs.RemoveLog(c.ctx, dir, id); err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		c.update(func(s *Status) { s.LogsRemoved++; s.BytesFreed += uint64(sizes[id].bytes) })
	}
	for _, group := range groups {
		if c.ctx.Err() != nil {
			return errs
		}
		c.step(fmt.Sprintf("compact %d logs of %s", len(group), path))
		errs = errors.Join(errs, c.compact(dir, group, sizes, suspended))
	}
	return errs
}

// errDamaged says that nobody knows what a log holds.
var errDamaged = errors.New("its content is not known whole")

// measure reads the usage of every collectable log. A log that can not be measured is left out and counted, and stops
// nothing else.
func (c *Collector) measure(dir int) (logs []usage, errs error) {
	ids, err := c.logs.CollectableLogs(dir)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if c.ctx.Err() != nil {
			return logs, errs
		}
		bytes, live, ledgers, damaged, err := c.logs.LogUsage(dir, id)
		switch {
		case errors.Is(err, entrylog.ErrNoLog):
		case err != nil:
			errs = errors.Join(errs, err)
			c.damaged(dir, id, err)
		case damaged:
			c.damaged(dir, id, errDamaged)
		default:
			logs = append(logs, usage{id, bytes, live, ledgers})
			c.update(func(s *Status) { s.LogsSeen++; s.LogBytesSeen += bytes; s.LiveBytesSeen += live })
		}
	}
	return logs, errs
}

func (c *Collector) damaged(dir int, id entrylog.LogID, err error) {
	path, _ := c.logs.DirLevel(dir)
	c.o.Logger.Error("an entry log can not be collected; it is kept as it is, and the others go on", "dir", path, "log", id, "err", err)
	c.update(func(s *Status) { s.DamagedLogs++ })
}

// below returns the threshold of this pass, and a test whether its compaction is suspended now.
func (c *Collector) below(w work, tight bool) (below float64, suspended func(*Status) bool) {
	switch {
	case w.major || tight:
		return c.tuning.Load().major.Below, func(s *Status) bool { return s.MajorSuspended }
	case w.minor:
		return c.tuning.Load().minor.Below, func(s *Status) bool { return s.MinorSuspended }
	}
	return 0, func(*Status) bool { return false }
}

// compact compacts one group.
func (c *Collector) compact(dir int, group []entrylog.LogID, sizes map[entrylog.LogID]usage, suspended func(*Status) bool) error {
	s := c.Status()
	if suspended(&s) {
		return nil
	}
	limit := func(ctx context.Context, n int) error {
		if err := c.waitResumed(ctx, suspended); err != nil {
			return err
		}
		return c.rate.wait(ctx, n)
	}
	copied, skipped, err := c.logs.Compact(c.ctx, dir, group, limit)
	c.update(func(s *Status) {
		s.BytesCopied += uint64(copied)
		if err != nil {
			return
		}
		freed := -copied
		for _, id := range group {
			if skipped[id] == nil {
				s.LogsCompacted++
				freed += sizes[id].bytes
			}
		}
		s.BytesFreed += uint64(max(freed, 0))
		s.BytesCompacted += uint64(max(freed, 0))
	})
	for id, why := range skipped {
		c.damaged(dir, id, why)
	}
	return err
}

// waitResumed waits while the compaction under way is suspended.
func (c *Collector) waitResumed(ctx context.Context, suspended func(*Status) bool) error {
	for {
		c.mu.Lock()
		held, resume := suspended(&c.status), c.resume
		c.mu.Unlock()
		if !held {
			return nil
		}
		select {
		case <-resume:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
