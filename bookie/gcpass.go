package bookie

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/metadata"
)

// ErrStoreRolledBack is returned when the metadata store holds less than it once did: it was restored from a backup. Ledgers
// created since that backup are missing from it, and a garbage collector would delete their entries; and it gives out their ids again.
var ErrStoreRolledBack = errors.New("the metadata store was restored from an older backup: nothing is written or deleted until `bindery gc accept-rollback`")

// gcCounter is the local mirror of the bookie's counter of garbage-collection passes, in current/GC of every directory.
//
//	gc 0000000041 0000000040
//	crc32c 0a1b2c3d
//
// The first number is the pass that was about to begin, the second the last one whose number is known to be in the store. A
// store below the second has lost something; one below the first only means that the process died in between. A rollback that
// shows elsewhere is kept as a pair above what the store has. The length is
// fixed so that a full disk does not keep the collection from making room (see replaceFile); fewer digits are read too.
type gcCounter struct{ intended, confirmed uint64 }

func (c gcCounter) encode() []byte {
	line := fmt.Sprintf("gc %0*d %0*d\n", epochDigits, c.intended, epochDigits, c.confirmed)
	return sumLine(line)
}

func sumLine(line string) []byte {
	return fmt.Appendf(nil, "%scrc32c %08x\n", line, crc32.Checksum([]byte(line), stampTable))
}

func decodeGCCounter(name string, b []byte) (gcCounter, error) {
	var c gcCounter
	if len(b) <= stampMax {
		line, _, _ := strings.Cut(string(b), "\n")
		_, err := fmt.Sscanf(line, "gc %d %d", &c.intended, &c.confirmed)
		if err == nil && string(sumLine(line+"\n")) == string(b) && c.confirmed <= c.intended {
			return c, nil
		}
	}
	return gcCounter{}, corrupt.Errorf(name, 0, "gc counter", "%.60q", b)
}

// readGCCounter returns the highest counter of the directories. A damaged copy is passed over as long as a whole one is
// there: the numbers only rise.
func (i *Identity) readGCCounter() (gcCounter, error) {
	var c gcCounter
	var damage error
	found := false
	for _, d := range i.dirs {
		b, err := readOptional(d.fs, d.file(gcName))
		if err != nil {
			return c, err
		}
		if b == nil {
			continue
		}
		one, err := decodeGCCounter(d.file(gcName), b)
		if err != nil {
			damage = err
			continue
		}
		found = true
		c.intended, c.confirmed = max(c.intended, one.intended), max(c.confirmed, one.confirmed)
	}
	if !found && damage != nil {
		return c, damage
	}
	return c, nil
}

func (i *Identity) writeGCCounter(c gcCounter) error {
	for _, d := range i.dirs {
		if err := d.replace(gcName, c.encode()); err != nil {
			return fmt.Errorf("%s: %w", d, err)
		}
	}
	return nil
}

// BeginGCPass announces a garbage-collection pass: it raises the bookie's counter on disk, in the store, and on disk again.
// Only after it returned nil may the pass read the metadata that it deletes by. ErrStoreRolledBack forbids it.
func (i *Identity) BeginGCPass(ctx context.Context) (uint64, error) {
	if err := i.gcOp.Acquire(ctx, 1); err != nil {
		return 0, fmt.Errorf("gc pass: %w", err)
	}
	defer i.gcOp.Release(1)
	ctx, cancel := context.WithTimeout(ctx, i.o.Timeout)
	defer cancel()
	local, err := i.readGCCounter()
	if err != nil {
		return 0, fmt.Errorf("gc pass: %w", err)
	}
	stored, v, err := i.o.Views.Incarnations.GCCounter(ctx, i.o.ID)
	if err != nil {
		return 0, fmt.Errorf("gc pass: %w", err)
	}
	if stored < local.confirmed {
		return 0, fmt.Errorf("gc pass: %w (it says pass %d, this bookie has made %d)", ErrStoreRolledBack, stored, local.confirmed)
	}
	n := max(stored, local.intended) + 1
	if err := i.writeGCCounter(gcCounter{intended: n, confirmed: local.confirmed}); err != nil {
		return 0, fmt.Errorf("gc pass: %w", err)
	}
	invariant.CrashPoint("identity.gc-intended")
	if err := i.storeGCCounter(ctx, n, v); err != nil {
		return 0, fmt.Errorf("gc pass: %w", err)
	}
	invariant.CrashPoint("identity.gc-stored")
	if err := i.writeGCCounter(gcCounter{intended: n, confirmed: n}); err != nil {
		return 0, fmt.Errorf("gc pass: %w", err)
	}
	return n, nil
}

// storeGCCounter raises the stored counter from version v to n. Only this bookie writes it, so the number itself tells
// whether a write with a lost answer has landed.
func (i *Identity) storeGCCounter(ctx context.Context, n uint64, v metadata.Version) error {
	for pause := storePause; ; pause = min(2*pause, time.Second) {
		_, err := i.o.Views.Incarnations.SetGCCounter(ctx, i.o.ID, n, v)
		if err == nil {
			return nil
		}
		if !errors.Is(err, metadata.ErrVersion) && !errors.Is(err, metadata.ErrUnknownOutcome) {
			return err
		}
		have, hv, gerr := i.o.Views.Incarnations.GCCounter(ctx, i.o.ID)
		switch {
		case gerr == nil && have == n:
			return nil
		case gerr == nil && hv != v:
			return fmt.Errorf("another process raised the counter of bookie %s to %d: %w", i.o.ID, have, err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// AcceptRollback ends what ErrStoreRolledBack stands for: the operator has made sure that every ledger worth keeping is in the
// store. AdvanceIDs comes first.
func (i *Identity) AcceptRollback(ctx context.Context) error {
	if err := i.gcOp.Acquire(ctx, 1); err != nil {
		return err
	}
	defer i.gcOp.Release(1)
	ctx, cancel := context.WithTimeout(ctx, i.o.Timeout)
	defer cancel()
	local, err := i.readGCCounter()
	if err != nil {
		return fmt.Errorf("accept rollback: %w", err)
	}
	stored, v, err := i.o.Views.Incarnations.GCCounter(ctx, i.o.ID)
	if err != nil {
		return fmt.Errorf("accept rollback: %w", err)
	}
	next, err := i.o.Views.Ledgers.NextID(ctx)
	if err != nil {
		return fmt.Errorf("accept rollback: %w", err)
	}
	if stored >= local.confirmed {
		return i.writeIDs(next) // nothing else may have been noticed yet
	}
	if err := i.writeIDs(next); err != nil {
		return fmt.Errorf("accept rollback: %w", err)
	}
	if err := i.storeGCCounter(ctx, local.intended, v); err != nil {
		return fmt.Errorf("accept rollback: %w", err)
	}
	i.o.Logger.Warn("rollback of the metadata store accepted", "stored", stored, "local", local.confirmed)
	return nil
}
