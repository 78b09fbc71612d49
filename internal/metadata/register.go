package metadata

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
)

// ErrRegistered is returned when another live process holds the registration of this bookie id.
var ErrRegistered = errors.New("another process is registered under this bookie id")

// registerAttempts is how often at least Register tries when something other than a holder was in its way, however short
// the wait.
const registerAttempts = 4

// Registration is one state of a bookie's registration that was written to the store.
type Registration struct {
	ReadOnly bool
	Version  Version
	Session  Session // the registration lasts as long as this
}

// Register makes bookie id visible, writable or read-only, and removes its other registration. The new key is written
// before the old one goes, as a Java bookie does, but here both happen in one transaction. It is idempotent, and is called
// again after the session has ended.
//
// A key held by a foreign session belongs to a process that died a moment ago or to a second live one. If its service info
// carries our incarnation with no higher epoch (see PropertyIncarnation) it is an earlier session of ours or our own dead
// predecessor, since this process has raised the epoch while holding the locks of the directories; it is replaced at once. Otherwise Register waits up to
// `wait` for it to go away and then fails with ErrRegistered. The same span bounds its retries after conflicts and lost
// answers.
func (b *Bookies) Register(ctx context.Context, id ledger.BookieID, info ServiceInfo, readOnly bool, wait time.Duration) (Registration, error) {
	if err := CheckBookieID(id); err != nil {
		return Registration{}, err
	}
	value := EncodeServiceInfo(info)
	deadline := time.Now().Add(wait)
	attempts := 0
	for pause := newBackoff(); ; {
		attempts++
		reg, holder, err := b.tryRegister(ctx, id, info, value, readOnly)
		switch {
		case err == nil && holder == "":
			return reg, nil
		case err == nil:
			err = fmt.Errorf("%w (session %s)", ErrRegistered, holder)
		case isConflict(err), errors.Is(err, ErrSessionLost), errors.Is(err, ErrUnknownOutcome):
			// The next round reads what there is and goes on from it.
		default:
			return Registration{}, fmt.Errorf("register bookie %s: %w", id, err)
		}
		if time.Now().After(deadline) && (holder != "" || attempts >= registerAttempts) {
			return Registration{}, fmt.Errorf("register bookie %s: %w", id, err)
		}
		if werr := pause.wait(ctx); werr != nil {
			return Registration{}, fmt.Errorf("register bookie %s: %w: %w", id, werr, err)
		}
	}
}

// tryRegister makes one attempt. A foreign holder that may be alive is returned by its session.
func (b *Bookies) tryRegister(ctx context.Context, id ledger.BookieID, info ServiceInfo, value []byte, readOnly bool) (Registration, string, error) {
	s, err := b.store.Session(ctx)
	if err != nil {
		return Registration{}, "", err
	}
	put := Put{Key: b.Key(id, readOnly), Value: value, Version: Absent, Session: s}
	var t Txn
	for _, ro := range []bool{false, true} {
		kv, err := b.store.Get(ctx, b.Key(id, ro))
		if errors.Is(err, ErrNotFound) {
			if ro != readOnly {
				t.Checks = append(t.Checks, Check{Key: b.Key(id, ro), Version: Absent})
			}
			continue
		}
		if err != nil {
			return Registration{}, "", err
		}
		if kv.Session != s.ID() && !predecessor(kv, info) {
			return Registration{}, kv.Session, nil
		}
		if ro == readOnly {
			put.Version = kv.Version
		} else {
			t.Deletes = append(t.Deletes, Delete{Key: kv.Key, Version: kv.Version})
		}
	}
	t.Puts = []Put{put}
	r, err := b.store.Txn(ctx, t)
	if err != nil {
		return Registration{}, "", err
	}
	return Registration{ReadOnly: readOnly, Version: r.Versions[0], Session: s}, "", nil
}

// predecessor reports whether a registration was made by this or an earlier start of the bookie that info describes.
func predecessor(kv KV, info ServiceInfo) bool {
	old, err := DecodeServiceInfo(kv.Key, kv.Value)
	if err != nil {
		return false
	}
	inc, epoch, ok := info.Incarnation()
	oldInc, oldEpoch, oldOK := old.Incarnation()
	return ok && oldOK && inc == oldInc && oldEpoch <= epoch
}

// Unregister removes both registrations of bookie id that belong to session s. A foreign one is left alone.
func (b *Bookies) Unregister(ctx context.Context, id ledger.BookieID, s Session) error {
	for pause := newBackoff(); ; {
		err := b.tryUnregister(ctx, id, s)
		if err == nil {
			return nil
		}
		if !isConflict(err) && !errors.Is(err, ErrUnknownOutcome) {
			return fmt.Errorf("unregister bookie %s: %w", id, err)
		}
		if werr := pause.wait(ctx); werr != nil {
			return fmt.Errorf("unregister bookie %s: %w: %w", id, werr, err)
		}
	}
}

func (b *Bookies) tryUnregister(ctx context.Context, id ledger.BookieID, s Session) error {
	var t Txn
	for _, ro := range []bool{false, true} {
		kv, err := b.store.Get(ctx, b.Key(id, ro))
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if kv.Session == s.ID() {
			t.Deletes = append(t.Deletes, Delete{Key: kv.Key, Version: kv.Version})
		}
	}
	if len(t.Deletes) == 0 {
		return nil
	}
	_, err := b.store.Txn(ctx, t)
	return err
}
