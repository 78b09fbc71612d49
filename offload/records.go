package offload

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
)

// ErrNoRecord is returned for a ledger that has no offload record.
var ErrNoRecord = errors.New("offload: no record")

// rootSuffix makes the tree of records, which lies beside the ledgers root: listing code of other servers walks that one.
const (
	rootSuffix  = "-offload"
	locksName   = "/locks/"
	recordsPage = 100
)

// Records is the view of the offload records in the metadata store.
type Records struct {
	store   metadata.Store
	root    string // of the records
	ledgers *metadata.Ledgers
	scheme  metadata.Scheme
	token   string // in the values of the locks that are taken through it

	mu   sync.Mutex
	held map[string]bool // values of locks that are held, or being taken
}

// NewRecords returns the view beside the ledgers of v.
func NewRecords(v *metadata.Views) *Records {
	r := &Records{store: v.Store, root: v.Root + rootSuffix, ledgers: v.Ledgers, token: uuid.NewString(), held: map[string]bool{}}
	if v.Ledgers.Key(0) != v.Root+"/"+r.scheme.LedgerPath(0) {
		r.scheme = metadata.SchemeLong
	}
	return r
}

// Key returns the key of a ledger's record.
func (r *Records) Key(id ledger.ID) string { return r.root + "/" + r.scheme.LedgerPath(id) }

// Read returns a ledger's record as the store holds it now, or ErrNoRecord.
func (r *Records) Read(ctx context.Context, id ledger.ID) (*Record, metadata.Version, error) {
	kv, err := r.store.Get(ctx, r.Key(id))
	if errors.Is(err, metadata.ErrNotFound) {
		return nil, metadata.Absent, fmt.Errorf("ledger %d: %w", id, ErrNoRecord)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the offload record of ledger %d: %w", id, err)
	}
	rec, err := DecodeRecord(kv.Key, kv.Value)
	if err != nil {
		return nil, 0, fmt.Errorf("read the offload record of ledger %d: %w", id, err)
	}
	return rec, kv.Version, nil
}

// Listed is a record in a listing. One that could not be decoded has Err set and nothing else but its ledger.
type Listed struct {
	Ledger  ledger.ID
	Record  *Record
	Version metadata.Version
	Err     error
}

// All yields every record in the order of their keys. A damaged record does not end the listing; an unreachable store does.
func (r *Records) All(ctx context.Context) iter.Seq2[Listed, error] { return r.after(ctx, -1) }

// after is All from behind a ledger; below 0: from the first.
func (r *Records) after(ctx context.Context, id ledger.ID) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		after := ""
		if id >= 0 {
			after = r.Key(id)
		}
		for {
			kvs, err := r.store.List(ctx, r.root+"/", after, recordsPage)
			if err != nil {
				yield(Listed{}, fmt.Errorf("list offload records: %w", err))
				return
			}
			if len(kvs) == 0 {
				return
			}
			for _, kv := range kvs {
				after = kv.Key
				id, ok := r.parse(kv.Key)
				if !ok {
					continue
				}
				l := Listed{Ledger: id, Version: kv.Version}
				l.Record, l.Err = DecodeRecord(kv.Key, kv.Value)
				if !yield(l, nil) {
					return
				}
			}
		}
	}
}

func (r *Records) parse(key string) (ledger.ID, bool) {
	rel, ok := strings.CutPrefix(key, r.root+"/")
	if !ok || strings.HasPrefix(key, r.root+locksName) {
		return 0, false
	}
	id, parent, err := r.scheme.ParseLedgerPath(rel)
	return id, err == nil && !parent
}

// LedgerCond is what a transaction on an offload record does with the ledger's own record.
type LedgerCond struct {
	Check   bool             // it must have Version, which may be Absent
	Delete  bool             // it must have Version, and is deleted
	Version metadata.Version // for both
}

// Write puts a record at a version (metadata.Absent to create it), together with what cond asks of the ledger's record: all
// or nothing. Errors are those of metadata.Store; the *metadata.ConflictError's Key tells which condition failed.
func (r *Records) Write(ctx context.Context, id ledger.ID, rec *Record, v metadata.Version, cond LedgerCond) (metadata.Version, error) {
	value, err := EncodeRecord(rec)
	if err != nil {
		return 0, ofLedger(id, err)
	}
	t := r.txn(id, cond)
	t.Puts = []metadata.Put{{Key: r.Key(id), Value: value, Version: v}}
	res, err := r.store.Txn(ctx, t)
	if err != nil {
		return 0, fmt.Errorf("write the offload record of ledger %d: %w", id, err)
	}
	return res.Versions[0], nil
}

// Remove deletes a record that still has version v.
func (r *Records) Remove(ctx context.Context, id ledger.ID, v metadata.Version) error {
	_, err := r.store.Txn(ctx, metadata.Txn{Deletes: []metadata.Delete{{Key: r.Key(id), Version: v}}})
	if err != nil {
		return fmt.Errorf("remove the offload record of ledger %d: %w", id, err)
	}
	return nil
}

func (r *Records) txn(id ledger.ID, cond LedgerCond) metadata.Txn {
	var t metadata.Txn
	switch key := r.ledgers.Key(id); {
	case cond.Delete:
		t.Deletes = []metadata.Delete{{Key: key, Version: cond.Version}}
	case cond.Check:
		t.Checks = []metadata.Check{{Key: key, Version: cond.Version}}
	}
	return t
}

// Ledger returns the ledger's own record, metadata.ErrNoLedger if there is none.
func (r *Records) Ledger(ctx context.Context, id ledger.ID) (*ledger.Metadata, metadata.Version, error) {
	return r.ledgers.Read(ctx, id)
}

// Offloaded returns the record of a ledger whose own one is gone, as it was: metadata.ErrNoLedger if the tier does not have it.
func (r *Records) Offloaded(ctx context.Context, id ledger.ID) (*ledger.Metadata, error) {
	rec, _, err := r.Read(ctx, id)
	switch {
	case errors.Is(err, ErrNoRecord):
		return nil, metadata.ErrNoLedger
	case err != nil:
		return nil, err
	case rec.State != StateComplete && rec.State != StateReleased:
		return nil, fmt.Errorf("ledger %d is %s: %w", id, rec.State, metadata.ErrNoLedger)
	}
	return metadata.DecodeLedger(r.Key(id), rec.LedgerMetadata)
}

// Lock is the lock of a ledger that is being offloaded. It saves double work; correctness rests on the transactions.
type Lock struct {
	records *Records
	key     string
	value   string
	version metadata.Version
	session metadata.Session
}

const lockTimeout = 10 * time.Second

// Lock takes a ledger's lock for owner, a name for people. ok is false if somebody holds it.
func (r *Records) Lock(ctx context.Context, id ledger.ID, owner string) (_ *Lock, ok bool, err error) {
	s, err := r.store.Session(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("lock ledger %d for offload: %w", id, err)
	}
	l := &Lock{records: r, key: fmt.Sprintf("%s%s%d", r.root, locksName, id), session: s}
	l.value = owner + " " + r.token + " " + uuid.NewString()
	r.hold(l.value, true)
	defer func() {
		if !ok {
			r.hold(l.value, false)
		}
	}()
	t := metadata.Txn{Puts: []metadata.Put{{Key: l.key, Value: []byte(l.value), Version: metadata.Absent, Session: s}}}
	res, err := r.store.Txn(ctx, t)
	if errors.Is(err, metadata.ErrExists) && r.dropLeft(ctx, l.key) {
		res, err = r.store.Txn(ctx, t)
	}
	switch {
	case err == nil:
		l.version = res.Versions[0]
		return l, true, nil
	case errors.Is(err, metadata.ErrExists):
		return nil, false, nil
	case !errors.Is(err, metadata.ErrUnknownOutcome):
		return nil, false, fmt.Errorf("lock ledger %d for offload: %w", id, err)
	}
	// Only the value tells whose lock it is. One that lands later is ours to remove the next time.
	kv, gerr := r.store.Get(ctx, l.key)
	if gerr == nil && string(kv.Value) == l.value {
		l.version = kv.Version
		return l, true, nil
	}
	return nil, false, fmt.Errorf("lock ledger %d for offload: %w", id, err)
}

func (r *Records) hold(value string, on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held[value] = on; !on {
		delete(r.held, value)
	}
}

// dropLeft removes a lock that was taken through r and that nobody holds: it landed late, or could not be given back. As long as the
// session lives it would stand in everybody's way.
func (r *Records) dropLeft(ctx context.Context, key string) bool {
	kv, err := r.store.Get(ctx, key)
	if err != nil {
		return errors.Is(err, metadata.ErrNotFound)
	}
	r.mu.Lock()
	left := strings.Contains(string(kv.Value), " "+r.token+" ") && !r.held[string(kv.Value)]
	r.mu.Unlock()
	return left && r.store.Delete(ctx, key, kv.Version) == nil
}

// Lost is closed when the lock's session has ended: others may hold it then.
func (l *Lock) Lost() <-chan struct{} { return l.session.Done() }

// Release gives the lock back; one that could not be given back goes with the next one for that ledger, or with its session.
func (l *Lock) Release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockTimeout)
	defer cancel()
	_ = l.records.store.Delete(ctx, l.key, l.version)
	l.records.hold(l.value, false)
}

// Holder returns who holds a ledger's lock, "" if nobody does.
func (r *Records) Holder(ctx context.Context, id ledger.ID) (string, error) {
	kv, err := r.store.Get(ctx, fmt.Sprintf("%s%s%d", r.root, locksName, id))
	if errors.Is(err, metadata.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the offload lock of ledger %d: %w", id, err)
	}
	owner, _, _ := strings.Cut(string(kv.Value), " ")
	return owner, nil
}
