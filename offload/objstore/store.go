// Package objstore is what offload asks of an object store: ten requests, with their errors classified, so that the code above
// knows what to do next without knowing which store it talks to.
//
// Two small interfaces: Objects (put, get range, head, delete, list) and Multipart (create, part, complete, abort, list uploads). Store
// is both. Drivers are packages of their own: objstore/s3, objstore/dir, objstore/mem; each sends one request per call and retries
// nothing. Target puts retries, a circuit breaker, time-outs and metrics around a driver, and is what offload uses.
//
// What every driver holds to, tested by one conformance suite (objstore/objstoretest):
//
//   - An object appears whole or not at all. A request that failed changed nothing, unless its error is Unclear: then it may have happened, or may
//     yet, a little later.
//   - Bytes are checked on the way in: a body that does not match its CRC32C is refused with KindChecksum and not stored. A driver
//     whose server can not check says so in Capabilities.
//   - GetRange fills the whole buffer or fails; a short body is never returned as if it were complete.
//   - "Not found" is said only if the store said so: a missing bucket, a refused credential, an unreachable server are other kinds.
//   - Nothing is assumed of listings but that they are sorted and end: an object may be missing from one for a while (G11). Names never
//     depend on them.
//   - Delete of what is not there, and abort of an upload that is gone, succeed.
//
// Buffers: a body belongs to the driver until the call returns, and only then; a driver never keeps or changes it.
// Goroutines: drivers are safe for concurrent use and start none that outlives a call, other than a connection pool that Close ends.
// Limits: keys 1,024 bytes, bodies 256 MiB, 10,000 parts of at least 5 MiB but the last, user metadata 2 KiB; checked before anything is sent.
package objstore

import (
	"context"
	"hash/crc32"
	"time"
)

// Limits of every driver; the strictest of S3 and of what a file system can hold, so that what works on one works on all.
const (
	KeyMax     = 1024      // bytes of a key
	SegmentMax = 200       // bytes between two slashes of a key
	BodyMax    = 256 << 20 // bytes of a Put or PutPart: the largest manifest
	PartMin    = 5 << 20   // bytes of a part that is not the last
	PartsMax   = 10_000    // parts of an upload, numbered from 1
	MetaMax    = 2 << 10   // bytes of names and values of user metadata
	ListMax    = 1000      // objects in one answer of List
)

// Objects stores whole objects by key. Keys obey CheckKey.
type Objects interface {
	// Put stores body under key, replacing what was there unless o.IfAbsent is set. With IfAbsent and an object already there the error's
	// kind is KindExists, and nothing changed; that object may be the one of an earlier try of the same caller, so compare before deciding.
	Put(ctx context.Context, key string, body Body, o PutOptions) (Info, error)

	// GetRange fills dst with the bytes of the object from offset on and returns what is known of the object. An object that ends before
	// offset+len(dst) is KindRange; then no byte of dst means anything. An empty dst is KindMisuse.
	GetRange(ctx context.Context, key string, offset int64, dst []byte) (Info, error)

	// Head returns size and, if the store keeps one, checksum and metadata of an object.
	Head(ctx context.Context, key string) (Info, error)

	// Delete removes an object; one that is not there is removed already.
	Delete(ctx context.Context, key string) error

	// List returns up to limit objects (at most ListMax) whose keys begin with prefix and sort after the key after, in key order. An empty
	// answer is the end. Only Key, Size and Modified of each are set. prefix may end anywhere; empty lists all.
	List(ctx context.Context, prefix, after string, limit int) ([]Info, error)
}

// Multipart stores large objects part by part. An upload is named by key and the id that CreateUpload returned.
type Multipart interface {
	// CreateUpload opens an upload for key. Nothing is visible under key until it is completed. A lost reply leaves an upload that only
	// ListUploads finds.
	CreateUpload(ctx context.Context, key string, o UploadOptions) (id string, err error)

	// PutPart stores one part, 1 to PartsMax, replacing an earlier one of that number. The Part it returns is what CompleteUpload wants: keep it,
	// do not ask the store for it later (stores list cut parts at full size).
	PutPart(ctx context.Context, key, id string, number int, body Body) (Part, error)

	// CompleteUpload makes the object of the given parts, in ascending order of their numbers, which need not be dense. The object replaces one under key. An
	// upload that is gone is KindNoUpload: after a try with an unknown outcome it may have been completed, so Head and compare.
	CompleteUpload(ctx context.Context, key, id string, parts []Part) (Info, error)

	// AbortUpload drops an upload and its parts; one that is gone is dropped already. A part in flight may survive: abort again later.
	AbortUpload(ctx context.Context, key, id string) error

	// ListUploads returns the open uploads of exactly this key.
	ListUploads(ctx context.Context, key string) ([]Upload, error)
}

// Store is an object store: one bucket and prefix of one service, a folder, or memory.
type Store interface {
	Objects
	Multipart

	// Capabilities says what of the contract this store can not promise, as far as it is known (CheckTarget finds out).
	Capabilities() Capabilities

	// Close ends idle connections. Calls in flight may fail.
	Close() error
}

// Body is the content of a Put or PutPart with its checksum, so that damage between whoever computed it and the store is found.
type Body struct {
	Data   []byte
	CRC32C uint32 // Castagnoli
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32C is the checksum of bodies and objects.
func CRC32C(data []byte) uint32 { return crc32.Checksum(data, castagnoli) }

// NewBody returns data with its checksum as it is now.
func NewBody(data []byte) Body { return Body{Data: data, CRC32C: CRC32C(data)} }

// PutOptions of one object.
type PutOptions struct {
	// IfAbsent refuses to replace an object. A second fence only: without Capabilities.Conditional it is ignored.
	IfAbsent bool
	// Meta is user metadata: lower-case names of letters, digits and '-', values of printable ASCII, MetaMax bytes in all.
	Meta map[string]string
}

// UploadOptions of a multipart upload.
type UploadOptions struct {
	Meta map[string]string // as in PutOptions
}

// Info describes a stored object.
type Info struct {
	Key       string
	Size      int64
	CRC32C    uint32 // of the whole object, if HasCRC32C
	HasCRC32C bool
	ETag      string // opaque
	Modified  time.Time
	Meta      map[string]string
}

// Part describes a part that the store has confirmed.
type Part struct {
	Number int
	Size   int64
	CRC32C uint32
	ETag   string // opaque
}

// Upload is an open multipart upload.
type Upload struct {
	Key     string
	ID      string
	Started time.Time // zero if the store does not say
}

// Capabilities are differences between stores that are declared instead of skipped in silence.
type Capabilities struct {
	Checksums   bool // a body that does not match its checksum is refused
	StoredCRC   bool // Head returns the CRC32C of an object that was Put
	UploadCRC   bool // Head returns the CRC32C of the whole object for one that was uploaded in parts
	Conditional bool // PutOptions.IfAbsent is honoured
	Meta        bool // Head returns user metadata
	Nested      bool // a key may be a folder of another one (offload's names never are)
}
