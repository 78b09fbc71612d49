package index

// bucket is one of the key spaces of an index.
type bucket uint8

const (
	bucketRuns    bucket = iota // ledger, last entry id -> run
	bucketLedgers               // ledger -> ledgerRecord
	bucketStates                // ledger -> stateRecord
	bucketLogs                  // log id -> logRecord
	bucketMeta                  // key -> value of the caller
	bucketCount                 // bucketMeta's number of keys, so that a lost one is noticed
	buckets
)

var bucketNames = [buckets]string{"runs", "ledgers", "states", "logs", "meta", "count"}

// keyValue is an ordered key-value store with transactions: bbolt, or its twin on vfs. Everything an index means is written
// once, above it. Update is all or nothing and durable when it returns nil.
type keyValue interface {
	view(fn func(kvTx) error) error
	update(fn func(kvTx) error) error
	// check looks for damage below keys and values.
	check(fn func(error)) error
	size() (sizes, error)
	close() error
}

// sizes of a store in bytes.
type sizes struct {
	file int64 // length of its files
	used int64 // of that taken by what is stored
	free int64 // of that free for reuse; the rest was only grown ahead
}

// kvTx is a transaction. Slices that it returns are valid until it ends and must not be changed; those handed to it must
// not be changed before. In a view put and del must not be called.
type kvTx interface {
	get(b bucket, key []byte) []byte
	put(b bucket, key, value []byte) error
	del(b bucket, key []byte) error
	// cursor sees the transaction's own changes, but only those made before its last seek.
	cursor(b bucket) kvCursor
}

// kvCursor walks keys in order. A nil key says that there is none.
type kvCursor interface {
	// seek moves to key, or else to the next one behind it.
	seek(key []byte) (k, v []byte)
	next() (k, v []byte)
	// prev moves back; after a seek that found nothing, to the last key.
	prev() (k, v []byte)
}
