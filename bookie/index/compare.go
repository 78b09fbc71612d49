package index

import (
	"context"
	"errors"
	"fmt"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/corrupt"
)

// comparedMax bounds the findings that Compare keeps.
const comparedMax = 1000

// Compared is what Compare found.
type Compared struct {
	Entries  int64 // that the index and the logs were compared for
	Logs     int
	Findings []error
	More     bool // there were more findings than are kept
}

func (c *Compared) add(err error) {
	if len(c.Findings) == comparedMax {
		c.More = true
		return
	}
	c.Findings = append(c.Findings, err)
}

// Compare checks an index, and proves that every entry of the logs that it says it holds is found there or was deleted
// with its whole ledger, and that every entry it points to lies there; with read, by reading it.
func Compare(ctx context.Context, x Index, s *entrylog.Store, read bool) (*Compared, error) {
	c := &Compared{}
	if err := x.Check(ctx, c.add); err != nil {
		if !corrupt.Is(err) {
			return nil, err
		}
		c.add(err)
		return c, nil
	}
	for _, info := range s.Logs() {
		if err := c.log(ctx, x, s, info); err != nil {
			return nil, err
		}
	}
	for _, d := range s.Missing() {
		c.add(d.Err)
	}
	return c, c.ledgers(ctx, x, s, read)
}

// log looks up every run of a log.
func (c *Compared) log(ctx context.Context, x Index, s *entrylog.Store, info entrylog.LogInfo) error {
	ok, err := x.Ingested(info.ID)
	if err != nil {
		return err
	}
	if !ok { // its runs are served from memory until it is
		return nil
	}
	c.Logs++
	f, err := s.Footer(info.ID)
	if corrupt.Is(err) {
		c.add(err)
		return nil
	}
	if err != nil {
		return err
	}
	for _, d := range f.Damage {
		c.add(d.Err)
	}
	known, ledger, gone := false, int64(0), false
	for r, err := range f.Runs() {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if !known || r.Ledger != ledger {
			_, err := x.Last(r.Ledger)
			if err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
			known, ledger, gone = true, r.Ledger, err != nil // a deleted ledger has no entry left
		}
		c.Entries += int64(r.Count)
		for e := r.First; !gone; {
			in, err := x.LocateRun(r.Ledger, e)
			if errors.Is(err, ErrNotFound) {
				c.add(fmt.Errorf("ledger %d, entry %d: log %s holds it, the index does not", r.Ledger, e, info.ID))
				in.Run = entrylog.Run{First: e, Count: 1}
			} else if err != nil {
				return err
			}
			if in.Last() >= r.Last() {
				break
			}
			e = in.Last() + 1
		}
	}
	return nil
}

// ledgers looks at everything that the index points to.
func (c *Compared) ledgers(ctx context.Context, x Index, s *entrylog.Store, read bool) error {
	var buf []byte
	for after := int64(-1); ; {
		ids, err := x.Ledgers(after, 1000)
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			return nil
		}
		for _, id := range ids {
			for r, err := range x.Runs(id, 0) {
				if err = errors.Join(err, ctx.Err()); err != nil {
					return err
				}
				if _, err := s.Log(r.Log); err != nil {
					c.add(fmt.Errorf("ledger %d, entries %d to %d: %w", id, r.First, r.Last(), err))
					continue
				}
				for i := 0; read && i < int(r.Count); i++ {
					if buf, err = c.entry(s, &r, i, buf); err != nil {
						return err
					}
				}
			}
		}
		after = ids[len(ids)-1]
	}
}

// entry reads one entry and compares its ids.
func (c *Compared) entry(s *entrylog.Store, r *RunInfo, i int, buf []byte) ([]byte, error) {
	entry := r.First + int64(i)
	body, err := s.Read(r.Location(i), buf)
	if corrupt.Is(err) {
		c.add(fmt.Errorf("ledger %d, entry %d: %w", r.Ledger, entry, err))
		return buf, nil
	}
	if err != nil {
		return buf, err
	}
	if l, e := entrylog.IDs(body); l != r.Ledger || e != entry {
		c.add(fmt.Errorf("ledger %d, entry %d: at %s lies ledger %d, entry %d", r.Ledger, entry, r.Location(i), l, e))
	}
	return body, nil
}
