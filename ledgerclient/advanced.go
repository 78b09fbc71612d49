package ledgerclient

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// AdvancedWriter is a writer whose caller numbers the entries. Ids start at 0, may come in any order and from any number of
// goroutines, and each is given once. Entries are sent and confirmed in the order of their ids: one that comes early waits in
// memory until every id before it has come.
//
// Where the Java client sends an early entry at once, it could only be confirmed in order, too, and its header would carry a
// length that is not the sum of the entries before it.
type AdvancedWriter struct {
	w *Writer

	mu      sync.Mutex // guards the fields below, and the order of pushes
	next    EntryID    // the id that may be sent
	held    map[EntryID]*pendingAdd
	waiting map[EntryID]context.CancelCauseFunc // appends that wait for memory
	ended   error

	failed chan struct{} // closed when nothing is held any more, after the writer's end
}

// errItsTurn ends the wait for memory of an append that has become the next one: it must not wait for memory that later ids
// hold.
var errItsTurn = fmt.Errorf("its turn has come")

// CreateAdvanced makes a new ledger whose entries the caller numbers.
func (c *Client) CreateAdvanced(ctx context.Context, o CreateOptions) (*AdvancedWriter, error) {
	w, err := c.Create(ctx, o)
	if err != nil {
		return nil, err
	}
	a := &AdvancedWriter{w: w, held: map[EntryID]*pendingAdd{}, waiting: map[EntryID]context.CancelCauseFunc{}, failed: make(chan struct{})}
	// A writer that ends takes nothing more, whatever was missing.
	if !c.spawn(func() {
		<-w.done
		a.failHeld(fmt.Errorf("ledger %d: writer: %w", w.id, ErrClosed))
		close(a.failed)
	}) {
		return nil, ErrClosed
	}
	return a, nil
}

// ID returns the ledger's id.
func (a *AdvancedWriter) ID() LedgerID { return a.w.id }

// LastAddConfirmed returns the id of the last entry that readers may read.
func (a *AdvancedWriter) LastAddConfirmed() EntryID { return a.w.LastAddConfirmed() }

// Length returns the payload bytes of all confirmed entries.
func (a *AdvancedWriter) Length() int64 { return a.w.Length() }

// Force is Writer.Force for the entries acknowledged so far.
func (a *AdvancedWriter) Force(ctx context.Context) error { return a.w.Force(ctx) }

// Append adds entry id and returns once it, and with it every entry before it, is confirmed. An error means what it means to
// Writer.Append; ErrDuplicateEntry means that the id was given before.
func (a *AdvancedWriter) Append(ctx context.Context, id EntryID, data []byte) error {
	result := make(chan error, 1)
	if err := a.append(ctx, id, data, func(_ EntryID, err error) { result <- err }); err != nil {
		return err
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("append to ledger %d: outcome unknown: %w", a.w.id, context.Cause(ctx))
	}
}

// AppendAsync is Append without the wait; it waits for memory only. done runs as Writer.AppendAsync says.
func (a *AdvancedWriter) AppendAsync(id EntryID, data []byte, done func(EntryID, error)) {
	if err := a.append(a.w.client.ctx, id, data, done); err != nil {
		done(id, err)
	}
}

// append takes an entry. A nil error means that done will run.
func (a *AdvancedWriter) append(ctx context.Context, id EntryID, data []byte, done func(EntryID, error)) error {
	if err := a.reserve(id); err != nil {
		return err
	}
	p, err := a.w.prepareWith(data, func(n int64) error { return a.acquire(ctx, id, n) })
	if err != nil {
		a.mu.Lock()
		delete(a.held, id)
		a.mu.Unlock()
		return err
	}
	p.done = done
	return a.offer(id, p)
}

// reserve takes the id. A nil add in held stands for one that is being prepared.
func (a *AdvancedWriter) reserve(id EntryID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended != nil {
		return a.ended
	}
	if _, taken := a.held[id]; taken || id < a.next {
		return fmt.Errorf("ledger %d entry %d: %w", a.w.id, id, ErrDuplicateEntry)
	}
	a.held[id] = nil
	return nil
}

// acquire waits for memory, but not once every id before this one has been sent: then what is taken may all be held for ids
// after it.
func (a *AdvancedWriter) acquire(ctx context.Context, id EntryID, n int64) error {
	budget := a.w.client.budget
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.mu.Lock()
	if id == a.next {
		a.mu.Unlock()
		budget.force(n)
		return nil
	}
	a.waiting[id] = cancel
	a.mu.Unlock()
	err := budget.acquire(ctx, n)
	a.mu.Lock()
	delete(a.waiting, id)
	a.mu.Unlock()
	if err == errItsTurn { //nolint:errorlint // the very value that this type cancels with
		budget.force(n)
		return nil
	}
	return err
}

// offer puts an add in its place and sends what has no gap before it.
func (a *AdvancedWriter) offer(id EntryID, p *pendingAdd) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended != nil {
		delete(a.held, id)
		p.recycle()
		return a.ended
	}
	a.held[id] = p
	for p := a.held[a.next]; p != nil; p = a.held[a.next] {
		if err := a.w.push(p); err != nil { // the writer has ended: failHeld tells what is held
			a.ended = err
			if a.next == id {
				delete(a.held, id)
				p.recycle()
				return err
			}
			return nil
		}
		delete(a.held, a.next)
		a.next++
	}
	if cancel := a.waiting[a.next]; cancel != nil {
		cancel(errItsTurn)
	}
	return nil
}

// failHeld ends the handle and fails the adds that wait for a gap, in order of their ids. One without a gap before it fails
// with what ended the writer, which was told to nobody else.
func (a *AdvancedWriter) failHeld(err error) {
	a.mu.Lock()
	if a.ended == nil {
		a.ended = err
	}
	ids := make([]EntryID, 0, len(a.held))
	for id, p := range a.held {
		if p != nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	adds := make([]*pendingAdd, len(ids))
	for i, id := range ids {
		adds[i] = a.held[id]
		delete(a.held, id)
	}
	gap, ended := a.next, a.ended
	for _, cancel := range a.waiting {
		cancel(err)
	}
	a.mu.Unlock()
	for i, p := range adds {
		done := p.done
		p.recycle()
		err := ended
		if ids[i] != gap {
			err = fmt.Errorf("ledger %d entry %d: entry %d was never added: %w", a.w.id, ids[i], gap, ErrClosed)
		}
		done(ids[i], err)
	}
}

// Close waits for what can be confirmed and seals the ledger in front of the first id that never came. Entries after that fail.
func (a *AdvancedWriter) Close(ctx context.Context) error {
	a.mu.Lock()
	if a.ended == nil {
		a.ended = fmt.Errorf("ledger %d: writer: %w", a.w.id, ErrClosed)
	}
	a.mu.Unlock()
	err := a.w.Close(ctx)
	select {
	case <-a.failed:
	case <-ctx.Done():
	}
	return err
}
