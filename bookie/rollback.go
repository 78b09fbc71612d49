package bookie

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/vfs"
)

// A metadata store that was restored from a backup gives out ids of ledgers again that were created since the backup. Bookies
// that hold entries of such a ledger must not take part in the new one: its recovery would find them. So a bookie remembers how
// far the ids have been drawn, and looks regularly, and before it serves, whether the store still knows. If it does not, the
// bookie takes no normal adds and registers read-only, so that no client chooses it, until `bindery gc accept-rollback` says
// that the store is right as it is. Then, and not before, the store is made to draw every id that may be known here: it would
// look to a bookie that has not looked yet as if nothing had happened.

// idsName is a file in current/ of each directory: the least id that had not been drawn when the bookie looked last. Its length
// is fixed, see replaceFile.
//
//	ids 0000000000000001234
//	crc32c 0a1b2c3d
const idsName = "IDS"

// idsAhead is how far above the remembered id ledgers are looked for here: those that were created since the last look. Ids that
// callers chose may lie anywhere; they are no concern of the generator.
const idsAhead = 100_000

const (
	storeCheckEvery  = 10 * time.Second
	storeCheckRetry  = time.Second // while the store can not be reached: it may come back as another one
	storeCheckPause  = time.Second // between two looks for the sake of new ledgers
	storeCheckAtStop = 2 * time.Second
)

// idWatch lets the watch over the store look at once when a ledger comes up whose id was drawn after the last look.
type idWatch struct {
	known atomic.Int64 // ids below were drawn before the last look
	news  chan struct{}
}

func (w *idWatch) saw(id int64) {
	if w == nil {
		return
	}
	if ahead := id - w.known.Load(); ahead < 0 || ahead >= idsAhead {
		return
	}
	select {
	case w.news <- struct{}{}:
	default:
	}
}

func encodeIDs(next ledger.ID) []byte { return sumLine(fmt.Sprintf("ids %019d\n", int64(next))) }

func decodeIDs(name string, b []byte) (ledger.ID, error) {
	if len(b) <= stampMax {
		line, _, _ := strings.Cut(string(b), "\n")
		text, ok := strings.CutPrefix(line, "ids ")
		n, err := strconv.ParseInt(text, 10, 64)
		if ok && err == nil && n >= 0 && string(sumLine(line+"\n")) == string(b) {
			return ledger.ID(n), nil
		}
	}
	return 0, corrupt.Errorf(name, 0, "ids", "%.60q", b)
}

// readIDs returns what the bookie remembers, 0 if nothing. A damaged copy is passed over: it says less than a whole one, and
// is written again.
func (i *Identity) readIDs() (next ledger.ID, stale bool, err error) {
	for _, d := range i.dirs {
		b, err := readOptional(d.fs, d.file(idsName))
		if err != nil {
			return 0, false, err
		}
		one := ledger.ID(0)
		if b != nil {
			if one, err = decodeIDs(d.file(idsName), b); err != nil {
				i.o.Logger.Warn("a note of the ids that were drawn is damaged; it is written again", "err", err)
				stale = true
			}
		}
		next = max(next, one)
	}
	return next, stale, nil
}

func (i *Identity) writeIDs(next ledger.ID) error {
	for _, d := range i.dirs {
		if err := replaceFile(d.fs, d.file(idsName), encodeIDs(next)); err != nil && !vfs.IsNoSpace(err) { // what is there still holds
			return fmt.Errorf("%s: %w", d, err)
		}
	}
	return nil
}

// CheckStore compares the metadata store with what this bookie remembers of it. ErrStoreRolledBack means that it has forgotten
// something; it is returned until AcceptRollback. Any other error means that nothing is known.
func (i *Identity) CheckStore(ctx context.Context) error {
	if err := i.gcOp.Acquire(ctx, 1); err != nil {
		return err
	}
	defer i.gcOp.Release(1)
	ctx, cancel := context.WithTimeout(ctx, i.o.Timeout)
	defer cancel()
	if err := i.checkStoreLocked(ctx); err != nil {
		return fmt.Errorf("check the metadata store: %w", err)
	}
	return nil
}

func (i *Identity) checkStoreLocked(ctx context.Context) error {
	local, err := i.readGCCounter()
	if err != nil {
		return err
	}
	known, stale, err := i.readIDs()
	if err != nil {
		return err
	}
	i.idsKnown.Store(int64(known))
	stored, _, err := i.o.Views.Incarnations.GCCounter(ctx, i.o.ID)
	if err != nil {
		return err
	}
	if stored < local.confirmed {
		return fmt.Errorf("%w (it says pass %d, this bookie has made %d)", ErrStoreRolledBack, stored, local.confirmed)
	}
	next, err := i.o.Views.Ledgers.NextID(ctx)
	if err != nil {
		return err
	}
	if next < known {
		// Others draw on, and soon this could not be seen any more: the counter of passes keeps it.
		n := max(stored, local.intended) + 1
		if err := i.writeGCCounter(gcCounter{intended: n, confirmed: n}); err != nil {
			return err
		}
		return fmt.Errorf("%w (it would give out ledger id %d, and had come to %d)", ErrStoreRolledBack, next, known)
	}
	if next > known || stale {
		if err := i.writeIDs(next); err != nil {
			return err
		}
	}
	i.idsKnown.Store(int64(next))
	return nil
}

// AdvanceIDs makes the store draw every ledger id that this bookie may know of. highest returns the highest id of a ledger that
// is here, from its first argument up to its second, -1 if there is none.
func (i *Identity) AdvanceIDs(ctx context.Context, highest func(from, to int64) (int64, error)) error {
	known, _, err := i.readIDs()
	if err != nil {
		return err
	}
	last, err := highest(int64(known), int64(known)+idsAhead)
	if err != nil {
		return err
	}
	return i.o.Views.Ledgers.AdvanceIDs(ctx, max(known, ledger.ID(last+1)))
}

// highestLedger is AdvanceIDs' question to the storage.
func (b *Bookie) highestLedger(from, to int64) (int64, error) {
	last := int64(-1)
	for after := from - 1; ; {
		ids, err := b.eng.st.Ledgers(after, 10_000)
		if err != nil {
			return 0, err
		}
		for _, id := range ids {
			if id > to {
				return last, nil
			}
			last, after = id, id
		}
		if len(ids) == 0 {
			return last, nil
		}
	}
}

// checkStore looks at the store and puts the answer in force.
func (b *Bookie) checkStore(ctx context.Context) error {
	err := b.identity.CheckStore(ctx)
	b.ids.known.Store(b.identity.idsKnown.Load())
	b.noteStore(err)
	return err
}

// noteStore makes the bookie read-only if err says that the store was rolled back, and writable again once the store is as it
// should be: that was accepted, or a newer backup restored.
func (b *Bookie) noteStore(err error) {
	switch {
	case errors.Is(err, ErrStoreRolledBack):
		if !b.rolledBack.Swap(true) {
			b.o.Logger.Error("this bookie takes no new entries and deletes nothing, until it is told that the metadata store is right as it is", "err", err)
			b.state.set(ReasonMetadata, true, ErrStoreRolledBack.Error())
		}
	case err == nil:
		if b.rolledBack.Swap(false) {
			b.o.Logger.Warn("the metadata store is right as it is: this bookie goes on")
			b.state.set(ReasonMetadata, false, "")
		}
	}
}

// checkStoreAtStart is the look before the bookie serves.
func (b *Bookie) checkStoreAtStart(ctx context.Context) error {
	err := b.checkStore(ctx)
	switch {
	case err == nil, errors.Is(err, ErrStoreRolledBack):
		return nil
	case errors.Is(err, metadata.ErrUnavailable):
		return withExit(ExitRegistration, err)
	}
	return withExit(ExitIO, err)
}

// checkStoreAtStop notes how far the store has come, so that any backup of it that was made before this stop is told from it.
func (b *Bookie) checkStoreAtStop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeCheckAtStop)
	defer cancel()
	if err := b.identity.CheckStore(ctx); err != nil && !b.rolledBack.Load() {
		b.o.Logger.Warn("how far ledger ids have been drawn could not be noted", "err", err)
	}
}

// watchStore looks at the store until ctx ends.
func (b *Bookie) watchStore(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for wait := time.Duration(0); ; {
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-b.ids.news:
		}
		err := b.checkStore(ctx)
		if err == nil {
			b.o.Metadata.Replication.Settle(ctx) // locks that the collector could not give back
		}
		wait = b.o.StoreCheckInterval
		if err != nil && !errors.Is(err, ErrStoreRolledBack) {
			b.o.Logger.Debug("the metadata store could not be looked at", "err", err)
			wait = min(wait, storeCheckRetry)
		}
		timer.Reset(min(wait, storeCheckPause))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

// acceptRollback is the operator's word that the store is right as it is.
func (b *Bookie) acceptRollback(ctx context.Context) error {
	if err := b.identity.AdvanceIDs(ctx, b.highestLedger); err != nil {
		return fmt.Errorf("accept rollback: %w", err)
	}
	if err := b.identity.AcceptRollback(ctx); err != nil {
		return err
	}
	return b.checkStore(ctx)
}
