package metadata

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/binderylog/bindery/internal/ledger"
)

const (
	v1Closed     = "CLOSED"
	v1InRecovery = -102 // in place of the last entry
)

// appendLedgerV1 writes lines of text: write quorum, ensemble size, length, one line a fragment, and, unless the ledger is
// open, the last entry with the word CLOSED and no line feed.
func appendLedgerV1(b []byte, m *ledger.Metadata) ([]byte, error) {
	if m.AckQuorum != m.WriteQuorum || m.HasPassword || m.HasCTime || m.HasCToken || len(m.Custom) > 0 || len(m.Unknown) > 0 {
		return nil, errors.New("ledger record format 1 has no place for ack quorum, password, times, tokens or custom metadata")
	}
	last, length := storedEnd(m)
	for _, n := range []int64{int64(m.WriteQuorum), int64(m.Ensemble), length} {
		b = append(strconv.AppendInt(b, n, 10), '\n')
	}
	for _, f := range m.Fragments {
		b = strconv.AppendInt(b, int64(f.First), 10)
		for _, bk := range f.Bookies {
			if bk == v1Closed || strings.ContainsAny(string(bk), "\t\r\n") {
				return nil, fmt.Errorf("ledger record format 1 cannot hold the bookie id %q", string(bk))
			}
			b = append(append(b, '\t'), bk...)
		}
		b = append(b, '\n')
	}
	switch m.State {
	case ledger.StateClosed:
		b = strconv.AppendInt(b, last, 10)
	case ledger.StateInRecovery:
		b = strconv.AppendInt(b, v1InRecovery, 10)
	default:
		return b, nil
	}
	return append(append(b, '\t'), v1Closed...), nil
}

func parseLedgerV1(body []byte) (*ledger.Metadata, error) {
	lines := strings.Split(strings.TrimSuffix(string(body), "\n"), "\n")
	if len(lines) < 4 {
		return nil, fmt.Errorf("%d lines instead of 4 or more", len(lines))
	}
	var head [3]int64
	for i := range head {
		n, err := strconv.ParseInt(lines[i], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("line %d: %.40q is not a number", i+2, lines[i])
		}
		head[i] = n
	}
	r := rawLedger{
		quorum: head[0], ensemble: head[1], length: head[2], state: int64(ledger.StateOpen),
		hasQuorum: true, hasEnsemble: true, hasLength: true, hasState: true,
	}
	for i, line := range lines[3:] {
		parts := strings.Split(line, "\t")
		n, err := strconv.ParseInt(parts[0], 10, 64)
		if err != nil || len(parts) < 2 {
			return nil, fmt.Errorf("line %d: neither a fragment nor the end", i+5)
		}
		if parts[1] == v1Closed {
			if i != len(lines)-4 || len(parts) != 2 {
				return nil, fmt.Errorf("line %d: more follows the end", i+5)
			}
			r.state = int64(ledger.StateInRecovery)
			if n != v1InRecovery {
				r.state, r.last, r.hasLast = int64(ledger.StateClosed), n, true
			}
			break
		}
		f := ledger.Fragment{First: ledger.EntryID(n)}
		for _, bk := range parts[1:] {
			if err := addMember(&f, []byte(bk)); err != nil {
				return nil, fmt.Errorf("line %d: %w", i+5, err)
			}
		}
		if err := r.addFragment(f); err != nil {
			return nil, err
		}
	}
	return r.metadata(LedgerFormatV1)
}

// Names of the fields and enum values in text, in the order of their numbers.
var (
	stateNames  = map[ledger.State]string{ledger.StateOpen: "OPEN", ledger.StateInRecovery: "IN_RECOVERY", ledger.StateClosed: "CLOSED"}
	digestNames = map[ledger.DigestType]string{
		ledger.DigestCRC32: "CRC32", ledger.DigestHMAC: "HMAC", ledger.DigestCRC32C: "CRC32C", ledger.DigestDummy: "DUMMY",
	}
	ledgerNumbers = map[string]protowire.Number{
		"quorumSize": fieldQuorum, "ensembleSize": fieldEnsemble, "length": fieldLength, "lastEntryId": fieldLastEntry,
		"ackQuorumSize": fieldAckQuorum, "ctime": fieldCTime, "cToken": fieldCToken,
	}
)

// appendLedgerV2 writes protobuf text. The version's fields are frozen: a creation token is left out.
func appendLedgerV2(b []byte, m *ledger.Metadata) ([]byte, error) {
	if len(m.Unknown) > 0 {
		return nil, errors.New("ledger record format 2 has no place for unknown fields")
	}
	last, length := storedEnd(m)
	b = appendTextInt(b, "", "quorumSize", int64(m.WriteQuorum))
	b = appendTextInt(b, "", "ensembleSize", int64(m.Ensemble))
	b = appendTextInt(b, "", "length", length)
	b = appendTextInt(b, "", "lastEntryId", last)
	b = appendTextWord(b, "", "state", stateNames[m.State])
	for _, f := range m.Fragments {
		b = append(b, "segment {\n"...)
		for _, bk := range f.Bookies {
			b = appendTextString(b, "  ", "ensembleMember", []byte(bk))
		}
		b = appendTextInt(b, "  ", "firstEntryId", int64(f.First))
		b = append(b, "}\n"...)
	}
	if m.HasPassword {
		name, ok := digestNames[m.Digest]
		if !ok {
			return nil, fmt.Errorf("digest type %d", m.Digest)
		}
		b = appendTextWord(b, "", "digestType", name)
		b = appendTextString(b, "", "password", m.Password)
	}
	b = appendTextInt(b, "", "ackQuorumSize", int64(m.AckQuorum))
	if m.HasCTime {
		b = appendTextInt(b, "", "ctime", m.CTime)
	}
	for _, k := range slices.Sorted(maps.Keys(m.Custom)) {
		b = append(b, "customMetadata {\n"...)
		b = appendTextString(b, "  ", "key", []byte(k))
		b = appendTextString(b, "  ", "value", m.Custom[k])
		b = append(b, "}\n"...)
	}
	return b, nil
}

func parseLedgerV2(body []byte) (*ledger.Metadata, error) {
	fields, err := parseText(body)
	if err != nil {
		return nil, err
	}
	var r rawLedger
	for _, f := range fields {
		if err := r.setText(f); err != nil {
			return nil, err
		}
	}
	return r.metadata(LedgerFormatV2)
}

// setText sets one field of a text record. Unknown names are errors, as in Java: the version is frozen.
func (r *rawLedger) setText(f textValue) error {
	if num, ok := ledgerNumbers[f.name]; ok {
		n, err := f.int()
		if err != nil {
			return err
		}
		r.setInt(num, n)
		return nil
	}
	switch f.name {
	case "state":
		n, err := enumValue(f, stateNames)
		r.setInt(fieldState, n)
		return err
	case "digestType":
		n, err := enumValue(f, digestNames)
		r.setInt(fieldDigest, n)
		return err
	case "password":
		v, err := f.bytes()
		if v == nil {
			v = []byte{}
		}
		r.password, r.hasPassword = v, true
		return err
	case "segment":
		return r.setTextSegment(f)
	case "customMetadata":
		return r.setTextCustom(f)
	}
	return fmt.Errorf("unknown field %.40q", f.name)
}

func (r *rawLedger) setTextSegment(f textValue) error {
	if f.kind != textMessage {
		return errors.New("segment is not a message")
	}
	var s ledger.Fragment
	first := false
	for _, e := range f.msg {
		switch e.name {
		case "ensembleMember":
			v, err := e.bytes()
			if err != nil {
				return err
			}
			if err := addMember(&s, v); err != nil {
				return err
			}
		case "firstEntryId":
			n, err := e.int()
			if err != nil {
				return err
			}
			s.First, first = ledger.EntryID(n), true
		default:
			return fmt.Errorf("unknown field %.40q in a segment", e.name)
		}
	}
	if !first {
		return errors.New("a segment lacks firstEntryId")
	}
	return r.addFragment(s)
}

func (r *rawLedger) setTextCustom(f textValue) error {
	if f.kind != textMessage {
		return errors.New("customMetadata is not a message")
	}
	var k string
	v := []byte{}
	for _, e := range f.msg {
		s, err := e.bytes()
		if err != nil {
			return err
		}
		switch {
		case e.name == "key" && utf8.Valid(s):
			k = string(s)
		case e.name == "value" && s != nil:
			v = s
		case e.name != "value":
			return fmt.Errorf("field %.40q in custom metadata", e.name)
		}
	}
	return r.putCustom(k, v)
}

// enumValue returns the number of an enum field, given by name or number.
func enumValue[T ~uint8](f textValue, names map[T]string) (int64, error) {
	if f.kind == textWord {
		for n, name := range names {
			if name == string(f.str) {
				return int64(n), nil
			}
		}
		if n, err := f.int(); err == nil && n > 0 && n < 256 && names[T(n)] != "" {
			return n, nil
		}
	}
	return 0, fmt.Errorf("field %.40q: %.40q is not a value of it", f.name, f.str)
}
