package metadata

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/binderylog/bindery/internal/ledger"
)

// NewID draws a ledger id that no client of this cluster, ours or Java, has drawn before. The first 2^31-1 ids come from
// the short generator; when it has run out, whoever notices creates the directory of the long one, and everyone uses that
// for ever. A caller-chosen id may collide; Create then says ErrExists and the caller draws again.
func (l *Ledgers) NewID(ctx context.Context) (ledger.ID, error) {
	id, err := l.newID(ctx)
	if err != nil {
		return 0, fmt.Errorf("new ledger id: %w", err)
	}
	return id, nil
}

func (l *Ledgers) newID(ctx context.Context) (ledger.ID, error) {
	if !l.longIDs.Load() {
		long, err := l.longIDsStarted(ctx)
		if err != nil {
			return 0, err
		}
		if !long {
			n, err := l.store.Sequence(ctx, l.root+"/"+nameIDGen+"/"+nameSequenceID)
			if err != nil {
				return 0, err
			}
			if n >= 0 && n < int64(shortIDEnd) {
				return ledger.ID(n), nil
			}
			_, err = l.store.Put(ctx, l.root+"/"+nameIDGenLong, nil, Absent)
			if err != nil && !errors.Is(err, ErrExists) {
				return 0, err
			}
		}
		l.longIDs.Store(true)
	}
	return l.newLongID(ctx)
}

// NextID returns the least id that NewID can return from now on. It never goes back, unless the store forgets what it was told:
// one that was restored from a backup gives out ids again.
func (l *Ledgers) NextID(ctx context.Context) (ledger.ID, error) {
	id, err := l.nextID(ctx)
	if err != nil {
		return 0, fmt.Errorf("next ledger id: %w", err)
	}
	return id, nil
}

func (l *Ledgers) nextID(ctx context.Context) (ledger.ID, error) {
	long, err := l.longIDsStarted(ctx)
	if err != nil {
		return 0, err
	}
	if !long {
		n, err := l.store.NextInSequence(ctx, l.root+"/"+nameIDGen+"/"+nameSequenceID)
		if err != nil {
			return 0, err
		}
		if n < int64(shortIDEnd) {
			return ledger.ID(n), nil
		}
	}
	hobs, err := l.hobs(ctx)
	if err != nil || len(hobs) == 0 {
		return 1 << 32, err
	}
	high := hobs[len(hobs)-1]
	low, err := l.store.NextInSequence(ctx, l.hobPath(high)+"/"+nameSequenceID)
	if err != nil {
		return 0, err
	}
	if low >= math.MaxInt32 {
		high, low = high+1, 0
	}
	return ledger.ID(high<<32 | low), nil
}

// Draws of AdvanceIDs: at most so many, and so many at once. What would need more goes to the next generator.
const (
	advanceMax      = 1 << 20
	advanceParallel = 16
)

// AdvanceIDs makes sure that NewID, and every other client's draw, returns only ids from to on. It draws those before it, as if
// for ledgers that are never made; where they are too many, it begins with the long generator, or with its next directory, which
// clients of Java's notice after a restart.
func (l *Ledgers) AdvanceIDs(ctx context.Context, to ledger.ID) error {
	if err := l.advanceIDs(ctx, to); err != nil {
		return fmt.Errorf("advance ledger ids to %d: %w", to, err)
	}
	return nil
}

func (l *Ledgers) advanceIDs(ctx context.Context, to ledger.ID) error {
	next, err := l.nextID(ctx)
	if err != nil || next >= to {
		return err
	}
	if to <= shortIDEnd && to-next <= advanceMax { // the short one is in use, or next would be higher
		return l.draw(ctx, l.root+"/"+nameIDGen+"/"+nameSequenceID, int64(to-next))
	}
	if _, err := l.store.Put(ctx, l.root+"/"+nameIDGenLong, nil, Absent); err != nil && !errors.Is(err, ErrExists) {
		return err
	}
	high := max(int64(to)>>32, 1)
	if high > math.MaxInt32 {
		return errors.New("there are no ids beyond it")
	}
	if err := l.createHOB(ctx, high); err != nil {
		return err
	}
	if next, err = l.nextID(ctx); err != nil || next >= to {
		return err
	}
	if to-next <= advanceMax {
		return l.draw(ctx, l.hobPath(high)+"/"+nameSequenceID, int64(to-next))
	}
	if high == math.MaxInt32 {
		return errors.New("there are too few ids beyond it")
	}
	return l.createHOB(ctx, high+1)
}

// draw draws n numbers and throws them away.
func (l *Ledgers) draw(ctx context.Context, path string, n int64) error {
	g, ctx := errgroup.WithContext(ctx)
	var left atomic.Int64
	left.Store(n)
	for range min(n, advanceParallel) {
		g.Go(func() error {
			for left.Add(-1) >= 0 {
				if _, err := l.store.Sequence(ctx, path); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// longIDsStarted reports whether the long generator's directory exists. It is read each time until it does: the answer
// "no" may become "yes" at any moment by another client's hand.
func (l *Ledgers) longIDsStarted(ctx context.Context) (bool, error) {
	_, err := l.store.Get(ctx, l.root+"/"+nameIDGenLong)
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, ErrNotFound) {
		return false, err
	}
	// Engines without directories may hold only what lies below.
	keys, err := l.store.Keys(ctx, l.root+"/"+nameIDGenLong+"/", "", 1)
	return len(keys) > 0, err
}

// newLongID draws from the largest HOB directory: its number is the high half of the id. A full one is followed by the
// next.
func (l *Ledgers) newLongID(ctx context.Context) (ledger.ID, error) {
	for range 3 { // once per full directory met; two in a row already means 4 billion ids drawn meanwhile
		hobs, err := l.hobs(ctx)
		if err != nil {
			return 0, err
		}
		high := int64(1)
		if len(hobs) > 0 {
			high = hobs[len(hobs)-1]
		} else if err := l.createHOB(ctx, high); err != nil {
			return 0, err
		}
		low, err := l.store.Sequence(ctx, l.hobPath(high)+"/"+nameSequenceID)
		if err != nil {
			return 0, err
		}
		if low >= 0 && low < math.MaxInt32 {
			return ledger.ID(high<<32 | low), nil
		}
		if high >= math.MaxInt32 {
			return 0, errors.New("all 63-bit ids have been drawn")
		}
		if err := l.createHOB(ctx, high+1); err != nil {
			return 0, err
		}
	}
	return 0, errors.New("the long id generator keeps running out")
}

func (l *Ledgers) hobPath(high int64) string {
	return fmt.Sprintf("%s/%s/%s%010d", l.root, nameIDGenLong, nameHOB, high)
}

// createHOB makes a directory of the long generator; one that exists is as good.
func (l *Ledgers) createHOB(ctx context.Context, high int64) error {
	_, err := l.store.Put(ctx, l.hobPath(high), nil, Absent)
	if err != nil && !errors.Is(err, ErrExists) {
		return err
	}
	return nil
}

// hobs returns the numbers of the long generator's directories, ascending. They are never removed, as Java does with old
// ones: there is one per 2 billion ids, and one that came back after its removal would start its counter anew.
func (l *Ledgers) hobs(ctx context.Context) ([]int64, error) {
	prefix := l.root + "/" + nameIDGenLong + "/" + nameHOB
	var out []int64
	for after := ""; ; {
		keys, err := l.store.Keys(ctx, prefix, after, pageSize)
		if err != nil {
			return nil, err
		}
		if len(keys) == 0 {
			return out, nil
		}
		for _, k := range keys {
			after = k
			name, _, _ := strings.Cut(k[len(prefix):], "/") // below a directory may be sequence nodes
			n, err := strconv.ParseInt(name, 10, 64)
			if err != nil || n < 1 || n > math.MaxInt32 {
				return nil, fmt.Errorf("%s is not a directory of the id generator", k)
			}
			if len(out) == 0 || out[len(out)-1] != n {
				out = append(out, n)
			}
		}
	}
}
