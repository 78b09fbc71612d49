package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/binderylog/bindery/internal/protofield"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
)

// Format versions of a ledger's record. A record keeps its version for life.
const (
	LedgerFormatV1 = 1 // lines of text; no digest, password, custom metadata or ack quorum of its own
	LedgerFormatV2 = 2 // protobuf text
	LedgerFormatV3 = 3 // one length-delimited protobuf message; new records
)

const ledgerHeader = "BookieMetadataFormatVersion\t"

// versionDigitsMax bounds the version number in the header, as Java does.
const versionDigitsMax = 9

// fragmentsMax bounds the fragments of one record: each costs at least 10 bytes of a value that ValueMax bounds.
const fragmentsMax = ValueMax / 10

// Field numbers of LedgerMetadataFormat.
const (
	fieldQuorum    = 1
	fieldEnsemble  = 2
	fieldLength    = 3
	fieldLastEntry = 4
	fieldState     = 5
	fieldSegment   = 6
	fieldDigest    = 7
	fieldPassword  = 8
	fieldAckQuorum = 9
	fieldCTime     = 10
	fieldCustom    = 11
	fieldCToken    = 12

	fieldSegmentMember = 1
	fieldSegmentFirst  = 2
	fieldCustomKey     = 1
	fieldCustomValue   = 2
)

// EncodeLedger returns the stored form of a record in its own format version. A record that breaks the rules of
// Metadata.Validate is refused: no reader, ours or Java, would take it.
func EncodeLedger(m *ledger.Metadata) ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	head := append([]byte(ledgerHeader), strconv.Itoa(m.FormatVersion)...)
	head = append(head, '\n')
	switch m.FormatVersion {
	case LedgerFormatV1:
		return appendLedgerV1(head, m)
	case LedgerFormatV2:
		return appendLedgerV2(head, m)
	case LedgerFormatV3:
		return protowire.AppendBytes(head, marshalLedger(m)), nil
	}
	return nil, fmt.Errorf("ledger record format %d: this version writes 1, 2 and 3", m.FormatVersion)
}

// DecodeLedger reads the stored form. key names the record in errors. Anything that is not a possible record is a
// *corrupt.Error.
func DecodeLedger(key string, b []byte) (*ledger.Metadata, error) {
	m, off, err := decodeLedger(b)
	if err == nil {
		err = m.Validate()
	}
	if err != nil {
		return nil, corrupt.New(key, int64(off), "ledger record", err)
	}
	return m, nil
}

func decodeLedger(b []byte) (m *ledger.Metadata, off int, err error) {
	rest, ok := bytes.CutPrefix(b, []byte(ledgerHeader))
	if !ok {
		return nil, 0, errors.New("does not start with a format version")
	}
	digits, body, ok := bytes.Cut(rest, []byte{'\n'})
	if !ok || len(digits) == 0 || len(digits) > versionDigitsMax || !allDigits(string(digits)) {
		return nil, len(ledgerHeader), errors.New("format version is not a number")
	}
	off = len(b) - len(body)
	switch v, _ := strconv.Atoi(string(digits)); v {
	case LedgerFormatV1:
		m, err = parseLedgerV1(body)
	case LedgerFormatV2:
		m, err = parseLedgerV2(body)
	case LedgerFormatV3:
		msg, n := protowire.ConsumeBytes(body)
		if n < 0 {
			return nil, off, fmt.Errorf("delimited message: %w", protowire.ParseError(n))
		}
		if n != len(body) {
			return nil, off + n, fmt.Errorf("%d bytes after the message", len(body)-n)
		}
		m, err = unmarshalLedger(msg)
	default:
		return nil, len(ledgerHeader), fmt.Errorf("format version %d: this version reads 1, 2 and 3", v)
	}
	return m, off, err
}

// marshalLedger writes the message of a version 3 record. Required fields are written also when they are zero.
func marshalLedger(m *ledger.Metadata) []byte {
	last, length := storedEnd(m)
	var b []byte
	b = appendInt(b, fieldQuorum, int64(m.WriteQuorum))
	b = appendInt(b, fieldEnsemble, int64(m.Ensemble))
	b = appendInt(b, fieldLength, length)
	b = appendInt(b, fieldLastEntry, last)
	b = appendInt(b, fieldState, int64(m.State))
	for _, f := range m.Fragments {
		var s []byte
		for _, bk := range f.Bookies {
			s = appendString(s, fieldSegmentMember, string(bk))
		}
		s = appendInt(s, fieldSegmentFirst, int64(f.First))
		b = appendBytes(b, fieldSegment, s)
	}
	if m.HasPassword {
		b = appendInt(b, fieldDigest, int64(m.Digest))
		b = appendBytes(b, fieldPassword, m.Password)
	}
	b = appendInt(b, fieldAckQuorum, int64(m.AckQuorum))
	if m.HasCTime {
		b = appendInt(b, fieldCTime, m.CTime)
	}
	for _, k := range slices.Sorted(maps.Keys(m.Custom)) {
		var e []byte
		e = appendString(e, fieldCustomKey, k)
		e = appendBytes(e, fieldCustomValue, m.Custom[k])
		b = appendBytes(b, fieldCustom, e)
	}
	if m.HasCToken {
		b = appendInt(b, fieldCToken, m.CToken)
	}
	return append(b, m.Unknown...)
}

// storedEnd returns last entry and length as the record has them: -1 and 0 unless it is closed.
func storedEnd(m *ledger.Metadata) (last, length int64) {
	if m.State != ledger.StateClosed {
		return int64(ledger.InvalidEntry), 0
	}
	return int64(m.LastEntry), m.Length
}

// raw is a record's message as it stands there, with presence.
type rawLedger struct {
	quorum, ensemble, ackQuorum, state, digest      int64
	length, last, ctime, ctoken                     int64
	hasQuorum, hasEnsemble, hasLength, hasState     bool
	hasLast, hasAck, hasDigest, hasCTime, hasCToken bool
	password                                        []byte
	hasPassword                                     bool
	fragments                                       []ledger.Fragment
	custom                                          map[string][]byte
	unknown                                         []byte
}

// metadata applies the reader's rules to the fields that were there.
func (r *rawLedger) metadata(version int) (*ledger.Metadata, error) {
	switch {
	case !r.hasQuorum, !r.hasEnsemble, !r.hasLength, !r.hasState:
		return nil, errors.New("a required field (quorumSize, ensembleSize, length, state) is missing")
	case r.hasDigest && (r.digest < 1 || r.digest > 4):
		return nil, fmt.Errorf("digest type %d", r.digest)
	case r.state < 1 || r.state > 3:
		return nil, fmt.Errorf("state %d", r.state)
	}
	if !r.hasAck {
		r.ackQuorum = r.quorum
	}
	for _, n := range []int64{r.quorum, r.ensemble, r.ackQuorum} {
		if n < 0 || n > math.MaxInt32 {
			return nil, fmt.Errorf("quorum size %d", n)
		}
	}
	m := &ledger.Metadata{
		FormatVersion: version,
		Ensemble:      int(r.ensemble), WriteQuorum: int(r.quorum), AckQuorum: int(r.ackQuorum),
		State: ledger.State(r.state), LastEntry: ledger.InvalidEntry,
		Fragments: r.fragments, Custom: r.custom,
		CTime: r.ctime, HasCTime: r.hasCTime, CToken: r.ctoken, HasCToken: r.hasCToken,
		Unknown: r.unknown,
	}
	if m.State == ledger.StateClosed {
		if !r.hasLast {
			return nil, errors.New("closed without a last entry")
		}
		m.LastEntry, m.Length = ledger.EntryID(r.last), r.length
	}
	if r.hasPassword {
		m.HasPassword, m.Password = true, r.password
		m.Digest = ledger.DigestCRC32 // the field's default
		if r.hasDigest {
			m.Digest = ledger.DigestType(r.digest)
		}
	}
	return m, nil
}

// unmarshalLedger reads the message of a version 3 record.
func unmarshalLedger(b []byte) (*ledger.Metadata, error) {
	var r rawLedger
	err := protofield.Each(b, func(f protofield.Field) error {
		var err error
		switch {
		case f.Type == protowire.VarintType && r.setInt(f.Num, f.Int64()):
		case f.IsBytes(fieldSegment):
			err = r.addSegment(f.Bytes)
		case f.IsBytes(fieldPassword):
			r.password, r.hasPassword = bytes.Clone(f.Bytes), true
		case f.IsBytes(fieldCustom):
			err = r.addCustom(f.Bytes)
		case f.Num >= fieldQuorum && f.Num <= fieldCToken:
			err = fmt.Errorf("field %d has wire type %d", f.Num, f.Type)
		default:
			r.unknown = append(r.unknown, f.Raw...)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return r.metadata(LedgerFormatV3)
}

// setInt sets a number field and reports whether there is one of that number. A repeated field's last value wins.
func (r *rawLedger) setInt(num protowire.Number, v int64) bool {
	switch num {
	case fieldQuorum:
		r.quorum, r.hasQuorum = v, true
	case fieldEnsemble:
		r.ensemble, r.hasEnsemble = v, true
	case fieldLength:
		r.length, r.hasLength = v, true
	case fieldLastEntry:
		r.last, r.hasLast = v, true
	case fieldState:
		r.state, r.hasState = v, true
	case fieldDigest:
		r.digest, r.hasDigest = v, true
	case fieldAckQuorum:
		r.ackQuorum, r.hasAck = v, true
	case fieldCTime:
		r.ctime, r.hasCTime = v, true
	case fieldCToken:
		r.ctoken, r.hasCToken = v, true
	default:
		return false
	}
	return true
}

func (r *rawLedger) addSegment(b []byte) error {
	var s ledger.Fragment
	first := false
	err := protofield.Each(b, func(f protofield.Field) error {
		switch {
		case f.IsBytes(fieldSegmentMember):
			return addMember(&s, f.Bytes)
		case f.Is(fieldSegmentFirst):
			s.First, first = ledger.EntryID(f.Int64()), true
		default:
			// Nothing could keep it through a rewrite, and dropping it would be a silent change.
			return fmt.Errorf("unknown field %d in a segment", f.Num)
		}
		return nil
	})
	if err == nil && !first {
		err = errors.New("a segment lacks firstEntryId")
	}
	if err != nil {
		return err
	}
	return r.addFragment(s)
}

func (r *rawLedger) addFragment(s ledger.Fragment) error {
	if len(r.fragments) >= fragmentsMax {
		return fmt.Errorf("more than %d segments", fragmentsMax)
	}
	r.fragments = append(r.fragments, s)
	return nil
}

func addMember(s *ledger.Fragment, id []byte) error {
	if len(s.Bookies) >= ledger.EnsembleMax {
		return fmt.Errorf("a segment with more than %d bookies", ledger.EnsembleMax)
	}
	if !utf8.Valid(id) {
		return errors.New("a bookie id is not UTF-8")
	}
	s.Bookies = append(s.Bookies, ledger.BookieID(id))
	return nil
}

func (r *rawLedger) addCustom(b []byte) error {
	var k string
	v := []byte{}
	err := protofield.Each(b, func(f protofield.Field) error {
		switch {
		case f.IsBytes(fieldCustomKey):
			if !utf8.Valid(f.Bytes) {
				return errors.New("a custom metadata key is not UTF-8")
			}
			k = string(f.Bytes)
		case f.IsBytes(fieldCustomValue):
			v = bytes.Clone(f.Bytes)
		default:
			return fmt.Errorf("unknown field %d in custom metadata", f.Num)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.putCustom(k, v)
}

func (r *rawLedger) putCustom(k string, v []byte) error {
	if _, dup := r.custom[k]; dup {
		return fmt.Errorf("custom metadata %q twice", k)
	}
	if r.custom == nil {
		r.custom = map[string][]byte{}
	}
	r.custom[k] = v
	return nil
}
