package bookie

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/binderylog/bindery/internal/invariant"
)

// answerGrace is the least time that a stop gives to requests that have been read.
const answerGrace = 2 * time.Second

// Stop stops the bookie in the order that the package comment gives. ctx bounds the waiting for clients; what must be on
// disk is written whatever ctx says. A second call does nothing.
func (b *Bookie) Stop(ctx context.Context) error {
	b.mu.Lock()
	if b.stopped {
		b.mu.Unlock()
		return nil
	}
	b.stopped = true
	running := b.reg != nil || b.srv != nil
	b.mu.Unlock()
	if !running {
		return nil // never started, or a start that failed and has been unwound
	}
	began := time.Now()
	b.phase.Store(phaseStopping)
	err := b.shutdown(ctx)
	b.phase.Store(phaseStopped)
	b.o.Logger.Info("bookie stopped", "took", time.Since(began).Round(time.Millisecond), "clean", err == nil)
	return err
}

func (b *Bookie) shutdown(ctx context.Context) error {
	var errs []error
	b.drain(ctx)
	// 1. Out of the metadata: no new ledger picks this bookie.
	b.state.set(ReasonStopping, true, "")
	b.bg.stop()
	regCtx, regDone := graceOf(ctx)
	err := b.reg.Stop(regCtx)
	regDone()
	if err != nil {
		b.o.Logger.Warn("the registration could not be removed; it ends with the metadata session", "err", err)
	}
	invariant.CrashPoint("bookie.stop-unregistered")
	// 2. The server: accepts nothing, reads nothing, answers what it has read.
	cut, done := cutOf(ctx)
	b.srv.stop(cut)
	done()
	invariant.CrashPoint("bookie.stop-served")
	// 3. Collection ends before what it works on.
	b.gc.Close()
	// 4. Journals synced, everything flushed, marks written, files closed.
	if err := b.eng.stop(); err != nil {
		errs = append(errs, fmt.Errorf("close storage: %w", err))
	}
	invariant.CrashPoint("bookie.stop-closed")
	// 5. The stop counts as clean only if all of that went well.
	if len(errs) > 0 {
		return errors.Join(append(errs, b.identity.Close())...)
	}
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.o.MetadataTimeout)
	defer cancel()
	b.checkStoreAtStop(closeCtx)
	return b.identity.CloseClean(closeCtx)
}

// drain gives clients time to move their ledgers: the bookie is registered read-only, so that none picks it, and serves on.
func (b *Bookie) drain(ctx context.Context) {
	if b.o.Drain <= 0 {
		return
	}
	b.reg.SetReadOnly(true)
	b.o.Logger.Info("draining: registered read-only, serving on", "for", b.o.Drain)
	t := time.NewTimer(b.o.Drain)
	defer t.Stop()
	select {
	case <-t.C:
	case <-b.hurry:
		b.o.Logger.Info("draining ended early")
	case <-b.done: // it can not serve any more
	case <-ctx.Done():
	}
}

// EndDrain ends the drain of a Stop under way, or of one that comes.
func (b *Bookie) EndDrain() { b.hurried.Do(func() { close(b.hurry) }) }

// graceOf returns ctx, or, if it is over, one that has answerGrace: a registration that stays would draw clients to a
// bookie that is gone, for as long as its session lives.
func graceOf(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), answerGrace)
}

// cutOf returns a channel that is closed when ctx is over, but not before answerGrace, and a function that ends the
// waiting for either.
func cutOf(ctx context.Context) (cut <-chan struct{}, done func()) {
	c := make(chan struct{})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		grace := time.NewTimer(answerGrace)
		defer grace.Stop()
		over, waited := ctx.Done(), false
		for {
			select {
			case <-stop:
				return
			case <-grace.C:
				waited = true
			case <-over:
				over = nil
			}
			if waited && over == nil {
				close(c)
				return
			}
		}
	})
	return c, func() {
		close(stop)
		wg.Wait()
	}
}

// unwind undoes a start that failed, in reverse order. The marker of an unclean stop stays.
func (b *Bookie) unwind() {
	b.mu.Lock()
	bg, reg, srv, collector, eng, id, g := b.bg, b.reg, b.srv, b.gc, b.eng, b.identity, b.gate
	b.bg, b.reg, b.srv = nil, nil, nil
	b.stopped = true
	b.mu.Unlock()
	if bg != nil {
		bg.stop()
	}
	if reg != nil {
		ctx, cancel := context.WithTimeout(context.Background(), answerGrace)
		_ = reg.Stop(ctx)
		cancel()
	}
	if srv != nil {
		cut := make(chan struct{})
		close(cut)
		srv.stop(cut)
	} else if g != nil {
		_ = g.Close()
	}
	if collector != nil {
		collector.Close()
	}
	if eng != nil {
		if err := eng.abandon(); err != nil {
			b.o.Logger.Debug("closing after a failed start", "err", err)
		}
	}
	if id != nil {
		_ = id.Close()
	}
}
