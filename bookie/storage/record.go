package storage

import (
	"errors"
	"fmt"
	"time"

	"github.com/binderylog/bindery/entrylog"
)

// Kinds of journal records. The journal does not know what they mean; the tag of each is the ledger id.
const (
	// KindEntry is an entry; the payload is its body.
	KindEntry uint8 = 1
	// KindState is what is known of a ledger besides its entries; the payload is Ledger.AppendState. It is the record of
	// every change of rules: key, fence, explicit LAC, limbo, verification, re-creation.
	KindState uint8 = 2
)

// Record is a journal record given to Replay.
type Record struct {
	Journal  int    // index into Options.Journals
	Position uint64 // group sequence number in that journal
	Kind     uint8
	Tag      uint64
	Payload  []byte // only read during the call
}

// replayRoomWait is how long replay waits for a flush to make room. It is long: a flush that has to wait for a slow disk is
// no reason not to start. A full one, with its reserve used up, is.
const replayRoomWait = 5 * time.Minute

// Replay applies one journal record. Records of one journal come in order; those of several journals may be mixed. Damage
// that the journal reports by ledger goes to MarkLimbo. Records whose effect is durable already, and those of an earlier
// life of a ledger, change nothing.
func (s *Storage) Replay(r Record) error {
	if r.Journal < 0 || r.Journal >= len(s.o.Journals) {
		return fmt.Errorf("replay: journal %d of %d", r.Journal, len(s.o.Journals))
	}
	id := int64(r.Tag)
	if id < 0 {
		return fmt.Errorf("replay: %w: ledger id %d is negative", ErrBadEntry, id)
	}
	switch r.Kind {
	case KindEntry:
		return s.replayEntry(id, &r)
	case KindState:
		return s.replayState(id, &r)
	}
	return nil // a forced sync, or what a later version added for its own purposes
}

func (s *Storage) replayEntry(id int64, r *Record) error {
	if len(r.Payload) < MinEntry {
		return fmt.Errorf("replay: %w: %d bytes", ErrBadEntry, len(r.Payload))
	}
	_, entry := entrylog.IDs(r.Payload)
	if err := checkBody(id, entry, r.Payload); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	l, err := s.ledgers.get(id)
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	defer l.Release()
	l.mu.Lock()
	skip := l.skipRecord(r)
	l.mu.Unlock()
	if skip {
		return nil
	}
	if err := l.Reserve(len(r.Payload), true, replayRoomWait); err != nil {
		if errors.Is(err, ErrCacheFull) {
			return fmt.Errorf("replay: nothing could be flushed for %v; is the disk of %s full? %w", replayRoomWait, l.d.path, err)
		}
		return fmt.Errorf("replay: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.Replica.Known() { // its state is not in the journal any more, nor on disk
		l.unproven = true
		l.Replica.Lose()
		l.StateChanged()
	}
	if err := l.Put(entry, r.Payload); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	return nil
}

// skipRecord reports whether a record is of an earlier life of the ledger. Records that are durable already are stored once
// more: that the mark of the ledger's directory lies behind them proves nothing, since the ledger may have been replayed into
// that directory after the mark was taken, in part. The ledger is locked.
func (l *Ledger) skipRecord(r *Record) bool {
	if l.Replica.Tombstone {
		return true
	}
	if l.birth != 0 {
		hash := journalHash(l.s.o.Journals[r.Journal])
		for _, b := range l.born {
			if b.journal == hash && (r.Position < b.pos || r.Position == b.pos && !l.reseen) {
				return true
			}
		}
	}
	return false
}

func (s *Storage) replayState(id int64, r *Record) error {
	st, err := parseState(id, r.Payload)
	if err != nil {
		return fmt.Errorf("replay: ledger %d: %w", id, err)
	}
	l, err := s.ledgers.get(id)
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	defer l.Release()
	d := l.d
	l.mu.Lock()
	cut := st.birth > l.birth || st.replica.Tombstone
	l.mu.Unlock()
	if cut {
		// The deletion before this life may not have become durable: what exists of the earlier one is cut off here. No
		// flush may be under way while the caches are cut. The same goes for a deletion that was journaled because it
		// could not be flushed (rejournal.go).
		d.flushMu.Lock()
		defer d.flushMu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case st.birth < l.birth:
		return nil
	case st.birth > l.birth:
		st.floor = max(st.floor, d.holdLogs())
		l.in = [2]cacheRef{}
		l.elsewhere = 0
		l.lac, l.lacKnown = -1, true
		l.s.births.note(id, st.birth)
	case l.Replica.Tombstone:
		return nil
	case st.birth != 0:
		l.s.births.note(id, st.birth)
	}
	l.reseen = true
	if st.birth == l.birth && st.seq <= l.seq {
		return nil
	}
	l.setState(&st)
	if st.replica.Tombstone {
		d.holdLogs()
		l.in = [2]cacheRef{}
	} else if l.unproven {
		l.Replica.Lose()
	}
	if l.Replica.Deferred && l.run <= s.lastUnclean {
		l.Replica.UncleanStop()
	}
	l.markDirty()
	return nil
}
