package offload

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"github.com/binderylog/bindery/internal/protofield"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/offload/protocol"
)

// State is the state of a record.
type State = protocol.State

// The states of a record; package protocol says who moves it from one to the next.
const (
	StateUploading = protocol.Uploading
	StateComplete  = protocol.Complete
	StateReleased  = protocol.Released
	StateDeleting  = protocol.Deleting
)

const (
	recordHeader = "BinderyOffloadFormatVersion\t"
	// RecordMax bounds a record. A ledger whose own record is so large that this one would be larger is not offloaded.
	RecordMax = 512 << 10

	// GarbageMax bounds the abandoned attempts of one ledger; then no attempt starts until the janitor has caught up.
	GarbageMax = protocol.GarbageMax
	staleMax   = 64
	workerMax  = 255
)

// Record is what the metadata store holds about an offloaded ledger: the only truth about it.
type Record struct {
	State   State
	Attempt AttemptID
	Number  uint32 // counts the attempts
	Worker  string // who uploads; for people, the lock decides
	Idle    bool   // UPLOADING, but nothing was ever sent for this attempt

	Geometry  Geometry
	CellBytes int
	Inline    bool // the blocks are in the manifest; there are no shard objects
	Placement []Placement
	Manifest  ManifestRef

	LastEntry      ledger.EntryID
	Length         int64
	LedgerMetadata []byte // as stored, with the password: opening still checks it after the release
	Key            *WrappedKey

	StartedAt, CompletedAt, ReleasedAt, VerifiedAt int64 // milliseconds since 1970; 0: not yet

	Garbage []Garbage
	Stale   []Stale
	Passes  uint32 // DELETING: done by the janitor
	PassAt  int64  // ms, of the last one
	Unknown []byte // fields of newer versions, kept as they were, as in every message of a record
}

// Placement is where a shard is.
type Placement struct {
	Target     string
	Generation uint32
	Missing    bool  // written without it, or lost: to be repaired, and not releasable until then
	Lost       bool  // a look found it gone or damaged: not releasable until it is repaired. Reads and repairs find out by themselves
	Move       *Move // a repair under way
	Unknown    []byte
}

// Move is where a repair writes a shard anew. It stands in the record before the first byte is sent.
type Move struct {
	Target     string
	Generation uint32
	Unknown    []byte
}

// ManifestRef says what the manifest is and who has a copy.
type ManifestRef struct {
	Length  int64
	CRC32C  uint32
	Targets []string
}

// Garbage is an abandoned attempt whose objects the janitor removes.
type Garbage struct {
	Attempt AttemptID
	Targets []string // of the shards, in their order
	Since   int64    // ms
	Passes  uint32   // done by the janitor
	PassAt  int64    // ms, of the last one
	Unknown []byte
}

// Stale is a shard object that a repair replaced or gave up.
type Stale struct {
	Attempt    AttemptID
	Shard      int
	Target     string
	Generation uint32
	Since      int64 // ms
	Unknown    []byte
}

// Missing is the number of shards that are not there.
func (r *Record) Missing() int {
	if r.Inline {
		return 0
	}
	n := 0
	for i := range r.Placement {
		if r.Placement[i].Missing {
			n++
		}
	}
	return n
}

// Lacking is the number of shards that are not there, or were found gone or damaged.
func (r *Record) Lacking() int {
	n := 0
	for i := range r.Placement {
		if !r.Inline && (r.Placement[i].Missing || r.Placement[i].Lost) {
			n++
		}
	}
	return n
}

// Clone returns a deep copy.
func (r *Record) Clone() *Record {
	c := *r
	c.Placement = append([]Placement(nil), r.Placement...)
	for i := range c.Placement {
		p := &c.Placement[i]
		p.Unknown = bytes.Clone(p.Unknown)
		if m := p.Move; m != nil {
			moved := *m
			moved.Unknown = bytes.Clone(m.Unknown)
			p.Move = &moved
		}
	}
	c.Manifest.Targets = append([]string(nil), r.Manifest.Targets...)
	c.LedgerMetadata = bytes.Clone(r.LedgerMetadata)
	if r.Key != nil {
		c.Key = &WrappedKey{KeyID: r.Key.KeyID, Algorithm: r.Key.Algorithm, Key: bytes.Clone(r.Key.Key), Unknown: bytes.Clone(r.Key.Unknown)}
	}
	c.Garbage = append([]Garbage(nil), r.Garbage...)
	for i := range c.Garbage {
		g := &c.Garbage[i]
		g.Targets, g.Unknown = append([]string(nil), g.Targets...), bytes.Clone(g.Unknown)
	}
	c.Stale = append([]Stale(nil), r.Stale...)
	for i := range c.Stale {
		c.Stale[i].Unknown = bytes.Clone(c.Stale[i].Unknown)
	}
	c.Unknown = bytes.Clone(r.Unknown)
	return &c
}

// Field numbers of a record and of the messages in it. A number is never used for anything else.
const (
	fieldState = 1 + iota
	fieldAttempt
	fieldNumber
	fieldWorker
	fieldData
	fieldParity
	fieldCellBytes
	fieldInline
	fieldPlacement
	fieldManifestLength
	fieldManifestCRC
	fieldManifestTarget
	fieldLastEntry
	fieldLength
	fieldLedgerMetadata
	fieldKey
	fieldStarted
	fieldCompleted
	fieldReleased
	fieldVerified
	fieldGarbage
	fieldStale
	fieldIdle
	fieldPasses
	fieldPassAt
)

// IsOn reports whether a shard, a copy of the manifest, or one of them that is on its way, is on a target.
func (r *Record) IsOn(target string) bool {
	for i := range r.Placement {
		p := &r.Placement[i]
		if p.Target == target && !p.Missing && !r.Inline || p.Move != nil && p.Move.Target == target {
			return true
		}
	}
	return contains(r.Manifest.Targets, target)
}

// EncodeRecord returns the stored form: a header line, then one length-delimited protobuf message.
func EncodeRecord(r *Record) ([]byte, error) {
	var b []byte
	b = putInt(b, fieldState, int64(r.State))
	b = putBytes(b, fieldAttempt, r.Attempt[:])
	b = putInt(b, fieldNumber, int64(r.Number))
	b = putBytes(b, fieldWorker, []byte(r.Worker))
	b = putInt(b, fieldData, int64(r.Geometry.Data))
	b = putInt(b, fieldParity, int64(r.Geometry.Parity))
	b = putInt(b, fieldCellBytes, int64(r.CellBytes))
	b = putBool(b, fieldInline, r.Inline)
	for i := range r.Placement {
		b = putBytes(b, fieldPlacement, r.Placement[i].encode())
	}
	b = putInt(b, fieldManifestLength, r.Manifest.Length)
	b = putInt(b, fieldManifestCRC, int64(r.Manifest.CRC32C))
	for _, t := range r.Manifest.Targets {
		b = putBytes(b, fieldManifestTarget, []byte(t))
	}
	b = putInt(b, fieldLastEntry, int64(r.LastEntry))
	b = putInt(b, fieldLength, r.Length)
	b = putBytes(b, fieldLedgerMetadata, r.LedgerMetadata)
	if r.Key != nil {
		b = putBytes(b, fieldKey, r.Key.encode())
	}
	b = putInt(b, fieldStarted, r.StartedAt)
	b = putInt(b, fieldCompleted, r.CompletedAt)
	b = putInt(b, fieldReleased, r.ReleasedAt)
	b = putInt(b, fieldVerified, r.VerifiedAt)
	for i := range r.Garbage {
		b = putBytes(b, fieldGarbage, r.Garbage[i].encode())
	}
	for i := range r.Stale {
		b = putBytes(b, fieldStale, r.Stale[i].encode())
	}
	b = putBool(b, fieldIdle, r.Idle)
	b = putInt(b, fieldPasses, int64(r.Passes))
	b = putInt(b, fieldPassAt, r.PassAt)
	b = append(b, r.Unknown...)
	out := append([]byte(recordHeader), "1\n"...)
	out = protowire.AppendVarint(out, uint64(len(b)))
	if len(out)+len(b) > RecordMax {
		return nil, fmt.Errorf("offload record of %d bytes, more than %d: the ledger has too many fragments to be offloaded; its copies stay on the bookies", len(out)+len(b), RecordMax)
	}
	return append(out, b...), nil
}

func (p *Placement) encode() []byte {
	b := putBytes(nil, 1, []byte(p.Target))
	b = putInt(b, 2, int64(p.Generation))
	b = putBool(b, 3, p.Missing)
	if p.Move != nil {
		b = putBytes(b, 4, p.Move.encode())
	}
	b = putBool(b, 5, p.Lost)
	return append(b, p.Unknown...)
}

func (m *Move) encode() []byte {
	b := putInt(putBytes(nil, 1, []byte(m.Target)), 2, int64(m.Generation))
	return append(b, m.Unknown...)
}

func (k *WrappedKey) encode() []byte {
	b := putBytes(nil, 1, []byte(k.KeyID))
	b = putBytes(b, 2, []byte(k.Algorithm))
	b = putBytes(b, 3, k.Key)
	return append(b, k.Unknown...)
}

func (g *Garbage) encode() []byte {
	b := putBytes(nil, 1, g.Attempt[:])
	for _, t := range g.Targets {
		b = putBytes(b, 2, []byte(t))
	}
	b = putInt(b, 3, g.Since)
	b = putInt(b, 4, int64(g.Passes))
	b = putInt(b, 5, g.PassAt)
	return append(b, g.Unknown...)
}

func (s *Stale) encode() []byte {
	b := putBytes(nil, 5, s.Attempt[:])
	b = putInt(b, 1, int64(s.Shard))
	b = putBytes(b, 2, []byte(s.Target))
	b = putInt(b, 3, int64(s.Generation))
	b = putInt(b, 4, s.Since)
	return append(b, s.Unknown...)
}

func putInt(b []byte, num protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	b = protowire.AppendTag(b, num, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(v)) //nolint:gosec // two's complement, as protobuf has it
}

func putBool(b []byte, num protowire.Number, v bool) []byte {
	if !v {
		return b
	}
	return putInt(b, num, 1)
}

func putBytes(b []byte, num protowire.Number, v []byte) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendBytes(b, v)
}

// DecodeRecord reads the stored form; key is where it came from, for errors.
func DecodeRecord(key string, value []byte) (*Record, error) {
	bad := func(off int, format string, args ...any) (*Record, error) {
		return nil, corrupt.Errorf(key, int64(off), "offload record", format, args...)
	}
	rest, ok := bytes.CutPrefix(value, []byte(recordHeader))
	digits, body, found := bytes.Cut(rest, []byte{'\n'})
	if !ok || !found || len(digits) > 9 || len(value) > RecordMax {
		return bad(0, "%d bytes without a header line", len(value))
	}
	version, err := strconv.Atoi(string(digits))
	if err != nil {
		return bad(len(recordHeader), "version %q", digits)
	}
	if version != 1 {
		return nil, fmt.Errorf("%w: offload record %s has version %d, this program reads 1; use the version that wrote it, or a newer one", ErrVersion, key, version)
	}
	n, size := protowire.ConsumeVarint(body)
	if size < 0 || n != uint64(len(body)-size) {
		return bad(len(value)-len(body), "message of %d bytes announced as %d", len(body), n)
	}
	r := &Record{}
	if err := protofield.Each(body[size:], r.field); err != nil {
		return bad(len(value)-len(body)+size, "%w", err)
	}
	if err := r.check(); err != nil {
		return bad(0, "%w", err)
	}
	return r, nil
}

// field takes one field of a record.
func (r *Record) field(f protofield.Field) (err error) {
	switch {
	case f.Is(fieldState):
		r.State = State(f.AtMost(math.MaxUint8))
	case f.IsBytes(fieldAttempt):
		r.Attempt, err = attemptID(f.Bytes)
	case f.Is(fieldNumber):
		r.Number = uint32(f.AtMost(math.MaxUint32)) //nolint:gosec // bounded
	case f.IsBytes(fieldWorker):
		r.Worker = string(f.Bytes)
	case f.Is(fieldData):
		r.Geometry.Data = int(f.AtMost(math.MaxUint8)) //nolint:gosec // bounded
	case f.Is(fieldParity):
		r.Geometry.Parity = int(f.AtMost(math.MaxUint8)) //nolint:gosec // bounded
	case f.Is(fieldCellBytes):
		r.CellBytes = int(f.AtMost(math.MaxInt32)) //nolint:gosec // bounded
	case f.Is(fieldInline):
		r.Inline = f.Varint != 0
	case f.IsBytes(fieldPlacement):
		var p Placement
		err = protofield.Each(f.Bytes, p.field)
		r.Placement = append(r.Placement, p)
	case f.Is(fieldManifestLength):
		r.Manifest.Length = f.Int64()
	case f.Is(fieldManifestCRC):
		r.Manifest.CRC32C = uint32(f.AtMost(math.MaxUint32)) //nolint:gosec // bounded
	case f.IsBytes(fieldManifestTarget):
		r.Manifest.Targets = append(r.Manifest.Targets, string(f.Bytes))
	case f.Is(fieldLastEntry):
		r.LastEntry = ledger.EntryID(f.Int64())
	case f.Is(fieldLength):
		r.Length = f.Int64()
	case f.IsBytes(fieldLedgerMetadata):
		r.LedgerMetadata = bytes.Clone(f.Bytes)
	case f.IsBytes(fieldKey):
		if r.Key == nil { // parts of one message add up
			r.Key = &WrappedKey{}
		}
		err = protofield.Each(f.Bytes, r.Key.field)
	case f.Is(fieldStarted):
		r.StartedAt = f.Int64()
	case f.Is(fieldCompleted):
		r.CompletedAt = f.Int64()
	case f.Is(fieldReleased):
		r.ReleasedAt = f.Int64()
	case f.Is(fieldVerified):
		r.VerifiedAt = f.Int64()
	case f.IsBytes(fieldGarbage):
		var g Garbage
		err = protofield.Each(f.Bytes, g.field)
		r.Garbage = append(r.Garbage, g)
	case f.IsBytes(fieldStale):
		var s Stale
		err = protofield.Each(f.Bytes, s.field)
		r.Stale = append(r.Stale, s)
	case f.Is(fieldIdle):
		r.Idle = f.Varint != 0
	case f.Is(fieldPasses):
		r.Passes = uint32(f.AtMost(math.MaxUint32)) //nolint:gosec // bounded
	case f.Is(fieldPassAt):
		r.PassAt = f.Int64()
	default:
		r.Unknown = append(r.Unknown, f.Raw...)
	}
	return err
}

func (p *Placement) field(f protofield.Field) (err error) {
	switch {
	case f.IsBytes(1):
		p.Target = string(f.Bytes)
	case f.Is(2):
		p.Generation = uint32(f.AtMost(math.MaxUint32)) //nolint:gosec // bounded
	case f.Is(3):
		p.Missing = f.Varint != 0
	case f.IsBytes(4):
		if p.Move == nil {
			p.Move = &Move{}
		}
		err = protofield.Each(f.Bytes, p.Move.field)
	case f.Is(5):
		p.Lost = f.Varint != 0
	default:
		p.Unknown = append(p.Unknown, f.Raw...)
	}
	return err
}

func (m *Move) field(f protofield.Field) error {
	switch {
	case f.IsBytes(1):
		m.Target = string(f.Bytes)
	case f.Is(2):
		m.Generation = uint32(f.AtMost(math.MaxUint32)) //nolint:gosec // bounded
	default:
		m.Unknown = append(m.Unknown, f.Raw...)
	}
	return nil
}

func (k *WrappedKey) field(f protofield.Field) error {
	switch {
	case f.IsBytes(1):
		k.KeyID = string(f.Bytes)
	case f.IsBytes(2):
		k.Algorithm = string(f.Bytes)
	case f.IsBytes(3):
		k.Key = bytes.Clone(f.Bytes)
	default:
		k.Unknown = append(k.Unknown, f.Raw...)
	}
	return nil
}

func (g *Garbage) field(f protofield.Field) (err error) {
	switch {
	case f.IsBytes(1):
		g.Attempt, err = attemptID(f.Bytes)
	case f.IsBytes(2):
		g.Targets = append(g.Targets, string(f.Bytes))
	case f.Is(3):
		g.Since = f.Int64()
	case f.Is(4):
		g.Passes = uint32(f.AtMost(math.MaxUint32)) //nolint:gosec // bounded
	case f.Is(5):
		g.PassAt = f.Int64()
	default:
		g.Unknown = append(g.Unknown, f.Raw...)
	}
	return err
}

func (s *Stale) field(f protofield.Field) (err error) {
	switch {
	case f.IsBytes(5):
		s.Attempt, err = attemptID(f.Bytes)
	case f.Is(1):
		s.Shard = int(f.AtMost(math.MaxUint8)) //nolint:gosec // bounded
	case f.IsBytes(2):
		s.Target = string(f.Bytes)
	case f.Is(3):
		s.Generation = uint32(f.AtMost(math.MaxUint32)) //nolint:gosec // bounded
	case f.Is(4):
		s.Since = f.Int64()
	default:
		s.Unknown = append(s.Unknown, f.Raw...)
	}
	return err
}

// check refuses what no correct worker writes.
func (r *Record) check() error {
	switch {
	case !r.State.Valid():
		return fmt.Errorf("state %d", r.State)
	case r.Attempt.Zero():
		return fmt.Errorf("no attempt")
	case r.LastEntry < 0 || r.Length < 0 || r.Manifest.Length < 0 || r.Manifest.Length > ManifestMax:
		return fmt.Errorf("last entry %d, length %d, manifest of %d bytes", r.LastEntry, r.Length, r.Manifest.Length)
	case len(r.Garbage) > GarbageMax || len(r.Stale) > staleMax || len(r.Worker) > workerMax || len(r.Manifest.Targets) > shardsMax:
		return fmt.Errorf("%d abandoned attempts, %d stale shards, %d copies of the manifest", len(r.Garbage), len(r.Stale), len(r.Manifest.Targets))
	case len(r.Placement) != r.Geometry.Shards():
		return fmt.Errorf("%d shards for %s", len(r.Placement), r.Geometry)
	case r.CellBytes < 0 || r.CellBytes > CellBytesMax:
		return fmt.Errorf("cells of %d bytes", r.CellBytes)
	}
	for i := range r.Garbage {
		if len(r.Garbage[i].Targets) > shardsMax {
			return fmt.Errorf("abandoned attempt with %d shards", len(r.Garbage[i].Targets))
		}
	}
	return r.Geometry.Validate()
}

func attemptID(b []byte) (a AttemptID, err error) {
	if len(b) != len(a) {
		return a, fmt.Errorf("attempt id of %d bytes", len(b))
	}
	return AttemptID(b), nil
}
