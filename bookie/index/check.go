package index

import (
	"context"
	"fmt"

	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/corrupt"
)

// Check implements Index. It reads in one transaction, so that what it compares belongs together.
func (x *runIndex) Check(ctx context.Context, fn func(error)) error {
	if err := x.enter(); err != nil {
		return err
	}
	defer x.use.RUnlock()
	if err := x.kv.check(fn); err != nil {
		return x.judge(err)
	}
	return x.judge(x.kv.view(func(tx kvTx) error {
		ck := &checker{x: x, ctx: ctx, tx: tx, report: func(format string, args ...any) {
			fn(corrupt.Errorf(x.path, 0, "index", format, args...))
		}}
		return ck.run()
	}))
}

// checker is one Check.
type checker struct {
	x      *runIndex
	ctx    context.Context
	tx     kvTx
	report func(format string, args ...any)
	n      int
}

func (ck *checker) run() error {
	seen, err := ck.runs()
	if err != nil {
		return err
	}
	if err := ck.ledgers(seen); err != nil {
		return err
	}
	if err := ck.rest(); err != nil {
		return err
	}
	if err := ck.x.checkMetaCount(ck.tx); err != nil {
		ck.report("%w", err)
	}
	return nil
}

// tick lets a long check be cancelled.
func (ck *checker) tick() error {
	if ck.n++; ck.n%1024 == 0 {
		return ck.ctx.Err()
	}
	return nil
}

// runs checks every run and its link, and returns what the ledgers' records must say.
func (ck *checker) runs() (map[int64]ledgerRecord, error) {
	seen := map[int64]ledgerRecord{}
	ledger, prev := int64(-1), int64(-1)
	c := ck.tx.cursor(bucketRuns)
	for k, v := c.seek(nil); k != nil; k, v = c.next() {
		if err := ck.tick(); err != nil {
			return nil, err
		}
		r, err := decodeRun(k, v)
		if err != nil {
			ck.report("run with the key %x: %w", k, err)
			continue
		}
		if r.Ledger != ledger {
			ledger, prev = r.Ledger, -1
		}
		if r.Prev != prev {
			ck.report("ledger %d: the run from entry %d links to entry %d, but before it stands entry %d", ledger, r.First, r.Prev, prev)
		}
		prev = r.Last()
		rec := seen[ledger]
		rec.runs++
		rec.last = prev
		seen[ledger] = rec
	}
	return seen, nil
}

// ledgers compares the ledgers' records with the runs and the states.
func (ck *checker) ledgers(seen map[int64]ledgerRecord) error {
	c := ck.tx.cursor(bucketLedgers)
	for k, v := c.seek(nil); k != nil; k, v = c.next() {
		if err := ck.tick(); err != nil {
			return err
		}
		id, err := parseLedgerKey(k)
		var rec ledgerRecord
		if err == nil {
			rec, err = decodeLedger(k, v)
		}
		if err != nil {
			ck.report("ledger record with the key %x: %w", k, err)
			continue
		}
		want, ok := seen[id]
		delete(seen, id)
		if !ok {
			want.last = -1
		}
		if rec.last != want.last || rec.runs != want.runs {
			ck.report("ledger %d: its record says %d runs up to entry %d, there are %d up to %d", id, rec.runs, rec.last, want.runs, want.last)
		}
		if has := ck.tx.get(bucketStates, k) != nil; has != rec.hasState {
			ck.report("ledger %d: its record and the states disagree on whether it has a state", id)
		}
	}
	if len(seen) > 0 {
		ck.report("%d ledgers have runs but no record", len(seen))
	}
	return nil
}

// rest decodes the states, log records and small values.
func (ck *checker) rest() error {
	each := func(b bucket, what string, decode func(k, v []byte) error) error {
		c := ck.tx.cursor(b)
		for k, v := c.seek(nil); k != nil; k, v = c.next() {
			if err := ck.tick(); err != nil {
				return err
			}
			if err := decode(k, v); err != nil {
				ck.report("%s with the key %x: %w", what, k, err)
			}
		}
		return nil
	}
	err := each(bucketStates, "state", func(k, v []byte) error {
		if _, err := parseLedgerKey(k); err != nil {
			return err
		}
		if ck.tx.get(bucketLedgers, k) == nil {
			return fmt.Errorf("its ledger has no record")
		}
		_, err := decodeState(k, v)
		return err
	})
	if err != nil {
		return err
	}
	if err := each(bucketLogs, "log record", func(k, v []byte) error {
		_, err := decodeLog(k, v)
		return err
	}); err != nil {
		return err
	}
	return each(bucketMeta, "small value", func(k, v []byte) error {
		_, err := open(k, v)
		return err
	})
}

// Stats implements Index.
func (x *runIndex) Stats() (Stats, error) {
	var st Stats
	err := x.lookup(func(tx kvTx) error {
		c := tx.cursor(bucketRuns)
		for k, v := c.seek(nil); k != nil; k, v = c.next() {
			r, err := decodeRun(k, v)
			if err != nil {
				return corrupt.New(x.path, 0, "index", fmt.Errorf("run with the key %x: %w", k, err))
			}
			st.Runs++
			st.Entries += int64(r.Count)
			st.KeyValueBytes += int64(len(k) + len(v))
		}
		for b, n := range map[bucket]*int64{bucketLedgers: &st.Ledgers, bucketStates: &st.States, bucketLogs: &st.Logs, bucketMeta: new(int64)} {
			c := tx.cursor(b)
			for k, v := c.seek(nil); k != nil; k, v = c.next() {
				*n++
				st.KeyValueBytes += int64(len(k) + len(v))
			}
		}
		return nil
	})
	if err != nil {
		return Stats{}, err
	}
	z, err := x.kv.size()
	st.FileBytes, st.UsedBytes, st.FreeBytes = z.file, z.used, z.free
	return st, err
}

// Rebuild fills an index from the footers, run tables and states of all logs of a store, oldest first. Logs that are in
// it already are read again, which changes nothing. If something can not be read, that is in the report and noted under
// MetaSuspect, and the rest is there.
func Rebuild(ctx context.Context, store *entrylog.Store, into Index, progress func(done, total int)) (*RebuildReport, error) {
	logs := store.Logs()
	sortByAge(logs)
	report := &RebuildReport{Damage: store.Missing()}
	for i, info := range logs {
		if progress != nil {
			progress(i, len(logs))
		}
		if info.Writing {
			return nil, fmt.Errorf("rebuild index: log %s: %w", info.ID, entrylog.ErrNotFinal)
		}
		f, err := store.Footer(info.ID)
		if corrupt.Is(err) {
			report.Damage = append(report.Damage, damageOf(info.ID, err))
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("rebuild index: %w", err)
		}
		if err := into.Ingest(ctx, info, f.Runs(), f.States); err != nil {
			return nil, fmt.Errorf("rebuild index: %w", err)
		}
		report.Logs++
		report.Damage = append(report.Damage, f.Damage...)
	}
	if len(report.Damage) > 0 {
		if err := into.PutMeta(MetaValue{Key: MetaSuspect, Value: []byte("the entry logs did not prove everything when this index was rebuilt")}); err != nil {
			return nil, fmt.Errorf("rebuild index: %w", err)
		}
	}
	st, err := into.Stats()
	if err != nil {
		return nil, fmt.Errorf("rebuild index: %w", err)
	}
	report.Runs, report.Entries, report.Ledgers, report.States = st.Runs, st.Entries, st.Ledgers, st.States
	if progress != nil {
		progress(len(logs), len(logs))
	}
	return report, nil
}
