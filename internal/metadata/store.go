package metadata

import (
	"context"
)

// Limits every driver enforces before it talks to the engine.
const (
	ValueMax = 900 << 10 // bytes; with the keys of a transaction below ZooKeeper's packet limit of 1 MiB and etcd's of 1.5 MiB
	KeyMax   = 1024      // bytes
	TxnMax   = 100       // checks, puts and deletes together; etcd's default limit is 128
)

// Version is the version of a key's value: an opaque number that changes with every write. On etcd it is the modRevision,
// on ZooKeeper the data version, which begins at 0 for each key, in memory a counter of all writes.
type Version int64

// Versions that state a condition instead of naming a value.
const (
	Absent Version = -1 // the key must not exist
	Any    Version = -2 // no condition
)

// KV is one key with its value.
type KV struct {
	Key     string
	Value   []byte
	Version Version
	Session string // id of the session that an ephemeral key belongs to; "" for a persistent key
}

// Check is a condition of a transaction on a key that the transaction does not write.
type Check struct {
	Key     string
	Version Version // a version, or Absent
}

// Put writes a key in a transaction.
type Put struct {
	Key     string
	Value   []byte
	Version Version // the version to replace, Absent to create, or Any
	Session Session // not nil: the key is ephemeral and goes with this session
}

// Delete removes a key in a transaction.
type Delete struct {
	Key     string
	Version Version // the version to remove, or Any, which also succeeds if the key does not exist
}

// Txn is a set of conditions and writes that happen together or not at all. A key may occur once.
type Txn struct {
	Checks  []Check
	Puts    []Put
	Deletes []Delete
}

// TxnResult is what a transaction that happened returns.
type TxnResult struct {
	Versions []Version // the new version of each put, in order
}

// Session is what keeps ephemeral keys alive: a lease that the store renews in the background.
type Session interface {
	// ID names the session, as KV.Session does.
	ID() string
	// Done is closed once the session has ended, or must be taken to have ended since it could not be renewed in time.
	// Its ephemeral keys are gone or about to go. A new one is to be had from Store.Session.
	Done() <-chan struct{}
}

// EventKind says what an Event reports.
type EventKind uint8

// The kinds of event.
const (
	EventPut    EventKind = 1 // the key has this value now
	EventDelete EventKind = 2 // the key has gone; only Key is set
	EventSynced EventKind = 3 // everything that existed when the watch began has been reported
)

// Event is one change seen by a watch.
type Event struct {
	Kind EventKind
	KV   KV
}

// Keys are UTF-8 paths such as "/ledgers/LAYOUT": they begin with a slash and have no empty or dotted part. On ZooKeeper a
// key's parents exist too, as keys with empty values that are made when they are missing, and a key that has others below it
// cannot be deleted (ErrNotEmpty). On engines without directories a parent exists only if someone wrote it.

// Reader is the reading half of a Store. A slice in a returned KV belongs to the caller.
type Reader interface {
	// Get returns the key, or ErrNotFound.
	Get(ctx context.Context, key string) (KV, error)
	// List returns up to limit keys that start with prefix and sort after `after` ("" for the first page), in byte order.
	// A page shorter than limit is not a sign of the end; an empty one is. Each page is a linearizable read of its own, so
	// a key that exists from the first page to the last is never missed.
	List(ctx context.Context, prefix, after string, limit int) ([]KV, error)
	// Keys is List without the values.
	Keys(ctx context.Context, prefix, after string, limit int) ([]string, error)
	// NextInSequence returns, linearizably, the least number that a call of Sequence with the same path can return. It never
	// goes back while the store keeps what it was told.
	NextInSequence(ctx context.Context, path string) (int64, error)
}

// Writer is the writing half of a Store. A condition that did not hold is reported as a *ConflictError.
type Writer interface {
	// Put writes one key under the condition that v states and returns its new version.
	Put(ctx context.Context, key string, value []byte, v Version) (Version, error)
	// Delete removes one key under the condition that v states. With Any, a key that does not exist is not an error.
	Delete(ctx context.Context, key string, v Version) error
	// Txn makes all the writes of t, or none.
	Txn(ctx context.Context, t Txn) (TxnResult, error)
	// Sequence returns a number that no earlier or concurrent call with the same path returned. Numbers of one path rise
	// in the order of the calls but may have gaps. The path is that of ZooKeeper's sequential nodes, such as
	// "/ledgers/idgen/ID-"; Java clients that draw from the same path draw from the same numbers.
	Sequence(ctx context.Context, path string) (int64, error)
}

// Store is a versioned tree of keys. Every call returns by the end of ctx or of the driver's own time-out, whichever comes
// first; within it, a driver tries again by itself when the engine was not reached.
type Store interface {
	Reader
	Writer
	// Session returns the live session of this store, starting one if there is none.
	Session(ctx context.Context) (Session, error)
	// Watch reports every key below a directory (a prefix that ends with a slash), or one key: first an EventPut for each
	// that exists, then EventSynced, then the changes. Keys that merely start with the prefix may be reported too. Several changes of one key may be reported as one; the last one is never lost, also across reconnections
	// and compactions of the engine's history. The channel is closed when ctx or the store ends, and for no other reason.
	// A caller that stops reading delays only itself.
	Watch(ctx context.Context, prefix string) <-chan Event
	// Close ends the session, which removes its ephemeral keys, and all watches. Calls under way return ErrClosed or
	// ErrUnknownOutcome.
	Close() error
}

// LayoutChooser is a Store whose service URI names the ledger layout that the cluster must have.
type LayoutChooser interface {
	// WantedLayout returns that layout; ok is false if any will do.
	WantedLayout() (l Layout, ok bool)
}

// PutOne does a Store's Put with its Txn. Drivers use it.
func PutOne(ctx context.Context, w interface {
	Txn(context.Context, Txn) (TxnResult, error)
}, key string, value []byte, v Version) (Version, error) {
	r, err := w.Txn(ctx, Txn{Puts: []Put{{Key: key, Value: value, Version: v}}})
	if err != nil {
		return 0, err
	}
	return r.Versions[0], nil
}

// DeleteOne does a Store's Delete with its Txn. Drivers use it.
func DeleteOne(ctx context.Context, w interface {
	Txn(context.Context, Txn) (TxnResult, error)
}, key string, v Version) error {
	_, err := w.Txn(ctx, Txn{Deletes: []Delete{{Key: key, Version: v}}})
	return err
}
