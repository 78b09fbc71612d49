package bookie

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/binderylog/bindery/bookie/gc"
	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
)

// Start brings the bookie up and returns once it serves and is registered. If it fails, everything it started has been
// stopped and the error is an *ExitError. The admin views answer from New on.
func (b *Bookie) Start(ctx context.Context) (err error) {
	b.mu.Lock()
	if b.started || b.stopped {
		b.mu.Unlock()
		return withExit(ExitConfig, errors.New("a bookie can be started once"))
	}
	b.started = true
	b.mu.Unlock()
	began := time.Now()
	defer func() {
		if err != nil {
			b.phase.Store(phaseFailed)
			b.mu.Lock()
			b.err = err
			b.mu.Unlock()
			b.unwind()
			err = withExit(ExitIO, err)
		}
	}()
	for _, step := range []func(context.Context) error{
		b.bind, b.openIdentity, b.openEngine, b.replay, b.settleLosses, b.checkStoreAtStart, b.serve, b.startBackground, b.register,
	} {
		if err := step(ctx); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("interrupted while starting: %w", err)
		}
	}
	b.phase.Store(phaseServing)
	b.o.Logger.Info("bookie serves", "address", b.o.Advertised, "read_only", !b.state.writable(), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// bind takes the port first: a port in use is found before anything is touched. Until the bookie serves, connections are
// accepted and closed at once.
func (b *Bookie) bind(ctx context.Context) error {
	ln, err := b.o.Listener(ctx, b.o.Listen)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return exitErrorf(ExitIO, "bookie.listen = %q: another process has this port; stop it or choose another: %w", b.o.Listen, err)
		}
		return exitErrorf(ExitIO, "bookie.listen = %q: %w", b.o.Listen, err)
	}
	g := newGate(ln)
	b.mu.Lock()
	b.gate = g
	b.mu.Unlock()
	return b.nameBookie(ln.Addr())
}

// nameBookie completes address and id from the listener's address.
func (b *Bookie) nameBookie(addr net.Addr) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return exitErrorf(ExitConfig, "address %s of the listener: %w", addr, err)
	}
	switch host, p, err := net.SplitHostPort(b.o.Advertised); {
	case b.o.Advertised == "":
		tcp, ok := addr.(*net.TCPAddr)
		if !ok || tcp.IP.IsUnspecified() {
			return exitErrorf(ExitConfig, "bookie.advertised_address is not set and bookie.listen = %q names no address: set one of them to an address that clients reach", b.o.Listen)
		}
		b.o.Advertised = addr.String()
	case err != nil: // a host alone
		b.o.Advertised = net.JoinHostPort(strings.Trim(b.o.Advertised, "[]"), port)
	case p == "0":
		b.o.Advertised = net.JoinHostPort(host, port)
	}
	if b.o.ID == "" {
		b.o.ID = ledger.BookieID(b.o.Advertised)
	}
	return nil
}

func (b *Bookie) openIdentity(ctx context.Context) error {
	id, err := OpenIdentity(ctx, IdentityOptions{
		FS: b.o.FS, Views: b.o.Metadata, ID: b.o.ID, JournalDirs: b.o.JournalDirs, LedgerDirs: b.o.LedgerDirs, IndexDirs: b.o.IndexDirs,
		AllowExpansion: b.o.AllowExpansion, Prepare: b.o.Prepare, Timeout: b.o.MetadataTimeout, Logger: b.o.Logger,
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.identity = id
	b.mu.Unlock()
	forced, text, err := readForced(b.o.FS, b.o.LedgerDirs)
	if err != nil {
		return withExit(ExitIO, err)
	}
	if forced {
		b.state.set(ReasonOperator, true, text)
	}
	return nil
}

func (b *Bookie) openEngine(context.Context) error {
	eng, err := openEngine(&b.o, b.journalIDs(), b.state)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.eng = eng
	b.mu.Unlock()
	return nil
}

// journalIDs returns the stable ids of the journal directories: those of their stamps.
func (b *Bookie) journalIDs() []string {
	ids := make([]string, len(b.o.JournalDirs))
	for i, dir := range b.o.JournalDirs {
		for _, d := range b.identity.dirs {
			if filepath.Clean(d.path) == filepath.Clean(dir) {
				ids[i] = d.stamp.Directory
			}
		}
	}
	return ids
}

// replay brings back what the journals hold and ends with journals that take records.
func (b *Bookie) replay(ctx context.Context) error {
	b.phase.Store(phaseReplaying)
	r, err := b.eng.replay(ctx)
	if err != nil {
		return withExit(ExitIO, err)
	}
	b.replayed = r
	if r.records > 0 {
		b.o.Logger.Info("journals replayed", "records", r.records, "bytes", r.bytes, "took", r.took.Round(time.Millisecond))
	}
	invariant.CrashPoint("bookie.replayed")
	// From here on everything replayed is synced: an answer may stand on it (a fence that only lay in the page cache
	// must not be answered from there).
	return b.eng.start(ctx)
}

// settleLosses puts what may have been lost into limbo, durably, before the first answer (see Identity.Loss).
func (b *Bookie) settleLosses(ctx context.Context) error {
	if len(b.replayed.suspects) > 0 {
		b.o.Logger.Warn("journal records of some ledgers are damaged; these ledgers are in limbo and fenced", "ledgers", len(b.replayed.suspects))
		if err := b.eng.st.MarkLimbo(ctx, b.replayed.suspects); err != nil {
			return withExit(ExitIO, fmt.Errorf("put ledgers with damaged records into limbo: %w", err))
		}
	}
	for _, why := range b.lossReasons() {
		if err := b.identity.RecordLoss(ctx, why); err != nil {
			return err
		}
	}
	if len(b.identity.Loss()) == 0 {
		return b.settleLossEpoch(false)
	}
	b.o.Logger.Warn("data may have been lost; every ledger that names this bookie goes into limbo", "why", strings.Join(b.identity.Loss(), "; "))
	n, err := b.limboNamed(ctx)
	if err != nil {
		return err
	}
	invariant.CrashPoint("bookie.limbo-marked")
	if err := b.eng.st.AcceptLoss(ctx); err != nil {
		return withExit(ExitIO, fmt.Errorf("accept the loss: %w", err))
	}
	if err := b.settleLossEpoch(true); err != nil {
		return err
	}
	invariant.CrashPoint("bookie.loss-accepted")
	if err := b.identity.LossHandled(ctx); err != nil {
		return err
	}
	b.o.Logger.Warn("ledgers are in limbo until they are closed and whole again", "ledgers", n)
	return nil
}

// lossReasons says what this start has found that the identity does not know yet.
func (b *Bookie) lossReasons() []string {
	var why []string
	for _, err := range b.eng.st.Lost() {
		why = append(why, err.Error())
	}
	if b.replayed.all != nil {
		why = append(why, b.replayed.all.Error())
	}
	if b.identity.Unclean() {
		switch {
		case b.o.Durability == DurabilityOff:
			why = append(why, `unclean stop with journal.durability = "off"`)
		case b.o.Durability == DurabilityRelaxed && !b.identity.SameBoot():
			why = append(why, `the system went down with journal.durability = "relaxed"`)
		}
	}
	return why
}

// limboNamed puts into limbo every ledger whose record, in any state, names this bookie in any ensemble. A ledger that is here
// and whose record does not name it is none of them: nobody asks this bookie for its entries, and whoever names it anew finds
// the epoch raised. An old writer's add finds it not verified since the loss (ledger.Replica.CheckAdd).
func (b *Bookie) limboNamed(ctx context.Context) (int, error) {
	const page = 10_000
	n := 0
	if ledger.Planted() == ledger.MutantLossNotListed {
		return 0, nil
	}
	ids := make([]int64, 0, page)
	flush := func() error {
		n += len(ids)
		err := b.eng.st.MarkLimbo(ctx, ids)
		ids = ids[:0]
		return withExit(ExitIO, err)
	}
	for rec, err := range b.identity.Ledgers(ctx) {
		if err != nil {
			return n, exitErrorf(ExitRegistration, "list the ledgers of this bookie: %w", err)
		}
		if ids = append(ids, int64(rec.ID)); len(ids) == page {
			if err := flush(); err != nil {
				return n, err
			}
		}
	}
	return n, flush()
}

// serve opens the gate.
func (b *Bookie) serve(ctx context.Context) error {
	b.eng.checkDisks(ctx)
	srv := newServer(&b.o, b.eng.st, b.eng.journals, b.state, b.m, b.checkOpen, b.lossEpoch)
	b.mu.Lock()
	b.srv, srv.ids = srv, &b.ids
	b.mu.Unlock()
	srv.listen(b.gate.open())
	return nil
}

// checkOpen implements the server's question about a ledger's record.
func (b *Bookie) checkOpen(ctx context.Context, id int64) (open, here bool, err error) {
	m, _, err := b.o.Metadata.Ledgers.Read(ctx, ledger.ID(id))
	if errors.Is(err, metadata.ErrNoLedger) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	return m.State == ledger.StateOpen, m.Names(b.o.ID), nil
}

func (b *Bookie) startBackground(context.Context) error {
	bg := newBackground()
	b.mu.Lock()
	b.bg = bg
	b.mu.Unlock()
	bg.run("disk-watch", b.eng.watchDisks)
	bg.run("store-watch", b.watchStore)
	collector, err := gc.New(&gc.Views{
		Records: b.o.Metadata.Ledgers, Bookie: b.o.ID, Locker: b.o.Metadata.Replication.Locker(string(b.o.ID)),
		Begin: func(ctx context.Context) error {
			_, err := b.identity.BeginGCPass(ctx)
			if errors.Is(err, ErrStoreRolledBack) {
				b.noteStore(err)
			}
			return err
		},
	}, b.eng.st, b.eng.st, b.o.GC)
	if err != nil {
		return withExit(ExitConfig, err)
	}
	suspended, err := readSuspension(b.o.FS, b.o.LedgerDirs)
	if err != nil {
		return withExit(ExitIO, err)
	}
	if collector.Suspend(suspended.minor, suspended.major); suspended != (suspension{}) {
		b.o.Logger.Warn("compaction is suspended until `bindery gc resume`", "minor", suspended.minor, "major", suspended.major)
	}
	collector.Start()
	b.mu.Lock()
	b.gc = collector
	b.mu.Unlock()
	return nil
}

// register makes the bookie visible, last of all: who sees it can use it.
func (b *Bookie) register(ctx context.Context) error {
	endpoints, err := b.endpoints()
	if err != nil {
		return err
	}
	info := b.identity.ServiceInfo(endpoints...)
	if b.o.Domain != "" {
		info.Properties[metadata.PropertyDomain] = b.o.Domain
	}
	reg := NewRegistration(RegistrationOptions{
		Bookies: b.o.Metadata.Bookies, ID: b.o.ID, Wait: b.o.RegistrationWait, Timeout: b.o.MetadataTimeout, Logger: b.o.Logger,
		Info: info,
	})
	readOnly := !b.state.writable()
	if err := reg.Start(ctx, readOnly); err != nil {
		return err
	}
	b.mu.Lock()
	b.reg = reg
	b.mu.Unlock()
	invariant.CrashPoint("bookie.registered")
	b.bg.run("registration-follower", func(ctx context.Context) { b.follow(ctx, reg, readOnly) })
	return nil
}

// endpoints returns what the registration publishes. The bookie protocol comes first: old clients take the first one.
func (b *Bookie) endpoints() ([]metadata.Endpoint, error) {
	e, err := endpoint(metadata.EndpointBookie, metadata.ProtocolBookie, b.o.Advertised)
	if err != nil {
		return nil, exitErrorf(ExitConfig, "bookie.advertised_address = %q: %w", b.o.Advertised, err)
	}
	out := []metadata.Endpoint{e}
	if b.o.AdminAddress != "" {
		if e, err = endpoint(metadata.EndpointHTTP, metadata.ProtocolHTTP, b.o.AdminAddress); err != nil {
			return nil, exitErrorf(ExitConfig, "http.listen, published as %q: %w", b.o.AdminAddress, err)
		}
		out = append(out, e)
	}
	return out, nil
}

func endpoint(id, protocol, address string) (metadata.Endpoint, error) {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return metadata.Endpoint{}, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	return metadata.Endpoint{ID: id, Host: host, Port: int32(port), Protocol: protocol}, err //nolint:gosec // 16 bits
}

// follow tells the registration what the read-only machine says, and the bookie when its registration is lost for good.
func (b *Bookie) follow(ctx context.Context, reg *Registration, readOnly bool) {
	failed := reg.Failed()
	for {
		if now := !b.state.writable(); now != readOnly {
			readOnly = now
			s := b.state.get()
			b.o.Logger.Info("bookie changes", "read_only", readOnly, "reason", s.Text)
			reg.SetReadOnly(readOnly)
		}
		select {
		case <-ctx.Done():
			return
		case <-b.state.changed:
		case <-failed:
			failed = nil
			b.fail(withExit(ExitRegistration, reg.Err()))
		}
	}
}
