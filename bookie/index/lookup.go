package index

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/corrupt"
)

// damaged makes a *corrupt.Error that names a ledger. A place in the file is not known above keys and values.
func (x *runIndex) damaged(ledger int64, format string, args ...any) error {
	return corrupt.Errorf(x.path, 0, "index", "ledger %d: "+format, append([]any{ledger}, args...)...)
}

// ledgerOf returns the record of a ledger, or nil if there is none.
func (x *runIndex) ledgerOf(tx kvTx, ledger int64) (*ledgerRecord, error) {
	k := ledgerKey(ledger)
	v := tx.get(bucketLedgers, k[:])
	if v == nil {
		return nil, nil
	}
	l, err := decodeLedger(k[:], v)
	if err != nil {
		return nil, x.damaged(ledger, "%w", err)
	}
	return &l, nil
}

// runAt decodes what a cursor met: nil if it is behind the end, or a run of another ledger.
func (x *runIndex) runAt(ledger int64, k, v []byte) (*RunInfo, error) {
	if k == nil {
		return nil, nil
	}
	r, err := decodeRun(k, v)
	if err != nil {
		return nil, x.damaged(ledger, "run with the key %x: %w", k, err)
	}
	if r.Ledger != ledger {
		return nil, nil
	}
	return &r, nil
}

// find returns the run that holds an entry, with the cursor on it. If there is none, it proves that from the neighbours
// before it says ErrNotFound, or says what does not fit.
func (x *runIndex) find(tx kvTx, ledger, entry int64) (*RunInfo, error) {
	if ledger < 0 || entry < 0 {
		return nil, ErrNotFound
	}
	c := tx.cursor(bucketRuns)
	next, err := x.seekRun(c, ledger, entry)
	if err != nil {
		return nil, err
	}
	if next != nil && next.First <= entry {
		return next, nil
	}
	before, err := x.prevRun(c, ledger)
	if err != nil {
		return nil, err
	}
	record, err := x.ledgerOf(tx, ledger)
	if err != nil {
		return nil, err
	}
	return nil, x.absent(ledger, entry, record, before, next)
}

// seekRun moves a cursor to the ledger's run that holds an entry or is the next one behind it; nil if there is none. On a
// damaged page keys may be out of order, so the seek is not believed either.
func (x *runIndex) seekRun(c kvCursor, ledger, entry int64) (*RunInfo, error) {
	key := runKey(ledger, entry)
	k, v := c.seek(key[:])
	if k != nil && bytes.Compare(k, key[:]) < 0 {
		return nil, x.damaged(ledger, "looking for entry %d leads to the key %x", entry, k)
	}
	return x.runAt(ledger, k, v)
}

// nextRun moves a cursor on to the ledger's next run; nil if there is none.
func (x *runIndex) nextRun(c kvCursor, ledger int64) (*RunInfo, error) {
	k, v := c.next()
	return x.runAt(ledger, k, v)
}

// prevRun moves a cursor back to the ledger's preceding run; nil if there is none.
func (x *runIndex) prevRun(c kvCursor, ledger int64) (*RunInfo, error) {
	k, v := c.prev()
	return x.runAt(ledger, k, v)
}

// absent says that an entry between two neighbouring runs (nil: none of this ledger) is not there, if all that is known
// agrees.
func (x *runIndex) absent(ledger, entry int64, record *ledgerRecord, before, next *RunInfo) error {
	last, prev := int64(-1), int64(-1) // what the record says is the last entry; what the index shows lies before
	if record != nil {
		last = record.last
	}
	if before != nil {
		prev = before.Last()
	}
	switch {
	case prev >= entry:
		return x.damaged(ledger, "a run up to entry %d stands before entry %d", prev, entry)
	case next != nil && next.Prev != prev:
		return x.damaged(ledger, "the run from entry %d links to entry %d, but before it stands entry %d", next.First, next.Prev, prev)
	case next != nil && last < next.Last():
		return x.damaged(ledger, "its record ends at entry %d, but there is a run up to %d", last, next.Last())
	case next == nil && last != prev:
		return x.damaged(ledger, "its record ends at entry %d, but its runs at %d", last, prev)
	}
	return ErrNotFound
}

// Locate implements Index.
func (x *runIndex) Locate(ledger, entry int64) (entrylog.Location, error) {
	r, err := x.LocateRun(ledger, entry)
	if err != nil {
		return entrylog.Location{}, err
	}
	loc, _ := r.Find(entry)
	return loc, nil
}

// LocateRun implements Index.
func (x *runIndex) LocateRun(ledger, entry int64) (RunInfo, error) {
	var found RunInfo
	err := x.lookup(func(tx kvTx) error {
		r, err := x.find(tx, ledger, entry)
		if err == nil {
			found = *r
		}
		return err
	})
	return found, err
}

// Last implements Index.
func (x *runIndex) Last(ledger int64) (int64, error) {
	last := int64(-1)
	err := x.lookup(func(tx kvTx) error {
		record, err := x.ledgerOf(tx, ledger)
		if err != nil {
			return err
		}
		if record == nil || record.last < 0 {
			if ledger < 0 {
				return ErrNotFound
			}
			_, err := x.find(tx, ledger, 0) // proves that there is no run at all
			if err == nil {
				err = x.damaged(ledger, "there are runs, but its record knows none")
			}
			return err
		}
		r, err := x.find(tx, ledger, record.last)
		switch {
		case errors.Is(err, ErrNotFound):
			return x.damaged(ledger, "its record ends at entry %d, which no run holds", record.last)
		case err != nil:
			return err
		case r.Last() != record.last:
			return x.damaged(ledger, "its record ends at entry %d, but there is a run up to %d", record.last, r.Last())
		}
		last = record.last
		return nil
	})
	if err != nil {
		return -1, err
	}
	return last, nil
}

// runsPerView is how many runs one read transaction of Runs returns: long ones keep bbolt from reusing pages.
const runsPerView = 256

// Runs implements Index.
func (x *runIndex) Runs(ledger, from int64) iter.Seq2[RunInfo, error] {
	return func(yield func(RunInfo, error) bool) {
		for from = max(from, 0); ; {
			batch, more, err := x.runsFrom(ledger, from)
			for _, r := range batch {
				if !yield(r, nil) {
					return
				}
			}
			if err != nil {
				yield(RunInfo{}, err)
				return
			}
			if !more {
				return
			}
			from = batch[len(batch)-1].Last() + 1
		}
	}
}

// runsFrom returns up to runsPerView runs. Each must link to the one before it, and the last to the ledger's record.
func (x *runIndex) runsFrom(ledger, from int64) (batch []RunInfo, more bool, err error) {
	if ledger < 0 {
		return nil, false, nil
	}
	err = x.lookup(func(tx kvTx) error {
		record, err := x.ledgerOf(tx, ledger)
		if err != nil {
			return err
		}
		last := int64(-1)
		if record != nil {
			last = record.last
		}
		prev, err := x.lastBefore(tx, ledger, from)
		if err != nil {
			return err
		}
		c := tx.cursor(bucketRuns)
		for r, err := x.seekRun(c, ledger, from); ; r, err = x.nextRun(c, ledger) {
			if err != nil {
				return err
			}
			if r == nil {
				break
			}
			if r.Prev != prev {
				return x.damaged(ledger, "the run from entry %d links to entry %d, but before it stands entry %d", r.First, r.Prev, prev)
			}
			prev = r.Last()
			batch = append(batch, *r)
			if len(batch) == runsPerView {
				more = prev < last
				break
			}
		}
		if !more && prev != last {
			return x.damaged(ledger, "its record ends at entry %d, but its runs at %d", last, prev)
		}
		return nil
	})
	return batch, more, err
}

// lastBefore returns the last entry of the ledger's last run that ends before entry, -1 if there is none.
func (x *runIndex) lastBefore(tx kvTx, ledger, entry int64) (int64, error) {
	c := tx.cursor(bucketRuns)
	if _, err := x.seekRun(c, ledger, entry); err != nil {
		return -1, err
	}
	r, err := x.prevRun(c, ledger)
	if err != nil || r == nil {
		return -1, err
	}
	if r.Last() >= entry {
		return -1, x.damaged(ledger, "a run up to entry %d stands before entry %d", r.Last(), entry)
	}
	return r.Last(), nil
}

// State implements Index.
func (x *runIndex) State(ledger int64) (data []byte, ok bool, err error) {
	err = x.lookup(func(tx kvTx) error {
		record, err := x.ledgerOf(tx, ledger)
		if err != nil {
			return err
		}
		s, err := x.stateOf(tx, ledger)
		if err != nil {
			return err
		}
		if claimed := record != nil && record.hasState; claimed != (s != nil) {
			return x.damaged(ledger, "its record and the states disagree on whether it has a state")
		}
		if s != nil {
			data, ok = slices.Clone(s.data), true
		}
		return nil
	})
	return data, ok, err
}

func (x *runIndex) stateOf(tx kvTx, ledger int64) (*stateRecord, error) {
	k := ledgerKey(ledger)
	v := tx.get(bucketStates, k[:])
	if v == nil {
		return nil, nil
	}
	s, err := decodeState(k[:], v)
	if err != nil {
		return nil, x.damaged(ledger, "state: %w", err)
	}
	return &s, nil
}

// Ledgers implements Index.
func (x *runIndex) Ledgers(after int64, limit int) (ids []int64, err error) {
	if limit <= 0 || after == 1<<63-1 {
		return nil, nil
	}
	err = x.lookup(func(tx kvTx) error {
		c := tx.cursor(bucketLedgers)
		key := ledgerKey(max(after+1, 0))
		for k, v := c.seek(key[:]); k != nil && len(ids) < limit; k, v = c.next() {
			id, err := parseLedgerKey(k)
			if err == nil {
				_, err = decodeLedger(k, v)
			}
			if err != nil {
				return corrupt.New(x.path, 0, "index", fmt.Errorf("ledger record with the key %x: %w", k, err))
			}
			ids = append(ids, id)
		}
		return nil
	})
	return ids, err
}
