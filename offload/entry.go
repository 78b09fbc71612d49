package offload

import (
	"encoding/binary"
	"fmt"

	"github.com/binderylog/bindery/internal/digest"
	"github.com/binderylog/bindery/internal/ledger"
)

// EntryMax bounds an entry's payload; bookies take frames of 5 MiB. It leaves room in the smallest cell that is allowed.
const EntryMax = 5 << 20

// Entry is one entry with everything that its body on a bookie holds.
type Entry struct {
	ID      ledger.EntryID
	LAC     ledger.EntryID
	Length  int64  // payload bytes of the ledger up to and with this entry, as its writer counted them
	Digest  []byte // as stored
	Payload []byte
}

// ParseEntry takes apart a body as bookies keep it: header, digest of the ledger's type, payload. The slices alias body.
// The digest is not checked; whoever read the body has done so.
func ParseEntry(body []byte, typ ledger.DigestType) (Entry, error) {
	size, ok := digestSize(typ)
	if !ok || len(body) < digest.HeaderSize+size {
		return Entry{}, fmt.Errorf("entry body of %d bytes is shorter than header and %s digest", len(body), typ)
	}
	_, id, lac, length, err := digest.Header(body)
	if err != nil {
		return Entry{}, err
	}
	return Entry{
		ID: ledger.EntryID(id), LAC: ledger.EntryID(lac), Length: length,
		Digest: body[digest.HeaderSize : digest.HeaderSize+size], Payload: body[digest.HeaderSize+size:],
	}, nil
}

// AppendBody appends the body as a bookie would return it.
func (e *Entry) AppendBody(dst []byte, l ledger.ID) []byte {
	for _, v := range [...]int64{int64(l), int64(e.ID), int64(e.LAC), e.Length} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(v)) //nolint:gosec // two's complement, as on the wire
	}
	dst = append(dst, e.Digest...)
	return append(dst, e.Payload...)
}

// digestSize is the length of a digest in an entry's body.
func digestSize(t ledger.DigestType) (int, bool) {
	switch t {
	case ledger.DigestCRC32:
		return 8, true
	case ledger.DigestHMAC:
		return 20, true
	case ledger.DigestCRC32C:
		return 4, true
	case ledger.DigestDummy:
		return 0, true
	}
	return 0, false
}
