package bookie

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
)

// RegistrationOptions configure a Registration. Bookies, ID and Info are required.
type RegistrationOptions struct {
	Bookies *metadata.Bookies
	ID      ledger.BookieID
	Info    metadata.ServiceInfo
	Wait    time.Duration // for a predecessor's registration to go away; default 45 s
	Timeout time.Duration // of one attempt while running; default 30 s
	Logger  *slog.Logger
}

// Registration keeps a bookie visible in the metadata store for as long as it runs: it registers again when the session was
// lost or someone removed the key, moves between writable and read-only, and notices when another process has taken the id
// over. While the store cannot be reached it keeps trying; the bookie serves on.
//
// One goroutine, from Start to Stop.
type Registration struct {
	o RegistrationOptions

	ctx    context.Context // of the keeper
	cancel context.CancelFunc
	wg     sync.WaitGroup
	wake   chan struct{} // capacity one: wanted changed
	failed chan struct{} // closed when err is set

	mu       sync.Mutex
	started  bool
	wanted   bool // read-only is wanted
	current  metadata.Registration
	have     bool // current is in the store as far as is known
	err      error
	notified bool // an attempt has failed and was logged since the last success
}

// retry pauses of the keeper.
const (
	registrationRetry    = time.Second
	registrationRetryMax = 10 * time.Second
)

// NewRegistration returns a registration that does nothing yet.
func NewRegistration(o RegistrationOptions) *Registration {
	if o.Wait <= 0 {
		o.Wait = 45 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Registration{o: o, wake: make(chan struct{}, 1), failed: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Start registers the bookie and keeps it registered. It is called once. An error is an *ExitError with ExitRegistration;
// nothing runs then.
func (r *Registration) Start(ctx context.Context, readOnly bool) error {
	r.mu.Lock()
	again := r.started
	r.started, r.wanted = true, readOnly
	r.mu.Unlock()
	if again || r.ctx.Err() != nil {
		return exitErrorf(ExitRegistration, "register bookie %s: started twice or stopped", r.o.ID)
	}
	reg, err := r.o.Bookies.Register(ctx, r.o.ID, r.o.Info, readOnly, r.o.Wait)
	if err != nil {
		return withExit(ExitRegistration, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil { // Stop came in between, and found nothing to remove
		return withExit(ExitRegistration, errors.Join(ErrStopped, r.o.Bookies.Unregister(ctx, r.o.ID, reg.Session)))
	}
	r.current, r.have = reg, true
	if r.wanted != reg.ReadOnly { // SetReadOnly was faster
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
	r.wg.Go(r.keep)
	return nil
}

// SetReadOnly makes the bookie read-only or writable in the store, at once or as soon as it can be reached.
func (r *Registration) SetReadOnly(readOnly bool) {
	r.mu.Lock()
	r.wanted = readOnly
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Registered returns what the store is known to say about the bookie.
func (r *Registration) Registered() (registered, readOnly bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.have && sessionAlive(r.current.Session), r.current.ReadOnly
}

// Failed is closed when another process has taken over the id. The bookie has to stop; Err says why.
func (r *Registration) Failed() <-chan struct{} { return r.failed }

// Err returns why Failed is closed, an *ExitError, or nil.
func (r *Registration) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Stop removes the registration and ends the keeper. The registration goes by itself, later, if the store cannot be
// reached within ctx; the error says so.
func (r *Registration) Stop(ctx context.Context) error {
	r.cancel()
	r.wg.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.have || r.err != nil {
		return nil
	}
	r.have = false
	err := r.o.Bookies.Unregister(ctx, r.o.ID, r.current.Session)
	if errors.Is(err, metadata.ErrClosed) { // closing the store ended the session, and with it the registration
		return nil
	}
	return err
}

func sessionAlive(s metadata.Session) bool {
	if s == nil {
		return false
	}
	select {
	case <-s.Done():
		return false
	default:
		return true
	}
}

// keep is the keeper's loop.
func (r *Registration) keep() {
	follow := r.o.Bookies.Follow(r.ctx, r.o.ID)
	defer func() {
		r.cancel()
		for range follow { // until Follow's goroutines have ended
		}
	}()
	changes := follow
	var seen []metadata.Bookie // what the watch told last
	var retry <-chan time.Time
	pause := registrationRetry
	for {
		r.mu.Lock()
		lost := r.current.Session.Done()
		if !r.have {
			lost = nil // known already
		}
		r.mu.Unlock()
		select {
		case <-r.ctx.Done():
			return
		case <-lost:
			r.drop("its metadata session was lost")
		case set, ok := <-changes:
			if !ok {
				changes = nil // the store was closed; what follows fails and is tried again at the usual pace
			}
			if seen = set; ok && r.asWanted(set) {
				retry, pause = nil, registrationRetry
				continue
			}
		case <-r.wake:
		case <-retry:
		}
		retry = nil
		switch done, fatal := r.settle(); {
		case fatal:
			return
		case done && r.asWanted(seen):
			pause = registrationRetry
		default: // a key that comes and goes before the watch has looked is never told: look again until it has been
			retry = time.After(pause)
			pause = min(2*pause, registrationRetryMax)
		}
	}
}

// drop notes that the registration is gone.
func (r *Registration) drop(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.have {
		r.have = false
		r.o.Logger.Warn("the bookie is not registered: " + why + "; registering again")
	}
}

// asWanted reports whether what the watch saw is just our registration in the wanted mode. The watch may lag behind, so
// anything else is looked at again and not acted upon.
func (r *Registration) asWanted(set []metadata.Bookie) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.have && len(set) == 1 && set[0].Session == r.current.Session.ID() && set[0].ReadOnly == r.wanted
}

// settle makes the store say what is wanted. done is false if it has to be tried again; fatal if the id is lost.
func (r *Registration) settle() (done, fatal bool) {
	ctx, cancel := context.WithTimeout(r.ctx, r.o.Timeout)
	defer cancel()
	r.mu.Lock()
	wanted, had, current := r.wanted, r.have, r.current
	r.mu.Unlock()
	set, err := r.o.Bookies.Registrations(ctx, r.o.ID)
	if err == nil {
		if had && r.asWanted(set) {
			return true, false
		}
		if usurper := r.usurper(set, current); usurper != "" {
			r.fail(exitErrorf(ExitIdentity, "another process has registered as bookie %s (session %s): two processes run under one identity", r.o.ID, usurper))
			return false, true
		}
		if had && len(set) == 0 {
			r.drop("its key was removed")
		}
		var reg metadata.Registration
		if reg, err = r.o.Bookies.Register(ctx, r.o.ID, r.o.Info, wanted, r.o.Timeout); err == nil {
			r.settled(reg)
			return true, false
		}
	}
	if r.ctx.Err() != nil {
		return false, false
	}
	if errors.Is(err, metadata.ErrRegistered) {
		r.fail(exitErrorf(ExitIdentity, "after losing its registration: %w", err))
		return false, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.notified {
		r.notified = true
		r.o.Logger.Warn("the bookie cannot be registered now; trying on", "read_only", wanted, "error", err)
	}
	return false, false
}

// usurper returns the session of a registration that a later start of this bookie, or a process that replaced us while our
// session was alive, has made; "" if there is none. Everything else may be an old session of our own.
func (r *Registration) usurper(set []metadata.Bookie, current metadata.Registration) string {
	inc, epoch, ok := r.o.Info.Incarnation()
	for _, bk := range set {
		if bk.Session == current.Session.ID() {
			continue
		}
		theirs, theirEpoch, known := bk.Info.Incarnation()
		switch {
		case ok && known && theirs == inc && theirEpoch > epoch:
			return bk.Session
		case ok && known && theirs == inc:
			continue // this very start, in an earlier session
		case sessionAlive(current.Session):
			return bk.Session
		}
	}
	return ""
}

func (r *Registration) settled(reg metadata.Registration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current, r.have, r.notified = reg, true, false
	r.o.Logger.Info("the bookie is registered", "read_only", reg.ReadOnly)
	if r.wanted != reg.ReadOnly {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

func (r *Registration) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return
	}
	r.err, r.have = err, false
	r.o.Logger.Error("the bookie has lost its identity", "error", err)
	close(r.failed)
}
