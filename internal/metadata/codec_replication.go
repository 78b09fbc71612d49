package metadata

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/binderylog/bindery/internal/protofield"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
)

// markReplicasMax bounds the bookies of one under-replication mark: no ledger names as many.
const markReplicasMax = 4096

// encodeMark returns the stored form of a mark: protobuf text, as Java writes it.
func encodeMark(m Mark) []byte {
	var b []byte
	for _, r := range m.Replicas {
		b = appendTextString(b, "", "replica", []byte(r))
	}
	if m.CTime != 0 {
		b = appendTextInt(b, "", "ctime", m.CTime)
	}
	return b
}

// decodeMark reads the stored form of a mark. Fields of newer versions are passed over: a mark is only a hint.
func decodeMark(key string, b []byte) (Mark, error) {
	fields, err := parseText(b)
	if err != nil {
		return Mark{}, corrupt.New(key, 0, "under-replication mark", err)
	}
	var m Mark
	for _, f := range fields {
		switch f.name {
		case "replica":
			v, err := f.bytes()
			if err != nil {
				return Mark{}, corrupt.New(key, int64(f.off), "under-replication mark", err)
			}
			if len(m.Replicas) == markReplicasMax {
				return Mark{}, corrupt.Errorf(key, int64(f.off), "under-replication mark", "more than %d bookies", markReplicasMax)
			}
			m.Replicas = append(m.Replicas, ledger.BookieID(v))
		case "ctime":
			if m.CTime, err = f.int(); err != nil {
				return Mark{}, corrupt.New(key, int64(f.off), "under-replication mark", err)
			}
		}
	}
	return m, nil
}

// encodeHolder returns the stored form of a lock's or a vote's owner.
func encodeHolder(name string) []byte { return appendTextString(nil, "", "bookieId", []byte(name)) }

// decodeHolder reads the owner of a lock, a vote, or Pulsar's leader key, which is a JSON string. What can not be read is
// returned as it is: the owner is for people only.
func decodeHolder(b []byte) string {
	var s string
	if json.Unmarshal(b, &s) == nil {
		return s
	}
	fields, err := parseText(b)
	if err == nil {
		for _, f := range fields {
			if v, err := f.bytes(); err == nil && f.name == "bookieId" {
				return string(v)
			}
		}
	}
	return strings.ToValidUTF8(string(b), "?")
}

// encodeCheckTime returns the stored form of the time of a check: one message with the milliseconds as field 1.
func encodeCheckTime(millis int64) []byte { return appendInt(nil, 1, millis) }

func decodeCheckTime(key string, b []byte) (millis int64, err error) {
	found := false
	err = protofield.Each(b, func(f protofield.Field) error {
		if f.Is(1) {
			millis, found = f.Int64(), true
		}
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("no time in %d bytes", len(b))
	}
	if err != nil {
		return 0, corrupt.New(key, 0, "time of a check", err)
	}
	return millis, nil
}

// parseMarkKey returns the ledger of a key below underreplication/ledgers or underreplication/locks: the digits behind
// "urL". ok is false for a parent, and for anything else.
func parseMarkKey(key string) (id ledger.ID, ok bool) {
	name := key[strings.LastIndexByte(key, '/')+1:]
	digits, found := strings.CutPrefix(name, "urL")
	if !found || !allDigits(digits) {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return ledger.ID(n), err == nil
}
