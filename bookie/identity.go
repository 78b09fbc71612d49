package bookie

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/vfs"
)

// IdentityOptions say whose directories are to be opened. All but IndexDirs, AllowExpansion, Prepare, Timeout and Logger
// are required.
type IdentityOptions struct {
	FS    vfs.FS
	Views *metadata.Views
	ID    ledger.BookieID

	JournalDirs, LedgerDirs, IndexDirs []string

	AllowExpansion bool          // ledger and index directories may be appended to the lists
	Prepare        bool          // prepare a new bookie's directories (standalone); otherwise they are refused
	Timeout        time.Duration // of one metadata operation; default 30 s
	BootID         string        // of the running system; "" = ask the kernel

	DiskOf func(dir string) DiskID // names the disk under a directory; default: the system's answer for its own files
	Logger *slog.Logger
}

func (o *IdentityOptions) ensureDefaults() {
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.DiskOf == nil && o.FS == vfs.OS() {
		o.DiskOf = DiskOf
	}
	if o.BootID == "" {
		if id, err := vfs.BootID(); err == nil {
			o.BootID = id
		}
	}
}

func (o *IdentityOptions) paths() dirPaths {
	return dirPaths{journal: o.JournalDirs, ledger: o.LedgerDirs, index: o.IndexDirs}
}

// Identity is what the start of a bookie has proven: that the directories are this bookie's, complete, of this cluster, not
// in use and not older than they should be. It holds their locks.
//
// The epoch is the proof against going back in time. It is written to every directory and then to the incarnation record,
// at start, at a clean stop, and whenever something may have been lost. A directory whose epoch is below the record's is an
// old copy. A directory's may be above: the process died between the two writes.
type Identity struct {
	o        IdentityOptions
	dirs     []*directory
	instance string
	fresh    bool
	unclean  bool
	sameBoot bool
	start    string // random token of this process

	op      sync.Mutex // serialises what changes the fields below, the stamps and the record; held across disk and store
	record  *metadata.Incarnation
	version metadata.Version // of record in the store
	epoch   uint64
	loss    []string // what may have been lost and is not in limbo yet
	closed  bool

	now atomic.Pointer[identityNow] // what others may ask for at any time

	gcOp     *semaphore.Weighted // of one: serialises GC passes and looks at the store; held across disk and store
	idsKnown atomic.Int64        // the ids below had been drawn at the last look, see CheckStore
}

// identityNow is the state of an identity after its last change.
type identityNow struct {
	number, epoch uint64
	incarnation   string
	everLost      bool
	loss          []string
}

// publishLocked makes the present state visible. The caller holds op or is alone.
func (i *Identity) publishLocked() {
	i.now.Store(&identityNow{
		number: i.record.Number, epoch: i.epoch, incarnation: i.record.ID, everLost: i.record.EverLost, loss: slices.Clone(i.loss),
	})
}

func newIdentity(o IdentityOptions) *Identity {
	return &Identity{o: o, start: newID(), gcOp: semaphore.NewWeighted(1)}
}

// OpenIdentity opens the directories of a bookie. Every refusal is an *ExitError that says what to do. On success the
// directories are locked, the epoch is raised, and the marker of an unclean stop is in place.
func OpenIdentity(ctx context.Context, o IdentityOptions) (_ *Identity, err error) {
	o.ensureDefaults()
	if err := metadata.CheckBookieID(o.ID); err != nil {
		return nil, withExit(ExitConfig, err)
	}
	i := newIdentity(o)
	if i.dirs, err = o.paths().collect(o.FS); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			retreatAll(i.dirs)
		}
	}()
	if err := i.openDirs(ctx); err != nil {
		return nil, err
	}
	if err := i.verify(ctx); err != nil {
		return nil, err
	}
	if err := i.raise(ctx, nil, nil); err != nil {
		return nil, err
	}
	if err := i.markDirty(); err != nil {
		return nil, err
	}
	keepAll(i.dirs)
	i.publishLocked()
	i.writeInventory()
	return i, nil
}

// openDirs brings every directory to the state "stamped and locked", or explains why that cannot be.
func (i *Identity) openDirs(ctx context.Context) error {
	if err := inspectAll(i.dirs); err != nil {
		return err
	}
	stamped, unstamped := splitStamped(i.dirs)
	prepare := i.o.Prepare
	if prepare && len(unstamped) == 0 {
		published, err := i.published(ctx, stamped)
		if err != nil {
			return err
		}
		prepare = !published
	}
	if prepare {
		report, err := PrepareNode(ctx, PrepareOptions{IdentityOptions: i.o})
		if err != nil {
			return err
		}
		i.fresh = report.New
		if err := inspectAll(i.dirs); err != nil {
			return err
		}
		stamped, unstamped = splitStamped(i.dirs)
	}
	for _, d := range i.dirs {
		if !d.exists {
			return exitErrorf(ExitConfig, "%s does not exist%s: check the configuration and whether its disk is mounted; "+
				"`bindery node init` makes the directories of a new bookie", d, lastDiskHint(i.dirs, d.path))
		}
	}
	switch {
	case len(stamped) == 0:
		return exitErrorf(ExitLocked, "%s. Is its disk mounted? A new bookie is prepared with `bindery cluster init` (once per cluster) and `bindery node init`", describeUnstamped(unstamped[0]))
	case len(unstamped) > 0 && !i.o.AllowExpansion:
		return exitErrorf(ExitLocked, "%s, though other directories of the bookie are%s. Is its disk mounted? If the directory was added, set "+
			"storage.allow_expansion; if its content is lost for good, run `bindery node init --accept-loss`",
			describeUnstamped(unstamped[0]), lastDiskHint(i.dirs, unstamped[0].path))
	}
	if err := acquireAll(stamped); err != nil {
		return err
	}
	i.unclean, i.sameBoot = dirtyState(stamped, i.o.BootID)
	return nil
}

// published says whether the last steps of a preparation were made: cookies in every directory, record and cookie in the
// store. A process that prepares by itself finishes one that was cut off before them.
func (i *Identity) published(ctx context.Context, stamped []*directory) (bool, error) {
	for _, d := range stamped {
		if d.cookie == nil {
			return false, nil
		}
	}
	record, _, err := i.storedRecord(ctx)
	if err != nil || record == nil {
		return false, err
	}
	cookie, _, err := i.storedCookie(ctx)
	return cookie != nil, err
}

// verify compares the directories with the store, and lets new directories join if they may.
func (i *Identity) verify(ctx context.Context) error {
	stamped, unstamped := splitStamped(i.dirs)
	var err error
	if i.instance, err = i.instanceID(ctx); err != nil {
		return err
	}
	if err := checkStamps(stamped, i.o.ID, i.instance); err != nil {
		return err
	}
	want := i.o.paths().cookie(i.o.ID, i.instance)
	text, version, err := i.storedCookie(ctx)
	if err != nil {
		return err
	}
	if text == nil {
		return exitErrorf(ExitIdentity, "the directories are prepared but the store holds no cookie of bookie %s: preparation was cut off "+
			"(run `bindery node init` again), or the bookie was decommissioned (empty the directories and run `bindery node init`)", i.o.ID)
	}
	expand := i.o.AllowExpansion && len(unstamped) > 0
	if err := checkCookie("the cookie of bookie "+string(i.o.ID)+" in the metadata store", text, want, i.o.AllowExpansion); err != nil {
		return err
	}
	for _, d := range stamped {
		if d.cookie == nil && d.stamp.State == stampJoining && i.o.AllowExpansion {
			continue // the addition was cut off; it is finished below
		}
		if d.cookie == nil {
			return exitErrorf(ExitLocked, "%s has no cookie (current/VERSION): its preparation was cut off; run `bindery node init` again", d)
		}
		if err := checkCookie(d.file(versionName), d.cookie, want, i.o.AllowExpansion); err != nil {
			return err
		}
	}
	if err := i.verifyRecord(ctx, stamped); err != nil {
		return err
	}
	if expand {
		if err := i.expand(unstamped); err != nil {
			return err
		}
	}
	return i.restampCookies(ctx, want, text, version)
}

// verifyRecord compares the stamps with the incarnation record: same incarnation, no directory too old, none missing.
func (i *Identity) verifyRecord(ctx context.Context, stamped []*directory) error {
	r, v, err := i.storedRecord(ctx)
	if err != nil {
		return err
	}
	if r == nil {
		return exitErrorf(ExitIdentity, "the metadata store has no incarnation record of bookie %s: the store was restored from an old backup, or "+
			"preparation was cut off (then run `bindery node init` again)", i.o.ID)
	}
	if first := stamped[0].stamp; r.ID != first.Incarnation {
		return exitErrorf(ExitIdentity, "bookie %s has been created again elsewhere (incarnation %d in the store, %d in %s): these directories are "+
			"of its past; empty them and run `bindery node init` under another id", i.o.ID, r.Number, first.Number, stamped[0])
	}
	i.record, i.version = r, v
	present := map[string]bool{}
	for _, d := range stamped {
		s := d.stamp
		present[s.Directory] = true
		known, ok := r.Directories[s.Directory]
		switch {
		case ok && s.Epoch < known.Epoch:
			return exitErrorf(ExitIdentity, "%s is an old copy (epoch %d, the bookie has reached %d): entries and fences written since then are "+
				"missing. Put the current disk back; if it is lost, empty the directory and run `bindery node init --accept-loss`", d, s.Epoch, known.Epoch)
		case !ok && s.State == stampLoss:
			return exitErrorf(ExitLocked, "%s stands in for a lost directory, but its preparation was cut off: run `bindery node init --accept-loss` again", d)
		case !ok && s.State == stampJoining && !i.o.AllowExpansion:
			return exitErrorf(ExitLocked, "%s was joining the bookie: set storage.allow_expansion to let it finish", d)
		case !ok && s.State == stampReady:
			return exitErrorf(ExitIdentity, "%s is not in the incarnation record of bookie %s: the metadata store was restored from an old backup", d, i.o.ID)
		}
		if s.State == stampLoss {
			i.loss = append(i.loss, fmt.Sprintf("%s stands in for a lost one", d))
		}
		i.epoch = max(i.epoch, s.Epoch, known.Epoch)
	}
	for id, known := range r.Directories {
		i.epoch = max(i.epoch, known.Epoch)
		if !present[id] {
			return exitErrorf(ExitIdentity, "the %s directory %s of bookie %s is not configured any more or has been replaced%s: put it back, or, if its "+
				"content is lost, run `bindery node init --accept-loss`", known.Kinds, known.Path, i.o.ID, lastDiskHint(i.dirs, known.Path))
		}
	}
	if r.Loss != "" {
		i.loss = append(i.loss, r.Loss)
	}
	return nil
}

// expand stamps new directories. They become part of the record when the epoch is raised.
func (i *Identity) expand(unstamped []*directory) error {
	for _, d := range unstamped {
		if len(d.foreign) > 0 {
			return exitErrorf(ExitLocked, "%s", describeUnstamped(d))
		}
		for _, k := range d.kinds {
			if k == kindJournal {
				return exitErrorf(ExitLocked, "%s: only ledger and index directories can be added to a bookie", d)
			}
		}
	}
	if err := acquireAll(unstamped); err != nil {
		return err
	}
	for _, d := range unstamped {
		if d.stamp != nil || len(d.foreign) > 0 {
			return exitErrorf(ExitLocked, "%s was prepared by another process just now", d)
		}
		if err := d.writeStamp(i.newStamp(d, stampJoining)); err != nil {
			return err
		}
		i.o.Logger.Info("directory joins the bookie", "directory", d.path, "kinds", d.kindText())
	}
	return nil
}

func (i *Identity) newStamp(d *directory, state stampState) stamp {
	return stamp{
		Bookie: i.o.ID, Instance: i.instance, Kinds: d.kindText(), Directory: newID(),
		Number: i.record.Number, Incarnation: i.record.ID, Epoch: max(i.epoch, 1), State: state,
	}
}

// restampCookies writes the configured cookie wherever another, allowed one is: after an expansion.
func (i *Identity) restampCookies(ctx context.Context, want metadata.Cookie, stored []byte, version metadata.Version) error {
	text, err := metadata.EncodeCookie(want)
	if err != nil {
		return withExit(ExitConfig, err)
	}
	for _, d := range i.dirs {
		if c, err := metadata.DecodeCookie(d.file(versionName), d.cookie); d.cookie != nil && err == nil && matchCookie(c, want, false) == "" {
			continue
		}
		if err := d.writeCookie(text); err != nil {
			return err
		}
	}
	if c, err := metadata.DecodeCookie("", stored); err == nil && matchCookie(c, want, false) == "" {
		return nil
	}
	cctx, cancel := context.WithTimeout(ctx, i.o.Timeout)
	defer cancel()
	if _, err := i.o.Views.Cookies.Put(cctx, i.o.ID, text, version); err != nil {
		return withExit(ExitRegistration, fmt.Errorf("after adding directories: %w", err))
	}
	return nil
}

func (i *Identity) instanceID(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, i.o.Timeout)
	defer cancel()
	id, err := i.o.Views.Cluster.InstanceID(ctx)
	if errors.Is(err, metadata.ErrNotInitialized) {
		return "", exitErrorf(ExitIdentity, "the directories are prepared, but the metadata store holds no cluster under %s: check metadata.uri", i.o.Views.Root)
	}
	return id, withExit(ExitRegistration, err)
}

// storedCookie returns the bookie's cookie in the store, or nil.
func (i *Identity) storedCookie(ctx context.Context) ([]byte, metadata.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, i.o.Timeout)
	defer cancel()
	text, v, err := i.o.Views.Cookies.Get(ctx, i.o.ID)
	if errors.Is(err, metadata.ErrNotFound) {
		return nil, metadata.Absent, nil
	}
	return text, v, withExit(ExitRegistration, err)
}

// storedRecord returns the bookie's incarnation record in the store, or nil.
func (i *Identity) storedRecord(ctx context.Context) (*metadata.Incarnation, metadata.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, i.o.Timeout)
	defer cancel()
	r, v, err := i.o.Views.Incarnations.Get(ctx, i.o.ID)
	switch {
	case errors.Is(err, metadata.ErrNotFound):
		return nil, metadata.Absent, nil
	case errors.Is(err, metadata.ErrFormatTooNew):
		return nil, 0, withExit(ExitFormat, err)
	}
	return r, v, withExit(ExitRegistration, err)
}

// raise moves to the next epoch: every directory first, then the record. change edits the record, restamp the stamps; both
// may be nil. The caller holds op or is alone.
func (i *Identity) raise(ctx context.Context, change func(*metadata.Incarnation), restamp func(*stamp)) error {
	if err := i.raiseDirs(restamp); err != nil {
		return err
	}
	invariant.CrashPoint("identity.directories-raised")
	next := i.record.Clone()
	next.Start = i.start
	next.Directories = map[string]metadata.Directory{}
	for _, d := range i.dirs {
		next.Directories[d.stamp.Directory] = metadata.Directory{
			Incarnation: d.stamp.Number, Epoch: i.epoch, Path: d.path, Kinds: d.stamp.Kinds,
		}
	}
	if change != nil {
		change(next)
	}
	if err := i.storeRecord(ctx, next); err != nil {
		return err
	}
	invariant.CrashPoint("identity.store-raised")
	return nil
}

// raiseDirs writes the next epoch to every directory.
func (i *Identity) raiseDirs(restamp func(*stamp)) error {
	i.epoch++
	for _, d := range i.dirs {
		s := *d.stamp
		s.Epoch = i.epoch
		if _, known := i.record.Directories[s.Directory]; known && s.State == stampJoining {
			s.State = stampReady
		}
		if restamp != nil {
			restamp(&s)
		}
		if err := d.writeStamp(s); err != nil {
			return err
		}
	}
	return nil
}

// storeRecord replaces the record, and finds out what became of it when the answer is lost.
func (i *Identity) storeRecord(ctx context.Context, next *metadata.Incarnation) error {
	ctx, cancel := context.WithTimeout(ctx, i.o.Timeout)
	defer cancel()
	for pause := storePause; ; pause = min(2*pause, time.Second) {
		v, err := i.o.Views.Incarnations.Put(ctx, i.o.ID, next, i.version)
		if err == nil {
			i.record, i.version = next, v
			return nil
		}
		if !errors.Is(err, metadata.ErrVersion) && !errors.Is(err, metadata.ErrUnknownOutcome) {
			return withExit(ExitRegistration, err)
		}
		have, v, gerr := i.o.Views.Incarnations.Get(ctx, i.o.ID)
		switch {
		case gerr == nil && have.Start == next.Start && sameEpochs(have, next):
			i.record, i.version = have, v
			return nil
		case gerr == nil && v != i.version:
			return exitErrorf(ExitIdentity, "another process is using the identity of bookie %s (its start %s, ours %s)", i.o.ID, have.Start, next.Start)
		case errors.Is(gerr, metadata.ErrNotFound):
			return exitErrorf(ExitIdentity, "the incarnation record of bookie %s was deleted while it was running", i.o.ID)
		}
		// Not there yet, or not readable. It may still land; sent again at the same version it is refused then, and found.
		select {
		case <-ctx.Done():
			return withExit(ExitRegistration, err)
		case <-time.After(pause):
		}
	}
}

// storePause is the first pause between two attempts to store the record.
const storePause = 20 * time.Millisecond

func sameEpochs(a, b *metadata.Incarnation) bool {
	if len(a.Directories) != len(b.Directories) || a.Loss != b.Loss {
		return false
	}
	for id, d := range b.Directories {
		if a.Directories[id].Epoch != d.Epoch {
			return false
		}
	}
	return true
}

// markDirty puts the marker of a running bookie into every directory. A clean stop removes it. One directory that has it is
// enough, so a full disk may be left out.
func (i *Identity) markDirty() error {
	text := []byte("boot " + i.o.BootID + "\nstart " + i.start + "\n")
	var full error
	marked := false
	for _, d := range i.dirs {
		err := d.replace(dirtyName, text)
		switch {
		case err == nil:
			d.dirty, marked = text, true
		case vfs.IsNoSpace(err):
			full = exitErrorf(ExitIO, "%s: %w", d, err)
		default:
			return exitErrorf(ExitIO, "%s: %w", d, err)
		}
	}
	if !marked {
		return full
	}
	return nil
}

// dirtyState reports whether the last stop was unclean, and whether it was in this boot of the system.
func dirtyState(dirs []*directory, bootID string) (unclean, sameBoot bool) {
	sameBoot = bootID != ""
	for _, d := range dirs {
		if d.dirty == nil {
			continue
		}
		unclean = true
		line, _, _ := strings.Cut(string(d.dirty), "\n")
		if line != "boot "+bootID {
			sameBoot = false
		}
	}
	return unclean, sameBoot
}

// Loss says what may have been lost and is not in limbo yet; empty if nothing. While it is not empty the bookie answers
// *unknown* to everything: it has to put every ledger of Ledgers into limbo, fenced and durable, and call LossHandled.
func (i *Identity) Loss() []string { return slices.Clone(i.now.Load().loss) }

// RecordLoss notes durably that something may have been lost: damage that the journal or the storage found, an unclean stop
// without sync. It raises the epoch, so that a ledger which names this bookie after Ledgers was read was published by
// someone who knows of the loss.
func (i *Identity) RecordLoss(ctx context.Context, why string) error {
	i.op.Lock()
	defer i.op.Unlock()
	why = strings.Join(strings.Fields(why), " ")
	if len(why) > 500 {
		why = why[:500]
	}
	err := i.raise(ctx,
		func(r *metadata.Incarnation) { r.EverLost, r.Loss = true, why },
		func(s *stamp) { s.State = stampLoss })
	if err != nil {
		return fmt.Errorf("record loss (%s): %w", why, err)
	}
	i.loss = append(i.loss, why)
	i.publishLocked()
	i.o.Logger.Warn("data of this bookie may have been lost; its ledgers go into limbo", "why", why, "epoch", i.epoch)
	return nil
}

// LossHandled clears the pending loss. The caller has made durable that every ledger of Ledgers is in limbo and fenced.
func (i *Identity) LossHandled(ctx context.Context) error {
	i.op.Lock()
	defer i.op.Unlock()
	err := i.raise(ctx,
		func(r *metadata.Incarnation) { r.EverLost, r.Loss = true, "" },
		func(s *stamp) { s.State = stampReady })
	if err != nil {
		return fmt.Errorf("clear recorded loss: %w", err)
	}
	i.loss = nil
	i.publishLocked()
	return nil
}

// Ledgers yields every ledger, in any state, that names this bookie in any ensemble, from a linearizable listing.
func (i *Identity) Ledgers(ctx context.Context) iter.Seq2[metadata.Record, error] {
	return i.o.Views.Ledgers.Naming(ctx, i.o.ID)
}

// VerifyAdds reports whether the first add to a ledger has to be checked against the ledger's record: the id was used
// before, or something was lost once.
func (i *Identity) VerifyAdds() bool {
	now := i.now.Load()
	return now.number > 1 || now.everLost
}

// Unclean reports whether the last process ended without CloseClean.
func (i *Identity) Unclean() bool { return i.unclean }

// SameBoot reports whether the last process ran in the present boot of the system, so that what it wrote without sync is
// still in the page cache.
func (i *Identity) SameBoot() bool { return i.sameBoot }

// New reports whether this start prepared the directories.
func (i *Identity) New() bool { return i.fresh }

// ID returns the bookie id.
func (i *Identity) ID() ledger.BookieID { return i.o.ID }

// Instance returns the cluster's instance id.
func (i *Identity) Instance() string { return i.instance }

// Number returns how often a bookie has been created under this id, this one included.
func (i *Identity) Number() uint64 { return i.now.Load().number }

// Epoch returns the present epoch.
func (i *Identity) Epoch() uint64 { return i.now.Load().epoch }

// ServiceInfo returns what the bookie publishes: its endpoints, and which start of which incarnation it is.
func (i *Identity) ServiceInfo(endpoints ...metadata.Endpoint) metadata.ServiceInfo {
	now := i.now.Load()
	return metadata.ServiceInfo{
		Endpoints: endpoints,
		Properties: map[string]string{
			metadata.PropertyIncarnation: now.incarnation,
			metadata.PropertyEpoch:       strconv.FormatUint(now.epoch, 10),
		},
	}
}

// CloseClean ends a clean stop: everything of the bookie is on disk. It raises the epoch, so that a copy of a directory
// made before is known to be old, removes the unclean marker and releases the directories. A store that cannot be reached
// does not spoil the stop; the error says so.
func (i *Identity) CloseClean(ctx context.Context) error {
	i.op.Lock()
	defer i.op.Unlock()
	if i.closed {
		return nil
	}
	i.closed = true
	if err := i.raiseDirs(nil); err != nil {
		return errors.Join(err, releaseAll(i.dirs)) // the marker stays: this was no clean stop
	}
	invariant.CrashPoint("identity.stop-directories-raised")
	next := i.record.Clone()
	for id, d := range next.Directories {
		d.Epoch = i.epoch
		next.Directories[id] = d
	}
	next.Start = i.start
	storeErr := i.storeRecord(ctx, next)
	var errs []error
	for _, d := range i.dirs {
		if err := d.removeDurably(dirtyName); err != nil {
			errs = append(errs, exitErrorf(ExitIO, "%s: %w", d, err))
		}
	}
	return errors.Join(append(errs, storeErr, releaseAll(i.dirs))...)
}

// Close releases the directories and leaves the unclean marker: the next start knows that this one did not end cleanly.
func (i *Identity) Close() error {
	i.op.Lock()
	defer i.op.Unlock()
	if i.closed {
		return nil
	}
	i.closed = true
	return releaseAll(i.dirs)
}
