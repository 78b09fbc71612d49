package offload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/pace"
	"github.com/binderylog/bindery/offload/protocol"
)

// ErrNotYet is returned by Release while the deletion lag is not over.
var ErrNotYet = errors.New("offload: the deletion lag is not over")

// Release gives the bookie copies of a ledger up: after the deletion lag, a look at every object, and in one transaction with the
// record. Bookies drop the data by their ordinary garbage collection. It returns nil once the record is RELEASED, ErrNotYet, or a
// *StoppedError. With now the lag is skipped, the checks are not.
func (w *Worker) Release(ctx context.Context, id ledger.ID, now bool) error {
	rules := &protocol.Release{NewID: newAttemptID()}
	var s seen
	var cause error
	a := rules.Step(protocol.Event{Kind: protocol.Start})
	for {
		var e protocol.Event
		switch a.Do {
		case protocol.Read:
			var err error
			if s, err = w.o.Records.look(ctx, id); err != nil {
				return err
			}
			e = protocol.Event{Kind: protocol.EventSeen, Seen: s.view(), LagOver: s.record != nil && (now || w.lagOver(s.record))}
		case protocol.Check:
			cause = w.checkForRelease(ctx, id, &s)
			e = protocol.Event{Kind: protocol.EventChecked, OK: cause == nil}
		case protocol.Send:
			e = protocol.Event{Kind: protocol.EventWrote, Outcome: w.o.Records.send(ctx, id, w.releaseRecord(&s, a.Write), a.Write, &cause)}
		case protocol.Wait:
			return fmt.Errorf("ledger %d: %w", id, ErrNotYet)
		case protocol.Finish:
			w.m.released.Inc()
			return nil
		default:
			return &StoppedError{Ledger: id, Reason: a.Reason, Err: cause}
		}
		a = rules.Step(e)
	}
}

func (w *Worker) lagOver(r *Record) bool {
	return w.o.DeletionLag >= 0 && w.o.now().Sub(time.UnixMilli(r.CompletedAt)) >= w.o.DeletionLag
}

// checkForRelease looks at every object once more; any doubt is an error. It sees that objects are there, not what is in them: damage
// that an earlier look found stands in the record until it is repaired.
func (w *Worker) checkForRelease(ctx context.Context, id ledger.ID, s *seen) error {
	c, err := w.t.load(ctx, id, s.record, s.version)
	if err != nil {
		return err
	}
	findings, err := w.t.verify(ctx, c, VerifyHead, pace.NewBucket(0, 0), nil)
	if err != nil {
		return err
	}
	if len(findings) > 0 {
		return errors.New(findings[0].String())
	}
	for i := range s.record.Placement {
		if p := &s.record.Placement[i]; p.Lost {
			return fmt.Errorf("shard %d on target %s was found damaged or gone: `bindery offload repair %d` puts it right while the bookies have the ledger", i, p.Target, id)
		}
	}
	return nil
}

// releaseRecord is the record that a release writes: RELEASED, or UPLOADING anew for a ledger that was closed elsewhere meanwhile.
func (w *Worker) releaseRecord(s *seen, x protocol.Write) *Record {
	now := w.o.now().UnixMilli()
	if x.State == StateUploading {
		return idleRecord(s, x, now)
	}
	r := s.record.Clone()
	r.State, r.ReleasedAt = StateReleased, now
	// The record that goes is the newest copy of it: custom metadata may have changed since the commit.
	if stored, err := metadata.EncodeLedger(s.meta); err == nil {
		r.LedgerMetadata = stored
	}
	return r
}

// idleRecord names an attempt that never sends anything; what was there becomes garbage.
func idleRecord(s *seen, x protocol.Write, now int64) *Record {
	r := s.record.Clone()
	r.State, r.Attempt, r.Idle, r.StartedAt = StateUploading, x.Attempt, true, now
	r.CompletedAt, r.VerifiedAt, r.Manifest, r.Inline, r.Key = 0, 0, ManifestRef{}, false, nil
	for i := range r.Placement {
		r.Placement[i] = Placement{Target: r.Placement[i].Target}
	}
	if s.meta != nil {
		r.LastEntry, r.Length = s.meta.LastEntry, s.meta.Length
	}
	r.inherit(s.record, x.Discard, now)
	return r
}

// Delete makes an offloaded ledger be gone for everybody: one transaction turns the record into DELETING and deletes the ledger's own,
// if it still exists. The objects are removed by Clean. ErrNoRecord says that the tier knows nothing of the ledger.
func (r *Records) Delete(ctx context.Context, id ledger.ID) error {
	return r.delete(ctx, id, &protocol.Deletion{})
}

// DeleteLedger is Delete for the ledger client: a ledger that the tier does not know is deleted, too, in a transaction that says so: one
// that somebody begins to offload meanwhile does not stay alive there. metadata.ErrNoLedger says that there is none.
func (r *Records) DeleteLedger(ctx context.Context, id ledger.ID) error {
	err := r.delete(ctx, id, &protocol.Deletion{All: true})
	var s *StoppedError
	if errors.As(err, &s) && s.Reason == protocol.NoLedger {
		return fmt.Errorf("ledger %d: %w", id, metadata.ErrNoLedger)
	}
	return err
}

func (r *Records) delete(ctx context.Context, id ledger.ID, rules *protocol.Deletion) error {
	var s seen
	var cause error
	a := rules.Step(protocol.Event{Kind: protocol.Start})
	for {
		var e protocol.Event
		switch a.Do {
		case protocol.Read:
			var err error
			if s, err = r.look(ctx, id); err != nil {
				return err
			}
			e = protocol.Event{Kind: protocol.EventSeen, Seen: s.view()}
		case protocol.Send:
			e = protocol.Event{Kind: protocol.EventWrote}
			if a.Write.LedgerOnly {
				e.Outcome = r.sendLedger(ctx, id, a.Write, &cause)
			} else {
				e.Outcome = r.send(ctx, id, deletingRecord(s.record), a.Write, &cause)
			}
		case protocol.Finish:
			return nil
		default:
			if a.Reason == protocol.NotComplete {
				return fmt.Errorf("ledger %d: %w", id, ErrNoRecord)
			}
			return &StoppedError{Ledger: id, Reason: a.Reason, Err: cause}
		}
		a = rules.Step(e)
	}
}

// sendLedger makes a write that leaves the offload record as it is.
func (r *Records) sendLedger(ctx context.Context, id ledger.ID, x protocol.Write, cause *error) protocol.Outcome {
	t := r.txn(id, LedgerCond{Delete: true, Version: metadata.Version(x.LedgerVer)})
	t.Checks = append(t.Checks, metadata.Check{Key: r.Key(id), Version: metadata.Version(x.Record)})
	_, err := r.store.Txn(ctx, t)
	*cause = err
	return outcomeOf(err)
}

// Delete is Records.Delete.
func (w *Worker) Delete(ctx context.Context, id ledger.ID) error { return w.o.Records.Delete(ctx, id) }

func deletingRecord(old *Record) *Record {
	r := old.Clone()
	r.State, r.Passes, r.PassAt = StateDeleting, 0, 0
	return r
}

// open reads the record of a ledger that is in the tier, and its manifest.
func (w *Worker) open(ctx context.Context, id ledger.ID) (seen, *copyOf, error) {
	s, err := w.o.Records.look(ctx, id)
	if err != nil {
		return s, nil, err
	}
	if !s.inTier() {
		return s, nil, fmt.Errorf("ledger %d: %w", id, ErrNotOffloaded)
	}
	c, err := w.t.load(ctx, id, s.record, s.version)
	return s, c, err
}
