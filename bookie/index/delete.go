package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/corrupt"
)

// DeleteLedgers implements Index. What is too much for one transaction is deleted in several, each of which leaves the
// ledger whole up to some entry; meta goes with the first, the state with the last.
func (x *runIndex) DeleteLedgers(ledgers []int64, meta ...MetaValue) error {
	ledgers = slices.Clone(ledgers)
	slices.Sort(ledgers)
	ledgers = slices.Compact(ledgers)
	if len(ledgers) == 0 {
		return x.PutMeta(meta...)
	}
	for first := true; len(ledgers) > 0; first = false {
		var done int
		err := x.write(func(tx kvTx) error {
			done = 0
			if first {
				if err := x.putMeta(tx, meta); err != nil {
					return err
				}
			}
			for budget := txBytesMax; done < len(ledgers); done++ {
				whole, err := x.deleteLedger(tx, ledgers[done], &budget)
				if err != nil {
					return err
				}
				if !whole {
					return nil
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		x.count.deletedLedgers.Add(uint64(done))
		ledgers = ledgers[done:]
	}
	return nil
}

// deleteLedger deletes everything about a ledger; of one with more runs than the budget allows, the last runs only, so that
// what stays is whole up to some entry.
func (x *runIndex) deleteLedger(tx kvTx, ledger int64, budget *int) (whole bool, err error) {
	if ledger < 0 {
		return true, nil
	}
	record, err := x.ledgerOf(tx, ledger)
	if err != nil {
		return false, err
	}
	if record != nil && record.runs > uint64(*budget/deleteCost) {
		return false, x.deleteTail(tx, ledger, record, budget)
	}
	keys, err := x.runKeys(tx, ledger)
	if err != nil {
		return false, err
	}
	*budget -= deleteCost * (1 + len(keys))
	key := ledgerKey(ledger)
	return true, errors.Join(x.deleteRuns(tx, keys), tx.del(bucketStates, key[:]), tx.del(bucketLedgers, key[:]))
}

// deleteCost is what a deletion counts in a transaction: the page it lies on is written again.
const deleteCost = 4 * runBytesGuess

func (x *runIndex) deleteRuns(tx kvTx, keys [][]byte) error {
	for _, k := range keys {
		if err := tx.del(bucketRuns, k); err != nil {
			return err
		}
	}
	return nil
}

// runKeys returns the keys of all runs of a ledger.
func (x *runIndex) runKeys(tx kvTx, ledger int64) (keys [][]byte, err error) {
	c := tx.cursor(bucketRuns)
	start := runKey(ledger, 0)
	for k, _ := c.seek(start[:]); k != nil; k, _ = c.next() {
		l, _, err := parseRunKey(k)
		if err != nil {
			return nil, corrupt.New(x.path, 0, "index", err)
		}
		if l != ledger {
			break
		}
		keys = append(keys, slices.Clone(k))
	}
	return keys, nil
}

// deleteTail deletes runs from the last one backward until the budget is used up.
func (x *runIndex) deleteTail(tx kvTx, ledger int64, record *ledgerRecord, budget *int) error {
	if *budget < txBytesMax { // others have used some of it: let this ledger begin the next transaction
		return nil
	}
	var keys [][]byte
	c := tx.cursor(bucketRuns)
	r, err := x.seekRun(c, ledger, record.last)
	for ; err == nil && r != nil && *budget > 0; r, err = x.prevRun(c, ledger) {
		key := runKey(ledger, r.Last())
		keys = append(keys, key[:])
		*budget -= deleteCost
	}
	if err != nil {
		return err
	}
	if r == nil {
		return x.damaged(ledger, "its record knows %d runs, there are fewer", record.runs)
	}
	rec := ledgerRecord{last: r.Last(), runs: record.runs - uint64(len(keys)), hasState: record.hasState}
	key := ledgerKey(ledger)
	return errors.Join(x.deleteRuns(tx, keys), tx.put(bucketLedgers, key[:], rec.encode(key[:])))
}

// Ingested implements Index.
func (x *runIndex) Ingested(log entrylog.LogID) (ok bool, err error) {
	err = x.lookup(func(tx kvTx) error {
		key := logKey(log)
		v := tx.get(bucketLogs, key[:])
		if v == nil {
			return nil
		}
		rec, err := decodeLog(key[:], v)
		if err != nil {
			return corrupt.New(x.path, 0, "index", fmt.Errorf("record of log %s: %w", log, err))
		}
		ok = rec.complete
		return nil
	})
	return ok, err
}

// Logs implements Index.
func (x *runIndex) Logs() (ids []entrylog.LogID, err error) {
	err = x.lookup(func(tx kvTx) error {
		c := tx.cursor(bucketLogs)
		for k, v := c.seek(nil); k != nil; k, v = c.next() {
			rec, err := decodeLog(k, v)
			if err != nil {
				return corrupt.New(x.path, 0, "index", fmt.Errorf("log record with the key %x: %w", k, err))
			}
			if rec.complete {
				ids = append(ids, entrylog.LogID(binary.BigEndian.Uint32(k)))
			}
		}
		return nil
	})
	return ids, err
}

// Drop implements Index.
func (x *runIndex) Drop(log entrylog.LogID) error {
	key := logKey(log)
	return x.write(func(tx kvTx) error { return tx.del(bucketLogs, key[:]) })
}

// countKey is the one key of bucketCount.
var countKey = []byte("meta")

// metaKeyMax bounds keys of the caller's values.
const metaKeyMax = 256

// Meta implements Index.
func (x *runIndex) Meta(key string) (value []byte, ok bool, err error) {
	err = x.lookup(func(tx kvTx) error {
		v := tx.get(bucketMeta, []byte(key))
		if v == nil {
			return x.checkMetaCount(tx)
		}
		data, err := open([]byte(key), v)
		if err != nil {
			return corrupt.New(x.path, 0, "index", fmt.Errorf("value %q: %w", key, err))
		}
		value, ok = slices.Clone(data), true
		return nil
	})
	return value, ok, err
}

// MetaValues implements Index.
func (x *runIndex) MetaValues() (values []MetaValue, err error) {
	err = x.lookup(func(tx kvTx) error {
		if err := x.checkMetaCount(tx); err != nil {
			return err
		}
		c := tx.cursor(bucketMeta)
		for k, v := c.seek(nil); k != nil; k, v = c.next() {
			data, err := open(k, v)
			if err != nil {
				return corrupt.New(x.path, 0, "index", fmt.Errorf("value %q: %w", k, err))
			}
			values = append(values, MetaValue{string(k), append([]byte{}, data...)})
		}
		return nil
	})
	return values, err
}

// metaCount returns how many values there must be.
func (x *runIndex) metaCount(tx kvTx) (uint64, error) {
	v := tx.get(bucketCount, countKey)
	if v == nil {
		return 0, nil
	}
	data, err := open(countKey, v)
	if err == nil && len(data) != 8 {
		err = errShort
	}
	if err != nil {
		return 0, corrupt.New(x.path, 0, "index", fmt.Errorf("number of values: %w", err))
	}
	return binary.LittleEndian.Uint64(data), nil
}

// checkMetaCount proves that no value is missing, before one is said not to be there.
func (x *runIndex) checkMetaCount(tx kvTx) error {
	want, err := x.metaCount(tx)
	if err != nil {
		return err
	}
	var got uint64
	c := tx.cursor(bucketMeta)
	for k, v := c.seek(nil); k != nil; k, v = c.next() {
		if _, err := open(k, v); err != nil { // its key may be the one that is looked for
			return corrupt.New(x.path, 0, "index", fmt.Errorf("value %q: %w", k, err))
		}
		got++
	}
	if got != want {
		return corrupt.Errorf(x.path, 0, "index", "%d small values, want %d", got, want)
	}
	return nil
}

// PutMeta implements Index.
func (x *runIndex) PutMeta(values ...MetaValue) error {
	if len(values) == 0 {
		return nil
	}
	return x.write(func(tx kvTx) error { return x.putMeta(tx, values) })
}

func (x *runIndex) putMeta(tx kvTx, values []MetaValue) error {
	if len(values) == 0 {
		return nil
	}
	n, err := x.metaCount(tx)
	if err != nil {
		return err
	}
	for _, v := range values {
		if v.Key == "" || len(v.Key) > metaKeyMax {
			return errors.New("key of a small value is empty or too long")
		}
		key := []byte(v.Key)
		there := tx.get(bucketMeta, key) != nil
		switch {
		case v.Value == nil && there:
			n--
			err = tx.del(bucketMeta, key)
		case v.Value != nil:
			if !there {
				n++
			}
			err = tx.put(bucketMeta, key, seal(key, slices.Clone(v.Value)))
		}
		if err != nil {
			return err
		}
	}
	return tx.put(bucketCount, countKey, seal(countKey, binary.LittleEndian.AppendUint64(nil, n)))
}
