// Package digest seals and checks entry bodies the way BookKeeper clients do.
//
//	entry body         +-----------+----------+--------+-----------+------------+---------+
//	                   | ledger(8) | entry(8) | LAC(8) | length(8) | digest (m) | payload |
//	                   +-----------+----------+--------+-----------+------------+---------+
//	explicit-LAC body  +-----------+--------+------------+
//	                   | ledger(8) | LAC(8) | digest (m) |
//	                   +-----------+--------+------------+
//
// Integers are big-endian; length is the sum of all payloads of the ledger up to and with this entry. The digest covers
// everything in front of it and the payload behind it, as one stream.
//
//	type    m   stored form
//	CRC32   8   zlib's CRC-32, widened to 64 bits
//	HMAC    20  HMAC-SHA1 keyed with SHA-1("mac" + password)
//	CRC32C  4   Castagnoli
//	DUMMY   0   nothing
//
// Bookies know the ids and the LAC of a body (Header) and nothing else of it: clients alone make and check digests.
//
// Invariants: Open never returns a payload whose digest or ids do not fit; a body too short for its digest is a
// mismatch, not a panic. A Digest may be used by several goroutines; sealing and opening allocate nothing beyond dst.
//
// The package starts no goroutine.
package digest

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the protocol's key derivation and MAC
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"sync"

	"github.com/binderylog/bindery/internal/ledger"
)

// Sizes of the parts in front of the digest.
const (
	HeaderSize    = 32
	LACHeaderSize = 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Digest seals and checks the bodies of ledgers with one digest type and password.
type Digest struct {
	typ  ledger.DigestType
	size int
	macs *sync.Pool // of *macState; HMAC only
}

// macState is a reusable HMAC and the room for its sum.
type macState struct {
	h   hash.Hash
	sum [sha1.Size]byte
}

// Entry is what an entry body holds. Payload aliases the body.
type Entry struct {
	Ledger, Entry int64
	LAC, Length   int64
	Payload       []byte
}

// MismatchError says that bytes a bookie returned are not the entry that was asked for. The copy is bad; another
// bookie may have a good one.
type MismatchError struct {
	Ledger, Entry int64
	Why           string
}

// Error implements error.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("entry %d of ledger %d: %s; read another replica", e.Entry, e.Ledger, e.Why)
}

// New returns a Digest of type t. The password matters for HMAC only.
func New(t ledger.DigestType, password []byte) (*Digest, error) {
	d := &Digest{typ: t}
	switch t {
	case ledger.DigestCRC32:
		d.size = 8
	case ledger.DigestCRC32C:
		d.size = 4
	case ledger.DigestDummy:
	case ledger.DigestHMAC:
		d.size = sha1.Size
		key := derive("mac", password)
		d.macs = &sync.Pool{New: func() any { return &macState{h: hmac.New(sha1.New, key[:])} }}
	default:
		return nil, fmt.Errorf("digest: unknown type %d", t)
	}
	return d, nil
}

// MasterKey derives a ledger's master key from its password; it is the same for all digest types.
func MasterKey(password []byte) [sha1.Size]byte { return derive("ledger", password) }

func derive(purpose string, password []byte) [sha1.Size]byte {
	return sha1.Sum(append([]byte(purpose), password...)) //nolint:gosec // the protocol's derivation
}

// Type returns the digest's type.
func (d *Digest) Type() ledger.DigestType { return d.typ }

// Size returns the length in bytes of the digest in a body.
func (d *Digest) Size() int { return d.size }

// Overhead returns the number of bytes of an entry body in front of the payload.
func (d *Digest) Overhead() int { return HeaderSize + d.size }

// Seal appends the whole body of an entry to dst. The payload may come in several pieces.
func (d *Digest) Seal(dst []byte, ledgerID, entry, lac, length int64, payload ...[]byte) []byte {
	start := len(dst)
	dst = appendInt64(dst, ledgerID)
	dst = appendInt64(dst, entry)
	dst = appendInt64(dst, lac)
	dst = appendInt64(dst, length)
	dst = d.appendSum(dst, dst[start:], payload...)
	for _, p := range payload {
		dst = append(dst, p...)
	}
	return dst
}

// Open checks the body of an entry. With entry -1, a read of the last one, any entry id is taken.
func (d *Digest) Open(body []byte, ledgerID, entry int64) (Entry, error) {
	if len(body) < HeaderSize+d.size {
		return Entry{}, &MismatchError{ledgerID, entry, fmt.Sprintf("body of %d bytes is shorter than header and %s digest", len(body), d.typ)}
	}
	var buf [sha1.Size]byte
	payload := body[HeaderSize+d.size:]
	sum := d.appendSum(buf[:0], body[:HeaderSize], payload)
	if !hmac.Equal(sum, body[HeaderSize:HeaderSize+d.size]) {
		return Entry{}, &MismatchError{ledgerID, entry, d.typ.String() + " digest does not match"}
	}
	e := Entry{
		Ledger: int64At(body, 0), Entry: int64At(body, 8),
		LAC: int64At(body, 16), Length: int64At(body, 24), Payload: payload,
	}
	if e.Ledger != ledgerID || (entry != -1 && e.Entry != entry) {
		return Entry{}, &MismatchError{ledgerID, entry, fmt.Sprintf("body belongs to entry %d of ledger %d", e.Entry, e.Ledger)}
	}
	return e, nil
}

// SealLAC appends the body of an explicit LAC to dst.
func (d *Digest) SealLAC(dst []byte, ledgerID, lac int64) []byte {
	start := len(dst)
	dst = appendInt64(dst, ledgerID)
	dst = appendInt64(dst, lac)
	return d.appendSum(dst, dst[start:])
}

// OpenLAC checks the body of an explicit LAC and returns the LAC.
func (d *Digest) OpenLAC(body []byte, ledgerID int64) (int64, error) {
	if len(body) < LACHeaderSize+d.size {
		return 0, &MismatchError{ledgerID, -1, fmt.Sprintf("explicit LAC of %d bytes is shorter than header and %s digest", len(body), d.typ)}
	}
	var buf [sha1.Size]byte
	sum := d.appendSum(buf[:0], body[:LACHeaderSize])
	if !hmac.Equal(sum, body[LACHeaderSize:LACHeaderSize+d.size]) {
		return 0, &MismatchError{ledgerID, -1, d.typ.String() + " digest of the explicit LAC does not match"}
	}
	if id := int64At(body, 0); id != ledgerID {
		return 0, &MismatchError{ledgerID, -1, fmt.Sprintf("explicit LAC belongs to ledger %d", id)}
	}
	return int64At(body, 8), nil
}

// appendSum appends the digest of head and pieces to dst, which may share head's array.
func (d *Digest) appendSum(dst, head []byte, pieces ...[]byte) []byte {
	switch d.typ {
	case ledger.DigestCRC32:
		return binary.BigEndian.AppendUint64(dst, uint64(sum32(crc32.IEEETable, head, pieces)))
	case ledger.DigestCRC32C:
		return binary.BigEndian.AppendUint32(dst, sum32(castagnoli, head, pieces))
	case ledger.DigestHMAC:
		m := d.macs.Get().(*macState)
		m.h.Reset()
		m.h.Write(head)
		for _, p := range pieces {
			m.h.Write(p)
		}
		dst = append(dst, m.h.Sum(m.sum[:0])...)
		d.macs.Put(m)
	}
	return dst
}

func sum32(table *crc32.Table, head []byte, pieces [][]byte) uint32 {
	c := crc32.Update(0, table, head)
	for _, p := range pieces {
		c = crc32.Update(c, table, p)
	}
	return c
}

// Header reads the fixed fields of an entry body without checking its digest, as a bookie does.
func Header(body []byte) (ledgerID, entry, lac, length int64, err error) {
	if len(body) < HeaderSize {
		return 0, 0, 0, 0, fmt.Errorf("digest: entry body of %d bytes is shorter than its header of %d", len(body), HeaderSize)
	}
	return int64At(body, 0), int64At(body, 8), int64At(body, 16), int64At(body, 24), nil
}

func appendInt64(dst []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(v)) //nolint:gosec // two's complement on the wire
}

func int64At(b []byte, off int) int64 {
	return int64(binary.BigEndian.Uint64(b[off:])) //nolint:gosec // as above
}
