package bookie

import (
	"context"
	"errors"
	"fmt"

	"github.com/binderylog/bindery/internal/invariant"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/internal/vfs"
)

// PrepareOptions say which bookie is to be made.
type PrepareOptions struct {
	IdentityOptions

	// AcceptLoss lets empty directories stand in for lost ones, and lets an id be taken that ledgers still name. Everything
	// that may have been there goes into limbo at the next start.
	AcceptLoss bool
}

// PrepareReport says what PrepareNode did.
type PrepareReport struct {
	New      bool     // the bookie did not exist before
	Number   uint64   // its incarnation number
	Instance string   // of the cluster
	Created  []string // directories that did not exist
	Stamped  []string // directories that were prepared now
	Named    int      // ledgers that name the bookie already
	Loss     string   // what was accepted as lost
}

// PrepareNode makes the directories of a bookie: it creates and stamps them, and writes its incarnation record and its
// cookie. `bindery node init` and, in a new data directory, `bindery standalone` call it; nothing else ever does.
//
// It is idempotent, and one that was cut off is finished by calling it again. The order of the steps decides what an
// interruption leaves: directories, then the incarnation record, then the cookie. A bookie does not start until all of it
// is there.
func PrepareNode(ctx context.Context, o PrepareOptions) (_ *PrepareReport, err error) {
	o.ensureDefaults()
	if err := metadata.CheckBookieID(o.ID); err != nil {
		return nil, withExit(ExitConfig, err)
	}
	p := &preparation{o: o, i: newIdentity(o.IdentityOptions), report: &PrepareReport{}}
	if p.i.dirs, err = o.paths().collect(o.FS); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			retreatAll(p.i.dirs)
			return
		}
		keepAll(p.i.dirs)
		if rerr := releaseAll(p.i.dirs); rerr != nil {
			err = exitErrorf(ExitIO, "release directories: %w", rerr)
		}
	}()
	if err := p.run(ctx); err != nil {
		return nil, err
	}
	return p.report, nil
}

// preparation is one run of PrepareNode.
type preparation struct {
	o      PrepareOptions
	i      *Identity // borrowed for its helpers; never opened
	report *PrepareReport

	record  *metadata.Incarnation // stored, or nil
	version metadata.Version
	cookie  []byte // stored, or nil
}

func (p *preparation) run(ctx context.Context) error {
	// Everything that can be refused is refused before anything is created.
	if err := inspectAll(p.i.dirs); err != nil {
		return err
	}
	stamped, unstamped := splitStamped(p.i.dirs)
	for _, d := range unstamped {
		if d.ours != "" {
			return exitErrorf(ExitLocked, "%s %s", d, d.lostStamp())
		}
		if len(d.foreign) > 0 {
			return exitErrorf(ExitLocked, "%s is not empty: it holds %s", d, d.foreign[0])
		}
	}
	ictx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	instance, err := p.o.Views.Cluster.InstanceID(ictx)
	cancel()
	if errors.Is(err, metadata.ErrNotInitialized) {
		return exitErrorf(ExitLocked, "there is no cluster under %s in the metadata store: make it once with `bindery cluster init`", p.o.Views.Root)
	}
	if err != nil {
		return withExit(ExitRegistration, err)
	}
	p.i.instance, p.report.Instance = instance, instance
	if err := checkStamps(stamped, p.o.ID, instance); err != nil {
		return err
	}
	if p.record, p.version, err = p.i.storedRecord(ctx); err != nil {
		return err
	}
	if p.cookie, _, err = p.i.storedCookie(ctx); err != nil {
		return err
	}
	next, err := p.plan(ctx, stamped, unstamped)
	if err != nil {
		return err
	}
	if err := p.stamp(next); err != nil {
		return err
	}
	return p.publish(ctx, next)
}

// plan decides which record the bookie is to have. Nothing has been written yet.
func (p *preparation) plan(ctx context.Context, stamped, unstamped []*directory) (*metadata.Incarnation, error) {
	id := p.o.ID
	switch {
	case p.cookie != nil:
		want := p.o.paths().cookie(id, p.i.instance)
		if err := checkCookie("the cookie of bookie "+string(id)+" in the metadata store", p.cookie, want, false); err != nil {
			return nil, err
		}
		return p.planKnown(stamped, unstamped)
	case len(stamped) == 0:
		return p.planNew(ctx)
	}
	return p.planInterrupted(ctx, stamped)
}

// planNew is for an id without a cookie: it is new, or was retired.
func (p *preparation) planNew(ctx context.Context) (*metadata.Incarnation, error) {
	p.report.New = true
	next := &metadata.Incarnation{Number: 1, ID: newID(), Instance: p.i.instance}
	if p.record != nil {
		next.Number = p.record.Number + 1
	}
	return next, p.checkNamed(ctx, next)
}

// planInterrupted is for stamped directories of an id without a cookie: the end of a preparation that was cut off, or a
// bookie that was decommissioned.
func (p *preparation) planInterrupted(ctx context.Context, stamped []*directory) (*metadata.Incarnation, error) {
	first := stamped[0].stamp
	next := &metadata.Incarnation{Number: first.Number, ID: first.Incarnation, Instance: p.i.instance}
	begun := first.Epoch > 1
	for _, d := range stamped {
		begun = begun || d.stamp.Epoch > 1 || d.dirty != nil
	}
	past := false // the id has been used again since
	if p.record != nil {
		same := p.record.ID == first.Incarnation
		begun = begun || same && p.record.Start != ""
		past = !same && p.record.Number >= first.Number
	}
	if begun || past {
		return nil, exitErrorf(ExitIdentity, "the directories belong to incarnation %d of bookie %s, which has run and has no cookie any more: it was "+
			"decommissioned, or the store was restored from an old backup. To make a new bookie, empty the directories", first.Number, p.o.ID)
	}
	p.report.New = true
	return next, p.checkNamed(ctx, next)
}

// checkNamed refuses an id that ledgers name: an empty bookie would deny entries that it once acknowledged. With AcceptLoss
// they go into limbo instead.
func (p *preparation) checkNamed(ctx context.Context, next *metadata.Incarnation) error {
	var first ledger.ID
	for r, err := range p.o.Views.Ledgers.Naming(ctx, p.o.ID) {
		if err != nil {
			return withExit(ExitRegistration, err)
		}
		if p.report.Named++; p.report.Named == 1 {
			first = r.ID
		}
	}
	if p.report.Named == 0 {
		return nil
	}
	if !p.o.AcceptLoss {
		return exitErrorf(ExitIdentity, "%d ledgers name bookie %s (the first is %d), so it exists or was lost: decommission it first, choose another id, "+
			"or give up its data with --accept-loss", p.report.Named, p.o.ID, first)
	}
	next.Number = max(next.Number, 2) // it is not the first of its id, whatever the record says
	next.EverLost = true
	next.Loss = fmt.Sprintf("the bookie was created under an id that %d ledgers name", p.report.Named)
	p.report.Loss = next.Loss
	return nil
}

// planKnown is for an id with a cookie that matches the configuration.
func (p *preparation) planKnown(stamped, unstamped []*directory) (*metadata.Incarnation, error) {
	if p.record != nil && len(stamped) > 0 && p.record.ID != stamped[0].stamp.Incarnation {
		return nil, exitErrorf(ExitIdentity, "the directories belong to incarnation %d of bookie %s, the store knows %d: they are of its past",
			stamped[0].stamp.Number, p.o.ID, p.record.Number)
	}
	var gone, unknown []string // directories of the record without content here, and the reverse
	have := map[string]bool{}
	for _, d := range stamped {
		have[d.stamp.Directory] = true
		if p.record != nil && d.stamp.State == stampReady && d.stamp.Epoch < p.record.Directories[d.stamp.Directory].Epoch {
			return nil, exitErrorf(ExitIdentity, "%s is an old copy (epoch %d, the bookie has reached %d): put the current disk back, or empty the directory "+
				"and run `bindery node init --accept-loss`", d, d.stamp.Epoch, p.record.Directories[d.stamp.Directory].Epoch)
		}
		if p.record == nil || p.record.Directories[d.stamp.Directory].Epoch == 0 {
			unknown = append(unknown, d.path)
		}
	}
	if p.record != nil {
		for id, d := range p.record.Directories {
			if !have[id] {
				gone = append(gone, d.Path)
			}
		}
	}
	if p.record != nil && len(gone) == 0 && len(unstamped) == 0 && len(unknown) == 0 {
		p.report.Number = p.record.Number
		return p.record.Clone(), nil // nothing to do but cookies that may be missing
	}
	if p.record == nil && len(stamped) > 0 {
		return nil, exitErrorf(ExitIdentity, "the metadata store has a cookie of bookie %s but no incarnation record: it was restored from an old backup", p.o.ID)
	}
	if !p.o.AcceptLoss {
		what := "the directories " + dirNames(unstamped) + " are empty"
		if len(unstamped) == 0 {
			what = "some of its directories are not the ones it had"
		}
		return nil, exitErrorf(ExitLocked, "bookie %s exists already and %s: mount its disks. If what they held is lost for good, --accept-loss lets them stand in; "+
			"the bookie's ledgers then go into limbo", p.o.ID, what)
	}
	next := &metadata.Incarnation{Number: 2, ID: newID(), Instance: p.i.instance} // an Apache bookie's successor
	if p.record != nil {
		next = p.record.Clone()
		if len(stamped) == 0 { // all is lost: a new incarnation
			next.Number, next.ID = next.Number+1, newID()
		}
	}
	next.EverLost = true
	next.Loss = "lost with `node init --accept-loss`: " + dirNames(unstamped)
	if len(unstamped) == 0 {
		next.Loss = "lost with `node init --accept-loss`"
	}
	p.report.Loss = next.Loss
	return next, nil
}

// stamp creates and stamps the directories.
func (p *preparation) stamp(next *metadata.Incarnation) error {
	for _, d := range p.i.dirs {
		if d.exists {
			continue
		}
		if err := vfs.MkdirAllSync(d.fs, d.path); err != nil {
			return exitErrorf(ExitIO, "%s: %w", d, err)
		}
		d.made = append(d.made, d.path)
		p.report.Created = append(p.report.Created, d.path)
	}
	if err := acquireAll(p.i.dirs); err != nil {
		return err
	}
	text, err := metadata.EncodeCookie(p.o.paths().cookie(p.o.ID, p.i.instance))
	if err != nil {
		return withExit(ExitConfig, err)
	}
	p.i.record = next
	for _, d := range p.i.dirs {
		p.i.epoch = max(p.i.epoch, next.Directories[dirID(d)].Epoch)
		if d.stamp != nil {
			p.i.epoch = max(p.i.epoch, d.stamp.Epoch)
		}
	}
	for _, known := range next.Directories {
		p.i.epoch = max(p.i.epoch, known.Epoch)
	}
	for _, d := range p.i.dirs {
		if d.stamp == nil {
			if len(d.foreign) > 0 {
				return exitErrorf(ExitLocked, "%s is not empty: it holds %s", d, d.foreign[0])
			}
			state := stampReady
			if next.Loss != "" {
				state = stampLoss
			}
			if err := d.writeStamp(p.i.newStamp(d, state)); err != nil {
				return err
			}
			p.report.Stamped = append(p.report.Stamped, d.path)
		}
		if d.cookie == nil {
			if err := d.writeCookie(text); err != nil {
				return err
			}
		}
		invariant.CrashPoint("identity.directory-stamped")
	}
	return nil
}

func dirID(d *directory) string {
	if d.stamp == nil {
		return ""
	}
	return d.stamp.Directory
}

// publish writes the incarnation record, if it changed, and the cookie, if there is none.
func (p *preparation) publish(ctx context.Context, next *metadata.Incarnation) error {
	next.Directories = map[string]metadata.Directory{}
	for _, d := range p.i.dirs {
		next.Directories[d.stamp.Directory] = metadata.Directory{
			Incarnation: d.stamp.Number, Epoch: d.stamp.Epoch, Path: d.path, Kinds: d.stamp.Kinds,
		}
	}
	p.report.Number = next.Number
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	if p.record == nil || p.record.ID != next.ID || p.record.Loss != next.Loss || !sameEpochs(p.record, next) {
		p.i.version = p.version
		if err := p.storeFirst(ctx, next); err != nil {
			return err
		}
	}
	invariant.CrashPoint("identity.record-written")
	if p.cookie != nil {
		return nil
	}
	text, err := metadata.EncodeCookie(p.o.paths().cookie(p.o.ID, p.i.instance))
	if err != nil {
		return withExit(ExitConfig, err)
	}
	_, err = p.o.Views.Cookies.Put(ctx, p.o.ID, text, metadata.Absent)
	if errors.Is(err, metadata.ErrExists) || errors.Is(err, metadata.ErrUnknownOutcome) {
		have, _, gerr := p.o.Views.Cookies.Get(ctx, p.o.ID)
		if gerr == nil && string(have) == string(text) {
			return nil
		}
	}
	return withExit(ExitRegistration, err)
}

// storeFirst writes the record. A preparation never starts the bookie, so its records carry no start token; an equal one
// that is there already is ours.
func (p *preparation) storeFirst(ctx context.Context, next *metadata.Incarnation) error {
	_, err := p.o.Views.Incarnations.Put(ctx, p.o.ID, next, p.version)
	if err == nil {
		return nil
	}
	if errors.Is(err, metadata.ErrVersion) || errors.Is(err, metadata.ErrUnknownOutcome) {
		have, _, gerr := p.o.Views.Incarnations.Get(ctx, p.o.ID)
		switch {
		case gerr == nil && have.ID == next.ID && have.Number == next.Number && sameEpochs(have, next):
			return nil
		case gerr == nil && errors.Is(err, metadata.ErrVersion):
			return exitErrorf(ExitIdentity, "bookie %s is being prepared or used elsewhere at this moment", p.o.ID)
		}
	}
	return withExit(ExitRegistration, err)
}
