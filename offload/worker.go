package offload

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/binderylog/bindery/internal/pace"
	"golang.org/x/sync/semaphore"

	"github.com/binderylog/bindery/internal/intent"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
	"github.com/binderylog/bindery/offload/protocol"
)

// EntrySource yields entries first to last of a closed ledger, as bookies hold them, in order and without a gap, each with its digest
// checked. An error is the last thing it yields. What an entry's slices hold is copied before the next one is asked for.
type EntrySource func(ctx context.Context, id ledger.ID, meta *ledger.Metadata, first, last ledger.EntryID) iter.Seq2[Entry, error]

// Options configure a Worker. Records, Targets, Entries and Dir (or Intents) are needed.
type Options struct {
	Records *Records
	Targets *Targets
	Entries EntrySource
	Dir     string     // where the intents log lies, alone
	Intents intent.Log // instead of Dir; closed by Close
	Name    string     // for people: who holds a lock
	Cluster string     // id of the cluster; what Dir has from another one is refused. Empty: not known
	Logger  *slog.Logger

	Geometry   Geometry // zero: AutoGeometry of the targets' domains
	Tolerated  int      // domains that may be lost; default 1 with more than one domain, -1: none
	Colocated  bool     // parity inside one domain is meant
	MinShards  int      // commit with fewer than all; default all
	CellBytes  int      // default 8 MiB
	BlockBytes int      // default 256 KiB
	// InlineBytes: ledgers that take no more are stored in their manifest; default 64 KiB, -1: none.
	InlineBytes int
	Compression Compression
	Encryption  Encryption // of new ledgers; EncryptAESGCM needs Keys
	Keys        KeySource  // for encrypted ledgers

	InFlight    int           // parts under way per ledger; default 4
	MemoryBytes int64         // cell buffers of all uploads; default 256 MiB
	ReadRate    int64         // bytes a second from bookies; default 64 MiB, -1: no limit
	UploadRate  int64         // bytes a second to targets; 0: no limit
	ScrubRate   int64         // bytes a second of verifying; default 16 MiB, -1: no limit
	Verify      VerifyLevel   // before the commit; the zero value is VerifyFull
	DeletionLag time.Duration // between commit and release; -1: never release
	Grace       time.Duration // between two passes of the janitor; default 1 h, above the longest request with its retries
	TakeOver    time.Duration // how long an attempt whose lock is free is left to whoever began it; default 20 s, above two leases
	Abandon     time.Duration // an attempt that nobody goes on with becomes garbage; default 24 h

	LockWait time.Duration                     // how long a call waits for the lock of a ledger that somebody holds; default not at all
	Waiting  func(id ledger.ID, holder string) // told once a call when such a wait begins; may be nil

	now func() time.Time
}

// Defaults of Options.
const (
	defaultInFlight    = 4
	defaultMemory      = 256 << 20
	defaultReadRate    = 64 << 20
	defaultScrubRate   = 16 << 20
	defaultGrace       = time.Hour
	defaultAbandon     = 24 * time.Hour
	defaultTakeOver    = 20 * time.Second
	releaseCustom      = "bindery.tier"
	releaseCustomValue = "release"
)

func (o *Options) ensureDefaults() {
	set := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	setInt := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	setTime := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	if o.Geometry == (Geometry{}) {
		o.Geometry = AutoGeometry(Domains(o.Targets.places))
	}
	if o.Tolerated == 0 && Domains(o.Targets.places) > 1 {
		o.Tolerated = 1
	}
	setInt(&o.MinShards, o.Geometry.Shards())
	setInt(&o.CellBytes, CellBytesDefault)
	setInt(&o.BlockBytes, BlockBytesDefault)
	setInt(&o.InlineBytes, InlineBytesDefault)
	setInt(&o.InFlight, defaultInFlight)
	set(&o.MemoryBytes, defaultMemory)
	set(&o.ReadRate, defaultReadRate)
	set(&o.ScrubRate, defaultScrubRate)
	setTime(&o.Grace, defaultGrace)
	setTime(&o.Abandon, defaultAbandon)
	setTime(&o.TakeOver, defaultTakeOver)
	if o.Name == "" {
		o.Name = "offload"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.now == nil {
		o.now = time.Now
	}
}

func (o *Options) validate() error {
	switch {
	case o.CellBytes < CellBytesMin || o.CellBytes > CellBytesMax:
		return fmt.Errorf("offload: cells of %d bytes; %d to %d are possible", o.CellBytes, CellBytesMin, CellBytesMax)
	case o.BlockBytes < BlockBytesMin || o.BlockBytes > BlockBytesMax:
		return fmt.Errorf("offload: blocks of %d bytes; %d to %d are possible", o.BlockBytes, BlockBytesMin, BlockBytesMax)
	case o.InlineBytes > InlineBytesMax:
		return fmt.Errorf("offload: %d inline bytes; at most %d are possible", o.InlineBytes, InlineBytesMax)
	case o.Encryption != EncryptNone && o.Keys == nil:
		return errors.New("offload: encryption is asked for and there is no key source")
	case o.MinShards < o.Geometry.Data || o.MinShards > o.Geometry.Shards():
		return fmt.Errorf("offload: a commit with %d shards of %s; %d to %d are possible", o.MinShards, o.Geometry, o.Geometry.Data, o.Geometry.Shards())
	case o.uploadMemory(o.CellBytes) > o.MemoryBytes:
		return fmt.Errorf("offload: one upload of %s with cells of %d bytes and %d parts under way needs %d bytes of memory, %d are allowed; raise the memory, or take smaller cells or fewer parts",
			o.Geometry, o.CellBytes, o.InFlight, o.uploadMemory(o.CellBytes), o.MemoryBytes)
	}
	return o.Geometry.Check(o.Targets.places, o.Tolerated, o.Colocated)
}

// uploadMemory is what the cells of one upload take.
func (o *Options) uploadMemory(cell int) int64 {
	return int64(o.Geometry.Shards()+o.InFlight) * int64(cell)
}

// Worker offloads, verifies, repairs, releases and deletes ledgers, and cleans up. Everything may be called concurrently, also for
// one ledger: locks save double work, the transactions on the record keep it right.
type Worker struct {
	o      Options
	t      *tier
	notes  *intents
	memory *semaphore.Weighted
	read   *pace.Bucket
	upload *pace.Bucket
	scrub  *pace.Bucket
	m      *metrics
	absent *sightings
	busy   *inHand
	late   *lateUploads
	health *health
	survey atomic.Pointer[survey]

	progress *progressBook
}

// rateBurst is how much of a rate may pass at once after a pause.
const rateBurst = 100 * time.Millisecond

// NewWorker checks the configuration and opens the intents log.
func NewWorker(o Options) (*Worker, error) {
	o.ensureDefaults()
	if err := SelfTest(); err != nil {
		return nil, err
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	log := o.Intents
	if log == nil {
		var err error
		if log, err = intent.Open(filepath.Clean(o.Dir), intent.Options{Salvage: true, Holder: fmt.Sprintf("worker %s (process %d)", o.Name, os.Getpid()), Logger: o.Logger}); err != nil {
			return nil, intentsError(o.Dir, err)
		}
	}
	notes, err := openIntents(log, o.Dir)
	if err == nil {
		err = notes.belong(o.Cluster)
	}
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	m := newMetrics()
	m.addGauges()
	w := &Worker{
		o: o, notes: notes, m: m, memory: semaphore.NewWeighted(o.MemoryBytes),
		read: pace.NewBucket(o.ReadRate, rateBurst), upload: pace.NewBucket(o.UploadRate, rateBurst), scrub: pace.NewBucket(o.ScrubRate, rateBurst),
		t: &tier{targets: o.Targets, keys: o.Keys, latencies: newLatencies(0.05), pages: newPageCache(pageCacheBytes), m: m}, absent: newSightings(), busy: newInHand(), late: newLateUploads(), health: newHealth(), progress: newProgressBook(),
	}
	m.addProgress(w.Progress)
	if says := w.Crowded(); says != "" {
		o.Logger.Warn(says)
	}
	return w, nil
}

// Crowded says, if a domain gets several shards of a ledger, how many lost domains are survived.
func (w *Worker) Crowded() string { return w.o.Geometry.crowded(Domains(w.o.Targets.places)) }

// Close closes the intents log. Nothing may be under way.
func (w *Worker) Close() error { return w.notes.log.Close() }

// WriteMetrics prints the worker's metrics in the text form.
func (w *Worker) WriteMetrics(out io.Writer) { w.m.write(out) }

// Unfinished lists the ledgers that a former run of this worker was offloading: call Offload for each.
func (w *Worker) Unfinished() []ledger.ID { return w.notes.ledgers() }

// StoppedError says why a ledger was left as it is.
type StoppedError struct {
	Ledger ledger.ID
	Reason protocol.Reason
	Err    error  // what went wrong, if anything did
	Holder string // Busy: who holds the ledger's lock, or began the attempt that stands in the way
}

// Error implements error.
func (e *StoppedError) Error() string {
	s := theLedger(e.Ledger) + e.Reason.String()
	if e.Reason == protocol.Busy && e.Holder != "" {
		s += fmt.Sprintf(", by worker %s: let it finish; if it was killed, try again in half a minute, when its metadata session has ended: its attempt is taken over then", e.Holder)
	}
	if e.Err != nil {
		s += ": " + besides(theLedger(e.Ledger), e.Err)
	}
	return s
}

// Unwrap returns the cause.
func (e *StoppedError) Unwrap() error { return e.Err }

// seen is one look at both records.
type seen struct {
	record  *Record // nil: there is none
	version metadata.Version
	meta    *ledger.Metadata // nil: there is none
	mver    metadata.Version
}

// look reads the offload record, then the ledger's.
func (r *Records) look(ctx context.Context, id ledger.ID) (s seen, err error) {
	s.record, s.version, err = r.Read(ctx, id)
	if errors.Is(err, ErrNoRecord) {
		s.record, s.version = nil, metadata.Absent
	} else if err != nil {
		return s, err
	}
	s.meta, s.mver, err = r.Ledger(ctx, id)
	if errors.Is(err, metadata.ErrNoLedger) {
		s.meta, s.mver, err = nil, metadata.Absent, nil
	}
	return s, err
}

// inTier reports whether the tier has the ledger.
func (s *seen) inTier() bool {
	return s.record != nil && s.record.inTier()
}

// view is what the rules see of it.
func (s *seen) view() protocol.Seen {
	v := protocol.Seen{Ledger: protocol.Ledger{Version: protocol.None}, Record: protocol.Record{Version: protocol.None}}
	if m := s.meta; m != nil {
		v.Ledger = protocol.Ledger{
			Version: int64(s.mver), Closed: m.State == ledger.StateClosed, Last: int64(m.LastEntry), Length: m.Length,
			Release: string(m.Custom[releaseCustom]) == releaseCustomValue,
		}
	}
	if r := s.record; r != nil {
		v.Record = protocol.Record{
			Version: int64(s.version), State: r.State, Attempt: r.Attempt, Idle: r.Idle, Last: int64(r.LastEntry), Length: r.Length,
			Missing: r.Missing(), Garbage: len(r.Garbage), Stale: len(r.Stale),
		}
	}
	return v
}

// job is one attempt under way.
type job struct {
	id      ledger.ID
	seen    seen
	attempt *protocol.Attempt
	left    *leftover
	begin   *begun
	key     *WrappedKey
	noted   bool // the intent is in the log
	sent    bool // an upload was made by this run

	manifest ManifestRef
	inline   bool
	missing  []bool
	err      error // of the last write that failed
}

func newAttemptID() (id AttemptID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

// Offload takes a closed ledger into the tier, going on where a former run of this worker stopped. It returns nil once the tier
// has the ledger, or a *StoppedError. What it has sent stays for a later try.
func (w *Worker) Offload(ctx context.Context, id ledger.ID) error {
	start := time.Now()
	w.m.started.Inc()
	w.progress.begin(id, w.o.now())
	defer w.progress.end(id)
	err := w.takeIn(ctx, id)
	w.health.moved(id, err)
	var s *StoppedError
	switch {
	case err == nil:
		w.m.committed.Inc()
		w.m.commitSeconds.UpdateDuration(start)
		w.o.Logger.Info("ledger offloaded", "ledger", id, "seconds", time.Since(start).Seconds())
	case errors.As(err, &s) && s.Reason == protocol.InTier:
		return nil
	case s != nil:
		w.m.failed(s.Reason.Label()).Inc()
	default:
		w.m.failed("error").Inc()
	}
	return err
}

// takeIn offloads a ledger, or displaces an attempt that nobody goes on with.
func (w *Worker) takeIn(ctx context.Context, id ledger.ID) error {
	other, err := w.holding(ctx, id, AttemptID{})
	if other == (AttemptID{}) {
		return err
	}
	// Somebody began and holds no lock any more. A lease may just have ended, and whoever was killed comes back and goes on with what it
	// has sent: for that the lock stays free meanwhile.
	if err := pace.Sleep(ctx, w.o.TakeOver); err != nil {
		return err
	}
	_, err = w.holding(ctx, id, other)
	return err
}

// holding offloads a ledger with its lock in hand. displace, if any, is an attempt of somebody else that has had its time; other returns
// one that stands in the way.
func (w *Worker) holding(ctx context.Context, id ledger.ID, displace AttemptID) (other AttemptID, err error) {
	ctx, unlock, err := w.lock(ctx, id)
	if err != nil {
		return other, err
	}
	defer unlock()
	return w.offload(ctx, id, displace)
}

func (w *Worker) offload(ctx context.Context, id ledger.ID, displace AttemptID) (other AttemptID, err error) {
	mine := false
	if left := w.notes.of(id); left != nil {
		err := w.run(ctx, &job{id: id, left: left, begin: &left.begin, noted: true, attempt: &protocol.Attempt{ID: left.attempt, Resumed: true}})
		var s *StoppedError
		mine = errors.Is(err, errAbandon)
		if !errors.As(err, &s) || s.Reason != protocol.Displaced && !mine {
			return other, err
		}
	}
	takeOver := mine // what this worker gave up itself, with the lock in hand, it may displace at once
	if displace != (AttemptID{}) {
		r, _, err := w.o.Records.Read(ctx, id)
		if err != nil && !errors.Is(err, ErrNoRecord) {
			return other, err
		}
		takeOver = takeOver || r != nil && r.Attempt == displace
	}
	j := &job{id: id, attempt: &protocol.Attempt{ID: newAttemptID(), TakeOver: takeOver}}
	err = w.run(ctx, j)
	var s *StoppedError
	if errors.As(err, &s) && s.Reason == protocol.Busy {
		other, s.Holder = j.seen.record.Attempt, j.seen.record.Worker
	}
	return other, err
}

// run drives the rules until they finish or stop.
func (w *Worker) run(ctx context.Context, j *job) error {
	a := j.attempt.Step(protocol.Event{Kind: protocol.Start})
	for {
		var e protocol.Event
		switch a.Do {
		case protocol.Read:
			s, err := w.o.Records.look(ctx, j.id)
			if err != nil {
				return err
			}
			j.seen = s
			e = protocol.Event{Kind: protocol.EventSeen, Seen: s.view()}
		case protocol.Send:
			outcome, err := w.write(ctx, j, a.Write)
			if err != nil {
				return err
			}
			e = protocol.Event{Kind: protocol.EventWrote, Outcome: outcome}
		case protocol.Upload:
			if j.sent { // the record changed since: what is there is looked at again, and only that is sent which is not
				j.left = w.notes.of(j.id)
			}
			j.sent = true
			j.err = w.uploadAll(ctx, j)
			switch {
			case errors.Is(j.err, errAbandon), errors.Is(j.err, errForeign):
				w.m.abandoned.Inc()
				return errors.Join(&StoppedError{Ledger: j.id, Reason: protocol.UploadError, Err: j.err}, w.notes.end(ctx, j.attempt.ID))
			case errors.Is(j.err, errDisplaced):
				e = protocol.Event{Kind: protocol.Start}
			default:
				e = protocol.Event{Kind: protocol.EventUploaded, OK: j.err == nil}
			}
		case protocol.Finish:
			return w.notes.end(ctx, j.attempt.ID)
		default:
			return w.stopped(ctx, j, a.Reason)
		}
		a = j.attempt.Step(e)
	}
}

// stopped ends a run. The intent stays only where a later try can go on.
func (w *Worker) stopped(ctx context.Context, j *job, r protocol.Reason) error {
	err := &StoppedError{Ledger: j.id, Reason: r, Err: j.err}
	if r == protocol.UploadError || r == protocol.Unreachable {
		return err
	}
	if j.noted {
		if eerr := w.notes.end(ctx, j.attempt.ID); eerr != nil {
			return errors.Join(err, eerr)
		}
	}
	return err
}

// write makes a write of the attempt.
func (w *Worker) write(ctx context.Context, j *job, x protocol.Write) (protocol.Outcome, error) {
	var r *Record
	var err error
	if x.State == StateUploading {
		r, err = w.begin(ctx, j, x)
	} else {
		r, err = w.complete(j)
	}
	if err != nil {
		return 0, err
	}
	o := w.o.Records.send(ctx, j.id, r, x, &j.err)
	if o == protocol.Unknown && x.State == StateComplete && ledger.Planted() == ledger.MutantOffloadCleansUnclear {
		_, _ = w.removeAttempt(ctx, j.id, x.Attempt, j.begin.targets, &Swept{})
	}
	return o, nil
}

// send makes a write and says what became of it.
func (r *Records) send(ctx context.Context, id ledger.ID, rec *Record, x protocol.Write, cause *error) protocol.Outcome {
	cond := LedgerCond{Check: x.Ledger == protocol.LedgerAt, Delete: x.Ledger == protocol.LedgerDelete, Version: metadata.Version(x.LedgerVer)}
	_, err := r.Write(ctx, id, rec, metadata.Version(x.Record), cond)
	*cause = err
	return outcomeOf(err)
}

func outcomeOf(err error) protocol.Outcome {
	switch {
	case err == nil:
		return protocol.Applied
	case errors.Is(err, metadata.ErrVersion):
		return protocol.Conflict
	case errors.Is(err, metadata.ErrUnknownOutcome):
		return protocol.Unknown
	}
	return protocol.Failed
}

// begin notes the intent and makes the record that names the attempt.
func (w *Worker) begin(ctx context.Context, j *job, x protocol.Write) (*Record, error) {
	m := j.seen.meta
	stored, err := metadata.EncodeLedger(m)
	if err != nil {
		return nil, ofLedger(j.id, err)
	}
	if j.begin == nil {
		g := w.o.Geometry
		j.begin = &begun{
			geometry: g, targets: g.Spread(x.Attempt, w.o.Targets.places), cellBytes: cellBytesFor(w.o.CellBytes, g, m.Length), blockBytes: blockBytesFor(w.o.BlockBytes, g, m.Length),
			inlineBytes: max(w.o.InlineBytes, 0), compression: w.o.Compression, last: m.LastEntry, length: m.Length,
		}
		if w.o.Encryption != EncryptNone {
			dataKey := make([]byte, dataKeySize)
			_, _ = rand.Read(dataKey) // never fails
			k, err := w.o.Keys.Wrap(ctx, dataKey)
			if err != nil {
				return nil, ofLedger(j.id, err)
			}
			j.key = &k
		}
	}
	now := w.o.now().UnixMilli()
	r := &Record{
		State: StateUploading, Attempt: x.Attempt, Number: 1, Worker: w.o.Name, Geometry: j.begin.geometry, CellBytes: j.begin.cellBytes,
		LastEntry: m.LastEntry, Length: m.Length, LedgerMetadata: stored, Key: j.key, StartedAt: now,
	}
	for _, t := range j.begin.targets {
		r.Placement = append(r.Placement, Placement{Target: t})
	}
	if old := j.seen.record; old != nil {
		r.inherit(old, x.Discard, now)
	}
	if _, err := EncodeRecord(r); err != nil {
		return nil, ofLedger(j.id, err)
	}
	if !j.noted {
		if err := w.notes.begin(ctx, x.Attempt, j.id, *j.begin); err != nil {
			return nil, err
		}
		j.noted = true
	}
	return r, nil
}

// inherit takes over what a new attempt's record must not forget of the old one.
func (r *Record) inherit(old *Record, discard bool, now int64) {
	r.Number, r.Garbage, r.Stale, r.Unknown = old.Number+1, append([]Garbage(nil), old.Garbage...), append([]Stale(nil), old.Stale...), old.Unknown
	if !discard {
		return
	}
	g := Garbage{Attempt: old.Attempt, Since: now}
	for i := range old.Placement {
		p := &old.Placement[i]
		g.Targets = append(g.Targets, p.Target)
		if p.Generation > 0 {
			r.Stale = append(r.Stale, Stale{Attempt: old.Attempt, Shard: i, Target: p.Target, Generation: p.Generation, Since: now})
		}
		if p.Move != nil {
			r.Stale = append(r.Stale, Stale{Attempt: old.Attempt, Shard: i, Target: p.Move.Target, Generation: p.Move.Generation, Since: now})
		}
	}
	for _, t := range old.Manifest.Targets {
		if !contains(g.Targets, t) {
			g.Targets = append(g.Targets, t)
		}
	}
	r.Garbage = append(r.Garbage, g)
}

// complete makes the record of the commit.
func (w *Worker) complete(j *job) (*Record, error) {
	stored, err := metadata.EncodeLedger(j.seen.meta)
	if err != nil {
		return nil, ofLedger(j.id, err)
	}
	r := j.seen.record.Clone()
	r.State, r.CompletedAt, r.Manifest, r.Inline, r.LedgerMetadata = StateComplete, w.o.now().UnixMilli(), j.manifest, j.inline, stored
	for i := range r.Placement {
		p := &r.Placement[i]
		if p.Missing = j.missing[i] && !j.inline; p.Missing {
			// What was given up may have left something, or may yet.
			r.Stale = append(r.Stale, Stale{Attempt: r.Attempt, Shard: i, Target: p.Target, Since: r.CompletedAt})
		}
	}
	if w.o.MinShards < r.Geometry.Shards() {
		for _, t := range distinctTargets(r) {
			if !contains(r.Manifest.Targets, t) {
				r.Stale = append(r.Stale, Stale{Attempt: r.Attempt, Shard: staleManifest, Target: t, Since: r.CompletedAt})
			}
		}
	}
	if w.o.Verify == VerifyFull {
		r.VerifiedAt = r.CompletedAt
	}
	return r, nil
}

// uploadAll sends what is not there yet, and verifies.
func (w *Worker) uploadAll(ctx context.Context, j *job) error {
	meta, err := metadata.DecodeLedger(w.o.Records.Key(j.id), j.seen.record.LedgerMetadata)
	if err != nil {
		return err
	}
	cells := min(int64(j.begin.geometry.Shards()+w.o.InFlight)*int64(j.begin.cellBytes), w.o.MemoryBytes)
	w.progress.stage(j.id, StageWaiting)
	if err := w.memory.Acquire(ctx, cells); err != nil {
		return context.Cause(ctx)
	}
	defer w.memory.Release(cells)
	w.progress.stage(j.id, StageUploading)
	p := planOf(j.id, j.attempt.ID, *j.begin, meta.Digest)
	if p.dataKey, err = unwrap(ctx, w.o.Keys, j.seen.record.Key); err != nil {
		return err
	}
	left := j.left
	if left == nil {
		left = &leftover{ledger: j.id, attempt: j.attempt.ID, begin: *j.begin}
	} else if p.dataKey != nil {
		p.epoch = newEpoch(left.epoch)
		if err := w.notes.epoch(ctx, j.attempt.ID, p.epoch); err != nil {
			return err
		}
	}
	up, done, inline, err := w.sendStripes(ctx, p, left, meta)
	if err != nil {
		return err
	}
	m, err := buildManifest(p, done, inline, meta, j.begin.targets, j.seen.record.Key)
	if err != nil {
		return err
	}
	encoded, err := m.Encode()
	if err != nil {
		return err
	}
	copies, err := up.putManifests(ctx, encoded)
	if err != nil {
		return err
	}
	j.inline, j.missing = inline != nil, up.missing
	j.manifest = ManifestRef{Length: int64(len(encoded)), CRC32C: crcUpdate(0, encoded), Targets: copies}
	return w.proveUpload(ctx, j)
}

// sendStripes encodes and sends, beginning where the intents end, until every shard object is there.
func (w *Worker) sendStripes(ctx context.Context, p plan, left *leftover, meta *ledger.Metadata) (_ *upload, _ *progress, inline []byte, err error) {
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	n := p.geometry.Shards()
	up := &upload{
		plan: p, targets: left.begin.targets, min: max(n-(w.o.Geometry.Shards()-w.o.MinShards), p.geometry.Data), notes: w.notes, pool: newBufferPool(n+w.o.InFlight, p.cellBytes), rate: w.upload,
		inFlight: make(chan struct{}, w.o.InFlight), ours: func(ctx context.Context) error { return w.ours(ctx, p.ledger, p.attempt) }, m: w.m, cancel: cancel,
	}
	for _, t := range left.begin.targets {
		s, err := w.o.Targets.store(t)
		if err != nil {
			return nil, nil, nil, err
		}
		up.stores = append(up.stores, s)
	}
	up.resume(left)
	defer func() {
		cancel(nil)
		up.wg.Wait()
		_ = up.pool.close() // the memory is needed for verifying
	}()
	from := left.progress()
	from.blocks = slices.Grow(from.blocks, max(p.blocksOf(meta.Length)-len(from.blocks), 0)) // growing step by step takes twice as much
	enc, err := newEncoder(p, from, up.pool, up.emit)
	if err != nil {
		return nil, nil, nil, err
	}
	if k := len(left.checkpoints); k > 0 && left.checkpoints[k-1].final {
		inline = left.checkpoints[k-1].inline
	} else if inline, err = w.encode(ctx, enc, meta); err != nil {
		return nil, nil, nil, causeOr(ctx, err)
	}
	up.wg.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return nil, nil, nil, cause
	}
	done := enc.done
	if inline != nil {
		return up, &done, inline, nil
	}
	if err := up.complete(ctx, shardSums(p.geometry, done.stripes)); err != nil {
		return nil, nil, nil, causeOr(ctx, err)
	}
	up.cancel = func(error) {}
	return up, &done, nil, context.Cause(outer)
}

// causeOr prefers why a context was cancelled to the cancellation.
func causeOr(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// encode reads the entries that are still to be sent.
func (w *Worker) encode(ctx context.Context, enc *encoder, meta *ledger.Metadata) ([]byte, error) {
	defer enc.abort()
	w.progress.from(enc.ledger, enc.done.base, meta.Length)
	looked := time.Now()
	for e, err := range w.o.Entries(ctx, enc.ledger, meta, enc.next(), meta.LastEntry) {
		if err != nil {
			return nil, fmt.Errorf("read ledger %d from the bookies: %w", enc.ledger, err)
		}
		n := len(e.Payload) + len(e.Digest)
		if err := w.read.Wait(ctx, n); err != nil {
			return nil, err
		}
		w.m.bytesRead.Add(n)
		w.m.bytesRaw.Add(n)
		w.progress.read(enc.ledger, int64(len(e.Payload)))
		if err := enc.add(ctx, &e); err != nil {
			return nil, err
		}
		if time.Since(looked) > w.o.Grace/4 { // whoever was displaced stops long before the janitor's second pass
			if err := w.ours(ctx, enc.ledger, enc.attempt); err != nil {
				return nil, err
			}
			looked = time.Now()
		}
	}
	if got := enc.next(); got != meta.LastEntry+1 {
		return nil, fmt.Errorf("read ledger %d from the bookies: the last entry read is %d, the record says %d", enc.ledger, got-1, meta.LastEntry)
	}
	inline, err := enc.finish(ctx)
	if err == nil && inline != nil {
		c := checkpoint{final: true, next: enc.done.next, base: enc.done.base, blocks: enc.done.blocks, contents: enc.contents, inline: inline}
		err = w.notes.checkpoint(ctx, enc.attempt, c)
	}
	return inline, err
}

// ours looks whether the record still names an attempt.
func (w *Worker) ours(ctx context.Context, id ledger.ID, attempt AttemptID) error {
	r, _, err := w.o.Records.Read(ctx, id)
	switch {
	case errors.Is(err, ErrNoRecord):
		return errDisplaced
	case err != nil:
		return err
	case r.Attempt != attempt || r.State == StateDeleting:
		return errDisplaced
	}
	return nil
}

// proveUpload verifies what is there before anybody relies on it.
func (w *Worker) proveUpload(ctx context.Context, j *job) error {
	r := j.seen.record.Clone()
	r.Manifest, r.Inline = j.manifest, j.inline
	for i := range r.Placement {
		r.Placement[i].Missing = j.missing[i]
	}
	w.progress.stage(j.id, StageVerifying)
	c, err := w.t.load(ctx, j.id, r, j.seen.version)
	if err != nil {
		return err
	}
	findings, err := w.t.verify(ctx, c, w.o.Verify, pace.NewBucket(0, 0), nil)
	if err != nil {
		return err
	}
	for _, f := range findings {
		if f.Shard >= 0 && j.missing[f.Shard] || f.Kind == FindingManifest && f.Target == "" {
			continue // known, and allowed
		}
		if f.Kind == FindingUnchecked {
			return fmt.Errorf("what was uploaded could not be verified: %s", f)
		}
		return fmt.Errorf("%w: what was uploaded does not verify: %s", errAbandon, f)
	}
	return nil
}
