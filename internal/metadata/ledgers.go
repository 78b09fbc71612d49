package metadata

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
)

// Sizes of the pages that listings ask for. A record is a few hundred bytes, but one of a ledger with thousands of
// fragments has hundreds of kilobytes.
const (
	pageSize       = 1000 // keys alone
	recordPageSize = 250  // keys with values
)

// Ledgers is the view of the ledger records.
type Ledgers struct {
	store   Store
	root    string
	scheme  Scheme
	creator *creator

	longIDs atomic.Bool // the short id generator has run out; never turns back
}

// NewLedgers returns the view of the ledgers under root, with the paths of the default layout.
func NewLedgers(s Store, root string) *Ledgers { return NewLedgersScheme(s, root, SchemeHybrid) }

// NewLedgersScheme is NewLedgers for a cluster whose LAYOUT asks for another path scheme.
func NewLedgersScheme(s Store, root string, scheme Scheme) *Ledgers {
	return &Ledgers{store: s, root: root, scheme: scheme, creator: newCreator(s, root)}
}

// Key returns the key of a ledger's record.
func (l *Ledgers) Key(id ledger.ID) string { return l.root + "/" + l.scheme.LedgerPath(id) }

// Create writes the record of a new ledger. A record with the same id is reported as ErrExists. The record gets a creation
// token, if it has none, as Java's clients write it. A create whose answer was lost is called off, so that it can not land any
// more, and then looked for: until ctx ends, or the store can not be reached, Create finds out by itself what became of it. Only
// then it returns ErrUnknownOutcome: the ledger may exist, or come to be, also after a deletion; its id must not be used again.
func (l *Ledgers) Create(ctx context.Context, id ledger.ID, m *ledger.Metadata) (Version, error) {
	if id < 0 {
		return 0, fmt.Errorf("create ledger %d: ids start at 0", id)
	}
	if m.FormatVersion == 3 && !m.HasCToken {
		m.CToken, m.HasCToken = rand.Int64(), true
	}
	value, err := EncodeLedger(m)
	if err != nil {
		return 0, fmt.Errorf("create ledger %d: %w", id, err)
	}
	for pause := newBackoff(); ; {
		v, again, err := l.createOnce(ctx, l.Key(id), value)
		if err == nil && !again {
			return v, nil
		}
		if again {
			if werr := pause.wait(ctx); werr != nil {
				err = fmt.Errorf("%w: %w", ErrUnavailable, werr)
				again = false
			}
		}
		if !again {
			return 0, fmt.Errorf("create ledger %d: %w", id, err)
		}
	}
}

// createOnce is one attempt. again says that nothing was written, and nothing will be.
func (l *Ledgers) createOnce(ctx context.Context, key string, value []byte) (v Version, again bool, err error) {
	token, err := l.creator.lend(ctx)
	if err != nil {
		return 0, false, err
	}
	r, err := l.store.Txn(ctx, Txn{Checks: []Check{token}, Puts: []Put{{Key: key, Value: value, Version: Absent}}})
	if err == nil {
		return r.Versions[0], false, nil
	}
	var conflict *ConflictError
	if errors.As(err, &conflict) && conflict.Key == token.Key { // its session was lost, or another create called it off
		l.creator.forget(token)
		return 0, true, nil
	}
	if !errors.Is(err, ErrUnknownOutcome) {
		return 0, false, err
	}
	if cerr := l.creator.callOff(ctx, token); cerr != nil {
		return 0, false, fmt.Errorf("%w (call it off: %w)", ErrUnknownOutcome, cerr)
	}
	kv, gerr := l.store.Get(ctx, key)
	switch {
	case errors.Is(gerr, ErrNotFound):
		return 0, true, nil
	case gerr != nil:
		return 0, false, fmt.Errorf("%w (re-read: %w)", ErrUnknownOutcome, gerr)
	case string(kv.Value) == string(value):
		return kv.Version, false, nil // no one else can have drawn its token
	}
	return 0, false, &ConflictError{Key: key, Want: Absent, Have: kv.Version}
}

// Read returns a ledger's record as the store holds it now, or ErrNoLedger.
func (l *Ledgers) Read(ctx context.Context, id ledger.ID) (*ledger.Metadata, Version, error) {
	if id < 0 {
		return nil, 0, fmt.Errorf("read ledger %d: %w", id, ErrNoLedger)
	}
	kv, err := l.store.Get(ctx, l.Key(id))
	if errors.Is(err, ErrNotFound) {
		return nil, 0, fmt.Errorf("read ledger %d: %w", id, ErrNoLedger)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read ledger %d: %w", id, err)
	}
	m, err := DecodeLedger(kv.Key, kv.Value)
	if err != nil {
		return nil, 0, fmt.Errorf("read ledger %d: %w", id, err)
	}
	return m, kv.Version, nil
}

// Write replaces the record that has version v, if the extra conditions hold too. A record that has gone is ErrNoLedger, a
// changed one ErrVersion; the *ConflictError's Key tells the record from an extra condition. After ErrUnknownOutcome the
// caller re-reads and decides anew (the write may land later, but only onto version v).
func (l *Ledgers) Write(ctx context.Context, id ledger.ID, m *ledger.Metadata, v Version, extra ...Check) (Version, error) {
	value, err := EncodeLedger(m)
	if err != nil {
		return 0, fmt.Errorf("write ledger %d: %w", id, err)
	}
	if v == Any || v == Absent {
		return 0, fmt.Errorf("write ledger %d: a record is only ever replaced at a known version", id)
	}
	key := l.Key(id)
	if ledger.Planted() == ledger.MutantBlindChange && m.State == ledger.StateOpen {
		v = Any
	}
	r, err := l.store.Txn(ctx, Txn{Checks: extra, Puts: []Put{{Key: key, Value: value, Version: v}}})
	if err != nil {
		var c *ConflictError
		if errors.As(err, &c) && c.Key == key && c.Have == Absent {
			return 0, fmt.Errorf("write ledger %d: %w: %w", id, ErrNoLedger, err)
		}
		return 0, fmt.Errorf("write ledger %d: %w", id, err)
	}
	return r.Versions[0], nil
}

// Delete removes the record that has version v, or whatever there is with Any. A ledger that has no record counts as
// deleted.
func (l *Ledgers) Delete(ctx context.Context, id ledger.ID, v Version) error {
	err := l.store.Delete(ctx, l.Key(id), v)
	if err == nil || errors.Is(err, ErrNotFound) {
		return nil
	}
	return fmt.Errorf("delete ledger %d: %w", id, err)
}

// List returns up to limit ids above after, ascending. Start with -1; an empty page is the end. A key that looks like a
// ledger's but is not one, or any failure, is an error: a listing that leaves something out would make bookies delete it.
func (l *Ledgers) List(ctx context.Context, after ledger.ID, limit int) ([]ledger.ID, error) {
	var ids []ledger.ID
	for id, err := range l.ids(ctx, after, limit) {
		if err != nil {
			return nil, fmt.Errorf("list ledgers: %w", err)
		}
		if ids = append(ids, id); len(ids) == limit {
			break
		}
	}
	return ids, nil
}

// All yields every id, ascending. An error is the last thing it yields.
func (l *Ledgers) All(ctx context.Context) iter.Seq2[ledger.ID, error] {
	return func(yield func(ledger.ID, error) bool) {
		for id, err := range l.ids(ctx, -1, pageSize) {
			if err != nil {
				yield(0, fmt.Errorf("list ledgers: %w", err))
				return
			}
			if !yield(id, nil) {
				return
			}
		}
	}
}

// Record is a ledger's record in a listing.
type Record struct {
	ID       ledger.ID
	Metadata *ledger.Metadata
	Version  Version
}

// Records yields every ledger with its record, ids ascending. An error, also one damaged record, is the last thing it
// yields.
func (l *Ledgers) Records(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for e, err := range l.scan(ctx, -1, recordPageSize, true) {
			var m *ledger.Metadata
			if err == nil {
				m, err = DecodeLedger(e.kv.Key, e.kv.Value)
			}
			if err != nil {
				yield(Record{}, fmt.Errorf("list ledgers: %w", err))
				return
			}
			if !yield(Record{ID: e.id, Metadata: m, Version: e.kv.Version}, nil) {
				return
			}
		}
	}
}

// Naming yields the records, in any state, that name bookie b in any ensemble.
func (l *Ledgers) Naming(ctx context.Context, b ledger.BookieID) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for r, err := range l.Records(ctx) {
			if err != nil {
				yield(Record{}, err)
				return
			}
			if r.Metadata.Names(b) && !yield(r, nil) {
				return
			}
		}
	}
}

// LedgerEvent is one state of a watched ledger.
type LedgerEvent struct {
	Metadata *ledger.Metadata // nil when the record has gone
	Version  Version
	Err      error // the record could not be decoded; the watch goes on
}

// Watch reports the record as it is now and then each change, latest only, until ctx ends. A deleted (or absent) ledger is
// reported with a nil Metadata.
func (l *Ledgers) Watch(ctx context.Context, id ledger.ID) <-chan LedgerEvent {
	out := make(chan LedgerEvent, 1)
	key := l.Key(id)
	events := l.store.Watch(ctx, key)
	go func() {
		defer close(out)
		var last *LedgerEvent
		for ev := range events {
			var e LedgerEvent
			switch {
			case ev.Kind == EventSynced:
				if last != nil {
					continue
				}
			case ev.KV.Key != key:
				continue
			case ev.Kind == EventPut:
				e.Version = ev.KV.Version
				e.Metadata, e.Err = DecodeLedger(key, ev.KV.Value)
			}
			last = &e
			offerLatest(out, e)
		}
	}()
	return out
}

// offerLatest puts v into a channel of capacity one, throwing away what the reader has not taken yet. One sender only.
func offerLatest[T any](ch chan T, v T) {
	for {
		select {
		case ch <- v:
			return
		default:
		}
		select {
		case <-ch:
		default:
		}
	}
}

// backoff spaces retries: 20 ms doubling to 1 s, with jitter.
type backoff struct{ next time.Duration }

func newBackoff() *backoff { return &backoff{next: 20 * time.Millisecond} }

// wait sleeps, or returns the context's error.
func (b *backoff) wait(ctx context.Context) error {
	d := b.next/2 + rand.N(b.next/2+1)
	if b.next *= 2; b.next > time.Second {
		b.next = time.Second
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
