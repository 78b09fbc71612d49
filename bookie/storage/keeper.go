package storage

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/binderylog/bindery/bookie/index"
	"github.com/binderylog/bindery/entrylog"
	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/vfs"
)

// keeperRetry is how long the index keeper waits before it tries a log again.
const keeperRetry = 5 * time.Second

// keeper puts sealed logs into the index, in the order of their content, off the checkpoint path (decision 10).
func (d *dir) keeper() {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("bindery", "index-keeper", "dir", d.path)))
	ctx := d.s.ctx
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-d.s.stop:
			return
		case <-d.keeperWake:
		case <-timer.C:
		}
		if d.failed.Load() {
			return
		}
		if err := d.ingestFinal(ctx); err != nil && ctx.Err() == nil {
			d.ingestFailures.Add(1)
			d.s.log.Warn("an entry log could not be put into the index; it is tried again", "dir", d.path, "err", err)
			if errors.Is(err, index.ErrFailed) {
				d.fail(err)
				return
			}
			timer.Reset(keeperRetry)
		}
	}
}

// sealed is called by the entry logs when a log's content is final.
func (d *dir) sealed(info entrylog.LogInfo) {
	d.addFinal(info)
	select {
	case d.keeperWake <- struct{}{}:
	default:
	}
}

func (d *dir) addFinal(info entrylog.LogInfo) {
	d.finalMu.Lock()
	d.final = append(d.final, info)
	slices.SortFunc(d.final, func(a, b entrylog.LogInfo) int { return int(int64(a.ID) - int64(b.ID)) })
	d.finalMu.Unlock()
}

func (d *dir) nextFinal() (entrylog.LogInfo, bool) {
	d.finalMu.Lock()
	defer d.finalMu.Unlock()
	if len(d.final) == 0 {
		return entrylog.LogInfo{}, false
	}
	return d.final[0], true
}

func (d *dir) doneFinal(id entrylog.LogID) {
	d.finalMu.Lock()
	d.final = slices.DeleteFunc(d.final, func(i entrylog.LogInfo) bool { return i.ID == id })
	d.finalMu.Unlock()
}

// ingestFinal ingests every log that waits, and finishes compactions whose output is in the index.
func (d *dir) ingestFinal(ctx context.Context) error {
	for {
		info, ok := d.nextFinal()
		if !ok {
			break
		}
		if err := d.ingest(ctx, info); err != nil {
			return fmt.Errorf("ingest entry log %s: %w", info.ID, err)
		}
		d.doneFinal(info.ID)
	}
	for _, c := range d.readyCompactions() {
		if err := d.finishCompaction(ctx, c); err != nil {
			return fmt.Errorf("finish compaction into log %s: %w", c.output, err)
		}
	}
	return nil
}

// ingest puts a log's runs and states into the index, and takes its pages from the overlay. Entries and states of ledgers
// that were deleted meanwhile are left out.
func (d *dir) ingest(ctx context.Context, info entrylog.LogInfo) error {
	d.indexMu.Lock()
	defer d.indexMu.Unlock()
	var runs iter.Seq2[entrylog.Run, error]
	var states []entrylog.LedgerState
	f := ingestFilter{d: d, log: info.ID}
	// A log is sealed by the checkpoint that fills it, and that checkpoint's page is in the overlay once its flush is over.
	d.flushMu.Lock()
	p := d.ov.merged(info.ID)
	d.flushMu.Unlock()
	if p != nil {
		runs = f.runs(func(yield func(entrylog.Run, error) bool) {
			for r := range p.runs() {
				if !yield(r, nil) {
					return
				}
			}
		})
		for i, id := range p.stateIDs {
			states = append(states, entrylog.LedgerState{Ledger: id, Data: p.stateAt(i)})
		}
	} else {
		footer, err := d.log.Footer(info.ID)
		if errors.Is(err, entrylog.ErrNoLog) {
			return nil
		}
		if err != nil {
			return err
		}
		runs, states = f.runs(footer.Runs()), footer.States
	}
	states, err := f.states(states)
	if err != nil {
		return err
	}
	put := func() error { return d.ix.Ingest(ctx, info, runs, states) }
	if err = put(); vfs.IsNoSpace(err) && d.useReserve("the index") {
		err = put()
	}
	if err != nil {
		return err
	}
	invariant.CrashPoint("storage.ingest.done")
	d.ingested.Add(1)
	d.overlayMu.Lock()
	d.ov.drop(info.ID)
	d.overlayMu.Unlock()
	d.gen.Add(1)
	return nil
}

// ingestFilter leaves out what belongs to deleted ledgers, as far as that is durable.
type ingestFilter struct {
	d      *dir
	log    entrylog.LogID
	ledger int64
	known  bool // verdict is ledger's
	dead   bool
}

// isDead reports whether the log holds nothing alive of a ledger.
func (f *ingestFilter) isDead(ledger int64) (bool, error) {
	if f.known && f.ledger == ledger {
		return f.dead, nil
	}
	st, ev, err := f.d.lookupState(ledger)
	if err != nil {
		return false, err
	}
	f.ledger, f.known = ledger, true
	f.dead = ev == evState && (st.replica.Tombstone || f.log <= st.floor)
	return f.dead, nil
}

func (f *ingestFilter) runs(all iter.Seq2[entrylog.Run, error]) iter.Seq2[entrylog.Run, error] {
	return func(yield func(entrylog.Run, error) bool) {
		for r, err := range all {
			dead := false
			if err == nil {
				dead, err = f.isDead(r.Ledger)
			}
			if err != nil {
				yield(entrylog.Run{}, err)
				return
			}
			if !dead && !yield(r, nil) {
				return
			}
		}
	}
}

// states leaves out the states of ledgers that the file of deleted ledgers names; a tombstone that it does not name yet
// stays, since it is all that says that the ledger is deleted.
func (f *ingestFilter) states(all []entrylog.LedgerState) ([]entrylog.LedgerState, error) {
	t := f.d.tombs.Load()
	var kept []entrylog.LedgerState
	for _, s := range all {
		st, err := parseState(s.Ledger, s.Data)
		if errors.Is(err, errStateVersion) {
			return nil, err
		}
		if err == nil && t.dead(s.Ledger, st.birth) {
			continue
		}
		kept = append(kept, s) // damaged ones too: a look-up reports them
	}
	return kept, nil
}
