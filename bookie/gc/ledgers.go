package gc

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/binderylog/bindery/internal/pace"
)

const (
	listPage    = 10_000
	deleteBatch = 4096
)

// surplus is a copy too many, as an earlier pass saw it.
type surplus struct {
	generation uint32
	since      time.Time
}

// candidate is a local ledger that may be gone, with its generation before any proof.
type candidate struct {
	id         int64
	generation uint32
}

// collectLedgers deletes ledgers whose record is gone, and with extra set copies too many.
func (c *Collector) collectLedgers(extra bool) error {
	c.step("list local ledgers")
	// The local ledgers come first: a record is created before the first add reaches a bookie, so what is here now and
	// is missing from a listing that begins later was deleted.
	local, err := c.localLedgers()
	if err != nil {
		return fmt.Errorf("list local ledgers: %w", err)
	}
	c.update(func(s *Status) { s.LedgersSeen = len(local) })
	if len(local) == 0 {
		clear(c.extra)
		return nil
	}
	if err := c.meta.BeginPass(c.ctx); err != nil {
		return fmt.Errorf("begin pass: %w", err)
	}
	c.step("list metadata")
	listed := time.Now()
	absent, present, err := c.compare(local)
	if err != nil {
		return fmt.Errorf("list ledgers: %w", err)
	}
	err = c.deleteAbsent(absent, listed)
	if extra {
		err = errors.Join(err, c.deleteExtra(present))
	}
	return err
}

// localLedgers returns all local ids, ascending.
func (c *Collector) localLedgers() ([]int64, error) {
	var all []int64
	for after := int64(-1); ; {
		ids, err := c.ledgers.Ledgers(after, listPage)
		if err != nil || len(ids) == 0 {
			return all, err
		}
		all = append(all, ids...)
		after = ids[len(ids)-1]
		if err := c.ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// compare splits local ids into those that the complete listing does not have, and the others. A listing that fails, or
// that is not ascending, proves nothing.
func (c *Collector) compare(local []int64) (absent, present []int64, err error) {
	after := int64(-1)
	for {
		ids, err := c.meta.List(c.ctx, after, listPage)
		if err != nil {
			return nil, nil, err
		}
		if len(ids) == 0 {
			return append(absent, local...), present, nil
		}
		for _, id := range ids {
			if id <= after {
				return nil, nil, fmt.Errorf("the listing is out of order: %d after %d", id, after)
			}
			after = id
		}
		n, found := slices.BinarySearch(local, after)
		if found {
			n++
		}
		for _, id := range local[:n] {
			if _, listed := slices.BinarySearch(ids, id); listed {
				present = append(present, id)
			} else {
				absent = append(absent, id)
			}
		}
		local = local[n:]
	}
}

// deleteAbsent asks for each record by itself, at least Grace after the listing, and deletes those whose absence is
// certain.
func (c *Collector) deleteAbsent(absent []int64, listed time.Time) error {
	if len(absent) == 0 {
		return nil
	}
	// The generations are noted before the second proof: a recovery add after it keeps the ledger.
	candidates, err := c.generations(absent)
	if err != nil {
		return err
	}
	c.step("wait before the second proof")
	if err := pace.Sleep(c.ctx, time.Until(listed.Add(c.o.Grace))); err != nil {
		return err
	}
	c.step("verify and delete ledgers")
	var errs error
	for batch := range slices.Chunk(candidates, deleteBatch) {
		var ids []int64
		var generations []uint32
		for _, k := range batch {
			if err := c.reads.wait(c.ctx, 1); err != nil {
				return errors.Join(errs, err)
			}
			r, err := c.meta.Read(c.ctx, k.id)
			if err != nil {
				errs = errors.Join(errs, fmt.Errorf("read ledger %d: %w", k.id, err))
				if c.ctx.Err() != nil {
					return errs
				}
				break // the store has trouble: the rest of the batch waits for the next pass
			}
			if !r.Exists {
				ids, generations = append(ids, k.id), append(generations, k.generation)
			}
		}
		errs = errors.Join(errs, c.delete(ids, generations))
	}
	return errs
}

func (c *Collector) generations(ids []int64) ([]candidate, error) {
	candidates := make([]candidate, 0, len(ids))
	for _, id := range ids {
		g, ok, err := c.ledgers.Generation(id)
		if err != nil {
			return nil, fmt.Errorf("ledger %d: %w", id, err)
		}
		if ok {
			candidates = append(candidates, candidate{id, g})
		}
	}
	return candidates, nil
}

func (c *Collector) delete(ids []int64, generations []uint32) error {
	if len(ids) == 0 {
		return nil
	}
	n, err := c.ledgers.Delete(c.ctx, ids, generations)
	c.update(func(s *Status) { s.LedgersDeleted += uint64(n) })
	if n > 0 {
		c.o.Logger.Info("ledgers deleted", "count", n, "first", ids[0])
	}
	if err != nil {
		return fmt.Errorf("delete ledgers: %w", err)
	}
	return nil
}

// deleteExtra deletes copies too many (decision 40): the record is CLOSED and names this bookie nowhere, was so when an
// earlier pass looked at least Quiet ago, no recovery add has come since, and it is so still under the replication lock.
func (c *Collector) deleteExtra(present []int64) error {
	c.step("look for copies too many")
	seen := map[int64]surplus{}
	var errs error
	for _, id := range present {
		if err := c.reads.wait(c.ctx, 1); err != nil {
			return errors.Join(errs, err)
		}
		r, err := c.meta.Read(c.ctx, id)
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("read ledger %d: %w", id, err))
			if c.ctx.Err() != nil {
				return errs
			}
			continue
		}
		if !r.Exists || !r.Closed || r.Here {
			continue
		}
		g, ok, err := c.ledgers.Generation(id)
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		if !ok {
			continue
		}
		old, known := c.extra[id]
		if !known || old.generation != g {
			seen[id] = surplus{g, time.Now()} // a later pass decides
			continue
		}
		seen[id] = old
		if time.Since(old.since) < c.o.Quiet {
			continue
		}
		gone, err := c.deleteLocked(id, g)
		errs = errors.Join(errs, err)
		if gone {
			delete(seen, id)
		}
	}
	c.extra = seen
	return errs
}

// deleteLocked deletes one copy under the ledger's replication lock if the condition still holds.
func (c *Collector) deleteLocked(id int64, generation uint32) (gone bool, err error) {
	release, ok, err := c.meta.Lock(c.ctx, id)
	if err != nil {
		return false, fmt.Errorf("lock ledger %d: %w", id, err)
	}
	if !ok {
		return false, nil // somebody copies it: perhaps to this bookie
	}
	defer release()
	r, err := c.meta.Read(c.ctx, id)
	if err != nil {
		return false, fmt.Errorf("read ledger %d: %w", id, err)
	}
	if !r.Exists || !r.Closed || r.Here {
		return false, nil
	}
	if err := c.delete([]int64{id}, []uint32{generation}); err != nil {
		return false, err
	}
	return true, nil
}
