package metadata

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
)

// Names below ROOT/underreplication. They are Apache BookKeeper's.
const (
	nameMarks          = "ledgers"
	nameLocks          = "locks"
	nameDisable        = "disable"
	nameDelay          = "lostBookieRecoveryDelay"
	nameCheckLedgers   = "checkallledgersctime"
	nameCheckPlacement = "placementpolicycheckctime"
	nameCheckReplicas  = "replicascheckctime"
)

// replicationLayout is the value of ROOT/underreplication/LAYOUT.
const replicationLayout = "type: \"BASIC\"\nversion: 1\n"

// Mark says that copies of a ledger are missing.
type Mark struct {
	Ledger   ledger.ID
	Replicas []ledger.BookieID // whose copies are missing; may be empty: the ledger is to be looked at
	CTime    int64             // when it was last marked, milliseconds since 1970; 0: not known
	Version  Version
}

// CheckKind is one of the auditor's periodic checks.
type CheckKind uint8

// The checks whose last run is remembered in the store.
const (
	CheckLedgers CheckKind = iota
	CheckPlacement
	CheckReplicas
)

var checkNames = [...]string{CheckLedgers: nameCheckLedgers, CheckPlacement: nameCheckPlacement, CheckReplicas: nameCheckReplicas}

// ErrSwitched is returned by SetEnabled when replication is as asked already. Java reports that as an error, too.
var ErrSwitched = errors.New("metadata: re-replication is switched so already")

// Replication is the view of what auditors and replication workers tell each other.
type Replication struct {
	store Store
	root  string // ROOT/underreplication
	own   string // /binderyROOT

	doubts lockDoubts
}

// NewReplication returns the view for the cluster under root.
func NewReplication(s Store, root string) *Replication {
	return &Replication{store: s, root: root + "/" + nameUnderRep, own: "/bindery" + root}
}

// MarkKey returns the key of a ledger's mark: the id's four 16-bit groups in hex, then the id in decimal.
func (r *Replication) MarkKey(id ledger.ID) string {
	n := uint64(id) //nolint:gosec // ids are not negative
	return fmt.Sprintf("%s/%s/%04x/%04x/%04x/%04x/urL%010d", r.root, nameMarks, n>>48, n>>32&0xffff, n>>16&0xffff, n&0xffff, id)
}

// LockKey returns the key of a ledger's replication lock.
func (r *Replication) LockKey(id ledger.ID) string {
	return fmt.Sprintf("%s/%s/urL%010d", r.root, nameLocks, id)
}

// MarksPrefix is the prefix of all marks, for Watch.
func (r *Replication) MarksPrefix() string { return r.root + "/" + nameMarks + "/" }

// Init writes LAYOUT if it is missing, as the first auditor or worker of a cluster does. Another layout is refused.
func (r *Replication) Init(ctx context.Context) error {
	key := r.root + "/LAYOUT"
	for {
		kv, err := r.store.Get(ctx, key)
		if err == nil {
			return checkReplicationLayout(key, kv.Value)
		}
		if !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("read the layout of under-replication marks: %w", err)
		}
		if _, err = r.store.Put(ctx, key, []byte(replicationLayout), Absent); err != nil && !errors.Is(err, ErrExists) && !errors.Is(err, ErrUnknownOutcome) {
			return fmt.Errorf("write the layout of under-replication marks: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func checkReplicationLayout(key string, b []byte) error {
	fields, err := parseText(b)
	if err != nil {
		return corrupt.New(key, 0, "layout of under-replication marks", err)
	}
	for _, f := range fields {
		if f.name == "type" && string(f.str) != "BASIC" || f.name == "version" && string(f.str) != "1" {
			return corrupt.Errorf(key, int64(f.off), "layout of under-replication marks", "%s is %q", f.name, f.str)
		}
	}
	return nil
}

// Mark marks a ledger. Bookies that the mark names already change nothing, so that its version tells a worker whether
// anything was added while it copied. changed says that something was written.
func (r *Replication) Mark(ctx context.Context, id ledger.ID, replicas []ledger.BookieID, now time.Time) (changed bool, err error) {
	key := r.MarkKey(id)
	for pause := newBackoff(); ; {
		m, version := Mark{}, Absent
		kv, err := r.store.Get(ctx, key)
		switch {
		case err == nil:
			version = kv.Version
			if m, err = decodeMark(key, kv.Value); err != nil {
				m = Mark{} // damaged: written anew
			}
		case !errors.Is(err, ErrNotFound):
			return false, fmt.Errorf("mark ledger %d: %w", id, err)
		}
		before := len(m.Replicas)
		for _, b := range replicas {
			if !slices.Contains(m.Replicas, b) {
				m.Replicas = append(m.Replicas, b)
			}
		}
		if version != Absent && err == nil && len(m.Replicas) == before {
			return false, nil
		}
		m.CTime = now.UnixMilli()
		_, err = r.store.Put(ctx, key, encodeMark(m), version)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, ErrVersion) && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrUnknownOutcome) {
			return false, fmt.Errorf("mark ledger %d: %w", id, err)
		}
		if werr := pause.wait(ctx); werr != nil {
			return false, fmt.Errorf("mark ledger %d: %w", id, err)
		}
	}
}

// Get returns the mark of a ledger, or ErrNotFound.
func (r *Replication) Get(ctx context.Context, id ledger.ID) (Mark, error) {
	key := r.MarkKey(id)
	kv, err := r.store.Get(ctx, key)
	if err != nil {
		return Mark{}, fmt.Errorf("read the mark of ledger %d: %w", id, err)
	}
	m, err := decodeMark(key, kv.Value)
	m.Ledger, m.Version = id, kv.Version
	return m, err
}

// All yields the marks in the order of ids, from after on (-1: all). A damaged mark is yielded without its bookies. An error
// is the last thing it yields.
func (r *Replication) All(ctx context.Context, after ledger.ID) iter.Seq2[Mark, error] {
	return func(yield func(Mark, error) bool) {
		cursor := ""
		if after >= 0 {
			cursor = r.MarkKey(after)
		}
		for {
			kvs, err := r.store.List(ctx, r.MarksPrefix(), cursor, pageSize)
			if err != nil {
				yield(Mark{}, fmt.Errorf("list under-replication marks: %w", err))
				return
			}
			if len(kvs) == 0 {
				return
			}
			for _, kv := range kvs {
				cursor = kv.Key
				id, ok := parseMarkKey(kv.Key)
				if !ok {
					continue
				}
				m, _ := decodeMark(kv.Key, kv.Value)
				m.Ledger, m.Version = id, kv.Version
				if !yield(m, nil) {
					return
				}
			}
		}
	}
}

// Clear removes a mark that is still as lock found it, if the lock still holds. A mark that was added to meanwhile, and one
// that is gone, are left as they are: cleared is false.
func (r *Replication) Clear(ctx context.Context, m Mark, lock *Lock) (cleared bool, err error) {
	_, err = r.store.Txn(ctx, Txn{Checks: lock.Checks(), Deletes: []Delete{{Key: r.MarkKey(m.Ledger), Version: m.Version}}})
	var c *ConflictError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &c) && c.Key == r.MarkKey(m.Ledger):
		return false, nil
	case errors.As(err, &c):
		return false, fmt.Errorf("clear the mark of ledger %d: %w", m.Ledger, ErrLockLost)
	}
	return false, fmt.Errorf("clear the mark of ledger %d: %w", m.Ledger, err)
}

// ErrLockLost is returned for a write that depends on a replication lock which has gone.
var ErrLockLost = errors.New("metadata: replication lock lost")

// Lock is a held replication lock. With it goes a key of a unique name in the same session: on ZooKeeper the lock's own
// version can not tell this lock from a later one.
type Lock struct {
	r       *Replication
	key     string
	token   string
	checks  []Check
	session Session
}

// Checks are the conditions of a transaction that may only happen while the lock is held.
func (l *Lock) Checks() []Check { return slices.Clone(l.checks) }

// Lost is closed when the lock's session has ended: others may hold it then.
func (l *Lock) Lost() <-chan struct{} { return l.session.Done() }

// Lock takes a ledger's replication lock for owner, a name for people. ok is false if somebody holds it.
func (r *Replication) Lock(ctx context.Context, id ledger.ID, owner string) (_ *Lock, ok bool, err error) {
	r.Settle(ctx)
	s, err := r.store.Session(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("lock ledger %d: %w", id, err)
	}
	l := &Lock{r: r, key: r.LockKey(id), token: r.own + "/locks/" + uuid.NewString(), session: s}
	res, err := r.store.Txn(ctx, Txn{Puts: []Put{
		{Key: l.key, Value: encodeHolder(owner), Version: Absent, Session: s},
		{Key: l.token, Value: []byte(strconv.FormatInt(int64(id), 10)), Version: Absent, Session: s},
	}})
	switch {
	case errors.Is(err, ErrExists):
		return nil, false, nil
	case errors.Is(err, ErrUnknownOutcome):
		return r.adopt(ctx, l, id)
	case err != nil:
		r.doubt(l, true) // what was sent may have arrived
		return nil, false, fmt.Errorf("lock ledger %d: %w", id, err)
	}
	l.checks = []Check{{Key: l.key, Version: res.Versions[0]}, {Key: l.token, Version: res.Versions[1]}}
	return l, true, nil
}

// doubt notes that a lock may be in the store, or come there if late, although nobody holds it.
func (r *Replication) doubt(l *Lock, late bool) {
	r.doubts.add(doubtfulLock{key: l.key, token: l.token, session: l.session, late: late})
}

// adopt takes a lock whose creation was not answered. Only the token tells whose lock it is.
func (r *Replication) adopt(ctx context.Context, l *Lock, id ledger.ID) (*Lock, bool, error) {
	token, err := r.store.Get(ctx, l.token)
	if errors.Is(err, ErrNotFound) {
		r.doubt(l, true)
		return nil, false, nil
	}
	if err == nil {
		var lock KV
		if lock, err = r.store.Get(ctx, l.key); err == nil {
			l.checks = []Check{{Key: l.key, Version: lock.Version}, {Key: l.token, Version: token.Version}}
			return l, true, nil
		}
	}
	r.doubt(l, true)
	return nil, false, fmt.Errorf("lock ledger %d: %w", id, err)
}

// Release gives the lock back. A lock that is gone is no error. One that could not be released is tried again by later calls of
// Settle, and goes with its session.
func (l *Lock) Release(ctx context.Context) error {
	var t Txn
	for _, c := range l.checks {
		t.Deletes = append(t.Deletes, Delete(c))
	}
	_, err := l.r.store.Txn(ctx, t)
	if err == nil || errors.Is(err, ErrVersion) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrSessionLost) {
		return nil
	}
	l.r.doubt(l, false)
	return fmt.Errorf("release %s: %w", l.key, err)
}

// Holder returns who holds a ledger's lock, "" if nobody does.
func (r *Replication) Holder(ctx context.Context, id ledger.ID) (string, error) {
	kv, err := r.store.Get(ctx, r.LockKey(id))
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the lock of ledger %d: %w", id, err)
	}
	return decodeHolder(kv.Value), nil
}

// Locked returns the holders of all locks by ledger.
func (r *Replication) Locked(ctx context.Context) (map[ledger.ID]string, error) {
	r.Settle(ctx)
	held := map[ledger.ID]string{}
	prefix := r.root + "/" + nameLocks + "/"
	for after := ""; ; {
		kvs, err := r.store.List(ctx, prefix, after, pageSize)
		if err != nil {
			return nil, fmt.Errorf("list replication locks: %w", err)
		}
		if len(kvs) == 0 {
			return held, nil
		}
		for _, kv := range kvs {
			after = kv.Key
			if id, ok := parseMarkKey(kv.Key); ok {
				held[id] = decodeHolder(kv.Value)
			}
		}
	}
}

// Locker is how a bookie's collector takes the lock of a ledger, so that it deletes nothing that is being copied.
func (r *Replication) Locker(owner string) func(ctx context.Context, id ledger.ID) (release func(), ok bool, err error) {
	return func(ctx context.Context, id ledger.ID) (func(), bool, error) {
		l, ok, err := r.Lock(ctx, id, owner)
		if !ok || err != nil {
			return nil, false, err
		}
		return func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
			defer cancel()
			_ = l.Release(ctx) // what is left is Settle's
		}, true, nil
	}
}

const releaseTimeout = 10 * time.Second

// DisableKey is the key whose existence switches re-replication off.
func (r *Replication) DisableKey() string { return r.root + "/" + nameDisable }

// Enabled reports whether re-replication is switched on.
func (r *Replication) Enabled(ctx context.Context) (bool, error) {
	_, err := r.store.Get(ctx, r.DisableKey())
	if errors.Is(err, ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the switch of re-replication: %w", err)
	}
	return false, nil
}

// SetEnabled switches re-replication in the whole cluster. ErrSwitched says that it was so already.
func (r *Replication) SetEnabled(ctx context.Context, on bool) error {
	was, err := r.Enabled(ctx)
	if err != nil {
		return err
	}
	if was == on {
		return ErrSwitched
	}
	if on {
		err = r.store.Delete(ctx, r.DisableKey(), Any)
	} else {
		_, err = r.store.Put(ctx, r.DisableKey(), nil, Absent)
	}
	if err != nil && !errors.Is(err, ErrExists) && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("switch re-replication: %w", err)
	}
	return nil
}

// DelayKey is the key of the delay before the ledgers of a lost bookie are marked. Writing the same value again asks the
// auditor to look at once.
func (r *Replication) DelayKey() string { return r.root + "/" + nameDelay }

// ParseDelay reads a value of DelayKey: whole seconds.
func ParseDelay(key string, b []byte) (time.Duration, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 32)
	if err == nil && n < 0 {
		err = errors.New("it is negative")
	}
	if err != nil {
		return 0, corrupt.New(key, 0, "delay of the audit", err)
	}
	return time.Duration(n) * time.Second, nil
}

// Delay returns the delay, or ErrNotFound if nobody has set one.
func (r *Replication) Delay(ctx context.Context) (time.Duration, error) {
	kv, err := r.store.Get(ctx, r.DelayKey())
	if err != nil {
		return 0, fmt.Errorf("read the delay of the audit: %w", err)
	}
	return ParseDelay(kv.Key, kv.Value)
}

// SetDelay writes the delay, in whole seconds. With create it leaves one that is there as it is.
func (r *Replication) SetDelay(ctx context.Context, d time.Duration, create bool) error {
	v := Any
	if create {
		v = Absent
	}
	_, err := r.store.Put(ctx, r.DelayKey(), strconv.AppendInt(nil, int64(d/time.Second), 10), v)
	if err != nil && (!create || !errors.Is(err, ErrExists)) {
		return fmt.Errorf("write the delay of the audit: %w", err)
	}
	return nil
}

// Checked returns when a periodic check last ran to its end, the zero time if it never did.
func (r *Replication) Checked(ctx context.Context, k CheckKind) (time.Time, error) {
	kv, err := r.store.Get(ctx, r.root+"/"+checkNames[k])
	if errors.Is(err, ErrNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("read the time of a check: %w", err)
	}
	ms, err := decodeCheckTime(kv.Key, kv.Value)
	if err != nil {
		return time.Time{}, err
	}
	if ms <= 0 {
		return time.Time{}, nil // forgotten on purpose
	}
	return time.UnixMilli(ms), nil
}

// SetChecked notes that a periodic check has run; the zero time makes the next auditor run it at once.
func (r *Replication) SetChecked(ctx context.Context, k CheckKind, at time.Time) error {
	ms := int64(-1)
	if !at.IsZero() {
		ms = at.UnixMilli()
	}
	if _, err := r.store.Put(ctx, r.root+"/"+checkNames[k], encodeCheckTime(ms), Any); err != nil {
		return fmt.Errorf("write the time of a check: %w", err)
	}
	return nil
}

// drainingPrefix holds a key for each bookie that is being emptied. Java does not look there.
func (r *Replication) drainingPrefix() string { return r.own + "/draining/" }

// Draining returns the bookies that are being emptied: their copies are to be moved although they can be read.
func (r *Replication) Draining(ctx context.Context) ([]ledger.BookieID, error) {
	var out []ledger.BookieID
	for after := ""; ; {
		keys, err := r.store.Keys(ctx, r.drainingPrefix(), after, pageSize)
		if err != nil {
			return nil, fmt.Errorf("list draining bookies: %w", err)
		}
		if len(keys) == 0 {
			return out, nil
		}
		for _, k := range keys {
			after = k
			out = append(out, ledger.BookieID(k[len(r.drainingPrefix()):]))
		}
	}
}

// SetDraining says, or takes back, that a bookie is being emptied.
func (r *Replication) SetDraining(ctx context.Context, id ledger.BookieID, on bool, now time.Time) error {
	key := r.drainingPrefix() + string(id)
	var err error
	if on {
		_, err = r.store.Put(ctx, key, fmt.Appendf(nil, "since %s\n", now.UTC().Format(time.RFC3339)), Any)
	} else if err = r.store.Delete(ctx, key, Any); errors.Is(err, ErrNotFound) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("change the draining of %s: %w", id, err)
	}
	return nil
}
